//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! An inode that has names is not instantiated like a new one.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dentry::{Created, Negative},
    IRef,
};
use kernel::prelude::*;

pub fn f<'a>(dentry: Negative<'a, Demo>, inode: IRef<'_, Demo>) -> Result<Created<'a>> {
    Ok(dentry.instantiate(inode))
}
