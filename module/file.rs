// SPDX-License-Identifier: GPL-2.0

//! Regular files.
//!
//! # Direct writes in parallel
//!
//! All direct writes of whole blocks run under the shared lock, those into holes and behind the end
//! of the file included. What such a design has to answer:
//!
//! 1. *Who writes where.* An append gets its place with the map lock held, behind what others are
//!    appending ([`Growing`]). Others say where they write.
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
//! Writes below the size that find no hole may complete in the background. Those that allocate wait
//! for the device, as there is something left to do.

#![forbid(unsafe_code)]

use crate::{
    info::Growing,
    iomap::{DirectRead, DirectWrite, PageCache, Unpublished},
    Rext2,
};
use kernel::{
    fs::{
        file::{
            ExclCheck, ExclSubmit, Fallocate, Fill, FillSubmit, Filled, Flags, Operations,
            ReadDone, ReadReq, SharedCheck, SharedSubmit, WriteDone, WriteReq,
        },
        lock::{Excl, Held},
        nofs, INode, Offset,
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
        let write = match req.lock()?.check()? {
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
        SharedCheck::Extend(fill) => extend(fill),
        SharedCheck::Overwrite(write) => match write.submit::<DirectWrite>()? {
            SharedSubmit::Done(done) => Ok(Outcome::Done(done)),
            SharedSubmit::NeedsExcl(req) => Ok(Outcome::NeedsExcl(req)),
            SharedSubmit::Hole(fill) => {
                let mut blocks = Unpublished::new(fill.inode());
                match fill.submit(&mut blocks)? {
                    FillSubmit::Filled(filled) => publish(filled, blocks),
                    FillSubmit::NeedsExcl(req) => Ok(Outcome::NeedsExcl(req)),
                    FillSubmit::Done(done) => Ok(Outcome::Done(done)),
                }
            }
        },
    }
}

/// Makes what was written part of the file, below its end.
fn publish<'k>(mut filled: Filled<'k, Rext2>, blocks: Unpublished<'_>) -> Result<Outcome<'k>> {
    match publish_blocks(&mut filled, blocks) {
        Ok(_) => filled.done(),
        Err(e) => filled.failed(e),
    }
    .map(Outcome::Done)
}

/// Makes the blocks of a write part of the file. Returns where the write ends, which it does early if
/// there is no space for what leads to the rest.
fn publish_blocks(filled: &mut Filled<'_, Rext2>, blocks: Unpublished<'_>) -> Result<Offset> {
    let (start, end) = filled.range();
    let published = blocks.publish(start, end);
    filled.invalidate();
    let end = published?;
    filled.shorten(end);
    Ok(end)
}

/// Writes behind the end of the file.
fn extend<'k>(fill: Fill<'k, Rext2>) -> Result<Outcome<'k>> {
    let file = fill.inode();
    let (fill, range) = match reserve(fill)? {
        Ok(reserved) => reserved,
        Err(req) => return Ok(Outcome::NeedsExcl(req)),
    };
    let mut blocks = Unpublished::new(file);
    let mut filled = match fill.submit(&mut blocks) {
        Ok(FillSubmit::Filled(filled)) => filled,
        Ok(FillSubmit::NeedsExcl(req)) => {
            retire(file, range);
            return Ok(Outcome::NeedsExcl(req));
        }
        Ok(FillSubmit::Done(done)) => {
            drop(blocks);
            retire(file, range);
            return Ok(Outcome::Done(done));
        }
        Err(e) => {
            drop(blocks);
            retire(file, range);
            return Err(e);
        }
    };
    let end = match publish_blocks(&mut filled, blocks) {
        Ok(end) => end,
        Err(e) => {
            retire(file, range);
            return filled.failed(e).map(Outcome::Done);
        }
    };
    grow(&filled, range, end);
    filled.done().map(Outcome::Done)
}

/// A write behind the end of the file, and where it starts and ends.
type Reserved<'k> = (Fill<'k, Rext2>, (Offset, Offset));

/// Finds the place of a write behind the end of the file, and says that it is under way. Returns the
/// request without the lock if it has to go another way.
fn reserve<'k>(
    fill: Fill<'k, Rext2>,
) -> Result<core::result::Result<Reserved<'k>, WriteReq<'k, Rext2>>> {
    let file = fill.inode();
    let mut map = file.data().map();
    let growing = &mut map.growing;
    let mut fill = fill;
    if fill.is_append() {
        let start = growing.end().max(file.size());
        fill = match fill.append_at(start) {
            Ok(fill) => fill,
            Err(req) => return Ok(Err(req)),
        };
    }
    let start = fill.start();
    let range = (
        start,
        start.saturating_add_unsigned(fill.byte_count() as u64),
    );
    nofs(|| growing.add(range))?;
    Ok(Ok((fill, range)))
}

/// Says that a write is not under way any more.
fn retire(file: &INode<Rext2>, range: (Offset, Offset)) {
    {
        let mut map = file.data().map();
        map.growing.land(range);
        map.growing.leave();
    }
    file.sb().data().grown.notify_all();
}

/// Makes the file grow to `end`, once all writes that began in front of it are done.
fn grow(filled: &Filled<'_, Rext2>, range: (Offset, Offset), end: Offset) {
    let file = filled.inode();
    let grown = &file.sb().data().grown;
    let mut map = file.data().map();
    map.growing.done = map.growing.done.max(end);
    map.growing.land(range);
    // Once, and not in the loop: those who wait would keep waking each other.
    grown.notify_all();
    while let Some(first) = map.growing.first_below(end) {
        filled.grow_size(first.min(map.growing.done));
        grown.wait(&mut map);
    }
    filled.grow_size(end);
    map.growing.leave();
}

impl Growing {
    /// Where the last of the writes ends.
    fn end(&self) -> Offset {
        self.flying.iter().fold(self.done, |end, f| end.max(f.1))
    }

    /// Where the first write starts that is under way, if that is in front of `end`.
    fn first_below(&self, end: Offset) -> Option<Offset> {
        let under_way = self.flying.iter().filter(|flying| **flying != NONE);
        under_way.map(|f| f.0).filter(|&start| start < end).min()
    }

    /// Puts a write on the list.
    fn add(&mut self, range: (Offset, Offset)) -> Result {
        match self.flying.iter_mut().find(|flying| **flying == NONE) {
            Some(place) => *place = range,
            None => self.flying.push(range, GFP_KERNEL)?,
        }
        self.writers += 1;
        Ok(())
    }

    /// Takes a write off the list.
    fn land(&mut self, range: (Offset, Offset)) {
        if let Some(place) = self.flying.iter_mut().find(|flying| **flying == range) {
            *place = NONE;
        }
    }

    /// A writer has its answer. As long as one waits, the size may be less than what is done, and
    /// the next append goes behind that.
    fn leave(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        if self.writers == 0 {
            self.done = 0;
        }
    }
}

/// A place in the list of writes that is free.
const NONE: (Offset, Offset) = (0, 0);
