// SPDX-License-Identifier: GPL-2.0

//! `rext2-tests SUITE [--fs TYPE] [key=value...]`: runs one suite, or the
//! comparison of two drivers, in the guest.

use anyhow::{Context, Result, bail};
use rext2_tests::job::Job;
use rext2_tests::{compare, dio, fs, fuzz, images, runner, smoke};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// The port that takes KTAP; without it, standard output does.
const PORT: &str = "/dev/virtio-ports/rext2.ktap";

fn main() -> ExitCode {
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
    let groups = match job.suite.as_str() {
        "smoke" => smoke::groups(&job)?,
        "images" => images::groups(&job)?,
        "fs" => fs::groups(&job)?,
        "dio" => dio::groups(&job)?,
        "fuzz" => fuzz::groups(&job)?,
        other => bail!("unknown suite {other:?}; known are smoke, images, fs, dio, fuzz and compare"),
    };
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
