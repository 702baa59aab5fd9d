//@ error: E0277
// SPDX-License-Identifier: GPL-2.0

//! A mapping that allocates cannot be used under the shared lock.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Demo, Grow};
use kernel::fs::file::Overwrite;

pub fn f(write: Overwrite<'_, Demo>) {
    let _ = write.submit::<Grow>();
}
