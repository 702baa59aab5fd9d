// SPDX-License-Identifier: GPL-2.0

//! Judges what a crash has left: e2fsck repairs it, rext2 mounts it, what was
//! promised is there, and the file system can be written again.

use super::model::{Broken, Found, Model, Seen};
use super::op::Mark;
use super::workload::{STILL, XATTR};
use crate::fs::env::tool;
use crate::fs::manifest::Manifest;
use crate::mount::Mount;
use crate::walk::{self, Aligned};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, lgetxattr, open};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much is written to a device at once.
const CHUNK: usize = 1 << 20;
/// e2fsck has repaired the file system, and found nothing that it cannot repair.
const REPAIRED: i32 = 1;
/// When e2fsck 1.47.0 has copied what two files claim, a block may be left that it
/// has marked as used and nobody uses; it finds that when it runs again.
const COPIED: &str = "Clone multiply-claimed blocks";
/// Operations that are told of a broken promise.
const HISTORY: usize = 24;

/// Writes an image to a device.
pub fn put(device: &Path, image: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = open(device, flags, Mode::empty());
    let file = File::from(file.context(format!("cannot open {}", device.display()))?);
    let mut buffer = Aligned::new(CHUNK);
    for (number, chunk) in image.chunks(CHUNK).enumerate() {
        let bytes = &mut buffer.bytes()[..chunk.len()];
        bytes.copy_from_slice(chunk);
        file.write_all_at(bytes, (number * CHUNK) as u64)
            .context("cannot write an image")?;
    }
    Ok(())
}

/// Lets e2fsck repair a file system; whether there was anything to do.
fn repair(device: &Path) -> Result<bool> {
    let (repaired, said) = repair_once(device)?;
    if said.contains(COPIED) {
        repair_once(device)?;
    }
    Ok(repaired)
}

fn repair_once(device: &Path) -> Result<(bool, String)> {
    let output = Command::new("/tools/e2fsck")
        .arg("-fy")
        .arg(device)
        .output()
        .context("cannot run e2fsck")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code();
    ensure!(
        matches!(code, Some(0 | REPAIRED)),
        "e2fsck -fy: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((code == Some(REPAIRED), said))
}

/// The tree that nobody touched, on a device that holds it as it was made.
pub fn still(device: &Path, fs: &str) -> Result<Manifest> {
    let mount = Mount::read_only(device, fs, "crash")?;
    let still = Manifest::of(&mount.join(STILL))?;
    mount.close()?;
    Ok(still)
}

/// What a crash has left.
pub struct Left {
    /// Whether there was anything to repair.
    pub repaired: bool,
    /// The promises that it does not keep.
    pub broken: Vec<Broken>,
}

/// Judges what is on a device.
pub fn judge(device: &Path, fs: &str, model: &Model, still: &Manifest) -> Result<Left> {
    let repaired = repair(device)?;
    let mount = Mount::with(device, fs, "crash", MountFlags::NOATIME, "")
        .context("cannot mount what e2fsck has repaired")?;
    let broken = model.broken(&seen(mount.path())?);
    let now = Manifest::of(&mount.join(STILL))?;
    still
        .same_as(&now)
        .context("the tree that nobody touched has changed")?;
    write_again(mount.path()).context("cannot write it again")?;
    mount.close()?;
    let place = device.to_string_lossy();
    tool("e2fsck", &["-f", "-n", &place]).context("after it was written again")?;
    Ok(Left { repaired, broken })
}

/// A broken promise, with the last operations that had to do with it.
pub fn told(broken: &Broken, marks: &[&Mark]) -> String {
    let history = &broken.history[broken.history.len().saturating_sub(HISTORY)..];
    let touched = match broken.touched {
        true => ", changed since",
        false => "",
    };
    let mut text = format!("{}{touched}", broken.text);
    for number in history {
        if let Some(mark) = marks.get(*number) {
            let ino = match mark.ino {
                0 => String::new(),
                ino => format!(": inode {ino}"),
            };
            text.push_str(&format!("\n    {} {}{ino}", mark.number, mark.op));
        }
    }
    text
}

/// Everything outside of the untouched tree.
fn seen(root: &Path) -> Result<Seen> {
    let mut seen = Seen::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        let list = walk::entries(&path, 32 << 10).context(format!("cannot list {folder:?}"))?;
        let mut names = std::collections::BTreeMap::new();
        for entry in list {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if name == "." || name == ".." || folder == Path::new("") && name == STILL {
                continue;
            }
            let inner = folder.join(&name);
            let path = root.join(&inner);
            let meta = fs::symlink_metadata(&path).context(format!("cannot stat {inner:?}"))?;
            names.insert(name, meta.ino());
            if meta.is_dir() {
                open.push(inner);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).context(format!("no target of {inner:?}"))?;
                let target = target.to_string_lossy().into_owned();
                seen.insert(meta.ino(), Found::Link(target));
            } else if meta.is_file() && !seen.contains_key(&meta.ino()) {
                let bytes = fs::read(&path).context(format!("cannot read {inner:?}"))?;
                seen.insert(meta.ino(), Found::File(bytes, xattr(&path)?));
            }
        }
        let ino = fs::metadata(&path)?.ino();
        seen.insert(ino, Found::Dir(names));
    }
    Ok(seen)
}

fn xattr(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; 1024];
    match lgetxattr(path, XATTR, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error).context(format!("no attribute of {}", path.display())),
    }
}

/// Changes something of every kind.
fn write_again(root: &Path) -> Result<()> {
    let folder = root.join("again");
    fs::create_dir(&folder)?;
    let bytes = vec![1; 50_000];
    for name in ["one", "two", "three"] {
        fs::write(folder.join(name), &bytes)?;
    }
    fs::rename(folder.join("one"), root.join("moved"))?;
    fs::remove_file(folder.join("two"))?;
    File::open(folder.join("three"))?.sync_all()?;
    ensure!(
        fs::read(root.join("moved"))? == bytes,
        "a new file holds something else"
    );
    Ok(())
}
