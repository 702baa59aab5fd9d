// SPDX-License-Identifier: GPL-2.0

//! Files in memory: shared and private mappings, together with everything else
//! that reads and writes.

use super::Test;
use super::check::{get, holds, put, same, size, zeros};
use super::env::Env;
use crate::kernel;
use crate::mapping::{Mapping, Sharing};
use crate::pattern;
use anyhow::{Context, Result};
use rustix::fs::{OFlags, fsync, ftruncate};
use rustix::io::pwrite;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("mapped-shared", mapped_shared),
    Test::new("mapped-private", mapped_private),
    Test::new("mapped-store-fills-holes", mapped_store_fills_holes),
    Test::new("mapped-store-without-sync", mapped_store_without_sync),
    Test::new("mapped-and-truncated", mapped_and_truncated),
    Test::new("mapped-beyond-the-end", mapped_beyond_the_end),
    Test::new("mapped-write-from-itself", mapped_write_from_itself),
    Test::new("mapped-store-sets-times", mapped_store_sets_times),
    Test::new("mapped-by-two-writers", mapped_by_two_writers),
    Test::new("sync-calls", sync_calls),
];

const SIZE: u64 = 200_000;

fn mapped_shared(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..SIZE)?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    pattern::check(1, 0, &mapping.load(0..SIZE)?)?;
    // Both ways, at once.
    let mut bytes = vec![0; 9000];
    pattern::fill(2, 30_000, &mut bytes);
    mapping.store(30_000, &bytes)?;
    holds(&file, 2, 30_000..39_000)?;
    put(&file, 3, 60_000..65_000)?;
    pattern::check(3, 60_000, &mapping.load(60_000..65_000)?)?;
    mapping.sync()?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    holds(&file, 1, 0..30_000)?;
    holds(&file, 2, 30_000..39_000)?;
    holds(&file, 1, 39_000..60_000)?;
    holds(&file, 3, 60_000..65_000)?;
    holds(&file, 1, 65_000..SIZE)
}

fn mapped_private(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..SIZE)?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Private)?;
    mapping.store(10_000, &[0xcc; 20_000])?;
    same(
        "the copy",
        mapping.load(10_000..30_000)?,
        vec![0xcc; 20_000],
    )?;
    holds(&file, 1, 0..SIZE)?;
    mapping.sync()?;
    drop((mapping, file));
    env.again()?;
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..SIZE)
}

/// A store into a hole takes blocks; what is around it is zero.
fn mapped_store_fills_holes(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    ftruncate(&file, 1 << 20).context("truncate")?;
    let mapping = Mapping::new(&file, 1 << 20, Sharing::Shared)?;
    pattern::check_hole(0, &mapping.load(0..1 << 20)?)?;
    same("blocks", file.metadata()?.blocks(), 0)?;
    for pos in [0, 5000, 300_000, 600_001, (1 << 20) - 3] {
        mapping.store(pos, b"abc")?;
    }
    mapping.sync()?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    let mut right = vec![0; 1 << 20];
    for pos in [0, 5000, 300_000, 600_001, (1 << 20) - 3] {
        right[pos..pos + 3].copy_from_slice(b"abc");
    }
    let got = get(&file, 0..1 << 20)?;
    let wrong = got.iter().zip(&right).position(|(got, right)| got != right);
    same("the first wrong byte", wrong, None)
}

/// Unmapping and unmounting write back, too.
fn mapped_store_without_sync(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    ftruncate(&file, SIZE).context("truncate")?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    mapping.store(100_000, &[9; 50_000])?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    zeros(&file, 0..100_000)?;
    same("stored", get(&file, 100_000..150_000)?, vec![9; 50_000])?;
    zeros(&file, 150_000..SIZE)
}

fn mapped_and_truncated(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..SIZE)?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    mapping.store(50_000, &[9; 10_000])?;
    ftruncate(&file, 55_000).context("truncate")?;
    // The rest of the last page is zero.
    pattern::check_hole(55_000, &mapping.load(55_000..57_344)?)?;
    same("stored", mapping.load(50_000..55_000)?, vec![9; 5000])?;
    ftruncate(&file, SIZE).context("truncate")?;
    pattern::check_hole(55_000, &mapping.load(55_000..SIZE)?)?;
    mapping.store(100_000, &[8; 1000])?;
    mapping.sync()?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    same("stored", get(&file, 50_000..55_000)?, vec![9; 5000])?;
    zeros(&file, 55_000..100_000)?;
    same("stored", get(&file, 100_000..101_000)?, vec![8; 1000])?;
    zeros(&file, 101_000..SIZE)
}

