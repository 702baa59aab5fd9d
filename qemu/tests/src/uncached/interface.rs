// SPDX-License-Identifier: GPL-2.0

//! The interface on each file system (rows P1 to P15): what is accepted, what
//! is refused with which error, and that nothing else changes.

use super::env::{Env, LARGE, PAGE, PART, PLAIN, Sample, UNCACHED, read_at, same, write_at};
use super::raw::{self, Request, Ring};
use super::{Row, of_each_driver};
use crate::pattern;
use crate::walk::Aligned;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, OFlags, fadvise, fstat, tell};
use rustix::io::{Errno, ReadWriteFlags};

/// The rows of a kernel with support.
pub const ROWS: &[Row] = &[
    Row::new("P1-accepted", accepted).on(of_each_driver),
    Row::new("P4-unknown-flag", unknown_flag).on(of_each_driver),
    Row::new("P5-directory", directory).on(of_each_driver),
    Row::new("P8-high-priority", high_priority).on(of_each_driver),
    Row::new("P10-direct", direct),
    Row::new("P11-direct-fallback", direct_fallback).on(|fs| !can_direct(fs)),
    Row::new("P12-length-0", nothing).on(of_each_driver),
    Row::new("P13-access-mode", access_mode).on(of_each_driver),
    Row::new("P14-io_uring", io_uring).on(of_each_driver),
    Row::new("P14-aio", aio).on(of_each_driver),
    Row::new("P15-noreuse", noreuse).on(of_each_driver),
];

/// The one row of a kernel without support.
pub const STOCK: &[Row] = &[Row::new("P3-refused", refused)];

/// A flag that no kernel knows.
const UNKNOWN: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x10000);

/// Whether O_DIRECT bypasses the cache and is not buffered in silence.
fn can_direct(fs: &super::fs::Fs) -> bool {
    fs.data == super::fs::Data::Place && !fs.inline
}

/// P1: reads and writes of a regular file move all bytes, at an offset and at
/// the file's own position.
fn accepted(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    sample.put(1, 0..2 * PAGE, PAGE as usize, UNCACHED)?;
    sample.check(1, 0..2 * PAGE, PAGE as usize, UNCACHED)?;
    // An offset of -1 means the position, which moves.
    let mut bytes = [0; 100];
    let own = u64::MAX;
    same(
        "the length read",
        read_at(&sample.file, own, &mut bytes, UNCACHED),
        Ok(100),
    )?;
    pattern::check(1, 0, &bytes)?;
    same("the position", tell(&sample.file), Ok(100))?;
    same(
        "the length written",
        write_at(&sample.file, own, &bytes, UNCACHED),
        Ok(100),
    )?;
    same("the position", tell(&sample.file), Ok(200))
}

/// P3: everything is refused, and neither file, position nor cache change.
fn refused(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    sample.check(1, 0..PART as u64, PART, PLAIN)?;
    refused_by(&sample, true)?;
    sample.check(1, 0..LARGE, 1 << 20, PLAIN)
}

/// Fails unless reads and writes with the flag are refused and change nothing.
pub fn refused_by(sample: &Sample, has_cache: bool) -> Result<()> {
    let look = || -> Result<_> {
        let stat = fstat(&sample.file).context("cannot stat")?;
        let cached = match has_cache {
            true => Some(sample.cached()?),
            false => None,
        };
        Ok((cached, stat.st_size, tell(&sample.file)))
    };
    let before = look()?;
    let mut bytes = [0; 100];
    for pos in [0, PAGE] {
        let got = read_at(&sample.file, pos, &mut bytes, UNCACHED);
        same("a read", got, Err(Errno::OPNOTSUPP))?;
        let got = write_at(&sample.file, pos, &bytes, UNCACHED);
        same("a write", got, Err(Errno::OPNOTSUPP))?;
    }
    same("cache, size and position", look()?, before)
}

