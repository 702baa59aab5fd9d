//@ pass
// SPDX-License-Identifier: GPL-2.0

//! A use that is right: it shows that the cases fail for their own reason.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::file::{ExclCheck, WriteDone, WriteReq};
use kernel::prelude::*;

pub fn write<'k>(req: WriteReq<'k, Demo>) -> Result<WriteDone<'k>> {
    match req.lock()?.check()? {
        ExclCheck::Done(done) => Ok(done),
        ExclCheck::Write(write) => write.submit_buffered::<Demo>(),
    }
}
