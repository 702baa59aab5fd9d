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
pub mod fetch;

// The VM: guests, runs, verdicts.
pub mod images;

use exit::Exit;
use opts::{Cli, Verb};
use project::Project;

/// Runs one verb.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    sh::set_mode(cli.opts.verbose, cli.opts.dry_run);
    let project = Project::find(&cli.opts)?;
    match &cli.verb {
        Verb::Fetch => fetch::verb(&project)?,
        verb => anyhow::bail!("{verb:?} is not in this tree"),
    }
    Ok(Exit::Good)
}
