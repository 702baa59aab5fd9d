// SPDX-License-Identifier: GPL-2.0

//! What `exec` and `boot` promise to scripts, tried on this very program and a
//! real guest, without a terminal.

use anyhow::{Context as _, ensure};
use std::process::Output;
use std::time::Instant;

use crate::exit::Exit;
use crate::ktap::Outcome;
use crate::part::{Case, Part};
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;

/// One promise.
struct Promise {
    name: &'static str,
    args: &'static [&'static str],
    holds: fn(&Output) -> anyhow::Result<()>,
}

const PROMISES: &[Promise] = &[
    Promise {
        name: "output and status are handed on, apart from each other and from the kernel's log",
        args: &[
            "exec",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; cat; exit 7",
        ],
        holds: |output| {
            status(output, 7)?;
            ensure!(
                output.stdout == b"out\n",
                "stdout: {:?}",
                text(&output.stdout)
            );
            let lines = text(&output.stderr);
            ensure!(lines.lines().any(|line| line == "err"), "stderr: {lines:?}");
            Ok(())
        },
    },
    Promise {
        name: "a command that is not there is status 127",
        args: &["exec", "--", "/bin/no-such-command"],
        holds: |output| status(output, 127),
    },
    Promise {
        name: "a kernel that panics is exit code 10, with the trace shown",
        args: &["exec", "--", "sh", "-c", "echo c >/proc/sysrq-trigger"],
        holds: |output| {
            status(output, Exit::Panic.code())?;
            let lines = text(&output.stderr);
            ensure!(lines.contains("Call Trace:"), "stderr: {lines:?}");
            Ok(())
        },
    },
    Promise {
        name: "boot without a terminal reports and powers off",
        args: &["boot"],
        holds: |output| {
            status(output, 0)?;
            let lines = text(&output.stdout);
            ensure!(lines.contains(" mounted on "), "stdout: {lines:?}");
            let last = lines.lines().last().unwrap_or_default();
            ensure!(last.starts_with("no terminal"), "stdout: {lines:?}");
            Ok(())
        },
    },
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn status(output: &Output, wanted: u8) -> anyhow::Result<()> {
    ensure!(
        output.status.code() == Some(wanted.into()),
        "ended with {}, not {wanted}; stderr: {:?}",
        output.status,
        text(&output.stderr)
    );
    Ok(())
}

/// Tries every promise on the kernel that the flags ask for.
pub fn run(project: &Project, flags: &[String], repeat: &str) -> anyhow::Result<Part> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let step = Step::new("test", format!("exec and boot ({})", project.flavor.name()));
    let begin = Instant::now();
    let mut cases = Vec::new();
    for promise in PROMISES {
        let start = Instant::now();
        let mut cmd = Cmd::new(&program)
            .args(flags)
            .args(promise.args)
            .env("REXT2_ROOT", &project.root)
            .env("REXT2_CACHE", &project.cache);
        for name in ["CARGO_TARGET_DIR", "REXT2_QEMU"] {
            if let Some(value) = std::env::var_os(name) {
                cmd = cmd.env(name, value);
            }
        }
        let held = cmd.output().and_then(|output| (promise.holds)(&output));
        cases.push(Case {
            name: promise.name.to_owned(),
            outcome: match held {
                Ok(()) => Outcome::Passed,
                Err(_) => Outcome::Failed,
            },
            output: held
                .err()
                .map(|error| format!("{error:#}"))
                .into_iter()
                .collect(),
            seconds: Some(start.elapsed().as_secs_f64()),
        });
    }
    let name = format!("exec and boot ({})", project.flavor.name());
    let part = Part::of_cases(&name, repeat, begin.elapsed().as_secs_f64(), cases);
    step.end(part.word());
    Ok(part)
}
