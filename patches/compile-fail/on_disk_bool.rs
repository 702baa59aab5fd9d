//@ error: E0277
// SPDX-License-Identifier: GPL-2.0

//! A structure of the disk has only members of which every bit pattern is a value.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use kernel::ondisk::Le32;

kernel::on_disk! {
    pub struct Flag(5) {
        pub a: Le32,
        pub b: bool,
    }
}
