// SPDX-License-Identifier: GPL-2.0

//! Writes and the file system's blocks (rows W12 to W24): unwritten and shared
//! ones, small ones, none left; and what happens around a write.

use super::Row;
use super::device;
use super::env::{Env, PAGE, PART, PLAIN, SMALL, Sample, UNCACHED, same};
use super::fs::{Data, Fallocate, Fs};
use crate::pattern;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{
    FallocateFlags, IFlags, OFlags, fallocate, fstat, fstatvfs, ftruncate, ioctl_ficlone,
    ioctl_getflags, ioctl_setflags, syncfs,
};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mount::{MountFlags, mount_remount};
use std::process::Command;

/// The rows for every device.
pub const ROWS: &[Row] = &[
    Row::new("W12-read-back", read_back),
    Row::new("W13-scattered", scattered),
    Row::new("W14-inline-data", inline_data).on(|fs| fs.inline),
    Row::new("W15-remount", remount),
    Row::new("W15-dioread_lock", dioread_lock).on(|fs| fs.name == "ext4-4k"),
    Row::new("W16-reflink", reflink).on(|fs| fs.reflink),
    Row::new("W17-unwritten", unwritten).on(preallocates),
    Row::new("W21-unmount", unmount).limit(600),
    Row::new("W23-freeze", freeze),
    Row::new("W23-remount-ro", read_only),
    Row::new("W24-kick-range", kick_range).on(|fs| fs.data == Data::Place),
];

/// The rows for which one device is enough.
pub const ONCE: &[Row] = &[
    Row::new("W18-no-space", no_space),
    Row::new("W20-immutable", immutable),
    Row::new("W20-append-only", append_only),
    Row::new("W20-swap-file", swap_file),
    Row::new("W4-flushes", flushes),
];

fn preallocates(fs: &Fs) -> bool {
    matches!(fs.fallocate, Fallocate::Unwritten | Fallocate::All)
}

/// W12: a plain read right behind the write sees the new data, and what it has
/// read stays, also where it meets the end of writeback.
fn read_back(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    for pos in (0..SMALL).step_by(PART) {
        sample.put(2, pos..pos + PART as u64, PART, UNCACHED)?;
        sample.check(2, pos..pos + PART as u64, PART, PLAIN)?;
    }
    sample.sync()?;
    let pages = SMALL / PAGE;
    same("pages in the cache", sample.settle(pages)?.pages, pages)?;
    sample.chill()?;
    sample.check(2, 0..SMALL, PART, PLAIN)
}

/// W13: short writes here and there, to blocks and into holes.
fn scattered(env: &mut Env) -> Result<()> {
    let mut random = env.random()?;
    for holes in [false, true] {
        let sample = match holes {
            false => env.cold(SMALL)?,
            true => env.create("file")?,
        };
        // Its end does not move: that is row W7b.
        ftruncate(&sample.file, SMALL).context("cannot truncate")?;
        let mut right = vec![0; SMALL as usize];
        if !holes {
            pattern::fill(1, 0, &mut right);
        }
        for _ in 0..100 {
            let pos = random.usize(0..SMALL as usize - 100);
            pattern::fill(2, pos as u64, &mut right[pos..pos + 100]);
            same(
                "the length written",
                sample.write(2, pos as u64, 100, UNCACHED),
                Ok(100),
            )?;
        }
        sample.sync()?;
        sample
            .dropped(env, 0)
            .context(format!("into holes: {holes}"))?;
        sample.chill()?;
        let got = sample
            .read(0, SMALL as usize, PLAIN)
            .context("cannot read")?;
        ensure!(got == right, "into holes: {holes}: other data came back");
    }
    Ok(())
}

/// W14: data in the inode. The folio is cleaned without writeback, so it may
/// stay until the next uncached read.
fn inline_data(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    sample.put(1, 0..50, 50, UNCACHED)?;
    sample.sync()?;
    sample.dropped(env, 1)?;
    sample.check(1, 0..50, 50, UNCACHED)?;
    same("pages after an uncached read", sample.cached()?.pages, 0)?;
    // Out of the inode into a block, the old part included.
    sample.put(1, 50..3000, 2950, UNCACHED)?;
    sample.sync()?;
    sample.dropped(env, 0)?;
    sample.check(1, 0..3000, 3000, PLAIN)
}

