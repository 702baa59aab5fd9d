//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! What moves within a directory may be a directory that is not held.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::dir::Rename;
use kernel::prelude::*;

pub fn f(rename: Rename<'_, Demo>) -> Result {
    if let Rename::Within { mut old, .. } = rename {
        old.held().inc_nlink();
    }
    Ok(())
}
