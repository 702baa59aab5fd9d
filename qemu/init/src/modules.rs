// SPDX-License-Identifier: GPL-2.0

//! Kernel modules in and out.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use rext2_init::{MODULE_DIR, Module};
use std::ffi::CString;
use std::fs::{self, File};

/// Inserts the module.
pub fn insert(module: &Module) -> Result<()> {
    let path = format!("{MODULE_DIR}/{}.ko", module.name);
    let file = File::open(&path).context(format!("cannot open {path}"))?;
    let params = CString::new(module.params.as_str()).context("module parameters")?;
    finit_module(&file, &params, ModuleInitFlags::empty())
        .context(format!("cannot insert module {}", module.name))
}

/// The address of one of its sections.
pub fn section(module: &Module, name: &str) -> Option<String> {
    let address = fs::read_to_string(format!("{}/{name}", folder(module)));
    Some(address.ok()?.trim().to_owned())
}

/// All its sections and their addresses.
pub fn sections(module: &Module) -> Result<Vec<(String, String)>> {
    let folder = folder(module);
    let mut sections = Vec::new();
    for entry in fs::read_dir(&folder).context(format!("cannot list {folder}"))? {
        let name = entry.context(format!("cannot list {folder}"))?.file_name();
        let name = name.to_string_lossy().into_owned();
        sections.extend(section(module, &name).map(|address| (name, address)));
    }
    sections.sort();
    Ok(sections)
}

/// Where the kernel tells the addresses of its sections.
fn folder(module: &Module) -> String {
    format!("/sys/module/{}/sections", loaded(module))
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