/// P4: a flag that the kernel does not know is refused with and without ours.
fn unknown_flag(env: &mut Env) -> Result<()> {
    let sample = env.cold(PAGE)?;
    for flags in [UNKNOWN, UNKNOWN | UNCACHED] {
        same("a read", sample.read(0, 100, flags), Err(Errno::OPNOTSUPP))?;
        same(
            "a write",
            sample.write(2, 0, 100, flags),
            Err(Errno::OPNOTSUPP),
        )?;
    }
    same("pages in the cache", sample.cached()?.pages, 0)
}

/// P5: a directory has no data to read.
fn directory(env: &mut Env) -> Result<()> {
    let folder = env.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    same(
        "a read",
        folder.read(0, 100, UNCACHED),
        Err(Errno::OPNOTSUPP),
    )
}

/// P8: a request for polling makes no difference to buffered IO.
fn high_priority(env: &mut Env) -> Result<()> {
    let flags = UNCACHED | ReadWriteFlags::HIPRI;
    let sample = env.create("file")?;
    sample.put(1, 0..SIZE, PART, flags)?;
    sample.dropped(env, 0)?;
    sample.check(1, 0..SIZE, PART, flags)?;
    sample.dropped(env, 0)
}

/// The file of the rows that only need one.
const SIZE: u64 = 4 * PART as u64;

/// P10: direct IO has no use for the flag, and does what it does without.
fn direct(env: &mut Env) -> Result<()> {
    let cold = env.cold(SIZE)?;
    let sample = env.open("file", OFlags::RDWR | OFlags::DIRECT)?;
    let mut buffer = Aligned::new(PART);
    let got = read_at(&sample.file, 0, buffer.bytes(), UNCACHED);
    same("a read", got, Ok(PART))?;
    pattern::check(1, 0, buffer.bytes())?;
    pattern::fill(2, 0, buffer.bytes());
    let got = write_at(&sample.file, 0, buffer.bytes(), UNCACHED);
    same("a write", got, Ok(PART))?;
    if can_direct(env.fs) {
        same("pages in the cache", cold.cached()?.pages, 0)?;
        // Unaligned, both are refused.
        for flags in [PLAIN, UNCACHED] {
            let got = read_at(&sample.file, 100, &mut buffer.bytes()[1..700], flags);
            same("an unaligned read", got, Err(Errno::INVAL))?;
        }
    }
    cold.check(2, 0..PART as u64, PART, PLAIN)?;
    cold.check(1, PART as u64..SIZE, PART, PLAIN)
}

/// P11: direct writes to an inode that cannot do them are buffered; the flag is
/// honoured then.
fn direct_fallback(env: &mut Env) -> Result<()> {
    let cold = env.cold(SIZE)?;
    let sample = env.open("file", OFlags::RDWR | OFlags::DIRECT)?;
    let mut buffer = Aligned::new(PART);
    for pos in (0..SIZE).step_by(PART) {
        pattern::fill(2, pos, buffer.bytes());
        let got = write_at(&sample.file, pos, buffer.bytes(), UNCACHED);
        same("a write", got, Ok(PART))?;
    }
    cold.sync()?;
    cold.dropped(env, 0)?;
    cold.check(2, 0..SIZE, PART, PLAIN)
}

/// P12: nothing is done to nothing.
fn nothing(env: &mut Env) -> Result<()> {
    let sample = env.cold(PAGE)?;
    same("a read", read_at(&sample.file, 0, &mut [], UNCACHED), Ok(0))?;
    same("a write", write_at(&sample.file, 0, &[], UNCACHED), Ok(0))?;
    same("pages in the cache", sample.cached()?.pages, 0)
}

