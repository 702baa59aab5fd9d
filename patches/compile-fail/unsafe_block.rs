//@ error: usage of an `unsafe` block
// SPDX-License-Identifier: GPL-2.0

//! Code that forbids unsafe blocks has none.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs)]

pub fn f(p: *const u8) -> u8 {
    unsafe { *p }
}
