//@ error: lifetime
// SPDX-License-Identifier: GPL-2.0

//! What a write in the background keeps must not be borrowed from the call that has begun it.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    file::{Landed, Landing},
    iomap::{Fill, Mapping},
    INode, Offset,
};
use kernel::prelude::*;

pub struct Borrowed<'a>(&'a u64);

impl Fill for Borrowed<'_> {
    type FileSystem = Demo;

    fn map(&mut self, _file: &INode<Demo>, _pos: Offset, _len: u64) -> Result<Mapping> {
        Err(EIO)
    }
}

impl Landing for Borrowed<'_> {
    fn landed(self, _file: &INode<Demo>, _write: Landed<Demo>) {}
}
