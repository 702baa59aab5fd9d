// SPDX-License-Identifier: GPL-2.0

//! Writes (rows W1 to W9): what stays in the cache once it is on disk.

use super::Row;
use super::env::{Env, PAGE, PART, PLAIN, SMALL, Sample, UNCACHED, same, write_at};
use super::map::{Kind, Mapping};
use crate::pattern;
use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fstat};
use rustix::io::{Errno, ReadWriteFlags};

/// The rows.
pub const ROWS: &[Row] = &[
    Row::new("W1-new-file", new_file),
    Row::new("W2-overwrite", overwrite),
    Row::new("W3-precached-stay", precached_stay),
    Row::new("W4-synchronous", synchronous),
    Row::new("W5-nowait", nowait),
    Row::new("W6-appends", appends),
    Row::new("W7-gap", gap),
    Row::new("W7b-unaligned-end", unaligned_end),
    Row::new("W8-mapped-store", mapped_store),
    Row::new("W9-plain-write-keeps", plain_write_keeps),
];

/// Pages of the usual file.
const PAGES: u64 = SMALL / PAGE;

/// W1: writeback has started when the call returns, and nothing is left when it
/// has ended; the data is on disk.
fn new_file(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    for pos in (0..SMALL).step_by(PART) {
        let done = sample.write(1, pos, PART, UNCACHED);
        same("the length written", done, Ok(PART))?;
        if env.drops_writes() {
            let dirty = sample.cached_in(pos, PART as u64)?.dirty;
            same("dirty pages at return", dirty, 0)?;
        }
    }
    sample.dropped(env, 0)?;
    sample.check(1, 0..SMALL, PART, PLAIN)
}

/// W2: overwriting blocks that exist leaves nothing either, whatever context
/// the device completes in.
fn overwrite(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    for (id, part) in [(2, PART), (3, PAGE as usize), (4, 1 << 20)] {
        sample.put(id, 0..SMALL, part, UNCACHED)?;
        sample
            .dropped(env, 0)
            .context(format!("{part} bytes each"))?;
        sample.chill()?;
        sample.check(id, 0..SMALL, PART, PLAIN)?;
        sample.chill()?;
    }
    Ok(())
}

/// W3: folios that others have brought in stay.
fn precached_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    sample.check(1, 0..SMALL, PART, PLAIN)?;
    same("pages before", sample.cached()?.pages, PAGES)?;
    sample.put(2, 0..SMALL, PART, UNCACHED)?;
    sample.sync()?;
    let cached = sample.settle(PAGES)?;
    same("pages in the cache", cached.pages, PAGES)?;
    if env.drops_writes() {
        same("dirty pages", cached.dirty, 0)?;
    }
    sample.check(2, 0..SMALL, PART, PLAIN)?;
    sample.chill()?;
    sample.check(2, 0..SMALL, PART, PLAIN)
}

/// W4: a synchronous write is on disk when it returns, and gone soon after.
fn synchronous(env: &mut Env) -> Result<()> {
    for (id, open, flags) in [
        (2, OFlags::empty(), UNCACHED | ReadWriteFlags::DSYNC),
        (3, OFlags::empty(), UNCACHED | ReadWriteFlags::SYNC),
        (4, OFlags::SYNC, UNCACHED),
    ] {
        let cold = env.cold(SMALL)?;
        let sample = env.open("file", OFlags::RDWR | open)?;
        for pos in (0..SMALL).step_by(PART) {
            same(
                "the length written",
                sample.write(id, pos, PART, flags),
                Ok(PART),
            )?;
            let cached = sample.cached()?;
            if env.drops_writes() {
                same(
                    "dirty and under writeback",
                    (cached.dirty, cached.writeback),
                    (0, 0),
                )?;
            }
        }
        sample.dropped(env, 0)?;
        cold.check(id, 0..SMALL, PART, PLAIN)?;
    }
    Ok(())
}

/// W5: where a plain write may be told not to wait, an uncached one may, too.
fn nowait(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let plain = sample.write(2, 0, PART, ReadWriteFlags::NOWAIT);
    let at = 4 * PART as u64;
    let ours = sample.write(2, at, PART, ReadWriteFlags::NOWAIT | UNCACHED);
    println!("plain {plain:?}, uncached {ours:?}");
    let waits = |got: &Result<usize, Errno>| matches!(got, Ok(_) | Err(Errno::AGAIN));
    ensure!(
        plain == ours || waits(&plain) && waits(&ours),
        "plain {plain:?}, uncached {ours:?}"
    );
    if let Ok(length) = ours {
        sample.sync()?;
        sample.check(2, at..at + length as u64, PART, PLAIN)?;
    }
    sample.check(1, 8 * PART as u64..SMALL, PART, PLAIN)
}

