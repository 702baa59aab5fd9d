// SPDX-License-Identifier: GPL-2.0

//! What a block held before must never be seen: neither by the file that gets
//! the block, nor by a reader that comes while it does, nor through a buffer of
//! its former life that is written late.

use super::Test;
use super::check::{get, holds, put, put_bytes, same, zeros};
use super::direct;
use super::env::Env;
use super::space::fill;
use crate::kernel;
use crate::pattern::STALE;
use crate::walk::Aligned;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{OFlags, fsync, ftruncate, syncfs, unlink};
use rustix::io::pread;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub const TESTS: &[Test] = &[
    Test::new("stale-part-of-a-block", stale_part_of_a_block),
    Test::new(
        "stale-buffer-of-a-freed-block",
        stale_buffer_of_a_freed_block,
    )
    .limit(120),
    Test::new("stale-buffer-of-a-directory", stale_buffer_of_a_directory),
    Test::new("stale-reader-of-buffered-fill", |env| {
        race(env, Writer::Buffered, Reader::Buffered)
    }),
    Test::new("stale-reader-of-direct-fill", |env| {
        race(env, Writer::Direct, Reader::Buffered)
    }),
    Test::new("stale-direct-reader-of-buffered-fill", |env| {
        race(env, Writer::Buffered, Reader::Direct)
    }),
    Test::new("stale-direct-reader-of-direct-fill", |env| {
        race(env, Writer::Direct, Reader::Direct)
    }),
    Test::new("stale-reader-of-mapped-fill", |env| {
        race(env, Writer::Mapped, Reader::Direct)
    }),
    Test::new("stale-reader-of-growth", |env| growth(env, OFlags::empty())),
    Test::new("stale-reader-of-direct-growth", |env| {
        growth(env, OFlags::DIRECT)
    }),
];

/// Fills all free blocks with the pattern and frees them again.
fn soil(env: &Env) -> Result<()> {
    let file = env.create("soil")?;
    let bytes = STALE.repeat((64 << 10) / STALE.len());
    let mut pos = 0;
    while let Ok(done @ 1..) = rustix::io::pwrite(&file, &bytes, pos) {
        pos += done as u64;
    }
    ensure!(pos > 1 << 20, "only {pos} bytes could be soiled");
    fsync(&file).context("fsync")?;
    drop(file);
    unlink(env.at("soil")).context("unlink")?;
    syncfs(env.open(".", OFlags::RDONLY)?).context("syncfs")?;
    kernel::drop_caches()
}

fn stale_part_of_a_block(env: &mut Env) -> Result<()> {
    soil(env)?;
    let block = env.layout.block;
    let file = env.create("file")?;
    // Parts of new blocks by write, behind the end, in a hole, through memory.
    for pos in [100, 3 * block + 7, 70 * block + block / 2] {
        put_bytes(&file, pos, b"abc")?;
    }
    let mapping = crate::mapping::Mapping::new(&file, 64 << 10, crate::mapping::Sharing::Shared)?;
    mapping.store(40_000, b"abc")?;
    ftruncate(&file, 80 * block).context("truncate")?;
    drop((mapping, file));
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    let mut got = get(&file, 0..80 * block)?;
    for pos in [100, 3 * block + 7, 70 * block + block / 2, 40_000] {
        let pos = pos as usize;
        same("written", &got[pos..pos + 3], b"abc")?;
        got[pos..pos + 3].fill(0);
    }
    crate::pattern::check_hole(0, &got)
}

/// Pointer and attribute blocks are dirty in the device's cache when their file
/// goes; the data that takes their place must not be overwritten by them.
fn stale_buffer_of_a_freed_block(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let flags = rustix::fs::XattrFlags::empty();
    for round in 0..4 {
        for number in 0..60 {
            let name = format!("victim-{number}");
            let file = env.create(&name)?;
            for mark in [0, 12, 12 + per, 12 + 2 * per] {
                put_bytes(&file, mark * block, &[0xdd; 16])?;
            }
            let value = vec![number as u8; 600];
            rustix::fs::setxattr(env.at(&name), "user.a", &value, flags).context("setxattr")?;
        }
        if round % 2 == 1 {
            syncfs(env.open(".", OFlags::RDONLY)?).context("syncfs")?;
            for number in 0..60 {
                let file = env.open(&format!("victim-{number}"), OFlags::RDWR)?;
                put_bytes(&file, (12 + 2 * per + 5) * block, &[0xdd; 16])?;
            }
        }
        for number in 0..60 {
            unlink(env.at(format!("victim-{number}"))).context("unlink")?;
        }
        // Now every free block becomes data, in one of two ways.
        let file = match round / 2 {
            0 => {
                let file = env.create("data")?;
                fill(&file, block)?;
                file
            }
            _ => {
                let file = direct::open(env, "data", OFlags::empty())?;
                let mut pos = 0;
                while let Ok(done @ 1..) = direct::write_at(&file, 9, pos, 64 << 10) {
                    pos += done as u64;
                }
                file
            }
        };
        fsync(&file).context("fsync")?;
        syncfs(&file).context("syncfs")?;
        let end = file.metadata()?.len();
        drop(file);
        env.again()?;
        let file = env.open("data", OFlags::RDONLY)?;
        holds(&file, 9, 0..end / 4096 * 4096).context(format!("round {round}"))?;
        drop(file);
        unlink(env.at("data")).context("unlink")?;
    }
    Ok(())
}

