// SPDX-License-Identifier: GPL-2.0

//! Kernel modules in and out.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use rext2_init::{MODULE_DIR, Module};
use std::ffi::CString;
use std::fs::{self, File};

/// Inserts the module and gives the address of its `.text`.
pub fn insert(module: &Module) -> Result<Option<String>> {
    let path = format!("{MODULE_DIR}/{}.ko", module.name);
    let file = File::open(&path).context(format!("cannot open {path}"))?;
    let params = CString::new(module.params.as_str()).context("module parameters")?;
    finit_module(&file, &params, ModuleInitFlags::empty())
        .context(format!("cannot insert module {}", module.name))?;
    let text = fs::read_to_string(format!("/sys/module/{}/sections/.text", loaded(module)));
    Ok(text.ok().map(|text| text.trim().to_owned()))
}

/// Removes the module; one that the job has removed already is fine.
pub fn remove(module: &Module) -> Result<()> {
    let name = CString::new(loaded(module)).context("module name")?;
    match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno).context(format!("cannot remove module {}", module.name)),
    }
}

/// The name in the kernel: a dash of the file's name is an underscore there.
fn loaded(module: &Module) -> String {
    module.name.replace('-', "_")
}
