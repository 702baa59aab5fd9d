//@ error: E0599
// SPDX-License-Identifier: GPL-2.0

//! The VFS moves the dentries of a rename, nobody else.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dir::{NewName, Rename},
    inode::Ready,
};
use kernel::prelude::*;

pub fn f(rename: Rename<'_, Demo>, new: Ready<'_, Demo>) -> Result {
    if let Rename::Within {
        new: NewName::Free(name),
        ..
    } = rename
    {
        let _created = name.instantiate(new);
    }
    Ok(())
}
