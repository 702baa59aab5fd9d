// SPDX-License-Identifier: GPL-2.0

//! Suite `dio`: direct writes by many at once, on a device that takes 5 ms or more
//! for each request, so that it shows whether they wait for one another.
//!
//! `times-*`: N writers, each with the same number of blocks of its own, take as
//! long as one (within `tolerance=`, 15 % by default), for overwriting and for
//! extending, by threads, AIO and io_uring. C ext2 takes N times as long; its
//! cases are expected differences. `contents-*`: what readers see meanwhile, and
//! what a failing writer does to the others.

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

/// All cases, for the smallest and the usual block size.
pub fn groups(_: &Job) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (topic, tests, recipe) in [
        ("times", times::TESTS, &LARGE),
        ("contents", contents::TESTS, &SMALL),
    ] {
        for layout in LAYOUTS.iter().filter(|layout| layout.block != 2048) {
            groups.push(Group {
                name: format!("{topic}-{}", layout.name),
                cases: tests
                    .iter()
                    .map(|test| case(test, layout, recipe))
                    .collect(),
            });
        }
    }
    Ok(groups)
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
