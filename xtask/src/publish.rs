// SPDX-License-Identifier: GPL-2.0

//! Files and folders appear whole or not at all: made beside, then renamed.

use anyhow::Context as _;
use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Writes a file by rename. Leaves it alone, with its times, if it already says so.
/// Returns whether it changed.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let folder = path.parent().context("a file needs a folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, bytes)
        .with_context(|| format!("cannot write {}", path.display()))?;
    // A temporary file is private; what replaces a source file is not.
    let mode = fs::metadata(path).map_or(0o644, |old| {
        std::os::unix::fs::PermissionsExt::mode(&old.permissions())
    });
    file.as_file()
        .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    file.persist(path)
        .with_context(|| format!("cannot publish {}", path.display()))?;
    Ok(true)
}

/// Writes a value as JSON, by rename.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write(path, &text)?;
    Ok(())
}

/// Reads a JSON value; `None` if the file is missing, half or of another form.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Moves a complete folder to its place; whatever was there goes away.
pub fn folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(from, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_file_keeps_its_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert!(write(&path, b"one").unwrap());
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert!(!write(&path, b"one").unwrap());
        assert_eq!(
            std::fs::metadata(&path).unwrap().modified().unwrap(),
            before
        );
        assert!(write(&path, b"two").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn half_a_stamp_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stamp");
        write_json(&path, &vec![1, 2]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path), Some(vec![1, 2]));
        std::fs::write(&path, "[1, ").unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path), None);
    }
}
