// SPDX-License-Identifier: GPL-2.0

//! The block map as iomap asks for it, one type for each use.
//!
//! ext2 cannot say of a block that it is allocated but empty, so that nothing but the order of things
//! keeps what a block held before from being seen:
//!
//! | who allocates | how others are kept from what the disk holds |
//! | --- | --- |
//! | [`BufferedWrite`] | [`Info::pending`](crate::info::Info::pending): readers of the page cache take the blocks for empty, up to where the write has come; direct readers wait for the lock |
//! | [`SharedMapping`] | the folio is locked, and up to date; [`Info::faulted`](crate::info::Info::faulted): direct readers look in the page cache |
//! | [`Unpublished`] | the blocks become part of the file when they are written |

#![forbid(unsafe_code)]

use crate::{
    balloc::{self, Extent},
    growing::Reserved,
    indirect::{self, Run},
    info::Blocks,
    Rext2,
};
use kernel::{
    fs::{
        aops,
        iomap::{self, Alloc, Kind, Lookup, Mapping},
        lock::{Excl, Held},
        nofs, INode, Offset,
    },
    prelude::*,
};

/// The page cache of a file.
pub(crate) struct PageCache;

#[vtable]
impl aops::Operations for PageCache {
    type FileSystem = Rext2;
    type Read = Read;
    type Write = BufferedWrite;
    type Fault = SharedMapping;
    type Writeback = Read;

    fn free_blocks(file: Held<'_, Rext2, Excl>, start: Offset, end: Offset) -> Result {
        file.data().map().growing.forget();
        let bits = file.sb().data().geometry.block_bits;
        let block_size = 1u64 << bits;
        let first = (start as u64 + block_size - 1) >> bits;
        let last = match end {
            Offset::MAX => u64::MAX,
            _ => end as u64 >> bits,
        };
        if first < last {
            indirect::free_range(&file, first, last)?;
        }
        Ok(())
    }
}

/// The blocks in which a request lies: the first, and how many there are.
struct Request {
    first: u64,
    count: u64,
    bits: u32,
}

impl Request {
    fn new(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Self> {
        let bits = file.sb().data().geometry.block_bits;
        let pos = u64::try_from(pos)?;
        let first = pos >> bits;
        let last = (pos.saturating_add(len.max(1)) - 1) >> bits;
        Ok(Self {
            first,
            count: last - first + 1,
            bits,
        })
    }

    /// What the file has there: a run from the first block on.
    fn find(&self, file: &INode<Rext2>) -> Result<Option<Run>> {
        indirect::find(file, self.first, self.count)
    }

    fn mapping(&self, blocks: u64, kind: Kind) -> Mapping {
        Mapping {
            offset: (self.first << self.bits) as Offset,
            len: blocks << self.bits,
            kind,
        }
    }

    fn mapped(&self, block: u32, blocks: u32, new: bool) -> Mapping {
        let addr = u64::from(block) << self.bits;
        self.mapping(blocks.into(), Kind::Mapped { addr, new })
    }
}

/// What is there to be read, or to be written back.
pub(crate) struct Read;

impl Lookup for Read {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        let req = Request::new(file, pos, len)?;
        Ok(match req.find(file)? {
            // The pointers were loaded before this is.
            Some(Run::Data(block, blocks)) => match file.data().pending() {
                pending if !pending.overlap(req.first, req.first + u64::from(blocks)) => {
                    req.mapped(block, blocks, false)
                }
                pending if u64::from(pending.start) <= req.first => {
                    let empty = u64::from(pending.end) - req.first;
                    let addr = u64::from(block) << req.bits;
                    req.mapping(empty.min(blocks.into()), Kind::Unwritten { addr })
                }
                pending => {
                    let full = u64::from(pending.start) - req.first;
                    req.mapped(block, full as u32, false)
                }
            },
            Some(Run::Hole(blocks)) => req.mapping(blocks, Kind::Hole),
            None => req.mapping(req.count, Kind::Hole),
        })
    }
}

impl iomap::Writeback for Read {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        let req = Request::new(file, pos, len)?;
        Ok(match req.find(file)? {
            Some(Run::Data(block, blocks)) => req.mapped(block, blocks, false),
            Some(Run::Hole(blocks)) => req.mapping(blocks, Kind::Hole),
            None => req.mapping(req.count, Kind::Hole),
        })
    }
}

/// What a direct read finds.
pub(crate) struct DirectRead;

