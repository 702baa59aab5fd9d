// SPDX-License-Identifier: GPL-2.0

//! Operations on names and attributes, in a directory with some hundred names.

use super::Costs;
use crate::kernel;
use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Timestamps, XattrFlags, chmodat, fgetxattr, fsetxattr,
    fstatfs, linkat, mkdirat, mknodat, open, openat, readlinkat_raw, renameat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Calls of a row in each repetition.
const CALLS: usize = 64;
/// An attribute, whose value is the number of the file.
const ATTRIBUTE: &str = "user.cost";

/// Names that begin with this text.
fn names(begin: &str) -> Result<Vec<CString>> {
    (0..CALLS)
        .map(|number| CString::new(format!("{begin}-{number}")).context("a name"))
        .collect()
}

/// Measures every row once.
pub fn measure(costs: &mut Costs, folder: &Path) -> Result<()> {
    let dir = &open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let (files, moved) = (names("file")?, names("moved")?);
    let mode = Mode::from_raw_mode(0o644);
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    costs.time("create", CALLS, |number| {
        openat(dir, &files[number], create, mode).map(drop)
    })?;
    costs.time("stat", CALLS, |number| {
        statat(dir, &files[number], AtFlags::empty()).map(drop)
    })?;
    costs.time("open and close", CALLS, |number| {
        openat(dir, &files[number], OFlags::RDONLY, Mode::empty()).map(drop)
    })?;
    let missing = names("missing")?;
    costs.time("stat, no such name", CALLS, |number| {
        match statat(dir, &missing[number], AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::EXIST),
        }
    })?;
    attributes(costs, dir, &files)?;
    costs.time("rename", CALLS, |number| {
        renameat(dir, &files[number], dir, &moved[number])
    })?;
    others(costs, dir, &moved)?;

    rustix::fs::syncfs(dir)?;
    kernel::drop_caches()?;
    costs.time("stat, cold", CALLS, |number| {
        statat(dir, &moved[number], AtFlags::empty()).map(drop)
    })?;
    costs.time("unlink", CALLS, |number| {
        unlinkat(dir, &moved[number], AtFlags::empty())
    })
}

/// Attributes of files.
fn attributes(costs: &mut Costs, dir: &OwnedFd, files: &[CString]) -> Result<()> {
    costs.time("chmod", CALLS, |number| {
        let mode = Mode::from_raw_mode(0o600);
        chmodat(dir, &files[number], mode, AtFlags::empty())
    })?;
    costs.time("utimes", CALLS, |number| {
        let time = rustix::fs::Timespec {
            tv_sec: 1_000_000_000,
            tv_nsec: 5,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(dir, &files[number], &times, AtFlags::empty())
    })?;
    let opened = files
        .iter()
        .map(|name| openat(dir, name, OFlags::RDWR, Mode::empty()))
        .collect::<Result<Vec<_>, _>>()?;
    costs.time("setxattr", CALLS, |number| {
        let value = (number as u64).to_le_bytes();
        fsetxattr(&opened[number], ATTRIBUTE, &value, XattrFlags::empty())
    })?;
    costs.time("getxattr", CALLS, |number| {
        let mut value = [0; 8];
        fgetxattr(&opened[number], ATTRIBUTE, &mut value).map(drop)
    })?;
    costs.time("statfs", CALLS, |_| fstatfs(dir).map(drop))
}

/// Names of other kinds, and all names of the directory.
fn others(costs: &mut Costs, dir: &OwnedFd, files: &[CString]) -> Result<()> {
    let (links, symlinks) = (names("link")?, names("symlink")?);
    let (dirs, fifos) = (names("dir")?, names("fifo")?);
    let mode = Mode::from_raw_mode(0o755);
    let none = AtFlags::empty();
    costs.time("link", CALLS, |number| {
        linkat(dir, &files[number], dir, &links[number], none)
    })?;
    costs.time("symlink", CALLS, |number| {
        symlinkat(&files[number], dir, &symlinks[number])
    })?;
    costs.time("mknod", CALLS, |number| {
        mknodat(dir, &fifos[number], FileType::Fifo, mode, 0)
    })?;
    costs.time("mkdir", CALLS, |number| mkdirat(dir, &dirs[number], mode))?;
    costs.time("readlink", CALLS, |number| {
        let mut buffer = [0; 256];
        readlinkat_raw(dir, &symlinks[number], &mut buffer[..]).map(drop)
    })?;
    // Five names for each number; the folder may have a few more, and no call is
    // counted for them.
    let again = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    costs.time_all("readdir, per name", 5 * CALLS, || {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&again, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            entry?;
            count += 1;
        }
        match count {
            0..320 => Err(Errno::IO),
            _ => Ok(()),
        }
    })?;
    costs.time("unlink, one of two names", CALLS, |number| {
        unlinkat(dir, &links[number], none)
    })?;
    costs.time("unlink, symlink", CALLS, |number| {
        unlinkat(dir, &symlinks[number], none)
    })?;
    costs.time("rmdir", CALLS, |number| {
        unlinkat(dir, &dirs[number], AtFlags::REMOVEDIR)
    })?;
    for name in &fifos {
        unlinkat(dir, name, none)?;
    }
    Ok(())
}
