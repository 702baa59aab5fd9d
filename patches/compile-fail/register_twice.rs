//@ error: E0133
// SPDX-License-Identifier: GPL-2.0

//! A type is registered by its module only.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use kernel::{fs::FsType, ThisModule};

pub fn f(fs: &'static FsType<demo::Demo>, module: &'static ThisModule) {
    let _ = fs.register(module);
}
