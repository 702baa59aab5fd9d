// SPDX-License-Identifier: GPL-2.0

//! Reads (rows R1 to R14): what stays in the cache, what goes, and how much is
//! read from the device.

use super::Row;
use super::env::{Env, LARGE, PAGE, PART, PLAIN, Sample, UNCACHED, read_bytes, same};
use super::map::{Kind, Mapping};
use crate::pattern;
use anyhow::{Context, Result, ensure};
use rustix::fs::Advice;
use rustix::fs::{MemfdFlags, fadvise, ftruncate, memfd_create, sendfile};
use rustix::io::{Errno, ReadWriteFlags};
use std::thread::sleep;
use std::time::Duration;

/// The rows.
pub const ROWS: &[Row] = &[
    Row::new("R1-whole-file", whole_file),
    Row::new("R3-precached-stay", precached_stay),
    Row::new("R4-plain-read-keeps", plain_read_keeps),
    Row::new("R5-nowait", nowait),
    Row::new("R6-mapped-stay", mapped_stay),
    Row::new("R6b-unmapped-stay", unmapped_stay),
    Row::new("R6c-private-copy", private_copy),
    Row::new("R7-faulted-stay", faulted_stay),
    Row::new("R7b-sendfile-keeps", sendfile_keeps),
    Row::new("R8-small-reads", small_reads),
    Row::new("R9-tiny-file", tiny_file),
    Row::new("R10-hole", hole),
    Row::new("R11-end-in-page", end_in_page),
    Row::new("R14-dirty-stay", dirty_stay),
    Row::new("R19-inside-large-folio", inside_large_folio).on(|fs| fs.large_folios),
];

/// Pages of the usual file.
const PAGES: u64 = LARGE / PAGE;
/// Blocks that a file system may have to read to find the data: an inode, a
/// group of its bitmap, a level of its block map.
const METADATA: u64 = 32 << 10;
const NOWAIT: ReadWriteFlags = ReadWriteFlags::NOWAIT;

/// Bytes read from devices by `test`.
fn device_reads(test: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = read_bytes()?;
    test()?;
    Ok(read_bytes()? - before)
}

/// Fails unless `got` bytes from the device are the file once.
fn read_once(what: &str, got: u64, size: u64) -> Result<()> {
    println!("{what}: {:.2}x", got as f64 / size as f64);
    ensure!(
        (size..=size + METADATA).contains(&got),
        "{what}: {got} bytes came from the device, not {size}"
    );
    Ok(())
}

/// R1, R2: a whole file leaves nothing, nothing is reclaimed, and each pass
/// reads it from the device once.
fn whole_file(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    for pass in ["first", "second"] {
        let got = device_reads(|| sample.check(1, 0..LARGE, PART, UNCACHED))?;
        let cached = sample.cached()?;
        same("pages in the cache", cached.pages, 0)?;
        same("reclaimed pages", cached.evicted, 0)?;
        read_once(pass, got, LARGE)?;
    }
    let got = device_reads(|| sample.check(1, 0..LARGE, PART, PLAIN))?;
    read_once("plain", got, LARGE)?;
    let got = device_reads(|| sample.check(1, 0..LARGE, PART, UNCACHED))?;
    same("bytes read of a cached file", got, 0)?;
    same("pages in the cache", sample.cached()?.pages, PAGES)
}

/// R3: what was cached before stays, the rest goes.
fn precached_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    sample.random()?;
    let (start, end) = (LARGE / 4, LARGE / 2);
    sample.check(1, start..end, 1 << 20, PLAIN)?;
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    same("pages in the cache", sample.cached()?.pages, PAGES / 4)?;
    let inside = sample.cached_in(start, end - start)?.pages;
    same("pages of the plain read", inside, PAGES / 4)
}

/// Leaves folios behind that are marked: readahead of a short uncached read.
fn leftovers(sample: &Sample) -> Result<u64> {
    sample.check(1, 0..PAGE, PAGE as usize, UNCACHED)?;
    let left = sample.cached()?.pages;
    ensure!(left > 0, "readahead left nothing, so the row shows nothing");
    Ok(left)
}

/// R4: a plain read of marked folios makes them ordinary ones.
fn plain_read_keeps(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    let left = leftovers(&sample)?;
    sample.check(1, 0..LARGE, PART, PLAIN)?;
    let pages = sample.cached()?.pages;
    println!("{left} left over; {pages} of {PAGES} stay");
    same("pages in the cache", pages, PAGES)?;
    sample.check(1, 0..LARGE, PART, UNCACHED)?;
    same(
        "pages after an uncached read",
        sample.cached()?.pages,
        PAGES,
    )
}

