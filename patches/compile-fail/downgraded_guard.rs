//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A guard that was downgraded is not exclusive any more.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::INode;

pub fn f(file: &INode<Demo>) {
    let guard = file.lock();
    let _shared = guard.downgrade();
    guard.held().set_size(0);
}
