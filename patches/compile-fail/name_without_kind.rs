//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! An inode gets a name once it is one kind of file.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dentry::{Created, Negative},
    INode,
};
use kernel::prelude::*;

pub fn f<'a>(dir: &INode<Demo>, dentry: Negative<'a, Demo>) -> Result<Created<'a>> {
    let new = dir.sb().fresh_inode(6)?;
    Ok(dentry.instantiate(new))
}
