// SPDX-License-Identifier: GPL-2.0

//! What every guest needs first: tools, source, patches, configuration, kernel
//! and module, each only as far as it is not there already.

use crate::artifact::{Kernel, Module};
use crate::build;
use crate::install;
use crate::module;
use crate::project::Project;

/// A kernel that can be booted, and the module that fits it.
pub struct Ready {
    /// The kernel.
    pub kernel: Kernel,
    /// rext2, on bases that can have it.
    pub module: Option<Module>,
}

/// Brings everything up to date.
pub fn ready(project: &Project) -> anyhow::Result<Ready> {
    // If something is missing here, what a build needs is looked for, too: whoever
    // has to install things by hand wants to hear of all at once.
    if install::line(project, install::GUEST).is_some() {
        let all = [install::GUEST, &install::for_build(project)].concat();
        install::ensure(project, &all)?;
    }
    let kernel = build::run(project)?;
    let module = match project.base.module {
        true => Some(module::run(project, &kernel)?),
        false => None,
    };
    Ok(Ready { kernel, module })
}

/// Prints the commands that would bring everything up to date.
pub fn dry_run(project: &Project) -> anyhow::Result<()> {
    build::verb(project)?;
    println!("# then the module, if the base has one, and QEMU with a fresh run folder");
    Ok(())
}
