// SPDX-License-Identifier: GPL-2.0

//! What is in the file while many write to it, and after one of them has failed.

use super::device::Device;
use super::engine::{self, Engine, Load};
use super::{Test, test, times};
use crate::fs::check::{get, holds, put, same, size};
use crate::fs::direct;
use crate::fs::env::Env;
use crate::fs::space::fill;
use crate::kernel;
use crate::pattern::{self, STALE};
use crate::walk::Aligned;
use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{OFlags, fsync, ftruncate, syncfs, unlink};
use rustix::io::{Errno, pread};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub const TESTS: &[Test] = &[
    test("reader-of-extending-threads", |env, device| {
        readers(env, device, Engine::Threads)
    }),
    test("reader-of-extending-aio", |env, device| {
        readers(env, device, Engine::Aio)
    }),
    test("reader-of-extending-io-uring", |env, device| {
        readers(env, device, Engine::Uring)
    }),
    test("reader-of-appending-threads", reader_of_appends),
    test("failed-overwrite-by-threads", |env, device| {
        failed_overwrite(env, device, Engine::Threads)
    }),
    test("failed-overwrite-by-io-uring", |env, device| {
        failed_overwrite(env, device, Engine::Uring)
    }),
    test("failed-extension-by-threads", |env, device| {
        failed_extension(env, device, Engine::Threads)
    }),
    test("failed-extension-by-aio", |env, device| {
        failed_extension(env, device, Engine::Aio)
    }),
    test("failed-extension-by-io-uring", |env, device| {
        failed_extension(env, device, Engine::Uring)
    }),
    test("full-device-by-threads", full_device),
    test("overwrites-while-truncated-by-threads", |env, device| {
        overwrites_while_truncated(env, device, Engine::Threads)
    }),
    test("overwrites-while-truncated-by-aio", |env, device| {
        overwrites_while_truncated(env, device, Engine::Aio)
    }),
    test("overwrites-while-truncated-by-io-uring", |env, device| {
        overwrites_while_truncated(env, device, Engine::Uring)
    }),
    test("direct-and-buffered-writers", direct_and_buffered_writers),
    test("extending-aio-and-buffered-writers", |env, device| {
        extending_and_buffered_writers(env, device, Engine::Aio)
    }),
    test("extending-io-uring-and-buffered-writers", |env, device| {
        extending_and_buffered_writers(env, device, Engine::Uring)
    }),
    test("quick-appends-by-threads", quick_appends),
];

/// Time for a write: enough for others to come between, and for dm-delay to wait
/// without a processor.
const LATENCY_MS: u64 = 50;

const LOAD: Load = Load {
    writers: 8,
    count: 8,
    block: 4096,
    id: 2,
};

/// Fills all free blocks with what must not be seen, and frees them.
fn soil(env: &Env) -> Result<()> {
    let file = env.create("soil")?;
    let bytes = STALE.repeat((1 << 20) / STALE.len());
    let mut pos = 0;
    while let Ok(done @ 1..) = rustix::io::pwrite(&file, &bytes, pos) {
        pos += done as u64;
    }
    fsync(&file).context("fsync")?;
    unlink(env.at("soil")).context("unlink")?;
    syncfs(&file).context("syncfs")?;
    drop(file);
    kernel::drop_caches()
}

/// Every word is zero or the stamp of its place.
fn stamped(id: u16, pos: u64, bytes: &[u8]) -> Result<()> {
    let mut right = vec![0; bytes.len()];
    pattern::fill(id, pos, &mut right);
    for (number, (got, right)) in bytes.chunks(8).zip(right.chunks(8)).enumerate() {
        if got != right && got.iter().any(|byte| *byte != 0) {
            let what = if got == STALE {
                "what the disk held before"
            } else {
                "neither zero nor new"
            };
            bail!("byte {} is {what}: {got:02x?}", pos + 8 * number as u64);
        }
    }
    Ok(())
}

/// The stamp of the place up to some byte, and zeros behind that.
fn cut(id: u16, pos: u64, bytes: &[u8]) -> Result<()> {
    let mut right = vec![0; bytes.len()];
    pattern::fill(id, pos, &mut right);
    let kept = bytes.iter().zip(&right).take_while(|(a, b)| a == b).count();
    match bytes[kept..].iter().position(|byte| *byte != 0) {
        Some(behind) => bail!(
            "the stamp ends at byte {}, and byte {} is not zero",
            pos + kept as u64,
            pos + (kept + behind) as u64
        ),
        None => Ok(()),
    }
}

