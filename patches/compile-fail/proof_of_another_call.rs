//@ error: lifetime may not live long enough
// SPDX-License-Identifier: GPL-2.0

//! The proof is that of this dentry, not of another one.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dentry::{Created, Negative},
    inode::Ready,
};
use kernel::prelude::*;

pub fn f<'a, 'b>(
    other: Negative<'b, Demo>,
    _dentry: Negative<'a, Demo>,
    new: Ready<'_, Demo>,
) -> Result<Created<'a>> {
    Ok(other.instantiate(new))
}
