//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! The operation that creates a file without a name returns the proof that it was opened.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::dentry::{Opened, Tmpfile};
use kernel::prelude::*;

pub fn f<'a>(_file: Tmpfile<'a, Demo>) -> Result<Opened<'a>> {
    Ok(())
}