/// P13: the descriptor's mode counts first.
fn access_mode(env: &mut Env) -> Result<()> {
    env.cold(PAGE)?;
    let sample = env.open("file", OFlags::RDONLY)?;
    same(
        "a write",
        sample.write(1, 0, 100, UNCACHED),
        Err(Errno::BADF),
    )?;
    let sample = env.open("file", OFlags::WRONLY)?;
    same("a read", sample.read(0, 100, UNCACHED), Err(Errno::BADF))
}

/// Every request that moves a file's data.
const REQUESTS: [Request; 6] = [
    Request::Read,
    Request::Readv,
    Request::ReadFixed,
    Request::Write,
    Request::Writev,
    Request::WriteFixed,
];

/// P14: io_uring passes the flag on, from the caller and from a worker.
fn io_uring(env: &mut Env) -> Result<()> {
    let cold = env.cold(SIZE)?;
    let mut ring = Ring::new().context("no io_uring")?;
    for in_worker in [false, true] {
        for (pass, request) in (2..).zip(REQUESTS) {
            let what = format!("{request:?}, in a worker: {in_worker}");
            let write = format!("{request:?}").starts_with("Write");
            for pos in (0..SIZE).step_by(PART) {
                let mut bytes = vec![0; PART];
                if write {
                    pattern::fill(pass, pos, &mut bytes);
                }
                let got = ring
                    .run(&cold.file, request, &mut bytes, pos, UNCACHED, in_worker)
                    .context(format!("{what}: io_uring fails"))?;
                same(&what, got, Ok(PART))?;
                // Each of the three reads follows what was there before.
                let id = match (write, in_worker) {
                    (true, _) => pass,
                    (false, false) => 1,
                    (false, true) => 7,
                };
                pattern::check(id, pos, &bytes).context(what.clone())?;
            }
            cold.dropped(env, 0).context(what)?;
        }
    }
    refused_by_uring()
}

/// P14: so does io_submit(2).
fn aio(env: &mut Env) -> Result<()> {
    let cold = env.cold(SIZE)?;
    for (write, id) in [(false, 1), (true, 2), (false, 2)] {
        for pos in (0..SIZE).step_by(PART) {
            let mut bytes = vec![0; PART];
            if write {
                pattern::fill(id, pos, &mut bytes);
            }
            let got = raw::aio(&cold.file, write, &mut bytes, pos, UNCACHED);
            same("the length", got.context("aio fails")?, Ok(PART))?;
            pattern::check(id, pos, &bytes)?;
        }
        cold.dropped(env, 0)?;
    }
    Ok(())
}

/// On a file without support io_submit(2) answers the error.
pub fn refused_by_aio() -> Result<()> {
    let memory = super::unsupported::memory()?;
    for write in [false, true] {
        let got = raw::aio(&memory.file, write, &mut [0; 100], 0, UNCACHED);
        same("aio", got.context("aio fails")?, Err(Errno::OPNOTSUPP))?;
    }
    Ok(())
}

/// On a file without support the completion brings the error.
pub fn refused_by_uring() -> Result<()> {
    let memory = super::unsupported::memory()?;
    let mut ring = Ring::new().context("no io_uring")?;
    for request in REQUESTS {
        match ring.run(&memory.file, request, &mut [0; 100], 0, UNCACHED, false) {
            Ok(got) => same(&format!("{request:?}"), got, Err(Errno::OPNOTSUPP))?,
            Err(error) => bail!("{request:?}: io_uring fails: {error}"),
        }
    }
    Ok(())
}

/// P15: the advice that data is read once succeeds and changes no residency.
fn noreuse(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    sample.check(1, 0..SIZE, PART, PLAIN)?;
    let before = sample.cached()?;
    ensure!(before.pages > 0, "nothing was cached");
    fadvise(&sample.file, 0, None, Advice::NoReuse).context("cannot advise")?;
    same("the cache", sample.cached()?, before)?;
    // It does not make reads uncached, either.
    sample.check(1, 0..LARGE, PART, PLAIN)?;
    same("pages in the cache", sample.cached()?.pages, LARGE / PAGE)
}
