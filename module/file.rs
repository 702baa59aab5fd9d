// SPDX-License-Identifier: GPL-2.0

//! Regular files.
//!
//! # Direct writes in parallel
//!
//! All direct writes of whole blocks run under the shared lock, those into holes and behind the end
//! of the file included. What such a design has to answer:
//!
//! 1. *Who writes where.* An append gets its place with the map lock held, behind what others are
//!    appending ([`growing`]). Others say where they write.
//! 2. *Nobody sees what a block held before.* A new block becomes part of the file when the data is
//!    on the device ([`Unpublished`]); until then there is a hole, which reads as zeros.
//! 3. *The bytes between the old end and the place of the write.* They are a hole as well. The page
//!    in which the file ends is not touched, because both ends and the size are on the boundary of a
//!    page; else the write takes the exclusive lock and goes through the page cache.
//! 4. *The size is published in order.* It grows with a release store, up to where the first write
//!    ends that is not done: below the size, everything that was begun is finished. A write returns
//!    when all of it is below the size.
//! 5. *A write that fails* frees its blocks. Its range is a hole if later writes have made the file
//!    bigger, and else it does not exist. No size is ever taken back.
//! 6. *Truncation and holes* take the lock exclusively: no such write is under way then.
//! 7. *Privileges and times* are seen to before the write, under the shared lock only if there are no
//!    privileges to remove.
//! 8. *After a crash* pointers and size on the disk lead to data that was written, because they were
//!    stored after it.
//! 9. *The page cache* loses the range of the write before and after it. Who has mapped a page of the
//!    same hole has allocated for it, and that block stays: as if the direct write had come first.
//! 10. *No space* for the data fails all of a write; what was allocated for it is freed. No space for
//!     the blocks that lead to it makes it a short one.
//!
//! Who does not wait (AIO, io_uring) is answered in the background, writes that allocate included
//! ([`Background`]): what is to be done when the data is on the device is done there, and a write that
//! has to wait for the file to grow is answered by the one that it waits for. Such a write does not
//! keep the lock. It counts as direct IO instead, which all who hold the lock exclusively and change
//! blocks or the size wait for. A synchronous write is waited for by its caller.

#![forbid(unsafe_code)]

use crate::{
    growing::{self, Reserved},
    iomap::{Background, DirectRead, DirectWrite, PageCache, Unpublished},
    Rext2,
};
use kernel::{
    fs::{
        file::{
            BackgroundSubmit, ExclCheck, ExclSubmit, Fallocate, Fill, FillSubmit, Flags, Landed,
            Landing, Operations, ReadDone, ReadReq, SharedCheck, SharedSubmit, WriteDone, WriteReq,
        },
        lock::{Excl, Held},
        INode, Offset,
    },
    prelude::*,
};

/// A regular file.
pub(crate) struct File;

#[vtable]
impl Operations for File {
    type FileSystem = Rext2;
    type Mapping = PageCache;

    const FLAGS: Flags = Flags::DIO_PARALLEL_WRITE.or(Flags::UNCACHED);

    fn read_iter<'k>(req: ReadReq<'k, Rext2>) -> Result<ReadDone<'k>> {
        if req.is_direct() {
            return req.direct::<DirectRead>();
        }
        req.buffered()
    }

    fn write_iter<'k>(mut req: WriteReq<'k, Rext2>) -> Result<WriteDone<'k>> {
        let direct = req.is_direct();
        if direct {
            match write_shared(req)? {
                Outcome::Done(done) => return Ok(done),
                Outcome::NeedsExcl(again) => req = again,
            }
        }
        let locked = req.lock()?;
        if locked.inode().data().has_fills() {
            locked.drain_dio()?;
        }
        let write = match locked.check()? {
            ExclCheck::Done(done) => return Ok(done),
            ExclCheck::Write(write) => write,
        };
        if direct && write.is_within_size() {
            return match write.submit_direct::<DirectWrite>()? {
                ExclSubmit::Done(done) => Ok(done),
                ExclSubmit::Fallback(write) => write.submit_buffered::<PageCache>(),
            };
        }
        write.submit_buffered::<PageCache>()
    }

    fn fallocate(
        mut file: Held<'_, Rext2, Excl>,
        op: Fallocate,
        start: Offset,
        end: Offset,
    ) -> Result {
        match op {
            Fallocate::PunchHole => file.punch_hole::<PageCache>(start, end),
            Fallocate::ZeroRange { grow } => file.zero_range::<PageCache>(start, end, grow),
        }
    }

    fn release(file: &INode<Rext2>) {
        let mut map = file.data().map();
        file.sb().data().discard_window(&mut map.window);
    }
}

