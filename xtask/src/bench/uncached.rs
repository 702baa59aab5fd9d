// SPDX-License-Identifier: GPL-2.0

//! `bench uncached`: what dropping costs and what it saves. A file is read and
//! written by a guest whose clock counts instructions, with room in memory for
//! most of it: at first the page cache is empty, then it is full.

use super::measure;
use super::timeline::Timeline;
use crate::chain;
use crate::exit::Exit;
use crate::opts::{Format, UncachedArgs};
use crate::project::Project;

/// Measures, prints, and holds the figures to the goals if asked to.
pub fn run(project: &Project, args: &UncachedArgs) -> anyhow::Result<Exit> {
    let project = &measure::counting(project);
    let ready = chain::ready(project)?;
    let on = measure::on(&ready, args.on.as_deref(), "ext4,xfs");
    let argv = ["/bin/rext2-tests", "timeline", &format!("on={on}")].map(str::to_owned);
    let again = format!(" --on {on}");
    let (text, identity) = measure::run(project, &ready, "uncached", &again, argv.to_vec())?;
    let timeline = Timeline::parse(&text, identity)?;
    match (project.opts.format, args.markdown) {
        (Format::Json, _) => println!("{}", timeline.json()?),
        (_, true) => print!("{}", timeline.markdown()),
        _ => print!("{}", timeline.text()),
    }
    let missed = timeline.missed();
    if !args.check {
        return Ok(Exit::Good);
    }
    for goal in &missed {
        eprintln!("missed: {goal}");
    }
    eprintln!("check: {} goals are missed", missed.len());
    Ok(match missed.is_empty() {
        true => Exit::Good,
        false => Exit::TestsFailed,
    })
}
