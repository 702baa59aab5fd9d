//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A write in the background is answered once; the file may be gone then.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::file::Landed;

pub fn f(write: Landed<Demo>) {
    write.answer();
    write.grow_size(4096);
}
