//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! What a new file inherits is set before it can get a name.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::inode::Ready;
use kernel::fs::INode;
use kernel::prelude::*;

pub fn f(mut ready: Ready<'_, Demo>, dir: &INode<Demo>) -> Result {
    ready.inherit_acl(dir)
}
