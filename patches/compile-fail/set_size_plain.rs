//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! The size is not stored without a lock.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::INode;

pub fn f(file: &INode<Demo>) {
    file.set_size(0);
}
