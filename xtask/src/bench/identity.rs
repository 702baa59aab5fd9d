// SPDX-License-Identifier: GPL-2.0

//! What was measured: the head of every table.

use serde::Serialize;

use crate::artifact;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    /// The kernel: source, patches, configuration, toolchain.
    pub kernel: artifact::Identity,
    /// Hash of the module.
    pub module: Option<String>,
    /// The first line of QEMU's version.
    pub qemu: String,
}

impl Identity {
    /// A line each.
    pub fn lines(&self) -> Vec<String> {
        let kernel = &self.kernel;
        let mut lines = vec![format!(
            "Linux {} +{} patches (series {}), {} {} (config {})",
            kernel.version,
            kernel.patches,
            kernel.series,
            kernel.base,
            kernel.flavor,
            kernel.config
        )];
        lines.extend(self.module.iter().map(|hash| format!("rext2 {hash}")));
        lines.extend(kernel.toolchain.iter().cloned());
        lines.push(self.qemu.clone());
        lines
    }
}
