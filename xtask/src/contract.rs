// SPDX-License-Identifier: GPL-2.0

//! What `exec` and `boot` promise to scripts, tried on this very program and a
//! real guest, without a terminal.

mod sessions;

use anyhow::{Context as _, ensure};
use std::process::Output;
use std::time::{Duration, Instant};

use rext2_init::{Action, Job, Module};

use crate::artifact::Kernel;
use crate::console::Lists;
use crate::exit::Exit;
use crate::guest::{self, Plan, Unobserved};
use crate::ktap::Outcome;
use crate::leaks;
use crate::opts::Flavor;
use crate::part::{Case, Part};
use crate::project::Project;
use crate::sh::{self, Cmd};
use crate::step::Step;
use crate::verdict;
use crate::vm::Vm;

/// What a debugged guest may take; only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(600);

/// One promise.
struct Promise {
    name: &'static str,
    args: &'static [&'static str],
    /// Standard input; that of the tests is empty.
    input: Option<&'static str>,
    holds: fn(&Output) -> anyhow::Result<()>,
}

const PROMISES: &[Promise] = &[
    Promise {
        name: "output and status are handed on, apart from each other and from the kernel's log",
        input: None,
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
        name: "what a pipe says arrives, and so does its end",
        input: Some("one\ntwo"),
        args: &["exec", "--", "cat"],
        holds: |output| {
            status(output, 0)?;
            let said = text(&output.stdout);
            ensure!(said == "one\ntwo", "stdout: {said:?}");
            Ok(())
        },
    },
    Promise {
        name: "a command may leave its input unread",
        input: Some("nobody wants this\n"),
        args: &["exec", "--", "true"],
        holds: |output| status(output, 0),
    },
    Promise {
        name: "a command that is not there is status 127",
        input: None,
        args: &["exec", "--", "/bin/no-such-command"],
        holds: |output| status(output, 127),
    },
    Promise {
        name: "a kernel that panics is exit code 10, with the trace shown",
        input: None,
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
        input: None,
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

/// What a kernel of flavour `debug` promises besides.
const DEBUG_PROMISES: &[Promise] = &[
    Promise {
        name: "a warning is exit code 11, with source lines in its trace",
        input: None,
        args: &[
            "exec",
            "--",
            "sh",
            "-c",
            "echo WARNING >/sys/kernel/debug/provoke-crash/DIRECT",
        ],
        holds: |output| splat(output, "lkdtm_WARNING (drivers/misc/lkdtm/bugs.c:"),
    },
    Promise {
        name: "a use after free is exit code 11",
        input: None,
        args: &[
            "exec",
            "--",
            "sh",
            "-c",
            "echo READ_AFTER_FREE >/sys/kernel/debug/provoke-crash/DIRECT",
        ],
        holds: |output| splat(output, "BUG: KASAN: "),
    },
];

fn splat(output: &Output, wanted: &str) -> anyhow::Result<()> {
    status(output, Exit::Splat.code())?;
    let lines = text(&output.stderr);
    ensure!(lines.contains(wanted), "stderr: {lines:?}");
    Ok(())
}

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
pub fn run(
    project: &Project,
    kernel: &Kernel,
    flags: &[String],
    repeat: &str,
) -> anyhow::Result<Part> {
    let name = format!("exec and boot ({})", project.flavor.name());
    let step = Step::new("test", name.as_str());
    let begin = Instant::now();
    let mut cases = Vec::new();
    let debug = match project.flavor {
        Flavor::Debug => DEBUG_PROMISES,
        _ => &[],
    };
    for promise in PROMISES.iter().chain(debug) {
        cases.push(case(promise.name, || {
            let mut cmd = program(project, flags)?.args(promise.args);
            if let Some(input) = promise.input {
                cmd = cmd.stdin(input);
            }
            (promise.holds)(&cmd.output()?)
        }));
    }
    cases.push(case("all of a large input arrives, in its order", || {
        sessions::large_input(project, flags)
    }));
    cases.push(case(
        "what one writes in the shell of boot stays in one's image, and is forgotten in a scratch one",
        || sessions::shell_writes(project, flags),
    ));
    cases.push(case(
        "--gdb waits for the debugger and then goes on",
        || sessions::stub(project, flags),
    ));
    if sh::which("gdb").is_some() {
        cases.push(case(
            "gdb stops where rext2 is inserted, with its symbols",
            || sessions::gdb(project, flags),
        ));
    }
    if project.flavor == Flavor::Debug {
        cases.push(case("memory that a module leaks is exit code 11", || {
            leak(project, kernel)
        }));
    }
    let part = Part::of_cases(&name, repeat, begin.elapsed().as_secs_f64(), cases);
    step.end(part.word());
    Ok(part)
}

fn case(name: &str, run: impl FnOnce() -> anyhow::Result<()>) -> Case {
    let begin = Instant::now();
    let held = run();
    Case {
        name: name.to_owned(),
        outcome: match held {
            Ok(()) => Outcome::Passed,
            Err(_) => Outcome::Failed,
        },
        output: (held.err().iter())
            .map(|error| format!("{error:#}"))
            .collect(),
        seconds: Some(begin.elapsed().as_secs_f64()),
    }
}

/// This program, with the same checkout, cache and kernel.
fn program(project: &Project, flags: &[String]) -> anyhow::Result<Cmd> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut cmd = Cmd::new(program)
        .args(flags)
        .env("REXT2_ROOT", &project.root)
        .env("REXT2_CACHE", &project.cache);
    for name in ["CARGO_TARGET_DIR", "REXT2_QEMU"] {
        if let Some(value) = std::env::var_os(name) {
            cmd = cmd.env(name, value);
        }
    }
    Ok(cmd)
}

/// Lets the kernel's own sample module leak, and sees whether it is found out.
fn leak(project: &Project, kernel: &Kernel) -> anyhow::Result<()> {
    let leaky = Module {
        name: "kmemleak-test".to_owned(),
        params: String::new(),
    };
    let plan = Plan {
        name: "leak",
        repeat: String::new(),
        job: Job {
            token: guest::token()?,
            modules: vec![leaky],
            mounts: Vec::new(),
            action: Action::Halt,
            kmemleak: true,
            debugger: false,
        },
        disks: Vec::new(),
        files: Vec::new(),
        replay: None,
        may_skip: Vec::new(),
        limits: Vm::load(project)?.limits(&project.opts, None),
        gdb: false,
        counting: None,
        memory: None,
        extra: Vec::new(),
    };
    let run = guest::run(project, kernel, &plan, &mut Unobserved)?;
    let verdict = verdict::of_folder(&run.folder, &run.record, &Lists::load(project)?);
    ensure!(
        verdict.exit == Exit::Splat && verdict.reason.contains("leaked objects"),
        "exit code {}: {} (run {})",
        verdict.exit.code(),
        verdict.reason,
        run.folder.path().display()
    );
    let lines = leaks::lines(&run.folder.events());
    ensure!(
        lines
            .iter()
            .any(|line| line.contains("(kmemleak-test.ko, .text+0x")),
        "the report does not name the module (run {})",
        run.folder.path().display()
    );
    Ok(())
}
