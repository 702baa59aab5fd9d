//@ error: E0277
// SPDX-License-Identifier: GPL-2.0

//! A directory has the operations of a directory.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Demo, Over};
use kernel::fs::inode::NewINode;

pub fn f(new: NewINode<'_, Demo>) {
    let _ = new.finish_dir::<Over>();
}
