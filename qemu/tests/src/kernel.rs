// SPDX-License-Identifier: GPL-2.0

//! What the kernel knows of a driver: module, reference count, registration,
//! slab caches.

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

/// Where the guest's init keeps the modules.
const FOLDER: &str = "/lib/modules";

/// Inserts the module `name`.
pub fn insert(name: &str) -> Result<(), Errno> {
    insert_with(name, "")
}

/// Inserts the module `name` with parameters.
pub fn insert_with(name: &str, params: &str) -> Result<(), Errno> {
    let file = File::open(format!("{FOLDER}/{name}.ko")).map_err(|_| Errno::NOENT)?;
    let params = CString::new(params).map_err(|_| Errno::INVAL)?;
    finit_module(&file, &params, 0)
}

/// Removes the module `name` unless it is in use.
pub fn remove(name: &str) -> Result<(), Errno> {
    const O_NONBLOCK: i32 = 0o4000;
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    delete_module(&name, O_NONBLOCK)
}

/// Whether the module `name` is in the kernel.
pub fn is_inserted(name: &str) -> bool {
    Path::new("/sys/module").join(name).join("refcnt").exists()
}

/// How many users the module `name` has.
pub fn references(name: &str) -> Result<u32> {
    let path = format!("/sys/module/{name}/refcnt");
    let text = fs::read_to_string(&path).context(format!("cannot read {path}"))?;
    text.trim().parse().context(format!("cannot parse {path}"))
}

/// Whether a file system type is registered.
pub fn is_registered(fs: &str) -> Result<bool> {
    let path = "/proc/filesystems";
    let text = fs::read_to_string(path).context(format!("cannot read {path}"))?;
    Ok(text.lines().any(|line| line == format!("\t{fs}")))
}

/// The slab caches whose names start with `prefix`, with their active objects;
/// none where the kernel does not tell.
pub fn slabs(prefix: &str) -> Option<Vec<(String, u64)>> {
    let text = fs::read_to_string("/proc/slabinfo").ok()?;
    let caches = text.lines().filter(|line| line.starts_with(prefix));
    caches
        .map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// How many times longer than usual things take: a kernel that watches its
/// locks watches its memory, too.
pub fn slowness() -> u32 {
    match Path::new("/proc/lockdep").exists() {
        true => 4,
        false => 1,
    }
}

/// Drops clean pages, dentries and inodes.
pub fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the caches")
}
