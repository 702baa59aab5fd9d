//@ error: E0505
// SPDX-License-Identifier: GPL-2.0

//! The proof that a lock is held ends with the guard.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::INode;

pub fn f(file: &INode<Demo>) -> i64 {
    let guard = file.lock();
    let held = guard.held();
    drop(guard);
    held.size()
}
