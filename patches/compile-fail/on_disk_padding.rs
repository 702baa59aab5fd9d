//@ error: E0080
// SPDX-License-Identifier: GPL-2.0

//! A structure of the disk has no padding.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use kernel::ondisk::Le32;

kernel::on_disk! {
    pub struct Padded(8) {
        pub a: Le32,
        pub b: u8,
    }
}
