//@ error: E0499
// SPDX-License-Identifier: GPL-2.0

//! A directory in which a name moves is held once.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::{
    dir::Rename,
    lock::{Excl, Held},
};
use kernel::prelude::*;

fn both(_old: &mut Held<'_, Demo, Excl>, _new: &mut Held<'_, Demo, Excl>) {}

pub fn f(rename: Rename<'_, Demo>) -> Result {
    if let Rename::Within { mut dir, .. } = rename {
        both(&mut dir, &mut dir);
    }
    Ok(())
}
