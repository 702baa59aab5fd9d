// SPDX-License-Identifier: GPL-2.0

//! The size of a file, and the zeros that lie beyond it: whatever makes a file
//! longer must show zeros where nobody has written.

use super::Test;
use super::check::{fails, get, holds, put, put_bytes, same, size, zeros};
use super::env::Env;
use crate::kernel;
use crate::mapping::{Mapping, Sharing};
use crate::pattern;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fsync, ftruncate};
use rustix::io::{Errno, pwrite};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("truncate-down", truncate_down).inodes(),
    Test::new("truncate-up", truncate_up),
    Test::new("truncate-at-every-level", truncate_at_every_level),
    Test::new("truncate-errors", truncate_errors),
    Test::new("tail-after-truncate-on-disk", tail_after_truncate_on_disk),
    Test::new("tail-after-write", tail_after_write),
    Test::new("tail-after-append-at-the-end", tail_after_append_at_the_end),
    Test::new("tail-after-truncate", tail_after_truncate),
    Test::new("tail-after-direct-write", tail_after_direct_write),
    Test::new("tail-after-zero-range", tail_after_zero_range),
    Test::new("tail-on-disk-before-truncate", tail_on_disk_before_truncate),
    Test::new("largest-file", largest_file),
    Test::new("random-sizes", random_sizes).limit(120),
];

fn truncate_down(env: &mut Env) -> Result<()> {
    let free = env.free_blocks()?;
    let file = env.create("file")?;
    put(&file, 1, 0..400_000)?;
    for length in [399_999, 300_000, env.layout.block * 12 + 1, 4096, 1, 0] {
        ftruncate(&file, length).context("truncate")?;
        size(&file, length)?;
        holds(&file, 1, 0..length)?;
        let got = rustix::io::pread(&file, &mut [0; 8], length);
        same("read at the end", got, Ok(0))?;
    }
    same("blocks", file.metadata()?.blocks(), 0)?;
    same("free blocks", env.free_blocks()?, free)?;
    put(&file, 2, 0..10_000)?;
    ftruncate(&file, 5_001).context("truncate")?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDWR)?;
    size(&file, 5_001)?;
    holds(&file, 2, 0..5_001)
}

fn truncate_up(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..700)?;
    let blocks = file.metadata()?.blocks();
    for length in [701, 1024, 5000, 100_000, 20 << 20] {
        ftruncate(&file, length).context("truncate")?;
        size(&file, length)?;
        holds(&file, 1, 0..700)?;
        zeros(&file, 700..length.min(200_000))?;
    }
    same("blocks", file.metadata()?.blocks(), blocks)?;
    drop(file);
    env.again()?;
    zeros(&env.open("file", OFlags::RDONLY)?, 700..20 << 20)
}

/// Around the edges of the block map, from above; what remains is right.
fn truncate_at_every_level(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let file = env.create("file")?;
    let levels = [12, 12 + per, 12 + per + per * per];
    let marks = levels.map(|level| [level - 1, level, level + 1]);
    let marks: Vec<u64> = marks.into_iter().flatten().chain([0, 5, 40]).collect();
    let free = env.free_blocks()?;
    for mark in &marks {
        put(&file, 3, mark * block..(mark + 1) * block)?;
    }
    let full = file.metadata()?.blocks();
    let mut sorted = marks.clone();
    sorted.sort_unstable();
    for mark in sorted.iter().rev() {
        // In the middle of the block, then all of it.
        ftruncate(&file, mark * block + 10).context("truncate")?;
        holds(&file, 3, mark * block..mark * block + 10)?;
        ftruncate(&file, mark * block).context("truncate")?;
        for other in marks.iter().filter(|other| *other < mark) {
            holds(&file, 3, other * block..(other + 1) * block)?;
        }
        fsync(&file).context("fsync")?;
    }
    same("blocks at the end", file.metadata()?.blocks(), 0)?;
    same("free blocks", env.free_blocks()?, free)?;
    ensure!(
        full / (block / 512) > marks.len() as u64,
        "there were no indirect blocks"
    );
    Ok(())
}

