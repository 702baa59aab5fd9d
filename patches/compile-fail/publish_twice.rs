//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A superblock gets its data once.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::{Data, Demo};
use kernel::fs::sb::NewSb;
use kernel::prelude::*;

pub fn f(sb: NewSb<'_, Demo>) -> Result {
    let _live = sb.publish(KBox::new(Data { root: 2 }, GFP_KERNEL)?.into());
    let _again = sb.publish(KBox::new(Data { root: 2 }, GFP_KERNEL)?.into());
    Ok(())
}
