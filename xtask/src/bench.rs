// SPDX-License-Identifier: GPL-2.0

//! `bench NAME`: what things take, measured so that the figures repeat.

use crate::exit::Exit;
use crate::opts::BenchVerb;
use crate::project::Project;

mod cost;
mod grid;
mod identity;
mod measure;
mod table;
mod timeline;
mod uncached;

/// Runs one benchmark.
pub fn run(project: &Project, verb: &BenchVerb) -> anyhow::Result<Exit> {
    match verb {
        BenchVerb::Cost(args) => cost::run(project, args),
        BenchVerb::Uncached(args) => uncached::run(project, args),
    }
}
