//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A request is consumed when it is submitted: it may be freed by then.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Demo, Over};
use kernel::fs::file::Overwrite;

pub fn f(write: Overwrite<'_, Demo>) {
    let _ = write.submit::<Over>();
    let _ = write.submit::<Over>();
}
