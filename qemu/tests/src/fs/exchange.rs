// SPDX-License-Identifier: GPL-2.0

//! Trees that one side writes and the other reads: the driver under test, C ext2
//! and `mke2fs -d`.

use super::Test;
use super::check::{holds, put_bytes, same, zeros};
use super::env::{Env, tool};
use super::manifest::{Manifest, attributes};
use crate::mount::Mount;
use crate::pattern;
use crate::tree::{self, Content, Entry, Kind};
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, chmod, ftruncate, lsetxattr,
    makedev, mknodat, utimensat,
};
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

pub const TESTS: &[Test] = &[
    Test::new("tree-of-ours-read-by-c", of_ours_read_by_c)
        .make(ROOMY)
        .mib(40)
        .inodes()
        .limit(180),
    Test::new("tree-of-c-read-by-us", of_c_read_by_us)
        .make(ROOMY)
        .mib(40)
        .inodes()
        .limit(180),
    Test::new("tree-of-mke2fs-read-by-us", of_mke2fs_read_by_us)
        .make(ROOMY)
        .mib(40)
        .inodes()
        .limit(180),
    Test::new("tree-changed-by-turns", changed_by_turns)
        .make(ROOMY)
        .mib(40)
        .limit(180),
];

const ROOMY: &[&str] = &["-N", "2048", "-m", "0"];
/// Names in the largest directory.
const MANY: usize = 400;

/// The tree that suite `smoke` reads, without its largest directory.
fn entries(env: &Env) -> Vec<Entry> {
    let layout = tree::Layout {
        name: "written",
        block_size: env.layout.block,
        inode_size: env.layout.inode,
        revision: 1,
        many: MANY,
    };
    let mut entries = tree::entries(&layout);
    // tmpfs, from which mke2fs copies, reaches as far as this.
    entries.retain(|entry| entry.content().is_none_or(|file| file.size < 1 << 42));
    entries
}

/// Writes the tree below `root`.
fn plant(root: &Path, entries: &[Entry]) -> Result<()> {
    plant_plain(root, entries)?;
    for entry in entries.iter().filter(|entry| has_attributes(entry)) {
        let path = root.join(&entry.path);
        let (value, flags) = (format!("of {}", entry.path), XattrFlags::empty());
        lsetxattr(&path, "trusted.path", value.as_bytes(), flags).context("setxattr")?;
        lsetxattr(&path, "trusted.shared", b"the same for all", flags).context("setxattr")?;
    }
    Ok(())
}

fn has_attributes(entry: &Entry) -> bool {
    let is_open = matches!(entry.kind, Kind::File(_) | Kind::Directory);
    is_open && entry.path.len().is_multiple_of(3)
}

/// Writes the tree without extended attributes.
fn plant_plain(root: &Path, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        let path = root.join(&entry.path);
        make(root, &path, entry).context(format!("cannot make {}", entry.path))?;
    }
    // Owners last, because they clear bits; times, because names change them.
    for entry in entries.iter().rev() {
        let path = root.join(&entry.path);
        if matches!(entry.kind, Kind::Hard(_)) {
            continue;
        }
        lchown(&path, Some(entry.uid), Some(entry.gid)).context("chown")?;
        if !matches!(entry.kind, Kind::Symlink(_)) {
            chmod(&path, Mode::from(entry.mode)).context("chmod")?;
        }
        let time = Timespec {
            tv_sec: entry.mtime,
            tv_nsec: entry.nanos.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).context("utimensat")?;
    }
    Ok(())
}

fn make(root: &Path, path: &Path, entry: &Entry) -> Result<()> {
    let node = |kind, device| mknodat(CWD, path, kind, Mode::from(0o600), device).context("mknod");
    match &entry.kind {
        Kind::Directory => fs::create_dir(path).context("mkdir"),
        Kind::File(content) => write(&File::create_new(path)?, content),
        Kind::Hard(to) => fs::hard_link(root.join(to), path).context("link"),
        Kind::Symlink(target) => symlink(target, path).context("symlink"),
        Kind::Char(major, minor) => node(FileType::CharacterDevice, makedev(*major, *minor)),
        Kind::Block(major, minor) => node(FileType::BlockDevice, makedev(*major, *minor)),
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Socket => node(FileType::Socket, 0),
    }
}

fn write(file: &File, content: &Content) -> Result<()> {
    for data in &content.data {
        let mut bytes = vec![0; (data.end - data.start) as usize];
        pattern::fill(content.number, data.start, &mut bytes);
        put_bytes(file, data.start, &bytes)?;
    }
    ftruncate(file, content.size).context("truncate")
}

/// Fails unless the tree below `root` is the one that was planted.
fn check(root: &Path, entries: &[Entry]) -> Result<()> {
    check_plain(root, entries)?;
    check_attributes(root, entries)
}

fn check_plain(root: &Path, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        let path = root.join(&entry.path);
        look(&path, entry).context(entry.path.clone())?;
    }
    Ok(())
}

