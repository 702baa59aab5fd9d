// SPDX-License-Identifier: GPL-2.0

//! Operations on the content of a file.

use super::Costs;
use crate::walk::Aligned;
use anyhow::{Context, Result};
use rustix::fs::{
    Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, fsync, ftruncate, open, unlink,
};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Calls of a row in each repetition.
const CALLS: usize = 32;
/// Sizes of reads and writes.
const SMALL: usize = 4 << 10;
/// The bigger one.
pub const LARGE: usize = 64 << 10;

/// Measures every row once.
pub fn measure(costs: &mut Costs, folder: &Path, buffer: &mut Aligned) -> Result<()> {
    let path = folder.join("file");
    cached(costs, &path, buffer.bytes())?;
    direct(costs, &path, buffer)?;
    let file = open_file(&path, OFlags::empty())?;
    costs.time_all("truncate, 2 MiB", 1, || ftruncate(&file, 0))?;
    for number in 0..CALLS {
        whole(pwrite(&file, buffer.bytes(), place(number, LARGE)), LARGE).context("write")?;
    }
    fsync(&file).context("fsync")?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    costs.time("punch a hole of 64 KiB", CALLS / 2, |number| {
        fallocate(&file, hole, place(2 * number, LARGE), LARGE as u64)
    })?;
    unlink(&path).context("unlink")?;
    drop(file);

    let file = open_file(&path, OFlags::DIRECT)?;
    costs.time("direct append 64 KiB", CALLS, |number| {
        whole(pwrite(&file, buffer.bytes(), place(number, LARGE)), LARGE)
    })?;
    unlink(&path).context("unlink")?;
    sync(costs, folder)
}

/// Through the page cache.
fn cached(costs: &mut Costs, path: &Path, buffer: &mut [u8]) -> Result<()> {
    let file = open_file(path, OFlags::empty())?;
    costs.time("append 64 KiB", CALLS, |number| {
        whole(pwrite(&file, buffer, place(number, LARGE)), LARGE)
    })?;
    costs.time_all("write back 64 KiB", CALLS, || fsync(&file))?;
    // Dirty, so that each call finds what the one before has left.
    for number in 0..CALLS {
        whole(pwrite(&file, buffer, place(number, LARGE)), LARGE)?;
    }
    costs.time("overwrite 64 KiB, cached", CALLS, |number| {
        whole(pwrite(&file, buffer, place(number, LARGE)), LARGE)
    })?;
    costs.time("overwrite 4 KiB, cached", CALLS, |number| {
        whole(pwrite(&file, &buffer[..SMALL], place(number, SMALL)), SMALL)
    })?;
    fsync(&file)?;
    costs.time("read 64 KiB, cached", CALLS, |number| {
        whole(pread(&file, &mut *buffer, place(number, LARGE)), LARGE)
    })?;
    costs.time("read 4 KiB, cached", CALLS, |number| {
        whole(
            pread(&file, &mut buffer[..SMALL], place(number, SMALL)),
            SMALL,
        )
    })?;
    forget(&file)?;
    costs.time("read 64 KiB, cold", CALLS, |number| {
        whole(pread(&file, &mut *buffer, place(number, LARGE)), LARGE)
    })?;
    forget(&file)
}

/// Past the page cache.
fn direct(costs: &mut Costs, path: &Path, buffer: &mut Aligned) -> Result<()> {
    let file = open_file(path, OFlags::DIRECT)?;
    for (name, size) in [("direct read 4 KiB", SMALL), ("direct read 64 KiB", LARGE)] {
        costs.time(name, CALLS, |number| {
            whole(
                pread(&file, &mut buffer.bytes()[..size], place(number, size)),
                size,
            )
        })?;
    }
    for (name, size) in [
        ("direct write 4 KiB", SMALL),
        ("direct write 64 KiB", LARGE),
    ] {
        costs.time(name, CALLS, |number| {
            whole(
                pwrite(&file, &buffer.bytes()[..size], place(number, size)),
                size,
            )
        })?;
    }
    Ok(())
}

/// What it takes to have a new small file on the device.
fn sync(costs: &mut Costs, folder: &Path) -> Result<()> {
    let content = [1; SMALL];
    let paths: Vec<_> = (0..CALLS)
        .map(|number| folder.join(number.to_string()))
        .collect();
    let files = paths
        .iter()
        .map(|path| open_file(path, OFlags::empty()))
        .collect::<Result<Vec<_>>>()?;
    for file in &files {
        whole(pwrite(file, &content, 0), SMALL)?;
    }
    costs.time("fsync, new file of 4 KiB", CALLS, |number| {
        fsync(&files[number])
    })?;
    drop(files);
    costs.time("unlink, file of 4 KiB", CALLS, |number| {
        unlink(&paths[number])
    })
}

fn open_file(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CREATE;
    open(path, flags, Mode::from_raw_mode(0o644)).context(format!("cannot open {}", path.display()))
}

/// Leaves nothing of the file in the page cache.
fn forget(file: &OwnedFd) -> Result<()> {
    fsync(file)?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

fn place(number: usize, size: usize) -> u64 {
    (number * size) as u64
}

/// All of it was read or written.
fn whole(done: Result<usize, Errno>, size: usize) -> Result<(), Errno> {
    match done? {
        length if length == size => Ok(()),
        _ => Err(Errno::IO),
    }
}
