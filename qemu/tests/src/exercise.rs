// SPDX-License-Identifier: GPL-2.0

//! Suite `exercise`: random operations of every kind on one file, each compared
//! with a model of the file in memory, on each file system of `on=`.
//!
//! Operations follow from `seed=`, so a seed and a number name an operation. A
//! file system is asked first what it supports; `off=` leaves operations out by
//! name. When something differs, the operations before it are tried again on a
//! new file with ever fewer of them, and the shortest sequence that still goes
//! wrong is printed.
//!
//! Values: `on=` names or types of file systems, `ops=` how many operations,
//! `seed=`, `size=` of the file at most, `off=` operations between commas,
//! `device=` inline, softirq, hardirq or slow.

mod file;
mod minimise;
pub mod op;

use crate::case::{Case, Group};
use crate::job::Job;
use crate::kmsg;
use crate::uncached::env::Env;
use crate::uncached::{device::Class, fs};
use anyhow::{Context, Result, bail, ensure};
use file::Subject;
use op::{Kind, Step};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The suite's own limit ends a run.
const LIMIT: u64 = 24 * 3600;
/// How long a failing sequence is made shorter.
const PATIENCE: Duration = Duration::from_secs(120);
/// Operations between two looks at the whole file, as the disk has it.
const LOOK: usize = 5000;

/// The group of each chosen file system.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    let class = class(job)?;
    // A mistake in a name is told before anything is mounted.
    switched_off(job)?;
    let group = |fs: &'static fs::Fs| Group {
        name: format!("{}/{}", class.name(), fs.name),
        cases: vec![
            Case::new("operations", move |job: &Job| {
                let mut env = Env::new(job, fs, class)?;
                run(&mut env)?;
                env.finish()
            })
            .limit(LIMIT),
        ],
    };
    Ok(chosen(job)?.into_iter().map(group).collect())
}

/// The file systems that `--fs` or else `on=` names.
pub fn chosen(job: &Job) -> Result<Vec<&'static fs::Fs>> {
    let names = match job.fs_given() {
        Some(name) => name,
        None => job.get("on").context("on= names no file system")?,
    };
    let mut found = Vec::new();
    for name in names.split(',') {
        let before = found.len();
        found.extend(
            fs::ALL
                .iter()
                .filter(|fs| fs.name == name || fs.kind == name),
        );
        ensure!(found.len() > before, "no file system {name:?}");
    }
    Ok(found)
}

/// The device that `device=` names.
pub fn class(job: &Job) -> Result<Class> {
    let name = job.get("device").unwrap_or("hardirq");
    let all = [Class::Inline, Class::Softirq, Class::Hardirq, Class::Slow];
    let found = all.into_iter().find(|class| class.name() == name);
    found.context(format!("no device {name:?}"))
}

/// The operations that `off=` names.
fn switched_off(job: &Job) -> Result<BTreeSet<Kind>> {
    let names = job.get("off").unwrap_or_default().split(',');
    names
        .filter(|name| !name.is_empty())
        .map(|name| {
            Kind::find(name).context(format!("no operation {name:?}; known: {}", Kind::list()))
        })
        .collect()
}

fn run(env: &mut Env) -> Result<()> {
    let count: usize = env.job.get_or("ops", 20_000)?;
    let seed: u64 = env.job.get_or("seed", 1)?;
    let size: usize = env.job.get_or("size", 256 << 10)?;
    let off = switched_off(env.job)?;
    let (kinds, missing): (Vec<Kind>, Vec<Kind>) = (Kind::ALL.into_iter())
        .filter(|kind| !off.contains(kind))
        .partition(|kind| Subject::supports(env, *kind));
    let names = |kinds: &[Kind]| {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        names.join(" ")
    };
    println!("seed={seed} ops={count} size={size}");
    println!("not supported: {}", names(&missing));
    ensure!(!kinds.is_empty(), "every operation is switched off");

    let mut random = fastrand::Rng::with_seed(seed);
    let mut steps: Vec<Step> = Vec::with_capacity(count);
    let mut subject = Subject::new(env, size)?;
    let begin = Instant::now();
    for number in 0..count {
        let step = Step::random(&mut random, &kinds, number, size);
        steps.push(step);
        let mut done = subject.apply(&step);
        if done.is_ok() && (number + 1) % LOOK == 0 {
            done = subject.look();
            // Hours may pass: the console tells how far it is.
            kmsg::mark(&format!("{} of {count} operations", number + 1))?;
        }
        if let Err(error) = done {
            drop(subject);
            return explain(env, size, &steps, error);
        }
    }
    if let Err(error) = subject.look() {
        drop(subject);
        return explain(env, size, &steps, error);
    }
    let mut done = [0; Kind::ALL.len()];
    steps.iter().for_each(|step| done[step.kind as usize] += 1);
    let counts = Kind::ALL.iter().zip(done).filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(kind, count)| format!("{} {count}", kind.name()))
        .collect();
    println!("{}", counts.join(", "));
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    println!("{count} operations, {rate:.0} a second");
    Ok(())
}

/// The error with the shortest sequence of operations that leads to one.
fn explain(env: &Env, size: usize, steps: &[Step], error: anyhow::Error) -> Result<()> {
    let number = steps.len() - 1;
    println!("operation {number} went wrong: {error:#}");
    println!("the last operations:");
    let tail = &steps[steps.len().saturating_sub(200)..];
    tail.iter().for_each(|step| println!("  {step}"));
    let fails = |steps: &[Step]| -> bool {
        let tried = Subject::new(env, size).and_then(|mut subject| {
            steps.iter().try_for_each(|step| subject.apply(step))?;
            subject.look()
        });
        tried.is_err()
    };
    match minimise::shortest(steps, PATIENCE, fails) {
        Some(short) => {
            println!("{} operations are enough:", short.len());
            short.iter().for_each(|step| println!("  {step}"));
        }
        None => println!("the same operations on a new file go well"),
    }
    bail!("operation {number}: {error:#}")
}
