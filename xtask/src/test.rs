// SPDX-License-Identifier: GPL-2.0

//! `test SUITE…`: host tests, checks, then suites in guests; one verdict.

use rext2_init::{Action, Event, Job};
use std::ops::ControlFlow;
use std::time::Instant;

use crate::accel::Choice;
use crate::artifact::{Kernel, Module};
use crate::boot;
use crate::chain;
use crate::chosen::{self, CHECKS, Chosen};
use crate::compile_fail;
use crate::console::Lists;
use crate::contract;
use crate::decode;
use crate::exit::{self, Exit};
use crate::fetch;
use crate::fstests;
use crate::guest::{self, Observer, Plan};
use crate::guest_tools;
use crate::host_tests;
use crate::install;
use crate::ktap::Outcome;
use crate::lint;
use crate::mutants;
use crate::opts::{Accel, Format, TestArgs};
use crate::part::{self, Case, Part};
use crate::patch;
use crate::project::Project;
use crate::report;
use crate::rundir::Folder;
use crate::step::Step;
use crate::suites::{self, Suite};
use crate::verdict;
use crate::vm::Vm;

/// Runs what was asked for, prints the result, gives the exit code.
pub fn run(project: &Project, args: &TestArgs) -> anyhow::Result<Exit> {
    let suites = suites::load(project)?;
    let Chosen { checks, names } = chosen::of(project, &suites, args)?;
    if names.iter().any(|name| name == fstests::NAME) {
        return fstests::run(project, args);
    }
    let mut parts = Vec::new();
    for check in checks {
        parts.extend(self::check(project, args, check)?);
    }
    for name in &names {
        let suite = suites::find(&suites, name, CHECKS)?;
        let args = &chosen::of_suite(args, name);
        let again = repeat(project, args, name);
        if args.mutants {
            parts.push(part(&format!("mutants of {name}"), &again, |begin| {
                mutants::run(project, args, name, suite, begin)
            }));
            continue;
        }
        parts.push(part(&full_name(project, name), &again, |_| {
            in_guest(project, args, name, suite)
        }));
    }
    report::print(&parts, project.opts.format)?;
    Ok(part::exit(&parts))
}

/// A part from a function that may fail as a whole.
fn part(name: &str, again: &str, run: impl FnOnce(Instant) -> anyhow::Result<Part>) -> Part {
    let begin = Instant::now();
    run(begin).unwrap_or_else(|error| {
        let seconds = begin.elapsed().as_secs_f64();
        Part::of_check(name, again, seconds, Err(error))
    })
}

/// One of the checks; none where the base has nothing to check.
fn check(project: &Project, args: &TestArgs, name: &str) -> anyhow::Result<Option<Part>> {
    let again = repeat(project, args, name);
    if !project.base.module && ["compile-fail", "style"].contains(&name) {
        return Ok(None);
    }
    // The host tests run QEMU and e2fsprogs as well.
    install::ensure(
        project,
        &[install::GUEST, &install::for_tests(project)].concat(),
    )?;
    Ok(Some(match name {
        "host" => host_tests::run(project)?,
        "patch-check" => part("patch check", &again, |begin| round_trip(project, begin)),
        "compile-fail" => part(name, &again, |begin| misuses(project, &again, begin)),
        "style" => part(lint::NAME, &again, |_| lint::run(project, &again)),
        _ => part("exec and boot", &again, |_| {
            let ready = chain::ready(project)?;
            contract::run(project, &ready.kernel, &flags(project), &again)
        }),
    }))
}

/// The patches make the round trip.
fn round_trip(project: &Project, begin: Instant) -> anyhow::Result<Part> {
    const NAME: &str = "patch check";
    let step = Step::new("test", NAME);
    let checked = patch::check(project, &fetch::run(project)?)?;
    step.ok();
    let reason = format!("{} patches make the round trip", checked.patches);
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Part::of_check(
        NAME,
        "cargo xtask patch check",
        seconds,
        Ok(reason),
    ))
}

/// The compiler refuses what the abstractions forbid.
fn misuses(project: &Project, again: &str, begin: Instant) -> anyhow::Result<Part> {
    let step = Step::new("test", "compile-fail");
    let case = |result: compile_fail::CaseResult| Case {
        name: result.name,
        outcome: match result.failure {
            None => Outcome::Passed,
            Some(_) => Outcome::Failed,
        },
        output: (result.failure.iter())
            .flat_map(|text| text.lines())
            .map(str::to_owned)
            .collect(),
        seconds: Some(result.elapsed.as_secs_f64()),
    };
    let cases = compile_fail::run(project)?.into_iter().map(case).collect();
    let seconds = begin.elapsed().as_secs_f64();
    let part = Part::of_cases("compile-fail", again, seconds, cases);
    step.end(part.word());
    Ok(part)
}

fn full_name(project: &Project, name: &str) -> String {
    format!("{name} ({})", project.flavor.name())
}

