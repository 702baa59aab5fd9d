//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A dentry gets one inode.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{fresh_file, Demo};
use kernel::fs::{
    dentry::{Created, Negative},
    INode,
};
use kernel::prelude::*;

pub fn f<'a>(dir: &INode<Demo>, dentry: Negative<'a, Demo>) -> Result<Created<'a>> {
    let _first = dentry.instantiate(fresh_file(dir, 0o644)?);
    Ok(dentry.instantiate(fresh_file(dir, 0o644)?))
}
