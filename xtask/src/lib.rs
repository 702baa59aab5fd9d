// SPDX-License-Identifier: GPL-2.0

//! The workbench behind `cargo xtask`: one file per verb, and the few that they share.

// Shared ground.
pub mod artifact;
pub mod exit;
pub mod hash;
pub mod lock;
pub mod opts;
pub mod project;
pub mod publish;
pub mod sh;
pub mod step;

// From a source to a kernel and a module.
pub mod build;
pub mod check;
pub mod clean;
pub mod compile_fail;
pub mod config;
pub mod doctor;
pub mod fetch;
pub mod ide;
pub mod install;
pub mod lint;
pub mod module;
pub mod patch;
pub mod toolchain;

// The VM: guests, runs, verdicts.
pub mod accel;
pub mod bench;
pub mod boot;
pub mod boot_image;
pub mod build_and_boot;
pub mod chain;
pub mod chosen;
pub mod console;
pub mod contract;
pub mod debugger;
pub mod decode;
pub mod exec;
pub mod fsck;
pub mod fstests;
pub mod guest;
pub mod guest_tools;
pub mod host_tests;
pub mod images;
pub mod initramfs;
pub mod input;
pub mod junit;
pub mod ktap;
pub mod leaks;
pub mod mutants;
pub mod part;
pub mod pipe;
pub mod qemu;
pub mod report;
pub mod rundir;
pub mod suites;
pub mod summary;
pub mod terminal;
pub mod test;
pub mod verdict;
pub mod vm;
pub mod watch;

use exit::Exit;
use opts::{Cli, Verb};
use project::Project;

/// Runs one verb.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    sh::set_mode(cli.opts.verbose, cli.opts.dry_run);
    let mut opts = cli.opts.clone();
    opts.flavor = opts.flavor.or(cli.verb.flavor());
    let project = Project::find(&opts)?;
    check::run(&project, cli)?;
    if let Verb::Test(args) = &cli.verb
        && args.list
    {
        chosen::list(&project, args)?;
        return Ok(Exit::Good);
    }
    if cli.opts.dry_run && cli.verb.needs_guest() {
        chain::dry_run(&project)?;
        return Ok(Exit::Good);
    }
    match &cli.verb {
        Verb::Doctor => return doctor::verb(&project),
        Verb::Fetch => fetch::verb(&project)?,
        Verb::Patch(verb) => patch::verb(&project, verb)?,
        Verb::Config(args) => build::config_verb(&project.with_make_args(&args.make))?,
        Verb::Build(args) => build::verb(&project.with_make_args(&args.make))?,
        Verb::Module(args) => module::verb(&project.with_make_args(&args.make))?,
        Verb::Boot(args) => return boot::verb(&project, args),
        Verb::BuildAndBoot(args) => return build_and_boot::run(&project, args),
        Verb::Exec(args) => {
            let status = exec::verb(&project, args)?;
            // The guest's status need not be one of ours.
            std::process::exit(status.into());
        }
        Verb::Test(args) => return test::run(&project, args),
        Verb::Bench(verb) => return bench::run(&project, verb),
        Verb::Report(args) => return report::run(&project, args),
        Verb::Ide => ide::verb(&project)?,
        Verb::Clean(args) => clean::verb(&project, args)?,
    }
    Ok(Exit::Good)
}
