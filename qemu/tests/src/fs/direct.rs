// SPDX-License-Identifier: GPL-2.0

//! O_DIRECT, O_APPEND and what happens when they meet the page cache.

use super::Test;
use super::check::{fails, get, holds, put, same, size, zeros};
use super::env::Env;
use crate::kernel;
use crate::pattern;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fsync, ftruncate};
use rustix::io::{Errno, pread, pwrite, write};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The cases.
pub const TESTS: &[Test] = &[
    Test::new("direct-write-and-read", direct_write_and_read),
    Test::new("direct-alignment", direct_alignment),
    Test::new(
        "direct-write-of-parts-of-blocks",
        direct_write_of_parts_of_blocks,
    ),
    Test::new("direct-write-into-holes", direct_write_into_holes),
    Test::new("direct-read-around-the-end", direct_read_around_the_end),
    Test::new("direct-write-extends", direct_write_extends),
    Test::new("direct-append", direct_append),
    Test::new("direct-over-cached-pages", direct_over_cached_pages),
    Test::new("direct-on-a-full-device", direct_on_a_full_device).mib(4),
    Test::new("append-by-many", append_by_many),
    Test::new("append-ignores-the-position", append_ignores_the_position),
];

/// Opens a file for direct IO, made if it is not there.
pub fn open(env: &Env, name: &str, more: OFlags) -> Result<File> {
    env.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | more)
}

/// One direct write of data of number `id`.
pub fn write_at(file: &File, id: u16, pos: u64, length: usize) -> Result<usize, Errno> {
    let mut buffer = Aligned::new(length);
    pattern::fill(id, pos, buffer.bytes());
    pwrite(file, buffer.bytes(), pos)
}

fn direct_write_and_read(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::empty())?;
    same("written", write_at(&file, 1, 0, 1 << 20), Ok(1 << 20))?;
    size(&file, 1 << 20)?;
    let mut buffer = Aligned::new(1 << 20);
    same("read", pread(&file, buffer.bytes(), 0), Ok(1 << 20))?;
    pattern::check(1, 0, buffer.bytes())?;
    // Over what is there, in pieces, not in order.
    for number in (0..(1 << 20) / (3 * 4096)).rev() {
        let (pos, length) = (number * 3 * 4096, 4096);
        same("written over", write_at(&file, 2, pos, length), Ok(length))?;
    }
    same("read", pread(&file, buffer.bytes(), 0), Ok(1 << 20))?;
    pattern::check(2, 0, &buffer.bytes()[..4096])?;
    pattern::check(1, 4096, &buffer.bytes()[4096..3 * 4096])?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    holds(&file, 2, 0..4096)?;
    holds(&file, 1, 4096..3 * 4096)
}

/// Position, length and memory must fit the device's sectors.
fn direct_alignment(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::empty())?;
    write_at(&file, 1, 0, 8192).context("write")?;
    fails("100 bytes", write_at(&file, 2, 0, 100), Errno::INVAL)?;
    fails("at 1", write_at(&file, 2, 1, 512), Errno::INVAL)?;
    fails("at 100", write_at(&file, 2, 100, 4096), Errno::INVAL)?;
    let mut buffer = Aligned::new(8192);
    fails(
        "odd memory",
        pwrite(&file, &buffer.bytes()[1..4097], 0),
        Errno::INVAL,
    )?;
    fails(
        "read at 7",
        pread(&file, &mut buffer.bytes()[..512], 7),
        Errno::INVAL,
    )?;
    same("nothing", pwrite(&file, &[], 0), Ok(0))?;
    size(&file, 8192)?;
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..8192)
}

/// A sector of a new block: the rest of the block is zero, whatever it was.
fn direct_write_of_parts_of_blocks(env: &mut Env) -> Result<()> {
    let block = env.layout.block;
    let file = open(env, "file", OFlags::empty())?;
    ftruncate(&file, 8 * block).context("truncate")?;
    for (number, pos) in [block, 3 * block - 512, 5 * block + 512]
        .into_iter()
        .enumerate()
    {
        if pos % block + 512 <= block {
            same(
                &format!("write {number}"),
                write_at(&file, 1, pos, 512),
                Ok(512),
            )?;
        }
    }
    // Behind the end as well.
    same("behind", write_at(&file, 1, 9 * block + 512, 512), Ok(512))?;
    size(&file, 9 * block + 1024)?;
    fsync(&file).context("fsync")?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    zeros(&file, 0..block)?;
    holds(&file, 1, block..block + 512)?;
    zeros(&file, block + 512..3 * block - 512)?;
    holds(&file, 1, 3 * block - 512..3 * block)?;
    zeros(&file, 3 * block..5 * block + 512)?;
    if block > 512 {
        holds(&file, 1, 5 * block + 512..5 * block + 1024)?;
    }
    zeros(&file, 5 * block + 1024..9 * block + 512)?;
    holds(&file, 1, 9 * block + 512..9 * block + 1024)
}

fn direct_write_into_holes(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::empty())?;
    ftruncate(&file, 2 << 20).context("truncate")?;
    for pos in [0, 64 << 10, 1 << 20, (2 << 20) - 8192] {
        same("written", write_at(&file, 1, pos, 8192), Ok(8192))?;
    }
    // Across data and holes.
    same(
        "written",
        write_at(&file, 2, 60 << 10, 16 << 10),
        Ok(16 << 10),
    )?;
    let check = |file: &File| -> Result<()> {
        holds(file, 1, 0..8192)?;
        zeros(file, 8192..60 << 10)?;
        holds(file, 2, 60 << 10..76 << 10)?;
        zeros(file, 76 << 10..1 << 20)?;
        holds(file, 1, 1 << 20..(1 << 20) + 8192)?;
        zeros(file, (1 << 20) + 8192..(2 << 20) - 8192)?;
        holds(file, 1, (2 << 20) - 8192..2 << 20)
    };
    let reader = env.open("file", OFlags::RDONLY)?;
    check(&reader).context("right after")?;
    let taken = file.metadata()?.blocks();
    ensure!(taken < 400, "{taken} sectors for 36 KiB of data");
    drop((file, reader));
    env.again()?;
    check(&env.open("file", OFlags::RDONLY)?).context("on disk")
}

