//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! An operation that creates a file returns the proof that it did.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::dentry::{Created, Negative};
use kernel::prelude::*;

pub fn f<'a>(_dentry: Negative<'a, Demo>) -> Result<Created<'a>> {
    Ok(())
}
