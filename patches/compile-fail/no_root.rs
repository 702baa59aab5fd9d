//@ error: E0308
// SPDX-License-Identifier: GPL-2.0

//! A mount returns the proof that it has a root.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Data, Demo};
use kernel::fs::sb::{Mounted, NewSb};
use kernel::prelude::*;

pub fn f<'a>(sb: NewSb<'a, Demo>) -> Result<Mounted<'a, Demo>> {
    let _live = sb.publish(KBox::new(Data { root: 2 }, GFP_KERNEL)?.into());
    Ok(())
}
