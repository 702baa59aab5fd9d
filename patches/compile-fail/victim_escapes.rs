//@ error: E0505
// SPDX-License-Identifier: GPL-2.0

//! The proof that a victim is held ends with the victim.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::dentry::Positive;
use kernel::prelude::*;

pub fn f(mut victim: Positive<'_, Demo>) -> Result {
    let mut held = victim.held();
    drop(victim);
    held.dec_nlink();
    Ok(())
}
