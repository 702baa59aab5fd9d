//@ error: E0502
// SPDX-License-Identifier: GPL-2.0

//! The block size does not change while a buffer is in use.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::sb::NewSb;
use kernel::prelude::*;

pub fn f(mut sb: NewSb<'_, Demo>) -> Result<u8> {
    let buffer = sb.bread(1)?;
    sb.set_block_size(4096)?;
    buffer.get(0)
}