/// What became of a direct write under the shared lock.
enum Outcome<'k> {
    Done(WriteDone<'k>),
    NeedsExcl(WriteReq<'k, Rext2>),
}

/// Writes under the shared lock, if that is possible.
fn write_shared<'k>(req: WriteReq<'k, Rext2>) -> Result<Outcome<'k>> {
    match req.lock_shared()?.check()? {
        SharedCheck::Done(done) => Ok(Outcome::Done(done)),
        SharedCheck::NeedsExcl(req) => Ok(Outcome::NeedsExcl(req)),
        SharedCheck::Extend(fill) => match growing::reserve(fill)? {
            Ok((fill, range)) => fill_blocks(fill, Some(range)),
            Err(req) => Ok(Outcome::NeedsExcl(req)),
        },
        SharedCheck::Overwrite(write) => match write.submit::<DirectWrite>()? {
            SharedSubmit::Done(done) => Ok(Outcome::Done(done)),
            SharedSubmit::NeedsExcl(req) => Ok(Outcome::NeedsExcl(req)),
            SharedSubmit::Hole(fill) => fill_blocks(fill, None),
        },
    }
}

/// Writes to new blocks: in the range that was reserved behind the end of the file, or in front of it.
fn fill_blocks<'k>(fill: Fill<'k, Rext2>, range: Option<Reserved>) -> Result<Outcome<'k>> {
    let file = fill.inode();
    // Whoever waits needs no request of our own, which would be allocated for nothing.
    let (submitted, blocks) = if fill.is_async() {
        file.data().begin_fill();
        match fill.submit_background(Background::new(range)) {
            BackgroundSubmit::Queued(done) => return Ok(Outcome::Done(done)),
            BackgroundSubmit::Here(submitted, background) => {
                file.data().end_fill();
                (submitted, background.into_blocks(file))
            }
        }
    } else {
        let mut blocks = Unpublished::new(file);
        (fill.submit(&mut blocks), blocks)
    };
    let retire = || {
        if let Some(range) = range {
            growing::retire(file, range);
        }
    };
    let mut filled = match submitted {
        Ok(FillSubmit::Filled(filled)) => filled,
        Ok(FillSubmit::NeedsExcl(req)) => {
            retire();
            return Ok(Outcome::NeedsExcl(req));
        }
        Ok(FillSubmit::Done(done)) => {
            drop(blocks);
            retire();
            return Ok(Outcome::Done(done));
        }
        Err(e) => {
            drop(blocks);
            retire();
            return Err(e);
        }
    };
    let (start, end) = filled.range();
    let published = blocks.publish(start, end);
    filled.invalidate();
    match published {
        Ok(end) => {
            filled.shorten(end);
            if let Some(range) = range {
                growing::grow(&filled, range, end);
            }
            filled.done()
        }
        Err(e) => {
            retire();
            filled.failed(e)
        }
    }
    .map(Outcome::Done)
}

impl Landing for Background {
    fn landed(self, file: &INode<Rext2>, mut write: Landed<Rext2>) {
        let range = self.range;
        let blocks = self.into_blocks(file);
        let published = match write.range() {
            Ok((start, end)) => {
                let published = blocks.publish(start, end);
                write.invalidate();
                published
            }
            Err(e) => {
                drop(blocks);
                Err(e)
            }
        };
        match (published, range) {
            (Ok(end), Some(range)) => {
                write.shorten(end);
                growing::grow_later(file, write, range, end);
            }
            (Ok(end), None) => {
                write.shorten(end);
                file.data().end_fill();
                write.answer();
            }
            (Err(e), range) => {
                if let Some(range) = range {
                    growing::retire(file, range);
                }
                file.data().end_fill();
                write.fail(e);
            }
        }
    }
}
