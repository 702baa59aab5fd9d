// SPDX-License-Identifier: GPL-2.0

//! Errors of the device (rows E1 and E3), on null_blk with bad sectors, and the
//! sudden end of a process (row E5).

use super::Row;
use super::device;
use super::env::{Env, PART, PLAIN, SMALL, Sample, UNCACHED, counter, same};
use super::fs::Data;
use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fsync};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The rows of null_blk.
pub const BAD_SECTORS: &[Row] = &[
    Row::new("E1-write-error", write_error).on(|fs| fs.data == Data::Place),
    Row::new("E3-read-error", read_error),
];

/// The rows of any device.
pub const ROWS: &[Row] = &[Row::new("E5-killed", killed)];

/// The sectors of the device under the file's first extent.
fn sectors(sample: &Sample) -> Result<(u64, u64)> {
    let extent = fiemap::Fiemap::new(sample.file.as_fd())
        .next()
        .context("the file has no extent")?
        .context("FIEMAP")?;
    let first = extent.fe_physical / 512;
    Ok((first, first + extent.fe_length / 512 - 1))
}

/// Runs `test` while the file's first extent is bad.
fn while_bad(env: &Env, sample: &Sample, test: impl FnOnce() -> Result<()>) -> Result<()> {
    let (first, last) = sectors(sample)?;
    device::set_bad(&env.device, true, first, last)?;
    let result = test();
    device::set_bad(&env.device, false, first, last)?;
    result
}

/// E1: the error of an uncached write reaches fsync, once for each descriptor,
/// and nothing hangs or stays dirty. The old blocks are still on the disk.
fn write_error(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let other = env.open("file", OFlags::RDWR)?;
    while_bad(env, &sample, || {
        same(
            "the length written",
            sample.write(2, 0, PART, UNCACHED),
            Ok(PART),
        )?;
        for (name, sample) in [("first", &sample), ("second", &other)] {
            let what = format!("fsync on the {name} descriptor");
            same(&what, fsync(&sample.file), Err(Errno::IO))?;
            same(&what, fsync(&sample.file), Ok(()))?;
        }
        let cached = sample.settle(0)?;
        println!("{} pages stay", cached.pages);
        same(
            "dirty and under writeback",
            (cached.dirty, cached.writeback),
            (0, 0),
        )
    })?;
    sample.put(3, 0..SMALL, PART, UNCACHED)?;
    sample.sync()?;
    sample.dropped(env, 0)?;
    sample.check(3, 0..SMALL, PART, PLAIN)
}

/// E3: an uncached read of a bad place fails, and succeeds when it is good
/// again.
fn read_error(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    while_bad(env, &sample, || {
        same("a read", sample.read(0, PART, UNCACHED), Err(Errno::IO))?;
        let cached = sample.settle(0)?;
        println!("{} pages stay", cached.pages);
        Ok(())
    })?;
    sample.check(1, 0..SMALL, PART, UNCACHED)?;
    same("pages in the cache", sample.settle(0)?.pages, 0)
}

/// E5: a process that is killed in the middle of it leaves nothing behind: all
/// memory that its writes took comes back.
fn killed(env: &mut Env) -> Result<()> {
    let cached = || counter("/proc/meminfo", "Cached:");
    let sample = env.create("file")?;
    sample.put(1, 0..SMALL, PART, UNCACHED)?;
    sample.chill()?;
    let before = cached()?;
    for round in 0..5 {
        let mut child = Command::new("/bin/rwf")
            .args(["write", "-s", "64M"])
            .arg(env.path().join("file"))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start rwf")?;
        sleep(Duration::from_millis(50 + 10 * round));
        child.kill().context("cannot kill rwf")?;
        child.wait().context("cannot wait for rwf")?;
    }
    sample.sync()?;
    sample.dropped(env, 0)?;
    if !env.drops_writes() {
        // What the journal held stays as ordinary pages, as many as were
        // written until the kill. Nothing is lost if they can be taken.
        sample.chill()?;
    }
    let after = cached()?;
    println!("{before} KiB cached before, {after} after");
    ensure!(
        after < before + 1024,
        "{} KiB more are cached than before",
        after - before
    );
    Ok(())
}
