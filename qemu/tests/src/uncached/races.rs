// SPDX-License-Identifier: GPL-2.0

//! Races (rows M1 to M3, R16, R17, T1, T5): several users of one file at once,
//! for `seconds=` each; whatever the order, no data is lost and none is torn.

use super::env::{Env, PAGE, PART, PLAIN, SMALL, Sample, UNCACHED, counter, same};
use super::map::{Kind, Mapping};
use super::{Row, of_each_driver};
use crate::{kernel, pattern};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, fadvise, ftruncate};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// The rows.
pub const ROWS: &[Row] = &[
    Row::new("M1-fault", fault).on(of_each_driver).limit(LIMIT),
    Row::new("M2-store", store).on(of_each_driver).limit(LIMIT),
    Row::new("M3-private", private)
        .on(of_each_driver)
        .limit(LIMIT),
    Row::new("R16-two-readers", two_readers)
        .on(of_each_driver)
        .limit(LIMIT),
    Row::new("R17-plain-reader", plain_reader)
        .on(of_each_driver)
        .limit(LIMIT),
    Row::new("T1-truncate", truncate)
        .on(of_each_driver)
        .limit(LIMIT),
    Row::new("T5-invalidate", invalidate)
        .on(of_each_driver)
        .limit(LIMIT),
    Row::new("T6-migrate", migrate).on(of_each_driver),
];

/// Long runs are asked for with `seconds=`; the suite's own limit ends them.
pub const LIMIT: u64 = 3600;
const PAGES: u64 = SMALL / PAGE;

/// What one party of a race does, again and again.
type Turn<'a> = Box<dyn FnMut(u64) -> Result<()> + Send + 'a>;

/// Runs the parties against each other, each in a thread, until the time is up
/// or one has failed. Every party gets the number of its turn.
fn race(time: Duration, parties: Vec<(&str, Turn)>) -> Result<()> {
    let end = Instant::now() + time;
    let over = AtomicBool::new(false);
    let over = &over;
    scope(|scope| {
        let threads: Vec<_> = parties
            .into_iter()
            .map(|(name, mut turn)| {
                let thread = scope.spawn(move || {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) && (Instant::now() < end || count == 0) {
                        if let Err(error) = turn(count) {
                            over.store(true, Ordering::Relaxed);
                            return Err(error.context(format!("turn {count}")));
                        }
                        count += 1;
                    }
                    Ok(count)
                });
                (name, thread)
            })
            .collect();
        let mut result = Ok(());
        for (name, thread) in threads {
            match thread.join().map_err(|_| anyhow!("{name} panicked"))? {
                Ok(count) => println!("{name}: {count} turns"),
                Err(error) if result.is_ok() => result = Err(error.context(name.to_owned())),
                Err(_) => {}
            }
        }
        result
    })
}

fn reader(sample: &Sample, size: u64, flags: rustix::io::ReadWriteFlags) -> Turn<'_> {
    Box::new(move |_| sample.check(1, 0..size, PART, flags))
}

/// M1: faults against the drop of what was read.
fn fault(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let sample = &sample;
    let look = move |_| {
        let mapping = Mapping::new(&sample.file, SMALL, Kind::ReadOnly)?;
        pattern::check(1, 0, &mapping.load(0..SMALL)?)
    };
    // What is mapped once stays; the third makes the file cold again.
    let forget = move |_| {
        std::thread::sleep(Duration::from_millis(3));
        fadvise(&sample.file, 0, None, Advice::DontNeed).context("cannot advise")
    };
    race(
        env.seconds()?,
        vec![
            ("reader", reader(sample, SMALL, UNCACHED)),
            ("mapper", Box::new(look)),
            ("forgetter", Box::new(forget)),
        ],
    )
}

