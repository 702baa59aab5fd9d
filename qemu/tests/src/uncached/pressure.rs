// SPDX-License-Identifier: GPL-2.0

//! Row K1: more data than memory, plainly and uncached. Uncached IO gives
//! reclaim nothing to do.

use super::Row;
use super::env::{Env, PLAIN, UNCACHED, counter};
use anyhow::{Result, ensure};
use rustix::io::ReadWriteFlags;
use std::hint::black_box;

/// The row.
pub const ROWS: &[Row] = &[Row::new("K1-no-reclaim", no_reclaim).limit(300)];

/// Memory that is left to the page cache.
const LEFT: u64 = 64 << 20;
/// The file.
const SIZE: u64 = 3 * LEFT;
const PART: usize = 1 << 20;

fn no_reclaim(env: &mut Env) -> Result<()> {
    let available = counter("/proc/meminfo", "MemAvailable:")? << 10;
    // There is no swap: what a process has touched is not for the cache.
    let mut hog = vec![0u8; available.saturating_sub(LEFT) as usize];
    hog.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(&mut hog);

    let plain = scanned(env, "plain", PLAIN)?;
    let uncached = scanned(env, "uncached", UNCACHED)?;
    let pages = SIZE / 4096;
    for (what, plain, uncached) in [
        ("writing", plain.0, uncached.0),
        ("reading", plain.1, uncached.1),
    ] {
        println!("{what} {pages} pages: {plain} taken by reclaim plain, {uncached} uncached");
        ensure!(
            plain > pages / 10,
            "{what}: the plain control had reclaim take {plain} pages only, so the row shows nothing"
        );
        ensure!(
            uncached <= pages / 100,
            "{what}: reclaim took {uncached} of {pages} pages"
        );
    }
    black_box(&mut hog);
    Ok(())
}

/// Pages that reclaim has taken while a file was written and read.
fn scanned(env: &Env, name: &str, flags: ReadWriteFlags) -> Result<(u64, u64)> {
    let taken = || -> Result<u64> {
        let file = "/proc/vmstat";
        Ok(counter(file, "pgsteal_kswapd ")? + counter(file, "pgsteal_direct ")?)
    };
    let sample = env.create(name)?;
    let start = taken()?;
    sample.put(1, 0..SIZE, PART, flags)?;
    sample.sync()?;
    let written = taken()?;
    sample.chill()?;
    let begin = taken()?;
    sample.check(1, 0..SIZE, PART, flags)?;
    let read = taken()?;
    // Room for the other, in the cache and on the disk.
    sample.chill()?;
    std::fs::remove_file(env.path().join(name))?;
    Ok((written - start, read - begin))
}
