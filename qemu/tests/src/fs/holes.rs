// SPDX-License-Identifier: GPL-2.0

//! Holes: seen, mapped, made by punching, refused where ext2 has no way.

use super::Test;
use super::check::{fails, get, holds, put, same, size, zeros};
use super::env::Env;
use crate::pattern;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fsync, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("holes-read-as-zeros", holes_read_as_zeros),
    Test::new("seek-to-data-and-holes", seek_to_data_and_holes),
    Test::new("seek-sees-dirty-pages", seek_sees_dirty_pages),
    Test::new("fiemap-leads-to-the-data", fiemap_leads_to_the_data),
    Test::new("preallocation-is-refused", preallocation_is_refused),
    Test::new("punch-whole-blocks", punch_whole_blocks),
    Test::new("punch-parts-of-blocks", punch_parts_of_blocks),
    Test::new("punch-frees-pointer-blocks", punch_frees_pointer_blocks),
    Test::new("punch-beyond-the-end", punch_beyond_the_end),
    Test::new("punch-under-a-mapping", punch_under_a_mapping),
    Test::new("zero-range", zero_range),
    Test::new("fallocate-errors", fallocate_errors),
];

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// A file with data in the blocks of `marks`.
fn sparse(env: &Env, marks: &[u64]) -> Result<File> {
    let file = env.create("file")?;
    let block = env.layout.block;
    for mark in marks {
        put(&file, 1, mark * block..(mark + 1) * block)?;
    }
    Ok(file)
}

fn holes_read_as_zeros(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let marks = [3, 12 + per / 2, 12 + per + 7, 12 + per + per * per + 3];
    let file = sparse(env, &marks)?;
    fsync(&file).context("fsync")?;
    // Each mark, and the pointer blocks that lead there: 0, 1, 2 and 3.
    same("blocks", file.metadata()?.blocks(), (4 + 6) * block / 512)?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    for mark in marks {
        holds(&file, 1, mark * block..(mark + 1) * block)?;
        zeros(&file, (mark - 1) * block..mark * block)?;
    }
    zeros(&file, 0..3 * block)?;
    zeros(&file, 4 * block..(12 + per / 2) * block)
}

/// Where SEEK_DATA and SEEK_HOLE see data.
fn data(file: &File) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut pos = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(pos)) {
            Err(Errno::NXIO) => return Ok(ranges),
            start => start.context("SEEK_DATA")?,
        };
        pos = seek(file, SeekFrom::Hole(start)).context("SEEK_HOLE")?;
        ranges.push(start..pos);
    }
}

fn seek_to_data_and_holes(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let far = 12 + per + 3;
    let file = sparse(env, &[0, 1, 5, 13, far])?;
    let end = (far + 20) * block + 17;
    rustix::fs::ftruncate(&file, end).context("truncate")?;
    fsync(&file).context("fsync")?;
    let blocks = |from: u64, to: u64| from * block..to * block;
    let right = vec![
        blocks(0, 2),
        blocks(5, 6),
        blocks(13, 14),
        blocks(far, far + 1),
    ];
    same("data", data(&file)?, right)?;
    same("hole", seek(&file, SeekFrom::Hole(0)), Ok(2 * block))?;
    same(
        "hole in a hole",
        seek(&file, SeekFrom::Hole(3 * block + 5)),
        Ok(3 * block + 5),
    )?;
    same(
        "data in data",
        seek(&file, SeekFrom::Data(block + 5)),
        Ok(block + 5),
    )?;
    fails(
        "data after the last",
        seek(&file, SeekFrom::Data((far + 1) * block)),
        Errno::NXIO,
    )?;
    same(
        "last hole",
        seek(&file, SeekFrom::Hole(end - 1)),
        Ok(end - 1),
    )?;
    fails("at the end", seek(&file, SeekFrom::Hole(end)), Errno::NXIO)
}

/// Data that is only in memory is data.
fn seek_sees_dirty_pages(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 40_000..41_000)?;
    let start = seek(&file, SeekFrom::Data(0)).context("SEEK_DATA")?;
    ensure!(start <= 40_000, "data begins at {start}");
    let end = seek(&file, SeekFrom::Hole(40_000)).context("SEEK_HOLE")?;
    ensure!(end >= 41_000, "the hole begins at {end}");
    Ok(())
}

fn fiemap_leads_to_the_data(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let file = sparse(env, &[0, 1, 2, 7, 12 + per])?;
    fsync(&file).context("fsync")?;
    rustix::fs::syncfs(&file).context("syncfs")?;
    let mut found: Vec<Range<u64>> = Vec::new();
    for extent in fiemap::Fiemap::new(file.as_fd()) {
        let extent = extent.context("FIEMAP")?;
        let range = extent.fe_logical..extent.fe_logical + extent.fe_length;
        let bytes = env.on_medium(extent.fe_physical, extent.fe_length as usize)?;
        pattern::check(1, range.start, &bytes).context(format!("extent {range:?}"))?;
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    let blocks = |from: u64, to: u64| from * block..to * block;
    same(
        "extents",
        found,
        vec![blocks(0, 3), blocks(7, 8), blocks(12 + per, 13 + per)],
    )
}

/// ext2 cannot mark blocks as unwritten.
fn preallocation_is_refused(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..1000)?;
    for flags in [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
    ] {
        let block = env.layout.block;
        let result = fallocate(&file, flags, 0, 2 * block);
        fails(&format!("{flags:?}"), result, Errno::OPNOTSUPP)?;
    }
    size(&file, 1000)?;
    holds(&file, 1, 0..1000)
}

