// SPDX-License-Identifier: GPL-2.0

//! The block map as iomap asks for it, one table for each use.

#![forbid(unsafe_code)]

use crate::{
    indirect::{self, Run},
    Rext2,
};
use kernel::{
    fs::{
        aops,
        iomap::{Kind, Lookup, Mapping, ReadOnly},
        INode, Offset,
    },
    prelude::*,
};

/// The page cache of a file.
pub(crate) struct PageCache;

#[vtable]
impl aops::Operations for PageCache {
    type FileSystem = Rext2;
    type Read = Read;
    type Write = ReadOnly<Rext2>;
    type Fault = ReadOnly<Rext2>;
    type Writeback = ReadOnly<Rext2>;
}

/// What is there to be read.
pub(crate) struct Read;

impl Lookup for Read {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        let bits = file.sb().data().geometry.block_bits;
        let pos = u64::try_from(pos)?;
        let first = pos >> bits;
        let last = (pos.saturating_add(len.max(1)) - 1) >> bits;
        let max = last - first + 1;
        let (kind, blocks) = match indirect::find(file, first, max)? {
            Some(Run::Data(block, blocks)) => (
                Kind::Mapped {
                    addr: u64::from(block) << bits,
                    new: false,
                },
                blocks.into(),
            ),
            Some(Run::Hole(blocks)) => (Kind::Hole, blocks),
            None => (Kind::Hole, max),
        };
        Ok(Mapping {
            offset: (first << bits) as Offset,
            len: blocks << bits,
            kind,
        })
    }
}