fn truncate_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"content")?;
    env.mkdir("dir")?;
    let reader = env.open("file", OFlags::RDONLY)?;
    fails("of a reader", ftruncate(&reader, 0), Errno::INVAL)?;
    let writer = env.open("file", OFlags::WRONLY)?;
    fails("below 0", ftruncate(&writer, u64::MAX), Errno::INVAL)?;
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY)?;
    fails("of a directory", ftruncate(&dir, 0), Errno::INVAL)?;
    let path = |name| nix::unistd::truncate(&env.at(name), 0);
    same(
        "of a directory",
        path("dir"),
        Err(nix::errno::Errno::EISDIR),
    )?;
    same("of nothing", path("none"), Err(nix::errno::Errno::ENOENT))?;
    size(&writer, 7)
}

/// Cut off data must not come back from the disk.
fn tail_after_truncate_on_disk(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    for (number, cut) in [1, 100, 511, 512, block - 1, block + 7, 3 * block - 5]
        .iter()
        .enumerate()
    {
        let name = format!("file-{number}");
        let file = env.create(&name)?;
        put(&file, 1, 0..4 * block)?;
        fsync(&file).context("fsync")?;
        ftruncate(&file, *cut).context("truncate")?;
        drop(file);
        env.again()?;
        let file = env.open(&name, OFlags::RDWR)?;
        ftruncate(&file, 4 * block).context("truncate")?;
        holds(&file, 1, 0..*cut)?;
        zeros(&file, *cut..4 * block)?;
        drop(file);
        env.again()?;
        zeros(&env.open(&name, OFlags::RDONLY)?, *cut..4 * block)?;
    }
    Ok(())
}

/// Where the file of the next cases ends: inside a block.
const END: u64 = 700;

/// A file that ends inside a page, whose rest was written to through a mapping.
fn with_stores_beyond_its_end(env: &Env) -> Result<(File, Mapping)> {
    let file = env.create("file")?;
    put(&file, 1, 0..END)?;
    let mapping = Mapping::new(&file, 4096, Sharing::Shared)?;
    mapping.store(END, &[0xee; 4096 - END as usize])?;
    Ok((file, mapping))
}

/// After `grow` has made it longer, `from` is where the new data begins.
fn tail_after(env: &mut Env, grow: fn(&File) -> Result<u64>) -> Result<()> {
    let (file, mapping) = with_stores_beyond_its_end(env)?;
    let from = grow(&file)?;
    zeros(&file, END..from).context("right after")?;
    holds(&file, 1, 0..END)?;
    fsync(&file).context("fsync")?;
    drop((file, mapping));
    env.again()?;
    zeros(&env.open("file", OFlags::RDONLY)?, END..from).context("on disk")
}

fn tail_after_write(env: &mut Env) -> Result<()> {
    tail_after(env, |file| {
        put(file, 2, 10_000..10_100)?;
        Ok(10_000)
    })?;
    rustix::fs::unlink(env.at("file")).context("unlink")?;
    // In the same block: the gap between the end and the data.
    tail_after(env, |file| {
        put(file, 2, 900..950)?;
        size(file, 950)?;
        Ok(900)
    })
}

fn tail_after_append_at_the_end(env: &mut Env) -> Result<()> {
    let (file, mapping) = with_stores_beyond_its_end(env)?;
    let writer = env.open("file", OFlags::WRONLY | OFlags::APPEND)?;
    rustix::io::write(&writer, &[7; 10]).context("append")?;
    same("new data", get(&file, END..END + 10)?, vec![7; 10])?;
    ftruncate(&file, 4096).context("truncate")?;
    zeros(&file, END + 10..4096).context("right after")?;
    drop((file, writer, mapping));
    env.again()?;
    zeros(&env.open("file", OFlags::RDONLY)?, END + 10..4096).context("on disk")
}

fn tail_after_truncate(env: &mut Env) -> Result<()> {
    tail_after(env, |file| {
        ftruncate(file, 9_000).context("truncate")?;
        Ok(9_000)
    })
}

