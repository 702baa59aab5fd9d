// SPDX-License-Identifier: GPL-2.0

//! What is done with an image: everything a user would do, whatever comes back.

use crate::mount::Mount;
use crate::walk;
use anyhow::Result;
use rustix::fs::{
    FallocateFlags, IFlags, Mode, OFlags, SeekFrom, XattrFlags, chmod, fallocate, fsync, ftruncate,
    ioctl_getflags, ioctl_setflags, lgetxattr, link, llistxattr, mkdir, open, readlink,
    removexattr, rename, rmdir, seek, setxattr, statvfs, symlink, syncfs, unlink,
};
use rustix::io::{pread, pwrite};
use rustix::mount::MountFlags;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How much of a damaged tree is looked at: it may be endless.
const NAMES: usize = 300;
const DEPTH: usize = 8;

/// What could be done.
pub struct What {
    /// Whether the image could be mounted.
    pub mounted: bool,
}

/// Mounts the device, uses it, unmounts it. Only an unmount that fails is a
/// failure here.
pub fn all_of(device: &Path, fs: &str, random: &mut fastrand::Rng) -> Result<What> {
    let options = ["errors=continue", "errors=remount-ro"][random.usize(0..2)];
    let Ok(mount) = Mount::with(device, fs, "fuzz", MountFlags::empty(), options) else {
        // What cannot be written may still be read.
        if let Ok(mount) = Mount::with(device, fs, "fuzz", MountFlags::RDONLY, options) {
            look(mount.path(), fs);
            mount.close()?;
        }
        return Ok(What { mounted: false });
    };
    let mut paths = look(mount.path(), fs);
    random.shuffle(&mut paths);
    for path in paths.iter().take(40) {
        change(mount.path(), path, random);
    }
    for number in 0..10 {
        add(mount.path(), number);
    }
    if let Ok(root) = open(mount.path(), OFlags::RDONLY, Mode::empty()) {
        let _ = syncfs(root);
    }
    for path in paths.iter().skip(20) {
        let _ = unlink(path).or_else(|_| rmdir(path));
    }
    look(mount.path(), fs);
    mount.close()?;
    Ok(What { mounted: true })
}

/// Lists and reads what is there; the paths that were found.
fn look(root: &Path, fs: &str) -> Vec<PathBuf> {
    let _ = statvfs(root);
    let mut found = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let Ok(list) = walk::entries(&dir, 4096) else {
            continue;
        };
        for entry in list.into_iter().take(NAMES) {
            if entry.name == b"." || entry.name == b".." || found.len() >= NAMES {
                continue;
            }
            let name = std::ffi::OsStr::new(std::str::from_utf8(&entry.name).unwrap_or("odd"));
            let path = dir.join(name);
            if let Ok(meta) = std::fs::symlink_metadata(&path) {
                if meta.is_dir() && depth < DEPTH {
                    open.push((path.clone(), depth + 1));
                }
                if meta.is_file() {
                    // The C driver steps over holes block by block: for ever.
                    read(&path, fs == "rext2" || meta.len() < 1 << 30);
                }
                about(&path);
            }
            found.push(path);
        }
    }
    found
}

/// What can be asked of any kind of file; opening a pipe or a device would do
/// something else.
fn about(path: &Path) {
    let _ = readlink(path, Vec::new());
    let mut list = [0u8; 4096];
    if let Ok(length) = llistxattr(path, &mut list[..]) {
        let names = list[..length].split(|byte| *byte == 0);
        for name in names.filter(|name| !name.is_empty()) {
            let _ = lgetxattr(path, name, &mut [0u8; 4096][..]);
        }
    }
}

fn read(path: &Path, with_map: bool) {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return;
    };
    let mut buffer = vec![0; 64 << 10];
    for pos in [0, 60 << 10, 300 << 10, 5 << 20, 70 << 20, 1 << 40] {
        let _ = pread(&file, &mut buffer, pos);
    }
    let _ = seek(&file, SeekFrom::Hole(0));
    let _ = seek(&file, SeekFrom::Data(100 << 10));
    let _ = ioctl_getflags(&file);
    if with_map {
        let extents = fiemap::Fiemap::new(file.as_fd());
        let _ = extents.take(200).take_while(Result::is_ok).count();
    }
}

/// Changes what a path leads to.
fn change(root: &Path, path: &Path, random: &mut fastrand::Rng) {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return;
    };
    let _ = chmod(path, Mode::from(0o755));
    let flags = XattrFlags::empty();
    let _ = setxattr(path, "trusted.new", b"value", flags);
    let _ = setxattr(path, "user.large", &[1; 300], flags);
    let _ = removexattr(path, "trusted.one");
    let new = root.join(format!("renamed-{}", random.u32(0..20)));
    if meta.is_dir() {
        let _ = mkdir(path.join("sub"), Mode::from(0o755));
        let _ = open(
            path.join("new"),
            OFlags::CREATE | OFlags::RDWR,
            Mode::from(0o644),
        );
        let _ = unlink(path.join("new"));
    } else if meta.is_file() {
        write(path, random);
        let _ = link(path, root.join(format!("linked-{}", random.u32(0..20))));
    }
    if random.u8(0..3) == 0 {
        let _ = rename(path, new);
    }
}

fn write(path: &Path, random: &mut fastrand::Rng) {
    let Ok(file) = open(path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()) else {
        return;
    };
    let block = [3; 5000];
    for pos in [0, 10_000, 100 << 10, 400 << 10, 6 << 20, 71 << 20] {
        if random.bool() {
            let _ = pwrite(&file, &block, pos);
        }
    }
    if random.bool() {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&file, punch, 1000, 200_000);
    }
    let _ = ioctl_setflags(&file, IFlags::NODUMP);
    let _ = fsync(&file);
    let end = [0, 1, 5000, 50 << 10, 350 << 10, 8 << 20][random.usize(0..6)];
    let _ = ftruncate(&file, end);
}

/// Adds something of each kind.
fn add(root: &Path, number: u32) {
    let at = |name: &str| root.join(format!("{name}-{number}"));
    let _ = std::fs::write(at("file"), vec![number as u8; 20_000]);
    let _ = mkdir(at("dir"), Mode::from(0o755));
    let _ = std::fs::write(at("dir").join("file"), b"x");
    let _ = symlink("short", at("short"));
    let _ = symlink("l".repeat(200), at("long"));
    let _ = setxattr(at("file"), "trusted.a", b"b", XattrFlags::empty());
    let _ = rename(at("file"), at("dir").join("moved"));
}
