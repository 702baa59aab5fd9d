// SPDX-License-Identifier: GPL-2.0

//! Call traces with source lines, by the kernel's own script, where the kernel
//! was built with debug information.

use fs_err as fs;
use std::os::unix::fs::symlink;

use crate::artifact::{Kernel, Module};
use crate::exit::Exit;
use crate::project::Project;
use crate::rundir::Folder;
use crate::sh::Cmd;
use crate::toolchain::{self, Found};
use crate::verdict::Verdict;

/// The head of a line with code, and what the script does not know it by.
const CODE: &str = "] Code: ";
const HIDDEN: &str = "] Code; ";

/// Decodes the console of a run that ended badly; leaves the console as it is.
/// Nothing depends on it, so its failure is only told.
pub fn console(
    project: &Project,
    kernel: &Kernel,
    module: Option<&Module>,
    folder: &Folder,
    verdict: &Verdict,
) {
    if !matches!(verdict.exit, Exit::Panic | Exit::Splat) || !has_debug_info(kernel) {
        return;
    }
    if let Err(error) = decode(project, kernel, module, folder) {
        crate::step::note(&format!("the call trace stays as it is: {error:#}"));
    }
}

fn has_debug_info(kernel: &Kernel) -> bool {
    let config = fs::read_to_string(kernel.build_dir.join(".config")).unwrap_or_default();
    config.lines().any(|line| line == "CONFIG_DEBUG_INFO=y")
}

fn decode(
    project: &Project,
    kernel: &Kernel,
    module: Option<&Module>,
    folder: &Folder,
) -> anyhow::Result<()> {
    let tree = project.tree(&kernel.identity.source_key);
    // The script takes the first file of a module's name: the stripped one must
    // not be there.
    let modules = tempfile::tempdir()?;
    if let Some(module) = module {
        symlink(&module.debug_ko, modules.path().join("rext2.ko"))?;
    }
    for file in &kernel.modules {
        symlink(
            file,
            modules.path().join(file.file_name().unwrap_or_default()),
        )?;
    }
    let mut cmd = Cmd::new("bash")
        .dir(&tree)
        .arg(tree.join("scripts/decode_stacktrace.sh"))
        .arg(&kernel.vmlinux)
        .arg(&tree)
        .arg(modules.path());
    if let Found::Yes(suffix) = toolchain::llvm() {
        // Whoever builds with clang need not have binutils.
        let suffix = if suffix.is_empty() { "1" } else { &suffix };
        cmd = cmd.env("LLVM", suffix);
    }
    // What the script makes of a line with code is longer than the call trace
    // that one wants to see; scripts/decodecode does it for who wants to.
    let console = folder.text(&folder.console()).replace(CODE, HIDDEN);
    let decoded = cmd.stdin(console).read_bytes()?;
    let decoded = String::from_utf8_lossy(&decoded).replace(HIDDEN, CODE);
    fs::write(folder.decoded(), decoded)?;
    Ok(())
}
