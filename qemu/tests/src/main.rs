// SPDX-License-Identifier: GPL-2.0

//! `rext2-tests SUITE [--fs TYPE] [key=value...]`: runs one suite, the comparison
//! of two drivers, or a benchmark, in the guest. Called as `rwf`, it is that program.

use anyhow::{Context, Result};
use rext2_tests::job::Job;
use rext2_tests::{compare, cost, fstests, runner, rwf, stress, suite, timeline};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// The port that takes KTAP; without it, standard output does.
const PORT: &str = "/dev/virtio-ports/rext2.ktap";

fn main() -> ExitCode {
    let mut args = std::env::args();
    if args
        .next()
        .is_some_and(|name| Path::new(&name).ends_with("rwf"))
    {
        return rwf::main(args);
    }
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(3)
    })
}

fn run() -> Result<ExitCode> {
    let job = Job::parse(std::env::args().skip(1))?;
    if job.suite == "compare" {
        let equal = compare::run(&job)?;
        return Ok(ExitCode::from(u8::from(!equal)));
    }
    if job.suite == "cost" {
        cost::run(&job)?;
        return Ok(ExitCode::SUCCESS);
    }
    if job.suite == "timeline" {
        timeline::run(&job)?;
        return Ok(ExitCode::SUCCESS);
    }
    if job.suite == "fstests" {
        let whole = fstests::run(&job, output()?)?;
        return Ok(ExitCode::from(u8::from(!whole)));
    }
    if job.suite == "stress-worker" {
        stress::worker(&job)?;
        return Ok(ExitCode::SUCCESS);
    }
    let groups = suite::groups(&job)?;
    if let Some(name) = &job.case {
        return runner::run_case(&job, &groups, name);
    }
    let good = runner::run(&job, &groups, output()?)?;
    Ok(ExitCode::from(u8::from(!good)))
}

fn output() -> Result<Box<dyn Write>> {
    match OpenOptions::new().write(true).open(PORT) {
        Ok(port) => Ok(Box::new(port)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Box::new(std::io::stdout())),
        Err(error) => Err(error).context(format!("cannot open {PORT}")),
    }
}
