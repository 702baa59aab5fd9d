// SPDX-License-Identifier: GPL-2.0

//! Row T2: random reads, writes, truncation and fallocate(2) on one file, for
//! `seconds=`, against a model of the file in memory. The seed is `seed=`.

use super::Row;
use super::env::{Env, PAGE, PLAIN, SMALL, Sample, UNCACHED, same, write_at};
use super::fs::Fallocate;
use super::races::LIMIT;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use std::time::Instant;

/// The row.
pub const ROWS: &[Row] = &[Row::new("T2-model", model).limit(LIMIT)];

/// What is done to the file.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    UncachedRead,
    Write,
    UncachedWrite,
    Truncate,
    Sync,
    Punch,
    Zero,
    Collapse,
    Insert,
}

use Operation::*;

/// Operations of every file system, reads and writes more often.
const ALWAYS: &[Operation] = &[
    Read,
    UncachedRead,
    UncachedRead,
    Write,
    UncachedWrite,
    UncachedWrite,
    UncachedWrite,
    Truncate,
    Sync,
];
/// And those of fallocate(2).
const RANGES: &[Operation] = &[Punch, Zero, Collapse, Insert];
/// And those of a file system that does not move blocks.
const HOLES: &[Operation] = &[Punch, Zero];

fn model(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    let mut random = env.random()?;
    let mut operations = ALWAYS.to_vec();
    operations.extend(match env.fs.fallocate {
        Fallocate::All => RANGES,
        Fallocate::Holes | Fallocate::Unwritten => HOLES,
        Fallocate::Nothing => &[],
    });
    let end = Instant::now() + env.seconds()?;
    let mut right = Vec::new();
    let mut log = Vec::new();
    let mut count = 0;
    while Instant::now() < end || count < 50 {
        let operation = operations[random.usize(0..operations.len())];
        let pos = random.usize(0..SMALL as usize);
        let most = 1 << random.u32(4..18);
        let length = random.usize(1..most);
        let line = format!("{count}: {operation:?} {pos} {length}");
        let done = apply(&sample, operation, pos, length, count as u8, &mut right);
        log.push(line);
        if let Err(error) = done {
            let from = log.len().saturating_sub(20);
            println!("the last operations:\n{}", log[from..].join("\n"));
            return Err(error);
        }
        count += 1;
    }
    println!("{count} operations");
    sample.chill()?;
    let got = sample
        .read(0, right.len() + 1, PLAIN)
        .context("cannot read")?;
    compare(0, &got, &right)
}

/// Does it to the file and to the model.
fn apply(
    sample: &Sample,
    operation: Operation,
    pos: usize,
    length: usize,
    byte: u8,
    right: &mut Vec<u8>,
) -> Result<()> {
    let page = PAGE as usize;
    // What moves data around works on whole blocks inside the file.
    let (start, end) = (
        pos / page * page,
        pos / page * page + length.next_multiple_of(page),
    );
    let range = |flags, from: usize, to: usize| {
        fallocate(&sample.file, flags, from as u64, (to - from) as u64).context("fallocate")
    };
    match operation {
        Read | UncachedRead => {
            let flags = if matches!(operation, Read) {
                PLAIN
            } else {
                UNCACHED
            };
            let got = sample
                .read(pos as u64, length, flags)
                .context("cannot read")?;
            let from = pos.min(right.len());
            compare(
                pos,
                &got,
                &right[from..(pos + length).min(right.len()).max(from)],
            )
        }
        Write | UncachedWrite => {
            let flags = if matches!(operation, Write) {
                PLAIN
            } else {
                UNCACHED
            };
            let bytes = vec![byte | 1; length];
            let done = write_at(&sample.file, pos as u64, &bytes, flags);
            same("the length written", done, Ok(length))?;
            right.resize(right.len().max(pos + length), 0);
            right[pos..pos + length].copy_from_slice(&bytes);
            Ok(())
        }
        Truncate => {
            right.resize(pos, 0);
            ftruncate(&sample.file, pos as u64).context("cannot truncate")
        }
        Sync => sample.sync(),
        Punch => {
            let to = (pos + length).min(right.len());
            right[pos.min(to)..to].fill(0);
            range(
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                pos,
                pos + length,
            )
        }
        Zero => {
            right.resize(right.len().max(pos + length), 0);
            right[pos..pos + length].fill(0);
            range(FallocateFlags::ZERO_RANGE, pos, pos + length)
        }
        Collapse if end < right.len() => {
            right.drain(start..end);
            range(FallocateFlags::COLLAPSE_RANGE, start, end)
        }
        Insert if start < right.len() && right.len() < 2 * SMALL as usize => {
            right.splice(start..start, std::iter::repeat_n(0, end - start));
            range(FallocateFlags::INSERT_RANGE, start, end)
        }
        Collapse | Insert => Ok(()),
    }
}

fn compare(pos: usize, got: &[u8], right: &[u8]) -> Result<()> {
    ensure!(
        got.len() == right.len(),
        "{} bytes read at {pos}, not {}",
        got.len(),
        right.len()
    );
    if let Some(at) = got.iter().zip(right).position(|(got, right)| got != right) {
        bail!("byte {} is {}, not {}", pos + at, got[at], right[at]);
    }
    Ok(())
}