/// W6: short appends: each finds the last page of the one before.
fn appends(env: &mut Env) -> Result<()> {
    let writer = env.open("file", OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)?;
    for pos in (0..100_000).step_by(1000) {
        same(
            "the length written",
            writer.write(1, pos, 1000, UNCACHED),
            Ok(1000),
        )?;
    }
    writer.sync()?;
    same("the size", size(&writer)?, 100_000)?;
    writer.dropped(env, 1)?;
    writer.check(1, 0..100_000, 1000, PLAIN)
}

fn size(sample: &Sample) -> Result<u64> {
    Ok(fstat(&sample.file).context("cannot stat")?.st_size as u64)
}

/// W7: a write that leaves a gap behind, at an odd offset: the file system
/// zeroes the rest of the block, which is no use of the page by somebody else.
fn gap(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    let far = SMALL + 100;
    sample.put(1, 0..PAGE, PAGE as usize, UNCACHED)?;
    sample.put(1, far..far + PAGE, PAGE as usize, UNCACHED)?;
    sample.sync()?;
    same("the size", size(&sample)?, far + PAGE)?;
    let stat = fstat(&sample.file).context("cannot stat")?;
    println!("{} sectors", stat.st_blocks);
    ensure!(
        stat.st_blocks * 512 <= 64 << 10,
        "the gap has blocks: {} sectors",
        stat.st_blocks
    );
    sample.dropped(env, 0)?;
    sample.check(1, 0..PAGE, PAGE as usize, PLAIN)?;
    let hole = sample.read(PAGE, (far - PAGE) as usize, PLAIN)?;
    pattern::check_hole(PAGE, &hole)?;
    sample.check(1, far..far + PAGE, PAGE as usize, PLAIN)
}

/// W7b: the end of the file is inside a page, and the next write is far behind.
/// Some file systems bring the old last page in to zero its rest; nobody asked
/// for that to be uncached, so it may stay.
fn unaligned_end(env: &mut Env) -> Result<()> {
    let sample = env.cold(PAGE + 100)?;
    sample.put(1, SMALL..SMALL + PAGE, PAGE as usize, UNCACHED)?;
    sample.sync()?;
    sample.dropped(env, 1)?;
    sample.check(1, 0..PAGE + 100, PAGE as usize, PLAIN)?;
    let hole = sample.read(PAGE + 100, (SMALL - PAGE) as usize - 100, PLAIN)?;
    pattern::check_hole(PAGE + 100, &hole)?;
    sample.check(1, SMALL..SMALL + PAGE, PAGE as usize, PLAIN)
}

/// W8: what is stored through a mapping right after an uncached write is kept,
/// and the page stays while it is mapped.
fn mapped_store(env: &mut Env) -> Result<()> {
    const COUNT: u64 = 8;
    let sample = env.cold(16 * PAGE)?;
    let mapping = Mapping::new(&sample.file, 16 * PAGE, Kind::Shared)?;
    for page in 0..COUNT {
        let pos = page * PAGE;
        sample.put(2, pos..pos + PAGE, PAGE as usize, UNCACHED)?;
        mapping.store(pos + 8, page + 1)?;
    }
    sample.sync()?;
    let mapped = sample.cached_in(0, COUNT * PAGE)?.pages;
    same("pages that are mapped and stay", mapped, COUNT)?;
    let right = |words: &dyn Fn(u64) -> Result<u64>| {
        (0..COUNT).try_for_each(|page| same("a stored word", words(page * PAGE + 8)?, page + 1))
    };
    right(&|pos| mapping.word(pos))?;
    drop(mapping);
    sample.chill()?;
    let on_disk = |pos: u64| -> Result<u64> {
        let bytes = sample.read(pos, 8, PLAIN).context("cannot read")?;
        Ok(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    };
    right(&on_disk)?;
    for page in 0..COUNT {
        let pos = page * PAGE;
        sample.check(2, pos..pos + 8, 8, PLAIN)?;
        sample.check(2, pos + 16..pos + PAGE, PAGE as usize, PLAIN)?;
    }
    sample.check(1, COUNT * PAGE..16 * PAGE, PAGE as usize, PLAIN)
}

/// W9: a plain write to a marked folio makes it an ordinary one.
fn plain_write_keeps(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    sample.put(1, 0..16 * PAGE, 16 * PAGE as usize, UNCACHED)?;
    same(
        "the length written",
        write_at(&sample.file, 0, &[7; 4096], PLAIN),
        Ok(4096),
    )?;
    sample.sync()?;
    let most = if env.fs.large_folios { 16 } else { 1 };
    sample.dropped(env, most)?;
    same(
        "the page of the plain write",
        sample.cached_in(0, PAGE)?.pages,
        1,
    )?;
    let first = sample
        .read(0, PAGE as usize, PLAIN)
        .context("cannot read")?;
    ensure!(
        first.iter().all(|byte| *byte == 7),
        "the plain write is lost"
    );
    sample.check(1, PAGE..16 * PAGE, PAGE as usize, PLAIN)
}
