//@ error: E0521
// SPDX-License-Identifier: GPL-2.0

//! Names are put during the call that asks for them.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use kernel::fs::xattr::Names;

pub fn f(to: &mut Names<'_>) {
    g(to);
}

fn g(_to: &'static mut Names<'static>) {}
