// SPDX-License-Identifier: GPL-2.0

//! `exec -- COMMAND`: one command in a fresh guest, its output and its exit
//! status handed on.
//!
//! Its standard input is ours: what comes from a pipe or a file goes to it as it
//! reads. A terminal stays with us; a script that needs its input itself gives
//! us `</dev/null`, as it does for ssh.
//!
//! The guest's status may be one of xtask's own codes; a line that starts with
//! `error:` on stderr tells them apart.

use anyhow::Context as _;
use rext2_init::{Action, Event, Job, PORT_ERR, PORT_IN, PORT_OUT};
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;

use crate::accel::Choice;
use crate::artifact::{Kernel, Module};
use crate::boot;
use crate::chain::{self, Ready};
use crate::console::Lists;
use crate::debugger::Debugger;
use crate::decode;
use crate::exit::{self, Exit};
use crate::guest::{self, Disk, Observer, Plan, Run};
use crate::input;
use crate::opts::ExecArgs;
use crate::pipe;
use crate::project::Project;
use crate::rundir::Folder;
use crate::summary;
use crate::verdict::{self, Verdict};
use crate::vm::Vm;
use crate::watch::Tail;

/// The verb.
pub fn verb(project: &Project, args: &ExecArgs) -> anyhow::Result<u8> {
    let Ready { kernel, module } = chain::ready(project)?;
    run(project, &kernel, module.as_ref(), args)
}

/// Runs the command; gives its status, or the error that kept it from having one.
pub fn run(
    project: &Project,
    kernel: &Kernel,
    module: Option<&Module>,
    args: &ExecArgs,
) -> anyhow::Result<u8> {
    let program = Program {
        name: "exec",
        repeat: format!("cargo xtask exec -- {}", args.command.join(" ")),
        argv: args.command.clone(),
        disks: Vec::new(),
        debugger: args.gdb.then(|| Debugger::new(kernel, module)),
        stdin: input::is_given(),
    };
    program.run(project, kernel, module)
}

/// A program for a fresh guest.
pub struct Program<'a> {
    /// What it is run for: the verb.
    pub name: &'a str,
    /// The command that repeats it.
    pub repeat: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The guest's disks.
    pub disks: Vec<Disk>,
    /// Whether a debugger is waited for.
    pub debugger: Option<Debugger<'a>>,
    /// Whether it reads our standard input.
    pub stdin: bool,
}

impl Program<'_> {
    /// Runs it, hands on its output, and gives its status.
    pub fn run(
        self,
        project: &Project,
        kernel: &Kernel,
        module: Option<&Module>,
    ) -> anyhow::Result<u8> {
        let (modules, files) = boot::module_files(module);
        let mut limits = Vm::load(project)?.limits(&project.opts, None);
        if self.debugger.is_some() {
            (limits.boot, limits.run) = (None, None);
        }
        let plan = Plan {
            name: self.name,
            repeat: self.repeat,
            job: Job {
                token: guest::token()?,
                modules,
                mounts: Vec::new(),
                action: Action::Exec {
                    argv: self.argv,
                    stdin: self.stdin,
                },
                kmemleak: false,
                debugger: self.debugger.is_some(),
            },
            disks: self.disks,
            files,
            replay: None,
            may_skip: Vec::new(),
            limits,
            gdb: self.debugger.is_some(),
            counting: None,
            memory: None,
            extra: Vec::new(),
        };
        let mut observer = HandOn {
            streams: None,
            debugger: self.debugger,
            stdin: self.stdin,
        };
        let run = guest::run(project, kernel, &plan, &mut observer)?;
        let _ = observer.tick(&[])?;
        let verdict = verdict::of_folder(&run.folder, &run.record, &Lists::load(project)?);
        decode::console(project, kernel, module, &run.folder, &verdict);
        status(&run, &verdict)
    }
}

/// The program's status counts, unless the guest itself came to harm.
pub fn status(run: &Run, verdict: &Verdict) -> anyhow::Result<u8> {
    match (verdict.exit, verdict.status) {
        (Exit::Good, Some(status)) => {
            u8::try_from(status).context("the guest reported a status that none can have")
        }
        (code, _) => {
            eprint!("{}", summary::tail(&run.folder, &verdict.findings));
            let folder = run.folder.path().display();
            Err(exit::error(
                code,
                format!("{} (run {folder})", verdict.reason),
            ))
        }
    }
}

/// Hands on what the command prints while it prints it.
struct HandOn<'a> {
    streams: Option<[Tail; 2]>,
    debugger: Option<Debugger<'a>>,
    stdin: bool,
}

impl Observer for HandOn<'_> {
    fn starts(&mut self, folder: &Folder, choice: &Choice) -> anyhow::Result<()> {
        self.streams = Some([PORT_OUT, PORT_ERR].map(|port| Tail::new(&folder.port(port))));
        boot::announce(choice);
        if self.stdin {
            input::send(&folder.port(PORT_IN));
        }
        if let Some(debugger) = &mut self.debugger {
            debugger.starts(folder)?;
        }
        Ok(())
    }

    fn tick(&mut self, events: &[Event]) -> anyhow::Result<ControlFlow<()>> {
        if let Some(debugger) = &self.debugger {
            debugger.tick(events)?;
        }
        let Some([out, err]) = &mut self.streams else {
            return Ok(ControlFlow::Continue(()));
        };
        hand_on(out.bytes(), &mut std::io::stdout()).context("cannot write to stdout")?;
        hand_on(err.bytes(), &mut std::io::stderr()).context("cannot write to stderr")?;
        Ok(ControlFlow::Continue(()))
    }
}

fn hand_on(bytes: Vec<u8>, stream: &mut dyn Write) -> std::io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match stream.write_all(&bytes).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => pipe::closed(),
        written => written,
    }
}
