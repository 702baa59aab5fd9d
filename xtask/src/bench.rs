// SPDX-License-Identifier: GPL-2.0

//! `bench NAME`: what things take, measured so that the figures repeat.

use crate::exit::{self, Exit};
use crate::opts::{Accel, BenchVerb, Format};
use crate::project::Project;

mod cost;
mod grid;
mod identity;
mod measure;
mod table;
mod timeline;
mod uncached;

/// The file systems that a benchmark can be asked for.
const KNOWN: [&str; 4] = ["rext2", "ext2", "ext4", "xfs"];

/// Refuses what a benchmark cannot do, before a kernel is built for it.
pub fn check(project: &Project, verb: &BenchVerb) -> anyhow::Result<()> {
    let (name, on, markdown) = match verb {
        BenchVerb::Cost(args) => ("cost", &args.on, args.markdown),
        BenchVerb::Uncached(args) => ("uncached", &args.on, args.markdown),
    };
    let wrong = |text: String| Err(exit::error(Exit::Usage, text));
    if project.opts.accel == Accel::Kvm {
        return wrong(format!(
            "bench {name} counts instructions, which --accel kvm cannot; leave it out"
        ));
    }
    if markdown && project.opts.format != Format::Human {
        return wrong("--markdown and --format json are two forms; leave out one".to_owned());
    }
    let named = on.iter().flat_map(|on| on.split(','));
    for fs in named {
        if !KNOWN.contains(&fs) {
            return wrong(format!(
                "bench {name} takes no --on {fs}; it takes: {}",
                KNOWN.join(", ")
            ));
        }
    }
    match verb {
        BenchVerb::Cost(args) if args.check => cost::can_check(project),
        _ => Ok(()),
    }
}

/// Runs one benchmark.
pub fn run(project: &Project, verb: &BenchVerb) -> anyhow::Result<Exit> {
    match verb {
        BenchVerb::Cost(args) => cost::run(project, args),
        BenchVerb::Uncached(args) => uncached::run(project, args),
    }
}