/// Reads up to the size, buffered and direct, while others write.
fn watch(
    env: &Env,
    direct: bool,
    done: &AtomicBool,
    check: impl Fn(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mode = if direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    let file = env.open("file", OFlags::RDONLY | mode)?;
    let mut buffer = Aligned::new(64 << 10);
    let mut last = 0;
    while !done.load(Ordering::Relaxed) {
        let size = file.metadata()?.len();
        ensure!(size >= last, "the size went from {last} to {size}");
        last = size;
        let start = (size.saturating_sub(60 << 10)) / 4096 * 4096;
        let length = pread(&file, buffer.bytes(), start).context("read")?;
        ensure!(
            start + length as u64 >= size,
            "it ends before its size of {size}"
        );
        check(start, &buffer.bytes()[..length]).context(format!("at size {size}"))?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(last)
}

/// Runs writers while both kinds of readers look.
fn watched(
    env: &Env,
    device: &Device,
    check: impl Fn(u64, &[u8]) -> Result<()> + Sync,
    write: impl FnOnce() -> Result<()>,
) -> Result<()> {
    soil(env)?;
    direct::open(env, "file", OFlags::empty())?;
    device.slow(LATENCY_MS)?;
    let (done, check) = (AtomicBool::new(false), &check);
    let written = thread::scope(|scope| -> Result<()> {
        let readers = [false, true].map(|direct| {
            let done = &done;
            scope.spawn(move || watch(env, direct, done, check))
        });
        let written = write();
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("it reports by its result")?;
        }
        written
    });
    device.quick()?;
    written
}

fn readers(env: &mut Env, device: &Device, engine: Engine) -> Result<()> {
    let write = || {
        engine::run(env, engine, "file", &LOAD)?
            .all_done(&LOAD)
            .map(|_| ())
    };
    watched(
        env,
        device,
        |pos, bytes| stamped(LOAD.id, pos, bytes),
        write,
    )?;
    kernel::drop_caches()?;
    let file = env.open("file", OFlags::RDONLY)?;
    size(&file, LOAD.end())?;
    holds(&file, LOAD.id, 0..LOAD.end())
}

/// The record of a writer: its number and its index in every word.
pub fn record(writer: usize, index: usize, bytes: &mut [u8]) {
    let word = (1 + writer as u64) << 32 | (1 + index as u64);
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
    }
}

/// Writer and index of a record, which must be of one piece.
fn of_record(bytes: &[u8]) -> Result<(usize, usize)> {
    let mut words = bytes.chunks(8);
    let first = words.next().context("an empty record")?;
    ensure!(words.all(|word| word == first), "a record is in pieces");
    let word = u64::from_le_bytes(first.try_into()?);
    ensure!(word >> 32 > 0 && word as u32 > 0, "no record: {first:02x?}");
    Ok(((word >> 32) as usize - 1, word as u32 as usize - 1))
}

/// Every record is there once, and those of a writer are in order.
pub fn judge_records(env: &Env, load: &Load) -> Result<()> {
    kernel::drop_caches()?;
    let file = env.open("file", OFlags::RDONLY)?;
    size(&file, load.end())?;
    let mut next = vec![0; load.writers];
    for bytes in get(&file, 0..load.end())?.chunks(load.block) {
        let (writer, index) = of_record(bytes)?;
        ensure!(writer < load.writers, "a record of writer {writer}");
        same(&format!("order of writer {writer}"), index, next[writer])?;
        next[writer] += 1;
    }
    ensure!(
        next.iter().all(|count| *count == load.count),
        "records are missing: {next:?}"
    );
    Ok(())
}

/// Below the size there are whole records or zeros.
fn reader_of_appends(env: &mut Env, device: &Device) -> Result<()> {
    let check = |_: u64, bytes: &[u8]| -> Result<()> {
        for bytes in bytes.chunks(LOAD.block) {
            if bytes.iter().any(|byte| *byte != 0) {
                of_record(bytes)?;
            }
        }
        Ok(())
    };
    watched(env, device, check, || times::append(env, &LOAD).map(|_| ()))?;
    judge_records(env, &LOAD)
}

/// The place of a file's block on the device.
fn place(file: &File, pos: u64) -> Result<u64> {
    for extent in fiemap::Fiemap::new(file.as_fd()) {
        let extent = extent.context("FIEMAP")?;
        if (extent.fe_logical..extent.fe_logical + extent.fe_length).contains(&pos) {
            return Ok(extent.fe_physical + pos - extent.fe_logical);
        }
    }
    bail!("byte {pos} has no block")
}

