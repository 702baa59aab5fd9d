// SPDX-License-Identifier: GPL-2.0

//! How long N writers take, measured against one.

use super::device::Device;
use super::engine::{self, Engine, Load};
use super::{Test, test};
use crate::fs::check::{holds, size};
use crate::fs::direct;
use crate::fs::env::Env;
use crate::kernel;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{OFlags, fsync, syncfs, unlink};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    test("overwrite-4k-by-threads", |env, device| {
        compare(env, device, Engine::Threads, Mode::Overwrite, SMALL)
    }),
    test("overwrite-4k-by-aio", |env, device| {
        compare(env, device, Engine::Aio, Mode::Overwrite, SMALL)
    }),
    test("overwrite-4k-by-io-uring", |env, device| {
        compare(env, device, Engine::Uring, Mode::Overwrite, SMALL)
    }),
    test("overwrite-1m-by-threads", |env, device| {
        compare(env, device, Engine::Threads, Mode::Overwrite, LARGE)
    }),
    test("extend-4k-by-threads", |env, device| {
        compare(env, device, Engine::Threads, Mode::Extend, SMALL)
    }),
    test("extend-4k-by-aio", |env, device| {
        compare(env, device, Engine::Aio, Mode::Extend, SMALL)
    }),
    test("extend-4k-by-io-uring", |env, device| {
        compare(env, device, Engine::Uring, Mode::Extend, SMALL)
    }),
    test("extend-1m-by-threads", |env, device| {
        compare(env, device, Engine::Threads, Mode::Extend, LARGE)
    }),
    test("append-4k-by-threads", appends),
];

/// Block and number of blocks of each writer.
const SMALL: (usize, usize) = (4096, 4);
const LARGE: (usize, usize) = (1 << 20, 4);
const WRITERS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// The device's time for a write: the first, or more where the processors need
/// so long for a request of each writer that they would be measured instead. Up
/// to the second, dm-delay waits busily, and that takes one of them away.
const LATENCY_MS: u64 = 5;
const LATENCY_OF_TIMERS_MS: u64 = 50;
/// The processors' share of that time.
const SHARE: u32 = 10;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Blocks that are there, whose pointers are known.
    Overwrite,
    /// Blocks behind the end.
    Extend,
}

fn compare(
    env: &mut Env,
    device: &Device,
    engine: Engine,
    mode: Mode,
    (block, count): (usize, usize),
) -> Result<()> {
    let one = |env: &Env, writers: usize, latency: u64| -> Result<Duration> {
        let load = Load {
            writers,
            count,
            block,
            id: 1,
        };
        prepare(env, device, mode, &load)?;
        let load = Load { id: 2, ..load };
        device.slow(latency)?;
        let outcome = engine::run(env, engine, "file", &load);
        device.quick()?;
        let elapsed = outcome?.all_done(&load)?;
        judge(env, &load)?;
        Ok(elapsed)
    };
    ratios(env, one)
}

/// An empty file, or one with all blocks; nothing that is left to be written.
fn prepare(env: &Env, device: &Device, mode: Mode, load: &Load) -> Result<()> {
    device.quick()?;
    let file = direct::open(env, "file", OFlags::TRUNC)?;
    // The bitmaps and the file's own block are in memory afterwards.
    direct::write_at(&file, 1, 0, 4096).context("write")?;
    rustix::fs::ftruncate(&file, 0).context("truncate")?;
    if mode == Mode::Overwrite {
        for pos in (0..load.end()).step_by(load.block) {
            direct::write_at(&file, load.id, pos, load.block).context("write")?;
        }
    }
    fsync(&file).context("fsync")?;
    syncfs(&file).context("syncfs")
}

/// All of the data is there, and nothing else.
fn judge(env: &Env, load: &Load) -> Result<()> {
    kernel::drop_caches()?;
    let file = env.open("file", OFlags::RDONLY)?;
    size(&file, load.end())?;
    for pos in (0..load.end()).step_by(8 << 20) {
        holds(&file, load.id, pos..load.end().min(pos + (8 << 20)))?;
    }
    unlink(env.at("file")).context("unlink")
}

/// N writers take as long as one. A machine with other things to do makes each
/// run longer and none shorter: the best of some counts.
fn ratios(env: &Env, one: impl Fn(&Env, usize, u64) -> Result<Duration>) -> Result<()> {
    let round = one(env, 32, 0)? / SMALL.1 as u32;
    let latency = match (SHARE * round).as_millis() as u64 {
        0..=LATENCY_MS => LATENCY_MS,
        more => more.max(LATENCY_OF_TIMERS_MS),
    };
    let latency = env.job.get_or("latency_ms", latency)?;
    println!(
        "{latency} ms for a request; 32 take the processors {:.1} ms",
        round.as_secs_f64() * 1e3
    );
    let tolerance: f64 = env.job.get_or("tolerance", 0.15)?;
    let tries: usize = env.job.get_or("tries", 4)?;
    let best = |writers: usize, enough: Duration| -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..tries {
            best = best.min(one(env, writers, latency)?);
            // Far off is no noise.
            if best <= enough || best > 2 * enough {
                break;
            }
        }
        Ok(best)
    };
    let single = best(1, Duration::ZERO)?;
    let mut late = Vec::new();
    for writers in WRITERS {
        let elapsed = match writers {
            1 => single,
            _ => best(writers, single.mul_f64(1.0 + tolerance))?,
        };
        let ratio = elapsed.as_secs_f64() / single.as_secs_f64();
        println!(
            "{writers:2} writers: {:7.1} ms, {ratio:.2} x",
            elapsed.as_secs_f64() * 1e3
        );
        if ratio > 1.0 + tolerance {
            late.push(format!(
                "{writers} writers take {ratio:.1} x as long as one"
            ));
        }
    }
    ensure!(late.is_empty(), "{}", late.join("; "));
    Ok(())
}

/// O_APPEND: each gets a range of its own, whoever comes first.
fn appends(env: &mut Env, device: &Device) -> Result<()> {
    let (block, count) = SMALL;
    let one = |env: &Env, writers: usize, latency: u64| -> Result<Duration> {
        let load = Load {
            writers,
            count,
            block,
            id: 0,
        };
        prepare(env, device, Mode::Extend, &load)?;
        device.slow(latency)?;
        let elapsed = append(env, &load);
        device.quick()?;
        super::contents::judge_records(env, &load)?;
        unlink(env.at("file")).context("unlink")?;
        elapsed
    };
    ratios(env, one)
}

/// Appends the load's blocks, each a record of its writer and number.
pub fn append(env: &Env, load: &Load) -> Result<Duration> {
    let start = Barrier::new(load.writers + 1);
    let work = |writer: usize| -> Result<()> {
        let opened = direct::open(env, "file", OFlags::APPEND);
        let mut buffer = crate::walk::Aligned::new(load.block);
        start.wait();
        let file = opened?;
        for index in 0..load.count {
            super::contents::record(writer, index, buffer.bytes());
            let done = rustix::io::write(&file, buffer.bytes());
            if done != Ok(load.block) {
                bail!("record {index} of writer {writer}: {done:?}");
            }
        }
        Ok(())
    };
    let work = &work;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..load.writers)
            .map(|writer| scope.spawn(move || work(writer)))
            .collect();
        start.wait();
        let begin = Instant::now();
        for writer in writers {
            writer.join().expect("it reports by its result")?;
        }
        Ok(begin.elapsed())
    })
}