fn look(path: &Path, entry: &Entry) -> Result<()> {
    let meta = fs::symlink_metadata(path).context("it is not there")?;
    let device = |major, minor| same("device", meta.rdev(), makedev(major, minor));
    match &entry.kind {
        Kind::File(content) => {
            same("size", meta.len(), content.size)?;
            contents(&File::open(path)?, content)?;
        }
        Kind::Hard(_) => return same("more than one link", meta.nlink() > 1, true),
        Kind::Symlink(target) => same("target", fs::read_link(path)?, target.into())?,
        Kind::Char(major, minor) | Kind::Block(major, minor) => device(*major, *minor)?,
        Kind::Directory | Kind::Fifo | Kind::Socket => {}
    }
    same("owner", (meta.uid(), meta.gid()), (entry.uid, entry.gid))?;
    if !meta.is_symlink() {
        same("mode", meta.mode() & 0o7777, entry.mode)?;
        same("mtime", meta.mtime(), entry.mtime)?;
    }
    Ok(())
}

/// Fails unless the extended attributes are there as well.
fn check_attributes(root: &Path, entries: &[Entry]) -> Result<()> {
    for entry in entries.iter().filter(|entry| has_attributes(entry)) {
        let found = attributes(&root.join(&entry.path))?;
        let right = format!("of {}", entry.path).into_bytes();
        same(&entry.path, found.get("trusted.path"), Some(&right))?;
        same(&entry.path, found.len(), 2)?;
    }
    Ok(())
}

/// Data, and of each hole the ends.
fn contents(file: &File, content: &Content) -> Result<()> {
    const SAMPLE: u64 = 64 << 10;
    for (is_data, range) in content.parts(0..content.size) {
        if is_data {
            holds(file, content.number, range)?;
        } else {
            zeros(file, range.start..range.end.min(range.start + SAMPLE))?;
            zeros(
                file,
                range.start.max(range.end.saturating_sub(SAMPLE))..range.end,
            )?;
        }
    }
    Ok(())
}

fn of_ours_read_by_c(env: &mut Env) -> Result<()> {
    let entries = entries(env);
    plant(env.root(), &entries)?;
    check(env.root(), &entries).context("right after")?;
    env.again()?;
    check(env.root(), &entries).context("on disk")?;
    env.stop()?;
    let mount = Mount::read_only(&env.device.device, "ext2", "c")?;
    check(mount.path(), &entries).context("with C ext2")?;
    mount.close()?;
    env.start("")
}

fn of_c_read_by_us(env: &mut Env) -> Result<()> {
    let entries = entries(env);
    env.stop()?;
    let device = env.device.device.clone();
    let mount = Mount::with(&device, "ext2", "c", MountFlags::NOATIME, "").context("mount")?;
    plant(mount.path(), &entries)?;
    let theirs = Manifest::of(mount.path())?;
    mount.close()?;
    env.start("")?;
    check(env.root(), &entries)?;
    Manifest::of(env.root())?.same_as(&theirs)
}

fn of_mke2fs_read_by_us(env: &mut Env) -> Result<()> {
    let mut entries = entries(env);
    // tmpfs takes no more than memory, and mke2fs reads the holes of its files.
    entries.retain(|entry| entry.content().is_none_or(|file| file.size < 64 << 20));
    // This kernel's tmpfs has no extended attributes.
    let folder = Path::new("/tmp/planted");
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder)?;
    plant_plain(folder, &entries)?;
    env.stop()?;
    let device = env.device.device.to_string_lossy().into_owned();
    let (block, inode) = (env.layout.block.to_string(), env.layout.inode.to_string());
    let made = tool(
        "mke2fs",
        &[
            "-q",
            "-F",
            "-t",
            "ext2",
            "-E",
            "nodiscard",
            "-b",
            &block,
            "-I",
            &inode,
            "-N",
            "2048",
            "-d",
            "/tmp/planted",
            &device,
            "40M",
        ],
    );
    fs::remove_dir_all(folder)?;
    made?;
    env.start("")?;
    check_plain(env.root(), &entries)
}

/// Each removes and adds to what the other has left.
fn changed_by_turns(env: &mut Env) -> Result<()> {
    let entries = entries(env);
    let device = env.device.device.clone();
    for round in 0..4 {
        let name = format!("round-{round}");
        let old = format!("round-{}", round - 1);
        if round % 2 == 0 {
            turn(env.root(), &entries, &name, &old)?;
            env.stop()?;
            env.fsck()?;
        } else {
            let mount =
                Mount::with(&device, "ext2", "c", MountFlags::NOATIME, "").context("mount")?;
            turn(mount.path(), &entries, &name, &old)?;
            mount.close()?;
            env.fsck()?;
            env.start("")?;
        }
    }
    check(&env.at("round-3"), &entries)?;
    ensure!(
        !env.exists("round-2"),
        "the last tree but one is still there"
    );
    Ok(())
}

fn turn(root: &Path, entries: &[Entry], name: &str, old: &str) -> Result<()> {
    let old = root.join(old);
    if old.exists() {
        check(&old, entries).context("what the other has left")?;
        // Half of it goes before, the rest after.
        for entry in entries
            .iter()
            .filter(|entry| entry.content().is_some())
            .step_by(2)
        {
            fs::remove_file(old.join(&entry.path)).context(entry.path.clone())?;
        }
    }
    let new = root.join(name);
    fs::create_dir(&new)?;
    plant(&new, entries)?;
    if old.exists() {
        fs::remove_dir_all(&old).context("remove")?;
    }
    Ok(())
}