/// The device refuses one block: its writer learns it, the others' data is there.
fn failed_overwrite(env: &mut Env, device: &Device, engine: Engine) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..LOAD.end())?;
    fsync(&file).context("fsync")?;
    syncfs(&file).context("syncfs")?;
    let (writer, index) = (3, 5);
    let pos = LOAD.pos(writer, index);
    let start = place(&file, pos)?;
    device.failing(start..start + LOAD.block as u64, LATENCY_MS)?;
    let outcome = engine::run(env, engine, "file", &LOAD);
    device.quick()?;
    let outcome = outcome?;
    for (number, results) in outcome.results.iter().enumerate() {
        for (at, result) in results.iter().enumerate() {
            let right = match (number, at) == (writer, index) {
                true => Err(Errno::IO),
                false => Ok(LOAD.block),
            };
            same(&format!("block {at} of writer {number}"), *result, right)?;
        }
    }
    kernel::drop_caches()?;
    size(&file, LOAD.end())?;
    let end = pos + LOAD.block as u64;
    holds(&file, LOAD.id, 0..pos)?;
    // The old data is where the new could not be written.
    holds(&file, 1, pos..end)?;
    holds(&file, LOAD.id, end..LOAD.end())
}

/// The device refuses the place where the file grows to. Whose blocks those
/// were learns it; everybody else's are there; no size is taken back that their
/// data needs, and nothing old is shown in the gaps.
fn failed_extension(env: &mut Env, device: &Device, engine: Engine) -> Result<()> {
    soil(env)?;
    // Where the next blocks come from is the allocator's own affair: there are no
    // others than those that the file has had once.
    let probe = Load { id: 3, ..LOAD };
    engine::run(env, Engine::Threads, "file", &probe)?.all_done(&probe)?;
    let file = env.open("file", OFlags::RDWR)?;
    fsync(&file).context("fsync")?;
    let start = place(&file, LOAD.pos(3, 5))?;
    fill(&env.create("others")?, env.layout.block)?;
    ftruncate(&file, 0).context("truncate")?;
    syncfs(&file).context("syncfs")?;
    device.failing(start..start + 4 * LOAD.block as u64, LATENCY_MS)?;
    let outcome = engine::run(env, engine, "file", &LOAD);
    device.quick()?;
    let outcome = outcome?;
    kernel::drop_caches()?;
    let (end, mut failed, mut last) = (file.metadata()?.len(), 0, 0);
    for (writer, results) in outcome.results.iter().enumerate() {
        for (index, result) in results.iter().enumerate() {
            let pos = LOAD.pos(writer, index);
            let after = pos + LOAD.block as u64;
            match result {
                Ok(length) => {
                    same("length", *length, LOAD.block)?;
                    last = last.max(after);
                    ensure!(after <= end, "the size {end} hides data up to {after}");
                    holds(&file, LOAD.id, pos..after)
                        .context(format!("block {index} of writer {writer}"))?;
                }
                Err(error) => {
                    // Blocks that the device refuses may be all that are left.
                    ensure!(matches!(*error, Errno::IO | Errno::NOSPC), "error {error}");
                    failed += 1;
                    let bytes = get(&file, pos.min(end)..after.min(end))?;
                    stamped(LOAD.id, pos, &bytes)
                        .context(format!("failed block {index} of writer {writer}"))?;
                }
            }
        }
    }
    println!("{failed} writes failed; the file ends at {end}, its data at {last}");
    ensure!(failed > 0, "no write met the bad place");
    ensure!(last > 0, "no write was done");
    unlink(env.at("others")).context("unlink")?;
    // It can be written again, now that the device is well.
    engine::run(env, engine, "file", &LOAD)?.all_done(&LOAD)?;
    holds(&file, LOAD.id, 0..LOAD.end())
}

/// Each writer has what it was told; the size fits.
fn full_device(env: &mut Env, _: &Device) -> Result<()> {
    let load = Load {
        block: 256 << 10,
        count: 40,
        ..LOAD
    };
    let outcome = engine::run(env, Engine::Threads, "file", &load)?;
    let file = env.open("file", OFlags::RDONLY)?;
    kernel::drop_caches()?;
    let end = file.metadata()?.len();
    let mut refused = 0;
    for (writer, results) in outcome.results.iter().enumerate() {
        for (index, result) in results.iter().enumerate() {
            let pos = load.pos(writer, index);
            match result {
                Ok(length) => {
                    let after = pos + *length as u64;
                    ensure!(after <= end, "the size {end} hides data up to {after}");
                    holds(&file, load.id, pos..after)?;
                }
                Err(error) => {
                    same("error", *error, Errno::NOSPC)?;
                    refused += 1;
                }
            }
        }
    }
    ensure!(refused > 0, "80 MiB fitted into 48");
    Ok(())
}