/// R5: a read that must not wait starts readahead; when that has come, it
/// succeeds and drops what it has read.
fn nowait(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    let first = sample.read(0, PART, UNCACHED | NOWAIT);
    let plain = sample.read(LARGE / 2, PART, NOWAIT);
    if plain == Err(Errno::OPNOTSUPP) {
        // The driver cannot read without waiting, flag or not.
        return same("an uncached read", first, plain);
    }
    // A device that completes in the caller has the data at once.
    ensure!(
        matches!(&first, Err(Errno::AGAIN))
            || first.as_ref().is_ok_and(|bytes| bytes.len() == PART),
        "the first read: {first:?}"
    );
    let wanted = PART as u64 / PAGE;
    if first.is_err() {
        let there = sample.cached_in(0, LARGE / 2)?.pages;
        ensure!(there >= wanted, "readahead brought {there} pages");
        let mut tries = 0;
        let bytes = loop {
            match sample.read(0, PART, UNCACHED | NOWAIT) {
                Err(Errno::AGAIN) if tries < 1000 => tries += 1,
                Err(error) => return Err(error).context("the second read"),
                // What had come before is dropped and must not be waited for.
                Ok(bytes) => break bytes,
            }
            sleep(Duration::from_millis(1));
        };
        pattern::check(1, 0, &bytes)?;
        let left = sample.cached_in(0, bytes.len() as u64 / PAGE * PAGE)?.pages;
        println!(
            "{there} brought, {} bytes read, {left} of their pages stay",
            bytes.len()
        );
        if !env.fs.large_folios {
            same("the length read", bytes.len(), PART)?;
            same("pages that were read and stay", left, 0)?;
        }
    }
    Ok(())
}

/// Pages after the first 16 that readahead has left in the cache, marked, and
/// that a fault has mapped. The fault is not on page 16: that one asks for more
/// readahead, and is neither mapped around a fault.
fn map_leftovers(sample: &Sample, kind: Kind) -> Result<Mapping> {
    sample.check(1, 0..PART as u64, PART, UNCACHED)?;
    let there = sample.cached_in(FAULT, PAGE)?.pages;
    ensure!(
        there > 0,
        "readahead left nothing, so the row shows nothing"
    );
    let mapping = Mapping::new(&sample.file, LARGE, kind)?;
    pattern::check(1, FAULT, &mapping.load(FAULT..FAULT + 1)?)?;
    Ok(mapping)
}

/// Where the fault is.
const FAULT: u64 = PART as u64 + 4 * PAGE;

/// R6: mapped folios stay, with their contents, and stay ordinary after the
/// mapping is gone.
fn mapped_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    let mapping = map_leftovers(&sample, Kind::ReadOnly)?;
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    let stay = sample.cached()?.pages;
    println!("{stay} pages stay");
    same("the faulted page", sample.cached_in(FAULT, PAGE)?.pages, 1)?;
    if !env.fs.large_folios {
        same("pages in the cache", stay, 15)?;
    }
    let bytes = mapping.load(PART as u64..2 * PART as u64)?;
    pattern::check(1, PART as u64, &bytes)?;
    // The look at them has brought them all in, as ordinary ones.
    let stay = sample.cached()?.pages;
    drop(mapping);
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    same("pages after the mapping", sample.cached()?.pages, stay)
}

/// R6b: so do folios whose mapping is gone before an uncached read finds them.
fn unmapped_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    drop(map_leftovers(&sample, Kind::ReadOnly)?);
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    let stay = sample.cached()?.pages;
    println!("{stay} pages stay");
    same("the faulted page", sample.cached_in(FAULT, PAGE)?.pages, 1)?;
    if !env.fs.large_folios {
        same("pages in the cache", stay, 15)?;
    }
    Ok(())
}

/// R6c: a private copy of a page outlives the page.
fn private_copy(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    let mapping = map_leftovers(&sample, Kind::Private)?;
    mapping.store(FAULT, 0x1122_3344)?;
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    same("the stored word", mapping.word(FAULT)?, 0x1122_3344)?;
    let bytes = mapping.load(FAULT + 8..2 * PART as u64)?;
    pattern::check(1, FAULT + 8, &bytes)
}

/// R7: what a fault brought in is not marked and stays.
fn faulted_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    let mapping = Mapping::new(&sample.file, LARGE, Kind::ReadOnly)?;
    pattern::check(1, 0, &mapping.load(0..1)?)?;
    let faulted = sample.cached()?.pages;
    ensure!(faulted > 0, "a fault brought nothing");
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    println!("{faulted} pages stay");
    same("pages in the cache", sample.cached()?.pages, faulted)
}