/// The same for the blocks of a directory.
fn stale_buffer_of_a_directory(env: &mut Env) -> Result<()> {
    for round in 0..3 {
        env.mkdir("d")?;
        for number in 0..300 {
            env.write(
                &format!("d/a-long-name-that-takes-much-room-{number:030}"),
                b"",
            )?;
        }
        std::fs::remove_dir_all(env.at("d")).context("remove")?;
        let file = env.create("data")?;
        let end = fill(&file, env.layout.block)?;
        fsync(&file).context("fsync")?;
        drop(file);
        env.again()?;
        holds(&env.open("data", OFlags::RDONLY)?, 9, 0..end).context(format!("round {round}"))?;
        unlink(env.at("data")).context("unlink")?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    Buffered,
    Direct,
    Mapped,
}

#[derive(Clone, Copy, PartialEq)]
enum Reader {
    Buffered,
    Direct,
}

/// The number of the data that fills the holes.
const NEW: u16 = 4;
const LENGTH: u64 = 2 << 20;

/// Fills the holes of a file block by block while others read it: each byte
/// they see is zero or new.
fn race(env: &mut Env, writer: Writer, reader: Reader) -> Result<()> {
    soil(env)?;
    let file = env.create("file")?;
    ftruncate(&file, LENGTH).context("truncate")?;
    let mode = match writer {
        Writer::Direct => OFlags::DIRECT,
        _ => OFlags::empty(),
    };
    let file = env.open("file", OFlags::RDWR | mode)?;
    let readers = [1, 2].map(|seed| {
        let flags = match reader {
            Reader::Direct => OFlags::RDONLY | OFlags::DIRECT,
            Reader::Buffered => OFlags::RDONLY,
        };
        (seed, env.open("file", flags))
    });
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let readers = readers.map(|(seed, file)| {
            let done = &done;
            scope.spawn(move || watch(&file?, seed, done))
        });
        let filled = fill_holes(&file, writer);
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("it reports by its result")?;
        }
        filled
    })?;
    fsync(&file).context("fsync")?;
    kernel::drop_caches()?;
    let file = env.open("file", OFlags::RDONLY)?;
    for pos in (0..LENGTH).step_by(8192) {
        holds(&file, NEW, pos..pos + 4096)?;
        zeros(&file, pos + 4096..pos + 8192)?;
    }
    Ok(())
}

/// Every other 4 KiB, in an order that readahead does not know.
fn fill_holes(file: &File, writer: Writer) -> Result<()> {
    let mapping = match writer {
        Writer::Mapped => {
            use crate::mapping::{Mapping, Sharing};
            Some(Mapping::new(file, LENGTH, Sharing::Shared)?)
        }
        _ => None,
    };
    let mut order: Vec<u64> = (0..LENGTH).step_by(8192).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut order);
    for pos in order {
        match (writer, &mapping) {
            (Writer::Direct, _) => {
                same("written", direct::write_at(file, NEW, pos, 4096), Ok(4096))?;
            }
            (Writer::Mapped, Some(mapping)) => {
                let mut bytes = [0; 4096];
                crate::pattern::fill(NEW, pos, &mut bytes);
                mapping.store(pos, &bytes)?;
            }
            _ => put(file, NEW, pos..pos + 4096)?,
        }
    }
    Ok(())
}

/// Reads pages until the writer is done.
fn watch(file: &File, seed: u64, done: &AtomicBool) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut buffer = Aligned::new(4096);
    let mut right = [0; 4096];
    while !done.load(Ordering::Relaxed) {
        let pos = random.u64(0..LENGTH / 4096) * 4096;
        same("read", pread(file, buffer.bytes(), pos), Ok(4096))?;
        crate::pattern::fill(NEW, pos, &mut right);
        zero_or(&right, buffer.bytes()).context(format!("page at {pos}"))?;
    }
    Ok(())
}

/// Each sector is zero or what it should become; what the disk held before is
/// called by its name.
fn zero_or(right: &[u8], got: &[u8]) -> Result<()> {
    for (at, (right, got)) in right.chunks(8).zip(got.chunks(8)).enumerate() {
        if got == STALE {
            bail!("byte {} is what the disk held before", at * 8);
        }
        if got != right && got.iter().any(|byte| *byte != 0) {
            // A word in the middle of being copied is both.
            let both = |(got, right): (&u8, &u8)| got == right || *got == 0;
            ensure!(
                got.iter().zip(right).all(both),
                "byte {} is neither zero nor new: {got:02x?}",
                at * 8
            );
        }
    }
    Ok(())
}

/// A file grows while others read up to its size: what is below it is new data.
fn growth(env: &mut Env, mode: OFlags) -> Result<()> {
    soil(env)?;
    let file = env.open("file", OFlags::RDWR | OFlags::CREATE | mode)?;
    let readers = [
        env.open("file", OFlags::RDONLY)?,
        env.open("file", OFlags::RDONLY)?,
    ];
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let readers = readers.map(|file| {
            let done = &done;
            scope.spawn(move || -> Result<()> {
                while !done.load(Ordering::Relaxed) {
                    let size = file.metadata()?.len();
                    let start = size.saturating_sub(16 << 10);
                    holds(&file, NEW, start..size).context(format!("at size {size}"))?;
                }
                Ok(())
            })
        });
        let grown = (0..LENGTH).step_by(4096).try_for_each(|pos| match mode {
            OFlags::DIRECT => same("written", direct::write_at(&file, NEW, pos, 4096), Ok(4096)),
            _ => put(&file, NEW, pos..pos + 4096),
        });
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("it reports by its result")?;
        }
        grown
    })
}