/// W15: all of it is on disk.
fn remount(env: &mut Env) -> Result<()> {
    write_all(env)?;
    env.remount(env.fs.options)?;
    check_all(env)
}

/// W15: without dioread_nolock, ext4 writes to blocks that are not unwritten:
/// no work is left for the end of a write.
fn dioread_lock(env: &mut Env) -> Result<()> {
    env.remount("dioread_lock")?;
    write_all(env)?;
    env.remount(env.fs.options)?;
    check_all(env)
}

fn write_all(env: &Env) -> Result<()> {
    for (id, part) in [(1, PART), (2, 1000)] {
        let sample = env.create(&format!("file{id}"))?;
        sample.put(id, 0..SMALL, part, UNCACHED)?;
        sample.sync()?;
        sample.dropped(env, 0)?;
        sample.put(id + 2, PART as u64..4 * PART as u64, part, UNCACHED)?;
    }
    Ok(())
}

fn check_all(env: &Env) -> Result<()> {
    let (start, end) = (PART as u64, 4 * PART as u64);
    for id in [1, 2] {
        let sample = env.open(&format!("file{id}"), OFlags::RDONLY)?;
        sample.check(id, 0..start, PART, PLAIN)?;
        sample.check(id + 2, start..end, PART, PLAIN)?;
        sample.check(id, end..SMALL, PART, PLAIN)?;
    }
    Ok(())
}

/// W16: a write to shared blocks makes new ones; the other file keeps its data.
fn reflink(env: &mut Env) -> Result<()> {
    let original = env.cold(SMALL)?;
    let copy = env.create("copy")?;
    ioctl_ficlone(&copy.file, &original.file).context("cannot share blocks")?;
    copy.put(2, 0..SMALL / 2, PART, UNCACHED)?;
    copy.sync()?;
    copy.dropped(env, 0)?;
    original.check(1, 0..SMALL, PART, PLAIN)?;
    copy.check(2, 0..SMALL / 2, PART, PLAIN)?;
    copy.check(1, SMALL / 2..SMALL, PART, PLAIN)
}

/// W17: unwritten blocks become written ones, so that the data is still there
/// when it is read from disk.
fn unwritten(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    fallocate(&sample.file, FallocateFlags::empty(), 0, SMALL).context("cannot allocate")?;
    sample.sync()?;
    for pos in (0..SMALL).step_by(PART) {
        sample.put(1, pos + 5000..pos + 15_000, 10_000, UNCACHED)?;
    }
    sample.sync()?;
    sample.dropped(env, 0)?;
    sample.chill()?;
    for pos in (0..SMALL).step_by(PART) {
        let bytes = sample.read(pos, PART, PLAIN).context("cannot read")?;
        pattern::check_hole(pos, &bytes[..5000])?;
        pattern::check(1, pos + 5000, &bytes[5000..15_000])?;
        pattern::check_hole(pos + 15_000, &bytes[15_000..])?;
    }
    Ok(())
}

/// W18: a full file system takes what fits, says so, and has nothing dirty
/// left for the rest.
fn no_space(env: &mut Env) -> Result<()> {
    let filler = env.create("filler")?;
    let mut step = 8 << 20;
    let mut pos = 0;
    // Down to less than the write needs: writes of ever smaller parts.
    while step >= PART {
        let free = fstatvfs(&filler.file).context("cannot ask for space")?;
        if free.f_bavail * free.f_frsize < (SMALL / 2) + step as u64 {
            step /= 2;
            continue;
        }
        match fill(env, &filler, pos, step) {
            Ok(()) => pos += step as u64,
            Err(Errno::NOSPC) => step /= 2,
            Err(error) => bail!("cannot fill the file system: {error}"),
        }
    }
    filler.sync()?;
    let sample = env.create("file")?;
    let mut written = 0;
    let error = loop {
        match sample.write(1, written, PART, UNCACHED) {
            Ok(0) => bail!("nothing written, and no error"),
            Ok(length) => written += length as u64,
            Err(error) => break error,
        }
        ensure!(written <= 16 * SMALL, "the file system is not full");
    };
    same("the error", error, Errno::NOSPC)?;
    println!("{written} bytes written");
    sample.sync()?;
    let stat = fstat(&sample.file).context("cannot stat")?;
    same("the size", stat.st_size as u64, written)?;
    let cached = sample.settle(0)?;
    same(
        "dirty and under writeback",
        (cached.dirty, cached.writeback),
        (0, 0),
    )?;
    sample.check(1, 0..written, PART, PLAIN)
}