impl Lookup for DirectRead {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        let req = Request::new(file, pos, len)?;
        let mapping = <Read as Lookup>::map(file, pos, len)?;
        // The pointers were loaded before this is.
        if file
            .data()
            .faulted()
            .overlap(req.first, req.first.saturating_add(req.count))
        {
            return Err(ENOTBLK);
        }
        Ok(mapping)
    }
}

/// What a direct write may overwrite.
pub(crate) struct DirectWrite;

impl iomap::Overwrite for DirectWrite {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        <Read as Lookup>::map(file, pos, len)
    }
}

/// Where a buffered write goes.
pub(crate) struct BufferedWrite;

impl Alloc for BufferedWrite {
    type FileSystem = Rext2;

    fn map(file: Held<'_, Rext2, Excl>, pos: Offset, len: u64) -> Result<Mapping> {
        let req = Request::new(&file, pos, len)?;
        let info = file.data();
        if let Some(Run::Data(block, blocks)) = req.find(&file)? {
            let new = info.pending().overlap(req.first, req.first + 1);
            return Ok(req.mapped(block, blocks, new));
        }
        let mut map = info.map();
        // A store to a shared mapping may have been faster.
        let hole = match req.find(&file)? {
            Some(Run::Data(block, blocks)) => return Ok(req.mapped(block, blocks, false)),
            Some(Run::Hole(blocks)) => blocks,
            None => return Err(EFBIG),
        };
        let extent = indirect::alloc(&file, &mut map, req.first, hole.min(req.count))?;
        info.set_pending(Blocks {
            start: req.first as u32,
            end: req.first as u32 + extent.len,
        });
        if let Err(e) = indirect::splice(&file, &mut map, req.first, extent) {
            info.set_pending(Blocks::default());
            return Err(e);
        }
        Ok(req.mapped(extent.start, extent.len, true))
    }

    fn wrote(file: Held<'_, Rext2, Excl>, pos: Offset, written: u64) {
        let bits = file.sb().data().geometry.block_bits;
        let pending = file.data().pending();
        let end = (pos as u64 + written + (1 << bits) - 1) >> bits;
        if !pending.is_empty() && end > pending.start.into() {
            file.data().set_pending(Blocks {
                start: end.min(pending.end.into()) as u32,
                ..pending
            });
        }
    }

    fn end(mut file: Held<'_, Rext2, Excl>, pos: Offset, len: u64, written: u64) -> Result {
        let pending = file.data().pending();
        if pending.is_empty() {
            return Ok(());
        }
        let result = if written < len {
            give_back(&mut file, pos, len, written, pending)
        } else {
            Ok(())
        };
        file.data().set_pending(Blocks::default());
        result
    }
}

/// Sees to blocks that were allocated for a write and not written to. Behind the end of the file they
/// are freed. Others may have been mapped and stored to meanwhile: what the page cache shows for them,
/// zeros and such stores, is written.
fn give_back(
    file: &mut Held<'_, Rext2, Excl>,
    pos: Offset,
    len: u64,
    written: u64,
    pending: Blocks,
) -> Result {
    let bits = file.sb().data().geometry.block_bits;
    let block_size = 1u64 << bits;
    let pos = pos as u64;
    let first = match written {
        0 => pos >> bits,
        _ => (pos + written + block_size - 1) >> bits,
    };
    let first = first.max(pending.start.into());
    let last = ((pos + len + block_size - 1) >> bits).min(pending.end.into());
    let behind = ((file.size() as u64 + block_size - 1) >> bits).max(first);
    if behind < last {
        indirect::free_range(file, behind, last)?;
    }
    let (start, end) = (
        (first << bits) as Offset,
        ((behind.min(last) << bits) as Offset).min(file.size()),
    );
    if start < end {
        // Until `pending` is cleared, reading takes these blocks for empty.
        return file.dirty_range(start, end).or_else(|e| {
            file.punch_hole::<PageCache>(start, end)?;
            Err(e)
        });
    }
    Ok(())
}

/// What a shared mapping needs before it is written to.
pub(crate) struct SharedMapping;

impl iomap::Fault for SharedMapping {
    type FileSystem = Rext2;

