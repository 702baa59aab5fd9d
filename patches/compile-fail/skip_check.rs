//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! A write that was not checked cannot be submitted.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Demo, Grow};
use kernel::fs::file::WriteReq;
use kernel::prelude::*;

pub fn f(req: WriteReq<'_, Demo>) -> Result {
    req.lock()?.submit_buffered::<Grow>()?;
    Ok(())
}