fn punch_whole_blocks(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    let file = env.create("file")?;
    put(&file, 1, 0..40 * block)?;
    fsync(&file).context("fsync")?;
    let before = file.metadata()?.blocks();
    fallocate(&file, PUNCH, 3 * block, 4 * block).context("punch")?;
    size(&file, 40 * block)?;
    same(
        "blocks",
        file.metadata()?.blocks(),
        before - 4 * block / 512,
    )?;
    holds(&file, 1, 0..3 * block)?;
    zeros(&file, 3 * block..7 * block)?;
    holds(&file, 1, 7 * block..40 * block)?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDWR)?;
    zeros(&file, 3 * block..7 * block)?;
    holds(&file, 1, 7 * block..40 * block)?;
    // What was punched can be written again.
    put(&file, 2, 4 * block..5 * block)?;
    fsync(&file).context("fsync")?;
    holds(&file, 2, 4 * block..5 * block)?;
    zeros(&file, 5 * block..7 * block)
}

fn punch_parts_of_blocks(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    let ranges = [
        10..20,
        block - 5..block + 5,
        block / 2..3 * block + 100,
        5 * block..5 * block + 1,
        6 * block - 1..6 * block,
    ];
    for (number, range) in ranges.into_iter().enumerate() {
        let name = format!("file-{number}");
        let file = env.create(&name)?;
        put(&file, 1, 0..8 * block)?;
        fallocate(&file, PUNCH, range.start, range.end - range.start).context("punch")?;
        let check = |file: &File| -> Result<()> {
            holds(file, 1, 0..range.start)?;
            zeros(file, range.clone())?;
            holds(file, 1, range.end..8 * block)
        };
        check(&file).context("right after")?;
        drop(file);
        env.again()?;
        check(&env.open(&name, OFlags::RDONLY)?).context("on disk")?;
    }
    Ok(())
}

/// All of a file: its pointer blocks go, too.
fn punch_frees_pointer_blocks(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let free = env.free_blocks()?;
    let marks = [
        1,
        12,
        11 + per,
        12 + per,
        12 + 2 * per,
        12 + per + per * per,
    ];
    let file = sparse(env, &marks)?;
    fsync(&file).context("fsync")?;
    // The last block of an indirect one: the first is still needed.
    fallocate(&file, PUNCH, (11 + per) * block, block).context("punch")?;
    holds(&file, 1, 12 * block..13 * block)?;
    fallocate(&file, PUNCH, 0, (13 + per + per * per) * block).context("punch")?;
    same("blocks", file.metadata()?.blocks(), 0)?;
    same("free blocks", env.free_blocks()?, free)?;
    size(&file, (13 + per + per * per) * block)?;
    for mark in marks {
        zeros(&file, mark * block..(mark + 1) * block)?;
    }
    Ok(())
}

fn punch_beyond_the_end(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    let file = env.create("file")?;
    put(&file, 1, 0..block + 100)?;
    fallocate(&file, PUNCH, 10 * block, block).context("behind the end")?;
    fallocate(&file, PUNCH, block + 50, 5 * block).context("across the end")?;
    size(&file, block + 100)?;
    holds(&file, 1, 0..block + 50)?;
    zeros(&file, block + 50..block + 100)
}

fn punch_under_a_mapping(env: &mut Env) -> Result<()> {
    use crate::mapping::{Mapping, Sharing};
    let file = env.create("file")?;
    put(&file, 1, 0..64 << 10)?;
    let mapping = Mapping::new(&file, 64 << 10, Sharing::Shared)?;
    mapping.store(16 << 10, &[5; 8192])?;
    fallocate(&file, PUNCH, 16 << 10, 16 << 10).context("punch")?;
    pattern::check_hole(16 << 10, &mapping.load(16 << 10..32 << 10)?)?;
    mapping.store(20 << 10, &[7; 100])?;
    same(
        "stored again",
        get(&file, 20 << 10..(20 << 10) + 100)?,
        vec![7; 100],
    )?;
    mapping.sync()?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    zeros(&file, 16 << 10..20 << 10)?;
    same(
        "stored again",
        get(&file, 20 << 10..(20 << 10) + 100)?,
        vec![7; 100],
    )
}

fn zero_range(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    let zero = FallocateFlags::ZERO_RANGE;
    let file = env.create("file")?;
    put(&file, 1, 0..10 * block)?;
    fallocate(&file, zero, block + 3, 3 * block).context("zero range")?;
    holds(&file, 1, 0..block + 3)?;
    zeros(&file, block + 3..4 * block + 3)?;
    holds(&file, 1, 4 * block + 3..10 * block)?;
    // Across the end: longer, unless the size is to be kept.
    let keep = zero | FallocateFlags::KEEP_SIZE;
    fallocate(&file, keep, 9 * block, 3 * block).context("zero range, keeping the size")?;
    size(&file, 10 * block)?;
    fallocate(&file, zero, 9 * block, 3 * block).context("zero range, beyond the end")?;
    size(&file, 12 * block)?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    holds(&file, 1, 4 * block + 3..9 * block)?;
    zeros(&file, 9 * block..12 * block)
}

fn fallocate_errors(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..1000)?;
    fails("length 0", fallocate(&file, PUNCH, 0, 0), Errno::INVAL)?;
    let lonely = FallocateFlags::PUNCH_HOLE;
    fails(
        "without KEEP_SIZE",
        fallocate(&file, lonely, 0, 10),
        Errno::OPNOTSUPP,
    )?;
    let reader = env.open("file", OFlags::RDONLY)?;
    fails("reader", fallocate(&reader, PUNCH, 0, 10), Errno::BADF)?;
    let dir = env.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    fails("directory", fallocate(&dir, PUNCH, 0, 10), Errno::BADF)?;
    fails(
        "far",
        fallocate(&file, PUNCH, 1 << 62, 1 << 62),
        Errno::FBIG,
    )?;
    holds(&file, 1, 0..1000)
}
