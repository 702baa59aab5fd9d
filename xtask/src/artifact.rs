// SPDX-License-Identifier: GPL-2.0

//! What the steps hand to each other: source, patched tree, kernel, module.

use crate::hash;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An imported kernel source: one commit in a git repository of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `6.12.117`
    pub version: String,
    /// Version and content, a name for files: `6.12.117-0123abcd`
    pub key: String,
    /// The commit that holds the pristine source.
    pub commit: String,
    /// Where it came from, for people: `linux-source-6.12 6.12.117-1`
    pub origin: String,
    /// The repository and its work tree.
    pub git: PathBuf,
}

/// A source tree at the state of a patch series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The work tree; shared by all checkouts, so only used under the cache's lock.
    pub path: PathBuf,
    /// Hash over the series, its patches and its new files.
    pub series_hash: String,
    /// The commit of the last patch.
    pub commit: String,
    /// Number of patches.
    pub patches: usize,
}

/// What a kernel was made of; goes into every report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Kernel base: `linux-6.12`
    pub base: String,
    /// Configuration flavour: `dev`
    pub flavor: String,
    /// Source version: `6.12.117`
    pub version: String,
    /// Where the source came from.
    pub source: String,
    /// Version and content of the source.
    pub source_key: String,
    /// Number of patches applied.
    pub patches: usize,
    /// Hash of the patch series.
    pub series: String,
    /// Hash of the asked configuration.
    pub config: String,
    /// One line a tool: `clang version 19.1.7`
    pub toolchain: Vec<String>,
}

impl Identity {
    /// A short name for the whole, for folders.
    pub fn hash(&self) -> String {
        let text = serde_json::to_string(self).expect("strings and numbers serialize");
        hash::short(text.as_bytes())
    }
}

/// A built kernel, published in the cache and never changed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The image that QEMU boots.
    pub bzimage: PathBuf,
    /// The kernel with symbols.
    pub vmlinux: PathBuf,
    /// In-tree modules for the guest: `brd.ko`, `null_blk.ko`.
    pub modules: Vec<PathBuf>,
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The build folder, for building modules; shared, so only used under the cache's lock.
    pub build_dir: PathBuf,
    /// What it was made of.
    pub identity: Identity,
}

/// A built out-of-tree module, published in the cache and never changed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Ready for insmod, without debug information.
    pub ko: PathBuf,
    /// The same with debug information, for gdb.
    pub debug_ko: PathBuf,
    /// Hash of its sources and of the kernel's identity.
    pub hash: String,
}
