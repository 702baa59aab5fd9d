//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! The directory of a file without a name is not held.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{fresh_file, Demo};
use kernel::fs::{
    dentry::{Opened, Tmpfile},
    INode,
};
use kernel::prelude::*;

pub fn f<'a>(dir: &INode<Demo>, file: Tmpfile<'a, Demo>) -> Result<Opened<'a>> {
    dir.touch_mtime();
    file.open(fresh_file(dir, 0o600)?)
}
