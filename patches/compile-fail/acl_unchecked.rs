//@ error: E0423
// SPDX-License-Identifier: GPL-2.0

//! A list is made of entries that are checked.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use kernel::fs::acl::Acl;

pub fn f() -> Acl {
    Acl(Default::default())
}
