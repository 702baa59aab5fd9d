//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! The flags that the VFS acts on change with the exclusive lock only.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::inode::Flags;
use kernel::fs::lock::{Held, Shared};

pub fn f(mut file: Held<'_, Demo, Shared>) {
    file.set_flags(Flags::APPEND);
}
