// SPDX-License-Identifier: GPL-2.0

//! What every guest needs first: tools, source, patches, configuration, kernel
//! and module, each only as far as it is not there already.

use crate::artifact::{Kernel, Module};
use crate::project::Project;

/// A kernel that can be booted, and the module that fits it.
pub struct Ready {
    /// The kernel.
    pub kernel: Kernel,
    /// rext2, on bases that can have it.
    pub module: Option<Module>,
}

/// Brings everything up to date.
pub fn ready(_project: &Project) -> anyhow::Result<Ready> {
    anyhow::bail!("chain")
}
