//@ error: lifetime may not live long enough
// SPDX-License-Identifier: GPL-2.0

//! A request cannot be kept beyond the call.

#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

use demo::Demo;
use kernel::fs::file::WriteReq;

pub struct Keep(Option<WriteReq<'static, Demo>>);

pub fn f<'k>(keep: &mut Keep, req: WriteReq<'k, Demo>) {
    keep.0 = Some(req);
}
