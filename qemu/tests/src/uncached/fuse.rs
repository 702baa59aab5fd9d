// SPDX-License-Identifier: GPL-2.0

//! A FUSE file system with one file, which does not know the flag (row P2): its
//! server is a thread of the test.

use super::env::{PAGE, PLAIN, Sample};
use super::interface::refused_by;
use crate::mount::ROOT;
use crate::pattern;
use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request, spawn_mount,
};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The only file: its name, its number, its size.
const NAME: &str = "file";
const INODE: INodeNo = INodeNo(2);
const SIZE: u64 = 2 * PAGE;
/// How long the kernel may believe what it was told.
const VALID: Duration = Duration::from_secs(60);

/// The server.
struct OneFile;

fn attributes(ino: INodeNo) -> FileAttr {
    let (kind, perm, size) = match ino {
        INODE => (FileType::RegularFile, 0o644, SIZE),
        _ => (FileType::Directory, 0o755, 0),
    };
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PAGE as u32,
        flags: 0,
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&VALID, &attributes(INODE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &attributes(ino));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = SIZE.saturating_sub(offset).min(size.into());
        let mut bytes = vec![0; length as usize];
        pattern::fill(1, offset, &mut bytes);
        reply.data(&bytes);
    }
}

/// P2: refused, and what the cache holds of the file stays.
pub fn refused() -> Result<()> {
    let folder = Path::new(ROOT).join("fuse");
    std::fs::create_dir_all(&folder).context("cannot make a folder")?;
    let session = spawn_mount(OneFile, &folder, &Config::default());
    let session = session.context("cannot mount a FUSE file system")?;
    let result = refused_on(&folder.join(NAME));
    let end = session.umount_and_join();
    result?;
    end.context("the server failed")
}

fn refused_on(path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(path);
    let file = file.context(format!("cannot open {}", path.display()))?;
    let sample = Sample { file };
    let read = || sample.check(1, 0..SIZE, PAGE as usize, PLAIN);
    read()?;
    refused_by(&sample, true)?;
    read()
}
