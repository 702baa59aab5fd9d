// SPDX-License-Identifier: GPL-2.0

//! Suite `crash`: the power fails at any moment. What was promised has to be
//! there afterwards, as far as `model.rs` says that it is promised.
//!
//! QEMU records what the guest writes to disk `crash`, and when it flushes the
//! disk's cache. The guest does random things to a file system there and marks in
//! the same recording what it has done. Then it reads the recording from disk
//! `crash-log` and makes, on disk `crash-work`, what the first disk may have held
//! when the power failed at a point of it: all that was flushed before, and of the
//! rest nothing, everything or some blocks. e2fsck has to repair that in one run.
//! What was promised up to this point must be there then, what nobody touched be
//! as it was, and the file system can be written again. Blocks of the file system
//! are written as a whole or not at all.
//!
//! `seed=` chooses the workloads and the points, `count=` how many points there
//! are, `ops=` how many operations a workload has. Timing has a say in what a
//! recording holds. Therefore it stays in the run's folder when something fails;
//! with `replay=1` the guest gets it again, and the same points fail. What the
//! first failing point left is in partition `kept` of `crash-work`, unrepaired.
//!
//! A file that is changed again after its `fsync` and not synced again may be lost
//! with all that was promised: ext2 has no order among the blocks that lead to
//! data, and e2fsck clears an inode whose indirect block holds something else. That
//! is counted, and a failure only with `strict=1`; C ext2 is no better. Nothing of
//! the kind may happen to a file that nobody has changed.
//!
//! Two groups are controls: a workload makes its promises without a system call,
//! and a device forgets that it was flushed. That has to be noticed.

mod choose;
mod data;
mod judge;
mod log;
mod model;
mod op;
mod recording;
mod workload;

use crate::case::{Case, Group};
use crate::disk;
use crate::fs::manifest::Manifest;
use crate::job::Job;
use crate::kernel;
use anyhow::{Context, Result, ensure};
use log::{Event, Loss, Medium};
use model::{Model, Options};
use op::{Kind, Mark};
use recording::{Points, Recorded, choose, recorded};
use rustix::mount::MountFlags;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Serial of the disk that is recorded, and its partitions.
const SERIAL: &str = "crash";
const WORK: &str = "work";
const MARKS: &str = "marks";
/// Serial of the recording.
const LOG: &str = "crash-log";
/// Serial of the disk on which crashes are judged.
const SCRATCH: &str = "crash-work";
const KEPT: &str = "kept";
/// Bytes of a file system.
pub const SIZE: u64 = 12 << 20;
/// Bytes of the partition with the marks.
pub const MARKS_SIZE: u64 = 1 << 20;
/// Points of a run that does not say how many.
const COUNT: usize = 300;
/// Seconds for the points of a group, and for each of them.
const LIMIT: u64 = 120;
const LIMIT_OF_POINT: u64 = 4;
/// How much of what was not flushed is lost, by the dice.
const LOSSES: [Loss; 5] = [
    Loss::Nothing,
    Loss::Everything,
    Loss::Some(10),
    Loss::Some(50),
    Loss::Some(90),
];
/// Failing points that are told of.
const TOLD: usize = 8;
/// Tells later cases that a failing point was kept.
const NOTE: &str = "/tmp/crash-kept";

/// A workload: on what kind of file system, and how it is mounted.
struct Setup {
    name: &'static str,
    block: u64,
    inode: u64,
    flags: MountFlags,
    /// Whether the kernel takes the device for one without a cache, which it never flushes: what is
    /// written is there.
    through: bool,
    fault: Option<Fault>,
}

/// What makes a workload a control: promises cannot be kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    /// It promises without a system call.
    NoSync,
    /// The device forgets that it was flushed.
    NoFlush,
}

const fn setup(name: &'static str, block: u64, inode: u64, flags: MountFlags) -> Setup {
    Setup {
        name,
        block,
        inode,
        flags,
        through: false,
        fault: None,
    }
}