fn fill(env: &Env, filler: &Sample, pos: u64, step: usize) -> Result<(), Errno> {
    if preallocates(env.fs) {
        return fallocate(&filler.file, FallocateFlags::empty(), pos, step as u64);
    }
    let mut done = 0;
    while done < step {
        done += filler.write(9, pos + done as u64, step - done, UNCACHED)?;
    }
    Ok(())
}

/// W20: who may not write gets the same error as without the flag.
fn immutable(env: &mut Env) -> Result<()> {
    let sample = env.cold(PAGE)?;
    let flags = ioctl_getflags(&sample.file).context("cannot get flags")?;
    ioctl_setflags(&sample.file, flags | IFlags::IMMUTABLE).context("cannot set flags")?;
    let plain = sample.write(2, 0, 100, PLAIN);
    let ours = sample.write(2, 0, 100, UNCACHED);
    let read = sample.read(0, PAGE as usize, UNCACHED);
    ioctl_setflags(&sample.file, flags).context("cannot reset flags")?;
    println!("plain {plain:?}");
    // Not every driver asks when the file is open already.
    same("a write", ours, plain)?;
    let bytes = read.context("cannot read")?;
    same("the length read", bytes.len(), PAGE as usize)?;
    // A plain write that was let through keeps the page.
    let most = u64::from(plain.is_ok());
    same("pages in the cache", sample.settle(most)?.pages, most)
}

/// W20: a file that may only grow does so by uncached writes, too.
fn append_only(env: &mut Env) -> Result<()> {
    const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);
    let sample = env.cold(PAGE)?;
    let flags = ioctl_getflags(&sample.file).context("cannot get flags")?;
    ioctl_setflags(&sample.file, flags | IFlags::APPEND).context("cannot set flags")?;
    let tried = || -> Result<()> {
        let refused = env.open("file", OFlags::RDWR).is_err();
        ensure!(refused, "it can be opened for more than appending");
        let writer = env.open("file", OFlags::RDWR | OFlags::APPEND)?;
        for flags in [NOAPPEND, NOAPPEND | UNCACHED] {
            let got = writer.write(2, 0, 100, flags);
            same("a write in place", got, Err(Errno::PERM))?;
        }
        // Wherever it is sent: the data goes to the end.
        let mut bytes = [0; 100];
        pattern::fill(1, PAGE, &mut bytes);
        let got = super::write_at(&writer.file, 0, &bytes, UNCACHED);
        same("the length written", got, Ok(100))?;
        writer.sync()?;
        writer.dropped(env, 1)
    };
    let result = tried();
    ioctl_setflags(&sample.file, flags).context("cannot reset flags")?;
    result?;
    let size = fstat(&sample.file).context("cannot stat")?.st_size as u64;
    same("the size", size, PAGE + 100)?;
    sample.check(1, 0..PAGE + 100, PART, PLAIN)
}

/// W20: so is a file that memory is swapped to left alone.
fn swap_file(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let path = env.path().join("file");
    let run = |program: &str| -> Result<bool> {
        let mut command = Command::new(format!("/bin/{program}"));
        let output = command.arg(&path).output();
        let output = output.context(format!("cannot run {program}"))?;
        Ok(output.status.success())
    };
    ensure!(run("mkswap")?, "mkswap failed");
    sample.chill()?;
    let on = run("swapon")?;
    let plain = sample.write(2, PAGE, 100, PLAIN);
    let ours = sample.write(2, PAGE, 100, UNCACHED);
    let read = sample.read(0, PART, UNCACHED);
    if on {
        ensure!(run("swapoff")?, "swapoff failed");
        same("a plain write", plain, Err(Errno::TXTBSY))?;
    }
    println!("swap file: {on}; a plain write {plain:?}");
    same("a write", ours, plain)?;
    let bytes = read.context("cannot read")?;
    same("the length read", bytes.len(), PART)
}

