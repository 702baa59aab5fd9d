//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! An inode that others see is not set up any more.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::inode::{Attributes, NewINode};

pub fn f(mut new: NewINode<'_, Demo>) {
    let _inode = new.finish_dir::<Demo>();
    let _ = new.set_attributes(&Attributes::default());
}