const SETUPS: [Setup; 9] = [
    setup("1k", 1024, 128, MountFlags::empty()),
    setup("2k", 2048, 256, MountFlags::empty()),
    setup("4k", 4096, 256, MountFlags::empty()),
    setup("1k-dirsync", 1024, 256, MountFlags::DIRSYNC),
    setup("4k-dirsync", 4096, 128, MountFlags::DIRSYNC),
    setup("2k-sync", 2048, 128, MountFlags::SYNCHRONOUS),
    Setup {
        through: true,
        ..setup("4k-through", 4096, 256, MountFlags::empty())
    },
    Setup {
        fault: Some(Fault::NoSync),
        ..setup("control-sync", 1024, 256, MountFlags::empty())
    },
    Setup {
        fault: Some(Fault::NoFlush),
        ..setup("control-flush", 4096, 256, MountFlags::empty())
    },
];

impl Setup {
    fn blocks(&self) -> u64 {
        SIZE / self.block
    }

    /// What the mount flags promise.
    fn promises(&self) -> Options {
        Options {
            dirsync: !self.flags.is_empty(),
            sync: self.flags == MountFlags::SYNCHRONOUS,
        }
    }
}

/// A group for each workload.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    let replay = job.get_or("replay", 0)? != 0;
    let count: usize = job.get_or("count", COUNT)?;
    ensure!(count > 0, "count=0 tries nothing");
    // A mistake in a name is told before anything is mounted.
    choose::Chooser::new(0, 1, job.get("off").unwrap_or_default())?;
    let each = count.div_ceil(SETUPS.iter().filter(|setup| setup.fault.is_none()).count() * 2);
    let mut groups = Vec::new();
    for (number, setup) in SETUPS.iter().enumerate() {
        let group = number as u64;
        let mut cases = Vec::new();
        if !replay {
            let run = move |job: &Job| workload::run(job, group, setup);
            cases.push(Case::new("workload", run).limit(LIMIT));
        }
        let limit = LIMIT + LIMIT_OF_POINT * each as u64;
        if setup.fault.is_some() {
            let run = move |job: &Job| noticed(job, group, setup, each);
            cases.push(Case::new("broken-promises-are-noticed", run).limit(limit));
        } else {
            if !setup.through {
                let flushes = move |job: &Job| kept(job, group, setup, Points::Flushes, each);
                cases.push(Case::new("at-flushes", flushes).limit(limit));
            }
            let between = move |job: &Job| kept(job, group, setup, Points::Anywhere, each);
            cases.push(Case::new("anywhere", between).limit(limit));
        }
        groups.push(Group {
            name: setup.name.into(),
            cases,
        });
    }
    Ok(groups)
}

/// What came of some points.
#[derive(Default)]
struct Outcome {
    tried: usize,
    /// How many e2fsck had something to do for.
    repaired: usize,
    failed: usize,
    /// At how many a promise was broken.
    broken: usize,
    /// At how many only about files that were changed after it.
    weak: usize,
    /// What the failures are, each once.
    told: Vec<String>,
}

