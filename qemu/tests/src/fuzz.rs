// SPDX-License-Identifier: GPL-2.0

//! Suite `fuzz`: images whose metadata a seed has damaged. Each is mounted
//! read-write, walked, written and unmounted; every call may fail, and none may
//! hang, none may make the kernel complain.
//!
//! `seed=S count=N` tries the seeds from S on. The image of a seed does not
//! depend on the others: `--seed S --count 1` makes it again. Before an image is
//! mounted it is written to partition `kept`, where it stays when the kernel dies
//! of it or when a case fails: after the first failure no other image is tried.

mod image;
mod mutate;
mod template;
mod use_it;

use crate::case::{Case, Group, skip};
use crate::disk;
use crate::job::Job;
use crate::kernel;
use crate::kmsg::{self, Kmsg};
use anyhow::{Context, Result, ensure};
use image::Image;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Serial of the disk.
const SERIAL: &str = "fuzz";
/// How many images a case tries.
const PER_CASE: u64 = 10;
/// Seconds for a case: an image takes a tenth of one, and a guest on a busy
/// machine a hundred times as long.
const LIMIT: u64 = 300;
/// Tells the cases that follow a failure that there was one.
const TRIED: &str = "/tmp/fuzz-tried";

/// A case for each range of seeds.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    let (seed, count): (u64, u64) = (job.get_or("seed", 1)?, job.get_or("count", 200)?);
    ensure!(count > 0, "count=0 tries nothing");
    let end = seed
        .checked_add(count)
        .context("seed and count are too large")?;
    let starts = (seed..end).step_by(PER_CASE as usize);
    let case = |first: u64| {
        let last = end.min(first + PER_CASE) - 1;
        let run = move |job: &Job| tried(job, first, last);
        Case::new(format!("seeds-{first}-to-{last}"), run).limit(LIMIT)
    };
    Ok(vec![Group {
        name: "fuzz".into(),
        cases: starts.map(case).collect(),
    }])
}

/// Tries the images of these seeds.
fn tried(job: &Job, first: u64, last: u64) -> Result<()> {
    if let Ok(seed) = fs::read_to_string(TRIED) {
        return skip(format!("partition kept holds the image of seed {seed}"));
    }
    let mut mounted = 0;
    for seed in first..=last {
        fs::write(TRIED, seed.to_string()).context("cannot note the seed")?;
        let what = try_one(job, seed).context(format!(
            "seed {seed}; again: --seed {seed} --count 1; the image is in partition kept"
        ))?;
        mounted += u32::from(what.mounted);
    }
    fs::remove_file(TRIED)?;
    println!("{mounted} of {} could be mounted", last - first + 1);
    Ok(())
}

fn try_one(job: &Job, seed: u64) -> Result<use_it::What> {
    if !kernel::is_registered(&job.fs)? {
        kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let template = template::choose(&mut random)?;
    let mut image = Image::parse(template).context("a sound image is not understood")?;
    let changes = mutate::mutate(&mut image, &mut random);
    kmsg::mark(&format!("seed {seed}: {}", changes.join(", ")))?;
    let device = disk::partition(SERIAL, "work")?.device;
    put(&disk::partition(SERIAL, "kept")?.device, image.bytes())?;
    put(&device, image.bytes())?;
    let mut log = Kmsg::now()?;
    let what = use_it::all_of(&device, &job.fs, &mut random)?;
    let lines = log.lines()?;
    let alarms = kmsg::alarms(&lines);
    ensure!(
        alarms.is_empty(),
        "the kernel complained:\n{}",
        alarms.join("\n")
    );
    Ok(what)
}

/// Writes an image to a device, and waits until it is there.
fn put(device: &Path, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).open(device);
    let file = file.context(format!("cannot open {}", device.display()))?;
    file.write_all_at(bytes, 0)
        .context("cannot write an image")?;
    rustix::fs::fsync(&file).context("cannot write an image")
}
