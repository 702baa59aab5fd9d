// SPDX-License-Identifier: GPL-2.0

//! The tree of the image that `build-and-boot` reads: the checkout's own files,
//! thousands of small ones, and a sparse one of 5 GiB.

use crate::hash::Hasher;
use crate::sh::Cmd;
use anyhow::Context as _;
use fs_err as fs;
use rext2_tests::pattern;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SMALL_FILES: u64 = 5000;
const PER_FOLDER: u64 = 100;
const GIANT: u64 = 5 << 30;
/// Data at both ends of the giant and over the edges of 31 and 32 bits.
const GIANT_DATA: [u64; 4] = [0, (1 << 31) - 8192, (1 << 32) - 8192, GIANT - 16384];
/// Modification time of what we make: the tree is the same every time.
const TIME: Duration = Duration::from_secs(1_700_000_000);

/// The files that git tracks in the checkout, as paths in it.
pub fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = Cmd::git(root)
        .args(["ls-files", "-z"])
        .read_bytes()
        .context("the checkout is not a git work tree")?;
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let paths = names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    // A tracked file may be deleted in the work tree.
    Ok(paths
        .filter(|path| root.join(path).symlink_metadata().is_ok())
        .collect())
}

/// Adds the sources' names and contents to a key.
pub fn add(key: &mut Hasher, root: &Path, sources: &[PathBuf]) -> anyhow::Result<()> {
    for path in sources {
        let file = root.join(path);
        let content = match file.is_symlink() {
            true => fs::read_link(&file)?.into_os_string().into_encoded_bytes(),
            false => fs::read(&file)?,
        };
        key.part(path.as_os_str().as_bytes()).part(&content);
    }
    Ok(())
}

/// Makes the tree in the folder `tree`, which must not exist.
pub fn make(tree: &Path, root: &Path, sources: &[PathBuf]) -> anyhow::Result<()> {
    for path in sources {
        let (from, to) = (root.join(path), tree.join("sources").join(path));
        fs::create_dir_all(to.parent().context("a tracked file has a folder")?)?;
        if from.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)
                .with_context(|| format!("cannot make link {}", to.display()))?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    let mut buffer = [0; 16384];
    for number in 0..SMALL_FILES {
        let folder = tree.join(format!("small/{:02}", number / PER_FOLDER));
        if number % PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let mut file = fs::File::create(folder.join(format!("file-{number:04}")))?;
        // From nothing to 8 KiB, so that a file has 0 to 3 blocks.
        let size = (number * 37 % 8193) as usize;
        pattern::fill(number as u16, 0, &mut buffer[..size]);
        file.write_all(&buffer[..size])?;
        set_time(&file)?;
    }
    let mut giant = fs::File::create(tree.join("sparse-5g"))?;
    giant.set_len(GIANT)?;
    for pos in GIANT_DATA {
        pattern::fill(u16::MAX, pos, &mut buffer);
        giant.seek(SeekFrom::Start(pos))?;
        giant.write_all(&buffer)?;
    }
    set_time(&giant)
}

fn set_time(file: &fs::File) -> anyhow::Result<()> {
    file.file()
        .set_modified(SystemTime::UNIX_EPOCH + TIME)
        .with_context(|| format!("cannot set the time of {}", file.path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_what_was_promised() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", root.join("link")).unwrap();
        let tree = folder.path().join("tree");
        make(&tree, &root, &["file".into(), "link".into()]).unwrap();

        assert_eq!(std::fs::read(tree.join("sources/file")).unwrap(), b"text");
        assert!(tree.join("sources/link").is_symlink());
        assert_eq!(tree.join("sparse-5g").metadata().unwrap().len(), 5 << 30);
        let folders = std::fs::read_dir(tree.join("small")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        assert_eq!(files.count(), 5000);
    }

    #[test]
    fn a_changed_source_is_another_tree() {
        let folder = tempfile::tempdir().unwrap();
        let key = |text: &str| {
            std::fs::write(folder.path().join("file"), text).unwrap();
            let mut key = Hasher::default();
            add(&mut key, folder.path(), &["file".into()]).unwrap();
            key.hex()
        };
        assert_ne!(key("one"), key("two"));
        assert_eq!(key("one"), key("one"));
    }
}