/// M2: uncached writes of the first half of each page against stores to a word
/// of the second half.
fn store(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let sample = &sample;
    let half = PAGE as usize / 2;
    let mapping = Mapping::new(&sample.file, SMALL, Kind::Shared)?;
    let (mut id, mut word) = (1, 0);
    let (written, stored) = (&mut id, &mut word);
    let write = |turn: u64| {
        *written = 2 + (turn % 1000) as u16;
        (0..PAGES).try_for_each(|page| {
            let pos = page * PAGE;
            sample.put(*written, pos..pos + half as u64, half, UNCACHED)
        })
    };
    let mapping = &mapping;
    let store = |turn: u64| {
        *stored = turn + 1;
        for page in 0..PAGES {
            let pos = page * PAGE + 4000;
            if turn > 0 {
                same("the word of the turn before", mapping.word(pos)?, turn)?;
            }
            mapping.store(pos, turn + 1)?;
        }
        Ok(())
    };
    race(
        env.seconds()?,
        vec![("writer", Box::new(write)), ("storer", Box::new(store))],
    )?;
    let right = || {
        for page in 0..PAGES {
            let pos = page * PAGE;
            let bytes = sample
                .read(pos, PAGE as usize, PLAIN)
                .context("cannot read")?;
            pattern::check(id, pos, &bytes[..half])?;
            pattern::check(1, pos + half as u64, &bytes[half..4000])?;
            let got = u64::from_ne_bytes(bytes[4000..4008].try_into()?);
            same(&format!("the word stored in page {page}"), got, word)?;
            pattern::check(1, pos + 4008, &bytes[4008..])?;
        }
        Ok(())
    };
    let in_cache: Result<()> = right();
    in_cache.context("in the cache")?;
    Ok(())
}

/// M3: private copies of pages against the drop of the pages.
fn private(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let sample = &sample;
    let copy = move |turn: u64| {
        let mapping = Mapping::new(&sample.file, SMALL, Kind::Private)?;
        for page in (0..PAGES).step_by(3) {
            mapping.store(page * PAGE, turn)?;
        }
        for page in 0..PAGES {
            let pos = page * PAGE;
            if page % 3 == 0 {
                same("a word of the copy", mapping.word(pos)?, turn)?;
            }
            pattern::check(1, pos + 8, &mapping.load(pos + 8..pos + PAGE)?)?;
        }
        Ok(())
    };
    race(
        env.seconds()?,
        vec![
            ("reader", reader(sample, SMALL, UNCACHED)),
            ("copier", Box::new(copy)),
        ],
    )
}

/// R16: two uncached readers at random places.
fn two_readers(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let sample = &sample;
    let random_reader = |mut random: fastrand::Rng| -> Turn {
        Box::new(move |_| {
            let pos = random.u64(0..SMALL - PART as u64);
            let length = random.usize(1..PART);
            sample.check(1, pos..pos + length as u64, length, UNCACHED)
        })
    };
    let (first, second) = (
        random_reader(env.random()?),
        random_reader(env.random()?.fork()),
    );
    race(env.seconds()?, vec![("first", first), ("second", second)])?;
    sample.check(1, 0..SMALL, PART, UNCACHED)?;
    println!("{} pages left over", sample.cached()?.pages);
    Ok(())
}

/// R17: a file that is cached stays so, whoever reads it.
fn plain_reader(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    sample.check(1, 0..SMALL, PART, PLAIN)?;
    let sample = &sample;
    let plain = move |_| {
        sample.check(1, 0..SMALL, PART, PLAIN)?;
        same("pages in the cache", sample.cached()?.pages, PAGES)
    };
    race(
        env.seconds()?,
        vec![
            ("uncached", reader(sample, SMALL, UNCACHED)),
            ("plain", Box::new(plain)),
        ],
    )
}

/// T1: an uncached writer against truncation to nothing and back: each byte is
/// zero or written.
fn truncate(env: &mut Env) -> Result<()> {
    let sample = env.create("file")?;
    let sample = &sample;
    let write = move |turn: u64| {
        let pos = turn % 16 * PART as u64;
        sample.put(1, pos..pos + PART as u64, PART, UNCACHED)
    };
    let cut = move |turn: u64| {
        let size = if turn.is_multiple_of(2) {
            0
        } else {
            SMALL / 2 + turn % 8192
        };
        ftruncate(&sample.file, size).context("cannot truncate")
    };
    let read = move |turn: u64| {
        let pos = turn % 16 * PART as u64;
        let bytes = sample.read(pos, PART, UNCACHED).context("cannot read")?;
        zero_or_written(pos, &bytes)
    };
    race(
        env.seconds()?,
        vec![
            ("writer", Box::new(write)),
            ("cutter", Box::new(cut)),
            ("reader", Box::new(read)),
        ],
    )?;
    sample.chill()?;
    let bytes = sample
        .read(0, SMALL as usize, PLAIN)
        .context("cannot read")?;
    zero_or_written(0, &bytes)
}