/// W4: a synchronous uncached write reaches the device as often as a plain one:
/// writeback that is waited for is not started a second time.
fn flushes(env: &mut Env) -> Result<()> {
    let mut counts = Vec::new();
    for flags in [PLAIN, UNCACHED] {
        let sample = env.cold(SMALL)?;
        syncfs(&sample.file).context("syncfs")?;
        let (writes, flushes) = device::writes(&env.device)?;
        sample.put(2, 0..SMALL, PART, flags | ReadWriteFlags::DSYNC)?;
        let after = device::writes(&env.device)?;
        counts.push((after.0 - writes, after.1 - flushes));
    }
    println!(
        "writes and flushes: plain {:?}, uncached {:?}",
        counts[0], counts[1]
    );
    let [plain, ours] = counts[..] else {
        bail!("two passes make two counts");
    };
    // A journal may end a transaction of its own accord meanwhile.
    let calls = SMALL / PART as u64;
    ensure!(
        ours.0 <= plain.0 + calls / 2 && ours.1 <= plain.1 + calls / 2,
        "{calls} synchronous writes: {} writes and {} flushes reach the device, {} and {} without the flag",
        ours.0,
        ours.1,
        plain.0,
        plain.1
    );
    Ok(())
}

/// W21: nothing holds on to the file system when dropping and the last close
/// meet. More rounds with `cycles=`.
fn unmount(env: &mut Env) -> Result<()> {
    let cycles: u16 = env.job.get_or("cycles", 8)?;
    for cycle in 1..=cycles {
        let sample = env.create("file")?;
        sample.put(cycle, 0..SMALL / 4, PART, UNCACHED)?;
        if cycle % 2 == 0 {
            sample.sync()?;
        }
        if cycle % 3 == 0 {
            std::fs::remove_file(env.path().join("file")).context("cannot remove the file")?;
        }
        drop(sample);
        env.remount(env.fs.options)
            .context(format!("unmounting, cycle {cycle}"))?;
        if cycle % 3 != 0 {
            let sample = env.open("file", OFlags::RDONLY)?;
            sample.check(cycle, 0..SMALL / 4, PART, UNCACHED)?;
        }
    }
    Ok(())
}

/// W23: freezing waits for what is under way, and ends.
fn freeze(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    for cycle in 2..6 {
        sample.put(cycle, 0..SMALL, PART, UNCACHED)?;
        for action in ["--freeze", "--unfreeze"] {
            let status = Command::new("/bin/fsfreeze")
                .arg(action)
                .arg(env.path())
                .status();
            let status = status.context("cannot run fsfreeze")?;
            ensure!(status.success(), "fsfreeze {action}: {status}");
        }
        sample.check(cycle, 0..SMALL, PART, UNCACHED)?;
    }
    sample.sync()?;
    sample.dropped(env, 0)
}

/// W23: so does making it read-only.
fn read_only(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    sample.put(1, 0..SMALL, PART, UNCACHED)?;
    drop(sample);
    let flags = MountFlags::NOATIME;
    mount_remount(env.path(), flags | MountFlags::RDONLY, "").context("cannot go read-only")?;
    let sample = env.open("file", OFlags::RDONLY)?;
    sample.check(1, 0..SMALL, PART, UNCACHED)?;
    same("pages in the cache", sample.settle(0)?.pages, 0)?;
    drop(sample);
    mount_remount(env.path(), flags, "").context("cannot go read-write")?;
    Ok(())
}

/// W24: writeback is started for the bytes that were written, and not for those
/// behind them.
fn kick_range(env: &mut Env) -> Result<()> {
    let sample = env.cold(2 * SMALL)?;
    let page = PAGE as usize;
    let (at, next) = (SMALL, SMALL + PAGE);
    sample.put(2, next..next + PAGE, page, PLAIN)?;
    sample.put(3, at..at + PAGE, page, UNCACHED)?;
    let (written, other) = (sample.cached_in(at, PAGE)?, sample.cached_in(next, PAGE)?);
    same("dirty pages of the write", written.dirty, 0)?;
    same("dirty pages behind it", other.dirty, 1)?;
    // The plain one stays dirty while the other is written and goes.
    sample.wait_for(|cached| cached.pages == 1)?;
    same("pages behind it", sample.cached_in(next, PAGE)?.dirty, 1)?;
    sample.sync()?;
    sample.dropped(env, 1)?;
    sample.check(3, at..next, page, PLAIN)?;
    sample.check(2, next..next + PAGE, page, PLAIN)
}
