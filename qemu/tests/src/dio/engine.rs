// SPDX-License-Identifier: GPL-2.0

//! Ways to have many writes on their way at once.

use crate::fs::direct;
use crate::fs::env::Env;
use crate::pattern;
use crate::sys;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::io::{Errno, pwrite};
use std::fs::File;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Who writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Engine {
    /// A thread for each writer.
    Threads,
    /// One thread and Linux AIO.
    Aio,
    /// One thread and io_uring.
    Uring,
}

/// What is written: `count` blocks by each of `writers`.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many writers.
    pub writers: usize,
    /// Blocks of each.
    pub count: usize,
    /// Bytes in a block.
    pub block: usize,
    /// The number of the data.
    pub id: u16,
}

impl Load {
    /// Block `index` of a writer: the writers take turns.
    pub fn pos(&self, writer: usize, index: usize) -> u64 {
        ((index * self.writers + writer) * self.block) as u64
    }

    /// The end of the last block.
    pub fn end(&self) -> u64 {
        (self.writers * self.count * self.block) as u64
    }
}

/// The result of each write, by writer and index, and how long they all took.
pub struct Outcome {
    pub results: Vec<Vec<Result<usize, Errno>>>,
    pub elapsed: Duration,
}

impl Outcome {
    /// Fails unless all writes were done, whole.
    pub fn all_done(&self, load: &Load) -> Result<Duration> {
        for (writer, results) in self.results.iter().enumerate() {
            for (index, result) in results.iter().enumerate() {
                ensure!(
                    *result == Ok(load.block),
                    "block {index} of writer {writer}: {result:?}"
                );
            }
        }
        Ok(self.elapsed)
    }
}

/// Writes the load to a file.
pub fn run(env: &Env, engine: Engine, name: &str, load: &Load) -> Result<Outcome> {
    match engine {
        Engine::Threads => by_threads(env, name, load),
        Engine::Aio => by_queue(env, name, load, sys::aio_write),
        Engine::Uring => by_queue(env, name, load, sys::uring_write),
    }
}

fn by_threads(env: &Env, name: &str, load: &Load) -> Result<Outcome> {
    let start = Barrier::new(load.writers + 1);
    let work = |writer: usize| -> Result<Vec<Result<usize, Errno>>> {
        let opened = direct::open(env, name, OFlags::empty());
        let mut buffer = Aligned::new(load.block);
        start.wait();
        let file = opened?;
        let mut results = Vec::new();
        for index in 0..load.count {
            let pos = load.pos(writer, index);
            pattern::fill(load.id, pos, buffer.bytes());
            results.push(pwrite(&file, buffer.bytes(), pos));
        }
        Ok(results)
    };
    let work = &work;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..load.writers)
            .map(|writer| scope.spawn(move || work(writer)))
            .collect();
        start.wait();
        let begin = Instant::now();
        let results: Result<Vec<_>> = writers
            .into_iter()
            .map(|writer| writer.join().expect("it reports by its result"))
            .collect();
        Ok(Outcome {
            elapsed: begin.elapsed(),
            results: results?,
        })
    })
}

type Queue = fn(&File, &[sys::Write], usize) -> std::io::Result<Vec<Result<usize, Errno>>>;

fn by_queue(env: &Env, name: &str, load: &Load, queue: Queue) -> Result<Outcome> {
    let file = direct::open(env, name, OFlags::empty())?;
    let mut memory = Aligned::new(load.end() as usize);
    pattern::fill(load.id, 0, memory.bytes());
    let bytes = &*memory.bytes();
    let writes: Vec<sys::Write> = bytes
        .chunks(load.block)
        .enumerate()
        .map(|(number, bytes)| ((number * load.block) as u64, bytes))
        .collect();
    let begin = Instant::now();
    let done = queue(&file, &writes, load.writers).context("cannot queue writes")?;
    let elapsed = begin.elapsed();
    // Block `index` of a writer is number `index * writers + writer`.
    let of_writer = |writer| {
        let results = done.iter().skip(writer).step_by(load.writers);
        results.copied().collect()
    };
    Ok(Outcome {
        results: (0..load.writers).map(of_writer).collect(),
        elapsed,
    })
}
