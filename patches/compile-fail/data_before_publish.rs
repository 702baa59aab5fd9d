//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! A superblock without data has none to give.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::sb::NewSb;

pub fn f(sb: NewSb<'_, Demo>) -> u64 {
    sb.data().root
}
