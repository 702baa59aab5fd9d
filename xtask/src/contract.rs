// SPDX-License-Identifier: GPL-2.0

//! What `exec` and `boot` promise to scripts, tried on this very program and a
//! real guest, without a terminal.

use anyhow::{Context as _, bail, ensure};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
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
use crate::sh::Cmd;
use crate::step::Step;
use crate::verdict;
use crate::vm::Vm;

/// What a debugged guest may take; only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(600);

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

/// What a kernel of flavour `debug` promises besides.
const DEBUG_PROMISES: &[Promise] = &[
    Promise {
        name: "a warning is exit code 11, with source lines in its trace",
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
            let output = program(project, flags)?.args(promise.args).output()?;
            (promise.holds)(&output)
        }));
    }
    cases.push(case(
        "--gdb waits for the debugger and then goes on",
        || debugger(project, flags),
    ));
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

/// Plays gdb: connects where xtask says, sees that nothing has run, continues.
fn debugger(project: &Project, flags: &[String]) -> anyhow::Result<()> {
    let log = project.new_log("gdb")?;
    let cmd = program(project, flags)?.args(["exec", "--gdb", "--", "true"]);
    let mut child = cmd.spawn(&log)?;
    let mut gdb = loop {
        let said = text(&fs_err::read(&log)?);
        let socket = said.split_once("target remote ").and_then(|(_, rest)| {
            let (socket, _) = rest.split_once('\'')?;
            UnixStream::connect(socket).ok()
        });
        if let Some(socket) = socket {
            break socket;
        }
        if let Some(status) = child.wait_timeout(Duration::from_millis(20))? {
            bail!("ended with {status} before a debugger came: {said}");
        }
    };
    gdb.set_read_timeout(Some(PATIENCE))
        .context("gdb's socket")?;
    // "Why did you stop?" Only a stopped guest answers at once.
    gdb.write_all(b"$?#3f").context("cannot ask the stub")?;
    let mut answer = String::new();
    while !answer.contains('#') {
        let mut some = [0; 64];
        let count = gdb.read(&mut some).context("the stub says nothing")?;
        ensure!(count > 0, "the stub hung up after {answer:?}");
        answer.push_str(&text(&some[..count]));
    }
    ensure!(
        answer.starts_with("+$T"),
        "the guest is not stopped: {answer:?}"
    );
    gdb.write_all(b"+$c#63").context("cannot continue")?;
    let status = child.wait_timeout(PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "ended with {status:?}: {}",
        text(&fs_err::read(&log)?)
    );
    Ok(())
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
