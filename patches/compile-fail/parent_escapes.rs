//@ error: lifetime may not live long enough
// SPDX-License-Identifier: GPL-2.0

//! The parent of a directory does not outlive the use of the directory.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::export::Operations;
use kernel::fs::lock::{Held, Shared};
use kernel::fs::IRef;
use kernel::prelude::*;

pub fn f(dir: Held<'_, Demo, Shared>) -> Result<IRef<'static, Demo>> {
    <Demo as Operations>::parent(dir)
}
