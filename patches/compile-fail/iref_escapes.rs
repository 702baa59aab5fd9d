//@ error: lifetime may not live long enough
// SPDX-License-Identifier: GPL-2.0

//! A reference to an inode does not outlive its superblock.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{iget, Demo};
use kernel::fs::{IRef, SuperBlock};

pub fn f(sb: &SuperBlock<Demo>) -> Option<IRef<'static, Demo>> {
    iget(sb, 2).ok()
}
