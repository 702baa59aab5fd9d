// SPDX-License-Identifier: GPL-2.0

//! Regular files.

#![forbid(unsafe_code)]

use crate::{
    iomap::{PageCache, Read},
    Rext2,
};
use kernel::{
    fs::file::{Operations, ReadDone, ReadReq},
    prelude::*,
};

/// A regular file.
pub(crate) struct File;

#[vtable]
impl Operations for File {
    type FileSystem = Rext2;
    type Mapping = PageCache;

    fn read_iter<'k>(req: ReadReq<'k, Rext2>) -> Result<ReadDone<'k>> {
        if req.is_direct() {
            return req.direct::<Read>();
        }
        req.buffered()
    }
}