/// A direct overwrite must look at the size again once it has the lock: no
/// block is left behind the end, none is written that was freed. What goes on
/// without the lock is waited for.
fn overwrites_while_truncated(env: &mut Env, device: &Device, engine: Engine) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..LOAD.end())?;
    fsync(&file).context("fsync")?;
    device.slow(LATENCY_MS)?;
    let done = AtomicBool::new(false);
    let ran = thread::scope(|scope| -> Result<()> {
        let cutter = scope.spawn(|| -> Result<()> {
            let mut random = fastrand::Rng::with_seed(3);
            while !done.load(Ordering::Relaxed) {
                ftruncate(&file, random.u64(0..LOAD.end())).context("truncate")?;
                ftruncate(&file, LOAD.end()).context("truncate")?;
            }
            Ok(())
        });
        let outcome = (0..2).try_for_each(|_| {
            engine::run(env, engine, "file", &LOAD)?
                .all_done(&LOAD)
                .map(|_| ())
        });
        done.store(true, Ordering::Relaxed);
        cutter.join().expect("it reports by its result")?;
        outcome
    });
    device.quick()?;
    ran?;
    kernel::drop_caches()?;
    size(&file, LOAD.end())?;
    for pos in (0..LOAD.end()).step_by(LOAD.block) {
        let bytes = get(&file, pos..pos + LOAD.block as u64)?;
        // Old or new, or what a cut has left of it; not some of each.
        cut(LOAD.id, pos, &bytes).or_else(|new| {
            cut(1, pos, &bytes).map_err(|old| anyhow!("neither new: {new:#}, nor old: {old:#}"))
        })?;
    }
    Ok(())
}

/// Half of the blocks go through the page cache, half around it.
fn direct_and_buffered_writers(env: &mut Env, device: &Device) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..2 * LOAD.end())?;
    fsync(&file).context("fsync")?;
    device.slow(LATENCY_MS)?;
    let around = BTreeSet::from([0, 2, 5, 7]);
    let block = LOAD.block as u64;
    let ran = thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..LOAD.writers)
            .map(|writer| {
                let (around, env) = (&around, &*env);
                scope.spawn(move || -> Result<()> {
                    let direct = direct::open(env, "file", OFlags::empty())?;
                    let cached = env.open("file", OFlags::RDWR)?;
                    for index in 0..LOAD.count {
                        let pos = LOAD.pos(writer, index);
                        if around.contains(&writer) {
                            let done = direct::write_at(&direct, LOAD.id, pos, LOAD.block);
                            same("written", done, Ok(LOAD.block))?;
                        } else {
                            put(&cached, LOAD.id, pos..pos + block)?;
                        }
                        holds(&cached, LOAD.id, pos..pos + block)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("it reports by its result")?;
        }
        Ok(())
    });
    device.quick()?;
    ran?;
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    holds(&file, LOAD.id, 0..LOAD.end())?;
    holds(&file, 1, LOAD.end()..2 * LOAD.end())
}

/// Direct writes make the file grow without holding the lock, while others
/// write the same to the page cache, in front of its end and behind it.
fn extending_and_buffered_writers(env: &mut Env, device: &Device, engine: Engine) -> Result<()> {
    let cached = env.create("file")?;
    let done = AtomicBool::new(false);
    let write = || {
        thread::scope(|scope| -> Result<()> {
            let other = scope.spawn(|| -> Result<()> {
                let mut random = fastrand::Rng::with_seed(5);
                while !done.load(Ordering::Relaxed) {
                    // Words stay whole: the readers look at those.
                    let pos = 8 * random.u64(0..LOAD.end() / 8 - 1);
                    let end = (pos + 8 * random.u64(1..1100)).min(LOAD.end());
                    put(&cached, LOAD.id, pos..end)?;
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            });
            let outcome =
                engine::run(env, engine, "file", &LOAD).and_then(|outcome| outcome.all_done(&LOAD));
            done.store(true, Ordering::Relaxed);
            other.join().expect("it reports by its result")?;
            outcome.map(|_| ())
        })
    };
    let check = |pos: u64, bytes: &[u8]| stamped(LOAD.id, pos, bytes);
    watched(env, device, check, write)?;
    kernel::drop_caches()?;
    size(&cached, LOAD.end())?;
    holds(&cached, LOAD.id, 0..LOAD.end())
}

/// Appends that get in each other's way as often as they can: each has a place
/// of its own.
fn quick_appends(env: &mut Env, _: &Device) -> Result<()> {
    let load = Load {
        writers: 16,
        count: 64,
        ..LOAD
    };
    for _ in 0..8 {
        drop(env.create("file")?);
        times::append(env, &load)?;
        judge_records(env, &load)?;
        unlink(env.at("file")).context("unlink")?;
    }
    Ok(())
}
