// SPDX-License-Identifier: GPL-2.0

//! Suites `dio` and `parallel`: direct writes by many at once, on a device that takes
//! 5 ms or more for each request, so that it shows whether they wait for one another.
//!
//! `dio`: what readers see meanwhile, what a failing writer does to the others, and
//! how such writes get along with truncation and the page cache. `parallel`: N
//! writers, each with the same number of blocks of its own, take as long as one
//! (within `tolerance=`, 15 % by default), for overwriting and for extending, by
//! threads, AIO and io_uring. C ext2 takes N times as long; its cases are expected
//! differences. It measures times, which a busy machine spoils.

mod contents;
mod device;
mod engine;
mod times;

use crate::case::{Case, Group};
use crate::fs::differences;
use crate::fs::env::{Env, Layout, Recipe};
use crate::fs::{LAYOUTS, env};
use crate::job::Job;
use anyhow::Result;
use device::Device;

/// A case on a device of its own.
pub struct Test {
    name: &'static str,
    run: fn(&mut Env, &Device) -> Result<()>,
}

const fn test(name: &'static str, run: fn(&mut Env, &Device) -> Result<()>) -> Test {
    Test { name, run }
}

/// Room for four blocks of 1 MiB by each of 32 writers.
const LARGE: Recipe = Recipe {
    make: &["-N", "256", "-m", "0"],
    mib: 160,
    ..env::USUAL
};

/// A file system that is quickly filled.
const SMALL: Recipe = Recipe { mib: 48, ..LARGE };

/// What readers and others see.
pub fn groups(_: &Job) -> Result<Vec<Group>> {
    Ok(all("contents", contents::TESTS, &SMALL))
}

/// How long it takes.
pub fn times(_: &Job) -> Result<Vec<Group>> {
    Ok(all("times", times::TESTS, &LARGE))
}

/// The cases of a topic, for the smallest and the usual block size.
fn all(topic: &str, tests: &'static [Test], recipe: &'static Recipe) -> Vec<Group> {
    let layouts = LAYOUTS.iter().filter(|layout| layout.block != 2048);
    let group = |layout: &'static Layout| Group {
        name: format!("{topic}-{}", layout.name),
        cases: tests
            .iter()
            .map(|test| case(test, layout, recipe))
            .collect(),
    };
    layouts.map(group).collect()
}

fn case(test: &'static Test, layout: &'static Layout, recipe: &'static Recipe) -> Case {
    let case = Case::new(test.name, move |job| {
        differences::judge(job, test.name, layout, || {
            let device = Device::make()?;
            let mut env = Env::on(job, layout, recipe, device.partition())?;
            (test.run)(&mut env, &device)?;
            device.quick()?;
            env.finish()
        })
    });
    case.limit(240)
}

/// The cases' names.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    let tests = times::TESTS.iter().chain(contents::TESTS);
    tests.map(|test| test.name)
}