/// The flags that choose the same kernel and accelerator.
pub fn flags(project: &Project) -> Vec<String> {
    let opts = &project.opts;
    let mut flags = vec![format!("--base={}", opts.base)];
    flags.push(format!("--flavor={}", project.flavor.name()));
    if let Some(linux) = &opts.linux {
        flags.push(format!("--linux={}", linux.display()));
    }
    if let Some(tarball) = &opts.tarball {
        flags.push(format!("--tarball={}", tarball.display()));
    }
    flags.extend(opts.set.iter().map(|set| format!("--set={set}")));
    flags.extend(
        opts.without
            .iter()
            .map(|folder| format!("--without={folder}")),
    );
    match opts.accel {
        Accel::Auto => {}
        Accel::Kvm => flags.push("--accel=kvm".to_owned()),
        Accel::Tcg => flags.push("--accel=tcg".to_owned()),
    }
    flags
}

/// The command that runs this suite again, on the same kernel.
fn repeat(project: &Project, args: &TestArgs, name: &str) -> String {
    let mut line = format!("cargo xtask {} test {name}", flags(project).join(" "));
    if let Some(fs) = &args.fs {
        line.push_str(&format!(" --fs {fs}"));
    }
    line.extend(args.seed.map(|seed| format!(" --seed {seed}")));
    line.extend(args.count.map(|count| format!(" --count {count}")));
    line.extend(args.ops.map(|ops| format!(" --ops {ops}")));
    line.extend(args.seconds.map(|seconds| format!(" --seconds {seconds}")));
    line.extend(args.off.iter().map(|off| format!(" --off {off}")));
    line.extend(
        args.replay
            .iter()
            .map(|file| format!(" --replay {}", file.display())),
    );
    if args.strict {
        line.push_str(" --strict");
    }
    if args.mutants {
        line.push_str(" --mutants");
    }
    if let Some(filter) = &args.filter {
        line.push_str(&format!(" --filter {filter}"));
    }
    line
}

/// Whether rext2 is inserted: the control, another driver, needs none of ours.
pub fn with_module(suite: &Suite, args: &TestArgs) -> bool {
    suite.module && args.fs.as_deref().is_none_or(|fs| fs.starts_with("rext2"))
}

/// One suite: kernel and module first, then the guest.
fn in_guest(project: &Project, args: &TestArgs, name: &str, suite: &Suite) -> anyhow::Result<Part> {
    let ready = chain::ready(project)?;
    suite_run(
        project,
        &ready.kernel,
        ready.module.as_ref(),
        args,
        name,
        suite,
    )
}

/// Runs a suite on this kernel and judges it.
pub fn suite_run(
    project: &Project,
    kernel: &Kernel,
    module: Option<&Module>,
    args: &TestArgs,
    name: &str,
    suite: &Suite,
) -> anyhow::Result<Part> {
    if with_module(suite, args) && module.is_none() {
        return Err(exit::error(
            Exit::NothingRan,
            format!("suite {name} needs rext2.ko, and there is none"),
        ));
    }
    let mut modules = suite.modules.clone();
    let (inserted, mut files) = boot::module_files(module.filter(|_| with_module(suite, args)));
    modules.extend(inserted);
    files.extend(guest_tools::files(&suite.tools)?);
    let mut argv = suite.argv(args);
    if let Some(filter) = &args.filter {
        argv.push(format!("only={filter}"));
    }
    let plan = Plan {
        name,
        repeat: repeat(project, args, name),
        job: Job {
            token: guest::token()?,
            modules,
            mounts: Vec::new(),
            action: Action::Suite { argv },
            kmemleak: true,
            debugger: false,
        },
        disks: suite.images(project)?,
        files,
        replay: args.replay.clone(),
        may_skip: suite
            .may_skip
            .iter()
            .map(|skip| skip.test.clone())
            .collect(),
        limits: Vm::load(project)?.limits(&project.opts, Some(suite.timeout)),
        gdb: false,
        counting: None,
        memory: None,
        extra: Vec::new(),
    };
    let step = Step::new("test", full_name(project, name));
    let mut observer = Announce {
        release: &kernel.release,
        quiet: project.opts.format != Format::Human,
    };
    let run = guest::run(project, kernel, &plan, &mut observer)?;
    let verdict = verdict::of_folder(&run.folder, &run.record, &Lists::load(project)?);
    if verdict.exit == Exit::Good && !project.opts.keep {
        run.folder.drop_recording()?;
    }
    decode::console(project, kernel, module, &run.folder, &verdict);
    let name = full_name(project, name);
    let part = Part::of_run(name, &run.folder, &run.record, verdict);
    step.end(part.word());
    Ok(part)
}

/// Says what runs the guest, and warns of another kernel than the one built.
struct Announce<'a> {
    release: &'a str,
    quiet: bool,
}

impl Observer for Announce<'_> {
    fn starts(&mut self, _folder: &Folder, choice: &Choice) -> anyhow::Result<()> {
        if !self.quiet {
            boot::announce(choice);
        }
        Ok(())
    }

    fn tick(&mut self, events: &[Event]) -> anyhow::Result<ControlFlow<()>> {
        for event in events {
            if let Event::Started { release, .. } = event
                && release != self.release
            {
                anyhow::bail!("the guest runs {release}, not {}", self.release);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