fn zero_or_written(pos: u64, bytes: &[u8]) -> Result<()> {
    let mut right = vec![0; bytes.len()];
    pattern::fill(1, pos, &mut right);
    let wrong = bytes
        .iter()
        .zip(&right)
        .position(|(got, right)| *got != 0 && got != right);
    ensure!(
        wrong.is_none(),
        "byte {} is neither zero nor what was written",
        pos + wrong.unwrap_or_default() as u64
    );
    Ok(())
}

/// T5: readers and a writer while everything that can go is thrown out of the
/// cache and memory is compacted.
fn invalidate(env: &mut Env) -> Result<()> {
    let sample = env.cold(SMALL)?;
    let sample = &sample;
    let other = env.create("other")?;
    let other = &other;
    let write = move |turn: u64| {
        let pos = turn % 16 * PART as u64;
        other.put(1, pos..pos + PART as u64, PART, UNCACHED)
    };
    let compact = move |turn: u64| {
        fadvise(&sample.file, 0, None, Advice::DontNeed).context("cannot advise")?;
        if turn.is_multiple_of(4) {
            kernel::drop_caches()?;
        }
        std::fs::write("/proc/sys/vm/compact_memory", "1").context("cannot compact memory")
    };
    race(
        env.seconds()?,
        vec![
            ("reader", reader(sample, SMALL, UNCACHED)),
            ("writer", Box::new(write)),
            ("invalidator", Box::new(compact)),
        ],
    )?;
    other.sync()?;
    // A folio that compaction holds when its writeback ends stays for the time,
    // but is still marked.
    println!("{} pages stay", other.settle(0)?.pages);
    let size = other.file.metadata().context("cannot stat")?.len();
    other.check(1, 0..size, PART, UNCACHED)?;
    other.dropped(env, 0)
}

/// T6: a marked folio that compaction moves is still marked: what readahead has
/// left in many files is compacted, and goes when it is read.
fn migrate(env: &mut Env) -> Result<()> {
    const FILES: u64 = 128;
    const SIZE: u64 = 64 * PAGE;
    let moved = || counter("/proc/vmstat", "pgmigrate_success ");
    let left = |samples: &[Sample]| -> Result<u64> {
        let pages = samples.iter().map(|sample| Ok(sample.cached()?.pages));
        pages.sum()
    };
    let mut samples = Vec::new();
    for number in 0..FILES {
        let sample = env.create(&format!("file{number}"))?;
        sample.put(1, 0..SIZE, SIZE as usize, PLAIN)?;
        samples.push(sample);
    }
    for sample in &samples {
        sample.chill()?;
        sample.check(1, 0..PART as u64, PART, UNCACHED)?;
    }
    let before = left(&samples)?;
    ensure!(
        before > 0,
        "readahead left nothing, so the row shows nothing"
    );
    // Holes for others to move into, at one end of memory.
    for sample in samples.iter().step_by(2) {
        sample.check(1, 0..SIZE, SIZE as usize, UNCACHED)?;
    }
    let start = moved()?;
    std::fs::write("/proc/sys/vm/compact_memory", "1").context("cannot compact memory")?;
    let (stay, moved) = (left(&samples)?, moved()? - start);
    println!("{before} pages left by readahead; compaction moved {moved} pages, {stay} stay");
    ensure!(
        moved > 0,
        "compaction moved nothing, so the row shows nothing"
    );
    for sample in &samples {
        sample.check(1, 0..SIZE, SIZE as usize, UNCACHED)?;
    }
    same("pages after an uncached read", left(&samples)?, 0)
}
