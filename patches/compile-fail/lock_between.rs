//@ error: E0616
// SPDX-License-Identifier: GPL-2.0

//! The lock cannot be taken out of a checked write.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::file::ExclWrite;

pub fn f(write: ExclWrite<'_, Demo>) {
    drop(write.0);
}
