//@ error: E0382
// SPDX-License-Identifier: GPL-2.0

//! A request belongs to the state that holds its lock.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::file::WriteReq;
use kernel::prelude::*;

pub fn f(req: WriteReq<'_, Demo>) -> Result {
    let _locked = req.lock_shared()?;
    let _ = req.is_direct();
    Ok(())
}