/// R7b: splicing keeps marked folios like a plain read.
fn sendfile_keeps(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    leftovers(&sample)?;
    let memory = memfd_create("copy", MemfdFlags::CLOEXEC).context("cannot make a memfd")?;
    let mut pos = 0;
    while pos < LARGE {
        let done =
            sendfile(&memory, &sample.file, Some(&mut pos), LARGE as usize).context("sendfile")?;
        ensure!(done > 0, "sendfile ends at {pos}");
    }
    same("pages in the cache", sample.cached()?.pages, PAGES)?;
    sample.check(1, 0..LARGE, 1 << 20, UNCACHED)?;
    same(
        "pages after an uncached read",
        sample.cached()?.pages,
        PAGES,
    )
}

/// R8, R8b: sequential reads of any size read each byte from the device once.
fn small_reads(env: &mut Env) -> Result<()> {
    const SIZE: u64 = 1 << 20;
    let sample = env.cold(SIZE)?;
    for part in [512, 4096, 10_000, 16 << 10, PART, 128 << 10, 1 << 20] {
        let got = device_reads(|| sample.check(1, 0..SIZE, part, UNCACHED))?;
        same("pages in the cache", sample.cached()?.pages, 0)?;
        read_once(&format!("{part} bytes each"), got, SIZE)?;
    }
    Ok(())
}

/// R9: a file shorter than a page, read at, before and after its end.
fn tiny_file(env: &mut Env) -> Result<()> {
    let sample = env.cold(100)?;
    for (pos, length) in [(0, 100), (50, 50), (100, 0), (PAGE, 0)] {
        let bytes = sample.read(pos, PAGE as usize, UNCACHED);
        let bytes = bytes.context(format!("cannot read at {pos}"))?;
        same("the length read", bytes.len(), length)?;
        pattern::check(1, pos, &bytes)?;
        same("pages in the cache", sample.cached()?.pages, 0)?;
    }
    Ok(())
}

/// R10: a hole is zeros and stays a hole.
fn hole(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    ftruncate(&sample.file, 1 << 20).context("cannot truncate")?;
    sample.sync()?;
    sample.random()?;
    let bytes = sample.read(0, PART, UNCACHED).context("cannot read")?;
    same("the length read", bytes.len(), PART)?;
    pattern::check_hole(0, &bytes)?;
    same("pages in the cache", sample.cached()?.pages, 0)
}

/// R11: a read over the end gets what is there, and drops the last page.
fn end_in_page(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE + 100)?;
    sample.random()?;
    let bytes = sample
        .read(LARGE - PAGE, 8192, UNCACHED)
        .context("cannot read")?;
    same("the length read", bytes.len(), 4196)?;
    pattern::check(1, LARGE - PAGE, &bytes)?;
    same("pages in the cache", sample.cached()?.pages, 0)
}

/// R14: a dirty page is read, not lost.
fn dirty_stay(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    fadvise(&sample.file, 0, None, Advice::Random).context("cannot advise")?;
    let at = 5 * PAGE;
    sample.put(2, at..at + PAGE, PAGE as usize, PLAIN)?;
    let bytes = sample
        .read(0, LARGE as usize, UNCACHED)
        .context("cannot read")?;
    let cached = sample.cached()?;
    same("pages in the cache", cached.pages, 1)?;
    same("dirty pages", cached.dirty, 1)?;
    let (start, end) = (at as usize, (at + PAGE) as usize);
    pattern::check(1, 0, &bytes[..start])?;
    pattern::check(2, at, &bytes[start..end])?;
    pattern::check(1, at + PAGE, &bytes[end..])
}

/// R19: short reads within one large folio do not bring it in again and again.
fn inside_large_folio(env: &mut Env) -> Result<()> {
    let sample = env.cold(LARGE)?;
    sample.check(1, 0..PART as u64, PART, UNCACHED)?;
    let before = sample.cached()?.pages;
    let at = 2 * PART as u64;
    let got = device_reads(|| sample.check(1, at..at + PAGE, PAGE as usize, UNCACHED))?;
    let after = sample.cached()?.pages;
    println!("{before} pages before, {after} after, {got} bytes read");
    ensure!(got <= LARGE, "{got} bytes were read for {PAGE}");
    sample.check(1, 0..LARGE, PART, UNCACHED)?;
    same("pages in the cache", sample.cached()?.pages, 0)
}