    fn map(file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        let req = Request::new(file, pos, len)?;
        if let Some(Run::Data(block, blocks)) = req.find(file)? {
            return Ok(req.mapped(block, blocks, false));
        }
        let info = file.data();
        let mut map = info.map();
        let hole = match req.find(file)? {
            Some(Run::Data(block, blocks)) => return Ok(req.mapped(block, blocks, false)),
            Some(Run::Hole(blocks)) => blocks,
            None => return Err(EFBIG),
        };
        let extent = indirect::alloc(file, &mut map, req.first, hole.min(req.count))?;
        let start = req.first as u32;
        info.add_faulted(&map, start, start + extent.len);
        indirect::splice(file, &mut map, req.first, extent)?;
        Ok(req.mapped(extent.start, extent.len, true))
    }
}

/// Blocks of a file that belong to nobody yet: the first in the file, and where they lie.
type Extents = KVec<(u64, Extent)>;

/// Blocks that a direct write has allocated and that are not part of the file yet. They are freed
/// unless they are published.
pub(crate) struct Unpublished<'a> {
    file: &'a INode<Rext2>,
    extents: Extents,
}

/// What a direct write in the background keeps until it is done.
///
/// What it allocates when it is done, the few blocks that lead to its data, comes out of the reserve if
/// nothing else is left: the task that does it is the kernel's.
pub(crate) struct Background {
    extents: Extents,
    /// Where it makes the file grow.
    pub(crate) range: Option<Reserved>,
}

impl<'a> Unpublished<'a> {
    pub(crate) fn new(file: &'a INode<Rext2>) -> Self {
        Self {
            file,
            extents: Extents::new(),
        }
    }

    /// Makes the blocks from byte `start` to byte `end` of the file part of it; they are on the disk.
    /// Returns how far it got: blocks that others see by now cannot be freed again.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for an indirect block, `EIO`, `EUCLEAN`; nothing of the write is
    /// part of the file then.
    pub(crate) fn publish(mut self, start: Offset, end: Offset) -> Result<Offset> {
        if self.extents.is_empty() {
            return Ok(end);
        }
        let bits = self.file.sb().data().geometry.block_bits;
        let last = end as u64 >> bits;
        nofs(|| {
            let mut map = self.file.data().map();
            for (block, extent) in self.extents.iter_mut() {
                let len = last.saturating_sub(*block).min(extent.len.into()) as u32;
                let written = Extent {
                    start: extent.start,
                    len,
                };
                extent.start += len;
                extent.len -= len;
                if let Err(e) = indirect::splice(self.file, &mut map, *block, written) {
                    let reached = (*block << bits) as Offset;
                    return if reached > start { Ok(reached) } else { Err(e) };
                }
            }
            Ok(end)
        })
    }
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        for (_, extent) in &self.extents {
            if extent.len > 0 {
                balloc::free(self.file, extent.start, extent.len);
            }
        }
    }
}

impl iomap::Fill for Unpublished<'_> {
    type FileSystem = Rext2;

    fn map(&mut self, file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        fill(&mut self.extents, file, pos, len)
    }
}

impl Background {
    pub(crate) fn new(range: Option<Reserved>) -> Self {
        Self {
            extents: Extents::new(),
            range,
        }
    }

    /// Hands over the blocks, which are of this file.
    pub(crate) fn into_blocks(self, file: &INode<Rext2>) -> Unpublished<'_> {
        Unpublished {
            file,
            extents: self.extents,
        }
    }
}

impl iomap::Fill for Background {
    type FileSystem = Rext2;

    fn map(&mut self, file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
        fill(&mut self.extents, file, pos, len)
    }
}

/// Finds or allocates where a direct write goes.
fn fill(extents: &mut Extents, file: &INode<Rext2>, pos: Offset, len: u64) -> Result<Mapping> {
    let req = Request::new(file, pos, len)?;
    // The rest of what was allocated last.
    if let Some(&(block, extent)) = extents.last() {
        let end = block + u64::from(extent.len);
        if (block..end).contains(&req.first) {
            let skip = (req.first - block) as u32;
            return Ok(req.mapped(extent.start + skip, extent.len - skip, false));
        }
    }
    let hole = match req.find(file)? {
        Some(Run::Data(block, blocks)) => return Ok(req.mapped(block, blocks, false)),
        Some(Run::Hole(blocks)) => blocks.min(req.count),
        None => return Err(EFBIG),
    };
    extents.reserve(1, GFP_KERNEL)?;
    let extent = {
        let mut map = file.data().map();
        indirect::alloc(file, &mut map, req.first, hole)?
    };
    extents.push((req.first, extent), GFP_KERNEL)?;
    Ok(req.mapped(extent.start, extent.len, false))
}
