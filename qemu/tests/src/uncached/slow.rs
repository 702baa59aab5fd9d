// SPDX-License-Identifier: GPL-2.0

//! Rows about what happens while a write is under way, on a device that takes
//! its time: nothing waits, and nothing is dropped too early.

use super::Row;
use super::device::SLOW_MS;
use super::env::{Env, PAGE, PART, PLAIN, SMALL, UNCACHED, same};
use super::map::{Kind, Mapping};
use crate::pattern;
use anyhow::{Context, Result, ensure};
use rustix::fs::ftruncate;
use std::time::{Duration, Instant};

/// The rows.
pub const ROWS: &[Row] = &[
    Row::new("W10-pipelined", pipelined),
    Row::new("R15-under-writeback", under_writeback),
    Row::new("W12-read-back", read_back),
    Row::new("M4-store-under-writeback", store_under_writeback),
    Row::new("M5-rewrite-under-writeback", rewrite_under_writeback),
    Row::new("T3-split-under-writeback", split_under_writeback).on(|fs| fs.large_folios),
];

/// W10: no call waits for the device, and all requests are under way at once.
/// The blocks exist already, so that no call has to read a bitmap.
fn pipelined(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let begin = Instant::now();
    sample.put(2, 0..SMALL, PART, UNCACHED)?;
    let calls = begin.elapsed();
    let cached = sample.cached()?;
    sample.wait_for(|cached| cached.pages == 0)?;
    let all = begin.elapsed();
    println!(
        "the calls {} ms, all gone after {} ms",
        calls.as_millis(),
        all.as_millis()
    );
    // Not a matter of time: had a call waited, its pages were gone.
    let pages = SMALL / PAGE;
    same("pages under writeback", cached.writeback, pages)?;
    let serial = Duration::from_millis(SLOW_MS * SMALL / PART as u64);
    ensure!(all < serial / 2, "one request after another");
    sample.check(2, 0..SMALL, PART, PLAIN)
}

/// R15: an uncached read of pages under writeback does not wait for it, and
/// leaves them to its end.
fn under_writeback(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    sample.random()?;
    sample.put(2, 0..SMALL, PART, UNCACHED)?;
    let bytes = sample
        .read(0, SMALL as usize, UNCACHED)
        .context("cannot read")?;
    let cached = sample.cached()?;
    same("the length read", bytes.len(), SMALL as usize)?;
    pattern::check(2, 0, &bytes)?;
    same("pages under writeback", cached.writeback, SMALL / PAGE)?;
    sample.wait_for(|cached| cached.pages == 0)?;
    sample.check(2, 0..SMALL, PART, PLAIN)
}

/// W12: a plain read of pages under writeback makes them ordinary ones.
fn read_back(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    sample.put(2, 0..SMALL, PART, UNCACHED)?;
    sample.check(2, 0..SMALL, PART, PLAIN)?;
    same(
        "pages under writeback",
        sample.cached()?.writeback,
        SMALL / PAGE,
    )?;
    sample.sync()?;
    same(
        "pages in the cache",
        sample.settle(SMALL / PAGE)?.pages,
        SMALL / PAGE,
    )
}

/// M4: a store through a mapping while an uncached write of the page is under
/// way: at its end the page is dirty again, and must not be dropped.
fn store_under_writeback(env: &mut Env) -> Result<()> {
    const COUNT: u64 = 16;
    let sample = env.cold(COUNT * PAGE)?;
    let mapping = Mapping::new(&sample.file, COUNT * PAGE, Kind::Shared)?;
    sample.put(2, 0..COUNT * PAGE, PART, UNCACHED)?;
    same("pages under writeback", sample.cached()?.writeback, COUNT)?;
    for page in 0..COUNT {
        mapping.store(page * PAGE + 8, page + 1)?;
    }
    sample.wait_for(|cached| cached.writeback == 0)?;
    drop(mapping);
    // A second writeback, of what was stored.
    sample.sync()?;
    sample.chill()?;
    for page in 0..COUNT {
        let pos = page * PAGE;
        let bytes = sample
            .read(pos, PAGE as usize, PLAIN)
            .context("cannot read")?;
        let word = bytes[8..16].try_into().unwrap_or_default();
        same("a stored word", u64::from_ne_bytes(word), page + 1)?;
        pattern::check(2, pos, &bytes[..8])?;
        pattern::check(2, pos + 16, &bytes[16..])?;
    }
    Ok(())
}

/// M5: a second uncached write while the first is under way leaves folios that
/// are marked, and dirty when the first ends.
fn rewrite_under_writeback(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    for id in [2, 3] {
        sample.put(id, 0..SMALL, PART, UNCACHED)?;
    }
    let cached = sample.cached()?;
    ensure!(cached.writeback > 0, "the first write is over: {cached:?}");
    sample.wait_for(|cached| cached.writeback == 0)?;
    println!("{:?} after the first writeback", sample.cached()?);
    sample.sync()?;
    sample.dropped(env, 0)?;
    sample.check(3, 0..SMALL, PART, PLAIN)
}

/// T3: truncation splits a large folio that is under writeback and dirty; both
/// parts of what is left are still dropped.
fn split_under_writeback(env: &mut Env) -> Result<()> {
    let sample = env.cold(PART as u64)?;
    sample.put(2, 0..PART as u64, PART, UNCACHED)?;
    same(
        "pages under writeback",
        sample.cached()?.writeback,
        PART as u64 / PAGE,
    )?;
    // Zeroing the rest of the last block dirties the folio.
    let size = PART as u64 / 2 + 100;
    ftruncate(&sample.file, size).context("cannot truncate")?;
    sample.sync()?;
    sample.dropped(env, 0)?;
    sample.check(2, 0..size, PART, PLAIN)
}