fn direct_read_around_the_end(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..10_000)?;
    let file = open(env, "file", OFlags::empty())?;
    let mut buffer = Aligned::new(16 << 10);
    same("across", pread(&file, buffer.bytes(), 8192), Ok(1808))?;
    pattern::check(1, 8192, &buffer.bytes()[..1808])?;
    same("whole", pread(&file, buffer.bytes(), 0), Ok(10_000))?;
    pattern::check(1, 0, &buffer.bytes()[..10_000])?;
    same(
        "at the next sector",
        pread(&file, buffer.bytes(), 10_240),
        Ok(0),
    )?;
    same("far behind", pread(&file, buffer.bytes(), 1 << 30), Ok(0))
}

fn direct_write_extends(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::empty())?;
    let mut pos = 0;
    for length in [512, 4096, 512, 1024, 65_536, 512, 200 << 10] {
        same("written", write_at(&file, 1, pos, length), Ok(length))?;
        pos += length as u64;
        size(&file, pos)?;
    }
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..pos)?;
    // The size alone is longer than the data at the end of the last write.
    ftruncate(&file, pos + 100).context("truncate")?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    holds(&file, 1, 0..pos)?;
    zeros(&file, pos..pos + 100)
}

fn direct_append(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::APPEND)?;
    let mut buffer = Aligned::new(4096);
    for number in 0..20 {
        pattern::fill(1, number * 4096, buffer.bytes());
        same("appended", write(&file, buffer.bytes()), Ok(4096))?;
    }
    size(&file, 20 * 4096)?;
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..20 * 4096)
}

/// Direct and buffered IO see each other's data.
fn direct_over_cached_pages(env: &mut Env) -> Result<()> {
    let cached = env.create("file")?;
    put(&cached, 1, 0..100_000)?;
    let file = open(env, "file", OFlags::empty())?;
    let mut buffer = Aligned::new(16 << 10);
    // Dirty pages are written before they are read around.
    same("read", pread(&file, buffer.bytes(), 0), Ok(16 << 10))?;
    pattern::check(1, 0, buffer.bytes())?;
    holds(&cached, 1, 0..100_000)?;
    // Cached pages are given up when they are written around.
    same(
        "written",
        write_at(&file, 2, 16 << 10, 16 << 10),
        Ok(16 << 10),
    )?;
    holds(&cached, 2, 16 << 10..32 << 10)?;
    put(&cached, 3, 20_000..21_000)?;
    same("read", pread(&file, buffer.bytes(), 16 << 10), Ok(16 << 10))?;
    let at = 20_000 - (16 << 10);
    pattern::check(3, 20_000, &buffer.bytes()[at..at + 1000])?;
    kernel::drop_caches()?;
    holds(&cached, 1, 0..16 << 10)?;
    holds(&cached, 3, 20_000..21_000)
}

fn direct_on_a_full_device(env: &mut Env) -> Result<()> {
    let file = open(env, "file", OFlags::empty())?;
    let mut pos = 0;
    loop {
        match write_at(&file, 1, pos, 64 << 10) {
            Ok(done) => pos += done as u64,
            Err(Errno::NOSPC) => break,
            Err(error) => return Err(error).context("write"),
        }
    }
    size(&file, pos)?;
    ensure!(pos > 1 << 20, "only {pos} bytes fitted");
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..pos)?;
    same("over what is there", write_at(&file, 2, 0, 8192), Ok(8192))?;
    holds(&env.open("file", OFlags::RDONLY)?, 2, 0..8192)
}

/// Every record is there once, in one piece, in the order of its writer.
fn append_by_many(env: &mut Env) -> Result<()> {
    const RECORD: usize = 100;
    let shared = &*env;
    std::thread::scope(|scope| -> Result<()> {
        let writers = [0u8, 1, 2, 3].map(|writer| {
            scope.spawn(move || -> Result<()> {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
                let file = shared.open("log", flags)?;
                for number in 0..100 {
                    let mut record = [writer; RECORD];
                    record[0] = number;
                    same("appended", write(&file, &record), Ok(RECORD))?;
                }
                Ok(())
            })
        });
        for writer in writers {
            writer.join().expect("it reports by its result")?;
        }
        Ok(())
    })?;
    let file = env.open("log", OFlags::RDONLY)?;
    size(&file, 400 * RECORD as u64)?;
    let mut next = [0; 4];
    for record in get(&file, 0..400 * RECORD as u64)?.chunks(RECORD) {
        let writer = record[1];
        ensure!(
            record[1..].iter().all(|byte| *byte == writer),
            "a record is in pieces"
        );
        same("order", record[0], next[usize::from(writer)])?;
        next[usize::from(writer)] += 1;
    }
    Ok(())
}

fn append_ignores_the_position(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..1000)?;
    let file = env.open("file", OFlags::RDWR | OFlags::APPEND)?;
    // Linux appends even what is written at a position.
    same("pwrite", pwrite(&file, b"end", 5), Ok(3))?;
    size(&file, 1003)?;
    holds(&file, 1, 0..1000)?;
    same("appended", get(&file, 1000..1003)?, b"end".to_vec())?;
    ftruncate(&file, 10).context("truncate")?;
    same("write", write(&file, b"x"), Ok(1))?;
    size(&file, 11)
}
