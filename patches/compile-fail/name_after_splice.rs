//@ error: E0505
// SPDX-License-Identifier: GPL-2.0

//! The name of a dentry cannot be read once it has been spliced.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::dentry::{Spliced, Unhashed};
use kernel::prelude::*;

pub fn f<'a>(dentry: Unhashed<'a, Demo>) -> Result<Spliced<'a>> {
    let name = dentry.name();
    let spliced = dentry.splice_alias(None)?;
    let _ = name.first();
    Ok(spliced)
}
