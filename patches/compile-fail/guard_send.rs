//@ error: E0277
// SPDX-License-Identifier: GPL-2.0

//! A lock is released by the task that took it.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::INode;

fn send<X: Send>(_: X) {}

pub fn f(file: &INode<Demo>) {
    send(file.lock());
}