/// Stores behind the end, in the last page, are lost and harm nothing.
fn mapped_beyond_the_end(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..5000)?;
    let mapping = Mapping::new(&file, 8192, Sharing::Shared)?;
    mapping.store(4990, &[7; 1000])?;
    mapping.sync()?;
    size(&file, 5000)?;
    holds(&file, 1, 0..4990)?;
    same("stored", get(&file, 4990..5000)?, vec![7; 10])?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDWR)?;
    size(&file, 5000)?;
    ftruncate(&file, 8192).context("truncate")?;
    zeros(&file, 5000..8192)
}

/// The memory that is written is the page that is written to.
fn mapped_write_from_itself(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..SIZE)?;
    fsync(&file).context("fsync")?;
    kernel::drop_caches()?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    // Copied through a buffer: what counts is that neither way blocks the other.
    let bytes = mapping.load(0..8192)?;
    same("written", pwrite(&file, &bytes, 4096), Ok(8192))?;
    pattern::check(1, 0, &mapping.load(0..4096)?)?;
    same("moved", mapping.load(4096..12_288)?, bytes)
}

fn mapped_store_sets_times(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..SIZE)?;
    fsync(&file).context("fsync")?;
    super::times::set_past(env, "file")?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    mapping.load(0..SIZE)?;
    same(
        "mtime after loads",
        file.metadata()?.mtime(),
        super::times::PAST,
    )?;
    mapping.store(0, b"x")?;
    mapping.sync()?;
    same(
        "mtime is new",
        file.metadata()?.mtime() > super::times::PAST,
        true,
    )
}

/// One through memory, one by calls, each to bytes of its own in the same pages.
fn mapped_by_two_writers(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    ftruncate(&file, SIZE).context("truncate")?;
    let mapping = Mapping::new(&file, SIZE, Sharing::Shared)?;
    std::thread::scope(|scope| -> Result<()> {
        let caller = scope.spawn(|| -> Result<()> {
            for pos in (0..SIZE).step_by(200) {
                put(&file, 1, pos..pos + 100)?;
            }
            Ok(())
        });
        let mut bytes = [0; 100];
        for pos in (100..SIZE).step_by(200) {
            pattern::fill(2, pos, &mut bytes);
            mapping.store(pos, &bytes)?;
        }
        caller.join().expect("it reports by its result")
    })?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    for pos in (0..SIZE).step_by(200) {
        holds(&file, 1, pos..pos + 100)?;
        holds(&file, 2, pos + 100..pos + 200)?;
    }
    Ok(())
}

/// fsync, fdatasync, syncfs, sync and O_SYNC put the data on the medium.
fn sync_calls(env: &mut Env) -> Result<()> {
    use std::os::fd::AsFd;
    type Call = fn(&std::fs::File) -> Result<()>;
    let calls: [(&str, OFlags, Call); 6] = [
        ("fsync", OFlags::empty(), |file| Ok(fsync(file)?)),
        ("fdatasync", OFlags::empty(), |file| {
            Ok(rustix::fs::fdatasync(file)?)
        }),
        ("syncfs", OFlags::empty(), |file| {
            Ok(rustix::fs::syncfs(file)?)
        }),
        ("sync", OFlags::empty(), |_| {
            rustix::fs::sync();
            Ok(())
        }),
        ("O_SYNC", OFlags::SYNC, |_| Ok(())),
        ("O_DSYNC", OFlags::DSYNC, |_| Ok(())),
    ];
    for (number, (name, flags, call)) in (1..).zip(calls) {
        let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = env.open(name, create | flags)?;
        put(&file, number, 0..30_000)?;
        call(&file).context(name)?;
        let mut seen = 0;
        for extent in fiemap::Fiemap::new(file.as_fd()) {
            let extent = extent.context("FIEMAP")?;
            let bytes = env.on_medium(extent.fe_physical, extent.fe_length as usize)?;
            let length = extent
                .fe_length
                .min(30_000u64.saturating_sub(extent.fe_logical));
            pattern::check(number, extent.fe_logical, &bytes[..length as usize]).context(name)?;
            seen += length;
        }
        same(name, seen, 30_000)?;
    }
    Ok(())
}