fn tail_after_direct_write(env: &mut Env) -> Result<()> {
    let (file, mapping) = with_stores_beyond_its_end(env)?;
    let direct = env.open("file", OFlags::RDWR | OFlags::DIRECT)?;
    let mut buffer = Aligned::new(4096);
    pattern::fill(2, 8192, buffer.bytes());
    same("written", pwrite(&direct, buffer.bytes(), 8192), Ok(4096))?;
    zeros(&file, END..8192).context("right after")?;
    holds(&file, 2, 8192..12_288)?;
    fsync(&file).context("fsync")?;
    drop((file, direct, mapping));
    env.again()?;
    zeros(&env.open("file", OFlags::RDONLY)?, END..8192).context("on disk")
}

fn tail_after_zero_range(env: &mut Env) -> Result<()> {
    tail_after(env, |file| {
        fallocate(file, FallocateFlags::ZERO_RANGE, 6000, 1000).context("zero range")?;
        size(file, 7000)?;
        Ok(7000)
    })
}

/// What lies on the disk behind the end: another system may have left it there. (Until the file grows,
/// the page cache of Linux shows it in a mapping of the last page.)
fn tail_on_disk_before_truncate(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..env.layout.block)?;
    env.stop()?;
    env.debugfs(&format!("sif file size {END}"))?;
    env.start("")?;
    let file = env.open("file", OFlags::RDWR)?;
    put_bytes(&file, 900, &[7; 20])?;
    zeros(&file, END..900)?;
    drop(file);
    env.again()?;
    zeros(&env.open("file", OFlags::RDONLY)?, END..900).context("on disk")
}

/// What the block map reaches, or what the count of sectors can hold.
fn largest_file(env: &mut Env) -> Result<()> {
    let largest = match env.layout.block {
        1024 => 17_247_252_480,
        2048 => 275_415_851_008,
        // C ext2 stops 512 blocks earlier: it counts pointer blocks for pointer blocks.
        _ if env.job.is_rext2() => 2_196_875_763_712,
        _ => 2_196_873_666_560,
    };
    let file = env.create("file")?;
    ftruncate(&file, largest).context("truncate")?;
    fails("one byte more", ftruncate(&file, largest + 1), Errno::FBIG)?;
    size(&file, largest)?;
    put_bytes(&file, largest - 1, b"x").context("the last byte")?;
    fails("behind the last", pwrite(&file, b"x", largest), Errno::FBIG)?;
    // A write across the limit does what fits.
    same(
        "across the limit",
        pwrite(&file, b"abcd", largest - 2),
        Ok(2),
    )?;
    fsync(&file).context("fsync")?;
    kernel::drop_caches()?;
    same(
        "the last bytes",
        get(&file, largest - 2..largest)?,
        b"ab".to_vec(),
    )?;
    zeros(&file, largest - 3000..largest - 2)?;
    ftruncate(&file, 10).context("truncate")?;
    same("blocks", file.metadata()?.blocks(), 0)
}

/// Writes and truncates against a copy in memory, read back from time to time.
fn random_sizes(env: &mut Env) -> Result<()> {
    const MOST: usize = 300_000;
    let seed = env.job.get_or("seed", 1)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut right: Vec<u8> = Vec::new();
    let mut file = env.create("file")?;
    for step in 0..600 {
        let most = 1 << random.u32(0..16);
        let length = random.usize(0..most);
        match random.u8(0..10) {
            0..=5 => {
                let pos = random.usize(0..MOST - length);
                let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                put_bytes(&file, pos as u64, &bytes)?;
                if length > 0 {
                    right.resize(right.len().max(pos + length), 0);
                    right[pos..pos + length].copy_from_slice(&bytes);
                }
            }
            6..=7 => {
                let end = random.usize(0..MOST);
                ftruncate(&file, end as u64).context("truncate")?;
                right.resize(end, 0);
            }
            8 => fsync(&file).context("fsync")?,
            _ => {
                drop(file);
                if random.u8(0..4) == 0 {
                    env.again()?;
                }
                kernel::drop_caches()?;
                file = env.open("file", OFlags::RDWR)?;
            }
        }
        let end = right.len() as u64;
        size(&file, end).context(format!("step {step}, seed {seed}"))?;
        let got = get(&file, 0..end)?;
        let wrong = got.iter().zip(&right).position(|(got, right)| got != right);
        ensure!(
            wrong.is_none(),
            "step {step}, seed {seed}: byte {wrong:?} of {end} is wrong"
        );
    }
    Ok(())
}
