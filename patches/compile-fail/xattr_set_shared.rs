//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! An attribute is set with the exclusive lock only.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::lock::{Held, Shared};
use kernel::fs::xattr::{Condition, Namespace, Operations};
use kernel::prelude::*;

pub fn f(file: Held<'_, Demo, Shared>) -> Result {
    <Demo as Operations>::set(file, Namespace::User, b"a", None, Condition::default())
}
