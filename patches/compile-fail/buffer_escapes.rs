//@ error: lifetime may not live long enough
// SPDX-License-Identifier: GPL-2.0

//! A buffer does not outlive its superblock.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{buffer::BufHead, SuperBlock};

pub fn f(sb: &SuperBlock<Demo>) -> Option<BufHead<'static>> {
    sb.bread(1).ok()
}
