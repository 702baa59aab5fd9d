//@ error: E0505
// SPDX-License-Identifier: GPL-2.0

//! The name of a dentry cannot be read once it has an inode.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dentry::{Created, Negative},
    inode::Ready,
};
use kernel::prelude::*;

pub fn f<'a>(dentry: Negative<'a, Demo>, new: Ready<'_, Demo>) -> Result<Created<'a>> {
    let name = dentry.name();
    let created = dentry.instantiate(new);
    let _ = name.first();
    Ok(created)
}