/// Tries points of a workload.
fn try_points(
    job: &Job,
    group: u64,
    setup: &Setup,
    points: Points,
    count: usize,
) -> Result<Outcome> {
    if !kernel::is_registered(&job.fs)? {
        kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
    }
    let seed: u64 = job.get_or("seed", 1)?;
    let strict = job.get_or("strict", 0)? != 0;
    let mut random = fastrand::Rng::with_seed(seed);
    let all = recorded(group)?;
    let marks: Vec<_> = all.iter().filter_map(Recorded::mark).collect();
    let chosen = choose(&all, points, count, &mut random)?;
    let device = disk::partition(SCRATCH, WORK)?.device;
    let mut medium = Medium::new(SIZE as usize);
    let mut model = Model::new(setup.promises(), setup.block);
    let mut still: Option<Manifest> = None;
    let mut outcome = Outcome::default();
    let mut known = BTreeSet::new();
    for (number, record) in (1..).zip(&all) {
        match record {
            Recorded::Event(event) => {
                let flush = *event == Event::Flush;
                // What was there before the operations is not under test.
                if !(flush && still.is_some() && setup.fault == Some(Fault::NoFlush)) {
                    medium.tell(event)?;
                }
                if flush {
                    model.flush();
                }
            }
            Recorded::Mark(mark) => {
                model.apply(&mark.op, mark.ino, true)?;
                if mark.op.kind == Kind::Ready {
                    let image = medium.crash(Loss::Nothing, setup.block as usize, &mut random);
                    judge::put(&device, &image)?;
                    still = Some(judge::still(&device, &job.fs)?);
                }
            }
        }
        if !chosen.contains(&number) {
            continue;
        }
        // Each point has dice of its own: others may be left out.
        let mut dice = fastrand::Rng::with_seed(seed ^ (number as u64) << 32);
        let loss = match setup.through {
            true => Loss::Nothing,
            false => LOSSES[dice.usize(0..LOSSES.len())],
        };
        let image = medium.crash(loss, setup.block as usize, &mut dice);
        let begun = all[number..].iter().find_map(Recorded::mark);
        let state = state(&model, begun, loss)?;
        judge::put(&device, &image)?;
        let still = still.as_ref().context("the workload never began")?;
        let judged = judge::judge(&device, &job.fs, &state, still);
        outcome.tried += 1;
        let mut told = match judged {
            Ok(left) => {
                outcome.repaired += usize::from(left.repaired);
                outcome.broken += usize::from(!left.broken.is_empty());
                let hard = left.broken.iter().any(|broken| strict || !broken.touched);
                if !left.broken.is_empty() && !hard {
                    outcome.weak += 1;
                    continue;
                }
                let told = left.broken.iter();
                let told = told.map(|broken| (broken.text.clone(), judge::told(broken, &marks)));
                told.collect()
            }
            Err(error) => vec![(String::new(), format!("{error:#}"))],
        };
        if told.is_empty() {
            continue;
        }
        outcome.failed += 1;
        if setup.fault.is_none() {
            keep(&image, number)?;
        }
        // What is lost once is lost at later points, too.
        told.retain(|(text, _)| text.is_empty() || known.insert(text.clone()));
        if outcome.told.len() < TOLD && !told.is_empty() {
            let begun = begun.map(|mark| format!("{} {}", mark.number, mark.op));
            let told: Vec<_> = told.into_iter().map(|(_, told)| told).collect();
            outcome.told.push(format!(
                "point {number}, with {loss} that was not flushed, during operation {}:\n{}",
                begun.unwrap_or_default(),
                told.join("\n")
            ));
        }
    }
    Ok(outcome)
}

/// What is promised at a point, with the next operation under way.
fn state(model: &Model, begun: Option<&Mark>, loss: Loss) -> Result<Model> {
    let mut state = model.clone();
    if loss == Loss::Nothing {
        // As on a device without a cache.
        state.flush();
    }
    if let Some(mark) = begun {
        state.apply(&mark.op, mark.ino, false)?;
    }
    Ok(state)
}

/// Keeps what the first failing point has left.
fn keep(image: &[u8], point: usize) -> Result<()> {
    if !Path::new(NOTE).exists() {
        judge::put(&disk::partition(SCRATCH, KEPT)?.device, image)?;
        std::fs::write(PathBuf::from(NOTE), point.to_string()).context("cannot note a point")?;
        println!("partition {KEPT} of {SCRATCH} holds what point {point} has left");
    }
    Ok(())
}

/// The case of an honest workload: every promise is kept.
fn kept(job: &Job, group: u64, setup: &Setup, points: Points, count: usize) -> Result<()> {
    let outcome = try_points(job, group, setup, points, count)?;
    println!(
        "{} points, {} of them with something to repair, {} failed; at {} a file was damaged that \
         had been changed after its promise",
        outcome.tried, outcome.repaired, outcome.failed, outcome.weak
    );
    ensure!(outcome.failed == 0, "{}", outcome.told.join("\n"));
    Ok(())
}

/// The case of the control: broken promises are noticed.
fn noticed(job: &Job, group: u64, setup: &Setup, count: usize) -> Result<()> {
    let outcome = try_points(job, group, setup, Points::Anywhere, count)?;
    println!(
        "{} points, {} of them with broken promises",
        outcome.tried, outcome.broken
    );
    ensure!(outcome.broken > 0, "nobody noticed anything");
    Ok(())
}
