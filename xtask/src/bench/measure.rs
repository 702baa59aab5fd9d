// SPDX-License-Identifier: GPL-2.0

//! A benchmark's guest: a program that prints figures, on the machine whose clock
//! counts instructions (`[counting.NAME]` in `qemu/vm.toml`).

use rext2_init::{Action, Job, PORT_ERR, PORT_OUT};

use super::identity::Identity;
use crate::accel;
use crate::boot;
use crate::chain::Ready;
use crate::console::Lists;
use crate::decode;
use crate::exec;
use crate::exit::{self, Exit};
use crate::guest::{self, Plan, Unobserved};
use crate::guest_tools;
use crate::opts::Accel;
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;
use crate::test;
use crate::verdict;
use crate::vm::Vm;

/// Seconds that a benchmark may take: far fewer on an idle host.
const LIMIT: u64 = 3600;

/// The project with what counting needs.
pub fn counting(project: &Project) -> Project {
    let mut project = project.clone();
    project.opts.accel = Accel::Tcg;
    project
}

/// The file systems of `on=`: those that were named, else these, and rext2 where
/// there is a module.
pub fn on(ready: &Ready, named: Option<&str>, others: &str) -> String {
    match (named, &ready.module) {
        (Some(named), _) => named.to_owned(),
        (None, Some(_)) => format!("rext2,{others}"),
        (None, None) => others.to_owned(),
    }
}

/// What the guest's program prints, and on what it has run.
pub fn run(
    project: &Project,
    ready: &Ready,
    name: &'static str,
    again: &str,
    argv: Vec<String>,
) -> anyhow::Result<(String, Identity)> {
    let Ready { kernel, module } = ready;
    let (modules, mut files) = boot::module_files(module.as_ref());
    let tools = ["mke2fs", "mkfs.xfs"].map(str::to_owned);
    files.extend(guest_tools::files(&tools)?);
    let plan = Plan {
        name,
        repeat: format!(
            "cargo xtask {} bench {name}{again}",
            test::flags(project).join(" ")
        ),
        job: Job {
            token: guest::token()?,
            modules,
            mounts: Vec::new(),
            action: Action::Exec { argv, stdin: false },
            kmemleak: false,
            debugger: false,
        },
        disks: Vec::new(),
        files,
        replay: None,
        may_skip: Vec::new(),
        limits: Vm::load(project)?.limits(&project.opts, Some(LIMIT)),
        gdb: false,
        counting: Some(name),
        memory: None,
        extra: Vec::new(),
    };
    let step = Step::new("bench", format!("{name} ({})", project.flavor.name()));
    let run = guest::run(project, kernel, &plan, &mut Unobserved)?;
    let verdict = verdict::of_folder(&run.folder, &run.record, &Lists::load(project)?);
    decode::console(project, kernel, module.as_ref(), &run.folder, &verdict);
    let status = exec::status(&run, &verdict)?;
    if status != 0 {
        let said = run.folder.text(&run.folder.port(PORT_ERR));
        return Err(exit::error(
            Exit::TestsFailed,
            format!("the guest's program failed: {}", said.trim()),
        ));
    }
    step.ok();
    let qemu = Cmd::new(accel::qemu()?).arg("--version").read()?;
    let identity = Identity {
        kernel: kernel.identity.clone(),
        module: module.as_ref().map(|module| module.hash.clone()),
        qemu: qemu.lines().next().unwrap_or_default().to_owned(),
    };
    Ok((run.folder.text(&run.folder.port(PORT_OUT)), identity))
}
