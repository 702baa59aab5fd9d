// SPDX-License-Identifier: GPL-2.0

//! The states of a write, from the request to the proof that it was answered.

use super::{Brand, Request};
use crate::{
    bindings,
    error::{code::*, to_result, Result},
    fs::{
        aops,
        iomap::{self, to_count},
        lock::{Excl, Guard, Held, Mode, Shared},
        FileSystem, INode, Offset,
    },
    page::PAGE_SIZE,
};
use core::{marker::PhantomData, ptr};

/// A write that has neither a lock nor been checked.
pub struct WriteReq<'k, T: FileSystem> {
    pub(super) req: Request<'k, T>,
    /// What has been written already.
    pub(super) count: usize,
}

/// Proof that a write was answered, by a number of bytes or by IO in the background.
pub struct WriteDone<'k> {
    pub(super) count: usize,
    _brand: Brand<'k>,
}

impl WriteDone<'_> {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count,
            _brand: PhantomData,
        }
    }
}

/// A write with the lock, not checked.
pub struct Locked<'k, T: FileSystem, M: Mode> {
    // Dropped first: the request of `Shared` is handed back without the lock.
    guard: Guard<'k, T, M>,
    pub(super) write: WriteReq<'k, T>,
}

/// A direct write below the size of the file, with the shared lock.
pub struct Overwrite<'k, T: FileSystem>(Locked<'k, T, Shared>);

/// A direct write of whole blocks that needs blocks or changes the size, with the shared lock.
pub struct Fill<'k, T: FileSystem>(pub(super) Locked<'k, T, Shared>);

/// A write of the kind of [`Fill`] whose data is on the device. The lock is still held.
pub struct Filled<'k, T: FileSystem> {
    locked: Locked<'k, T, Shared>,
    start: Offset,
    written: usize,
}

/// A write with the exclusive lock.
pub struct ExclWrite<'k, T: FileSystem>(Locked<'k, T, Excl>);

/// What the check with the shared lock says.
pub enum SharedCheck<'k, T: FileSystem> {
    /// Nothing but contents change, as far as the size says it.
    Overwrite(Overwrite<'k, T>),
    /// The size changes as well. All is on the boundaries of pages.
    Extend(Fill<'k, T>),
    /// A block changes in part, or privileges have to be removed. The lock is released.
    NeedsExcl(WriteReq<'k, T>),
    /// There is nothing to write.
    Done(WriteDone<'k>),
}

/// What became of an overwrite.
pub enum SharedSubmit<'k, T: FileSystem> {
    /// It was done, or is on its way.
    Done(WriteDone<'k>),
    /// There is a hole in what is left to write, or the page cache could not be passed by.
    Hole(Fill<'k, T>),
    /// What is left needs the exclusive lock. The lock is released.
    NeedsExcl(WriteReq<'k, T>),
}

/// What became of a write to blocks that may be new.
pub enum FillSubmit<'k, T: FileSystem> {
    /// The data is on the device.
    Filled(Filled<'k, T>),
    /// The page cache could not be passed by. The lock is released.
    NeedsExcl(WriteReq<'k, T>),
    /// It failed, but earlier steps have written something.
    Done(WriteDone<'k>),
}

/// What the check with the exclusive lock says.
pub enum ExclCheck<'k, T: FileSystem> {
    /// It may be submitted.
    Write(ExclWrite<'k, T>),
    /// There is nothing to write.
    Done(WriteDone<'k>),
}

/// What became of a direct write with the exclusive lock.
pub enum ExclSubmit<'k, T: FileSystem> {
    /// It was done.
    Done(WriteDone<'k>),
    /// What is left has to go through the page cache. The lock is still held.
    Fallback(ExclWrite<'k, T>),
}

impl<'k, T: FileSystem> WriteReq<'k, T> {
    pub(super) fn new(req: Request<'k, T>) -> Self {
        Self { req, count: 0 }
    }

    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.req.inode
    }

    /// Whether the page cache is to be passed by.
    pub fn is_direct(&self) -> bool {
        self.req.is_direct()
    }

    /// Takes the lock shared.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock_shared(self) -> Result<Locked<'k, T, Shared>> {
        Ok(Locked {
            guard: self.req.lock_shared()?,
            write: self,
        })
    }

    /// Takes the lock exclusively.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock(self) -> Result<Locked<'k, T, Excl>> {
        Ok(Locked {
            guard: self.req.lock()?,
            write: self,
        })
    }

    /// Answers with what was written, `more` bytes besides that of earlier steps; an error counts
    /// only if there is nothing.
    pub(super) fn answer(self, more: Result<usize>) -> Result<WriteDone<'k>> {
        match more {
            Ok(more) => Ok(WriteDone::new(self.count + more)),
            Err(_) if self.count > 0 => Ok(WriteDone::new(self.count)),
            Err(e) => Err(e),
        }
    }
}

impl<'k, T: FileSystem, M: Mode> Locked<'k, T, M> {
    /// The checks that all writes have in common; they also set the position of an append.
    /// Returns whether there is something to write.
    fn generic_checks(&self) -> Result<bool> {
        let req = &self.write.req;
        // SAFETY: The arguments are valid and ours, and the lock is held.
        let len = unsafe { bindings::generic_write_checks(req.iocb.as_ptr(), req.iter.as_ptr()) };
        Ok(to_count(len)? > 0)
    }

    /// Removes privileges and updates the times.
    fn modified(&self) -> Result {
        // SAFETY: The request is valid and ours, and the lock is held.
        to_result(unsafe { bindings::kiocb_modified(self.write.req.iocb.as_ptr()) })
    }

    /// Where the write starts and ends.
    fn range(&self) -> Result<(Offset, Offset)> {
        let start = self.write.req.pos();
        let len = self.write.req.len() as u64;
        Ok((start, start.checked_add_unsigned(len).ok_or(EFBIG)?))
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Shared> {
    /// Finds out what the write changes. The size is read with the lock held; whatever shrinks the
    /// file, or writes past its end through the page cache, waits for the lock.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<SharedCheck<'k, T>> {
        if !self.generic_checks()? {
            return self.write.answer(Ok(0)).map(SharedCheck::Done);
        }
        let (start, end) = self.range()?;
        let inode = self.write.req.inode;
        let size = inode.size();
        let in_block = Offset::from(inode.sb().block_size()) - 1;
        // SAFETY: The inode is valid.
        let nosec = unsafe { bindings::IS_NOSEC(inode.as_ptr()) };
        if (start | end) & in_block != 0 || !nosec {
            return Ok(SharedCheck::NeedsExcl(self.write));
        }
        // An append was put where the file ended a moment ago. It goes to where it ends, even if that has
        // grown past it since.
        let append = self.write.req.has_flag(bindings::IOCB_APPEND);
        if end <= size && !append {
            self.modified()?;
            return Ok(SharedCheck::Overwrite(Overwrite(self)));
        }
        // A page in which the file ends may be in the cache, with zeros where data comes, and mapped,
        // with stores behind the end. So it must not end in one for others that grow at the same time.
        let in_page = PAGE_SIZE as Offset - 1;
        if (start | end | size) & in_page != 0 || self.write.req.is_nowait() {
            return Ok(SharedCheck::NeedsExcl(self.write));
        }
        self.modified()?;
        Ok(SharedCheck::Extend(Fill(self)))
    }

    /// What became of a write from `start` on to blocks that may be new, of which iomap says `ret`.
    pub(super) fn submitted(self, ret: Result<usize>, start: Offset) -> Result<FillSubmit<'k, T>> {
        match ret {
            Ok(0) => Ok(FillSubmit::NeedsExcl(self.write)),
            Ok(written) => Ok(FillSubmit::Filled(Filled {
                locked: self,
                start,
                written,
            })),
            Err(e) => self.write.answer(Err(e)).map(FillSubmit::Done),
        }
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Excl> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.write.req.inode
    }

    /// Waits for direct IO that is in flight: for writes that complete in the background, above all.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the caller does not wait.
    pub fn drain_dio(&self) -> Result {
        if self.write.req.is_nowait() {
            return Err(EAGAIN);
        }
        self.guard.held().drain_dio();
        Ok(())
    }

    /// Checks the write and prepares the inode for it.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<ExclCheck<'k, T>> {
        if !self.generic_checks()? {
            return self.write.answer(Ok(0)).map(ExclCheck::Done);
        }
        self.modified()?;
        Ok(ExclCheck::Write(ExclWrite(self)))
    }
}

impl<'k, T: FileSystem> Overwrite<'k, T> {
    /// Writes over what is there. iomap looks at the size once more and allocates nothing.
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn submit<M: iomap::Overwrite<FileSystem = T>>(self) -> Result<SharedSubmit<'k, T>> {
        let mut locked = self.0;
        let req = &locked.write.req;
        let (nowait, len) = (req.is_nowait(), req.len());
        // SAFETY: The table is for files of type `T` and allocates nothing.
        let ret = unsafe {
            req.direct(
                iomap::OverwriteTable::<M>::OPS,
                bindings::IOMAP_DIO_OVERWRITE_ONLY,
                ptr::null_mut(),
            )
        };
        match ret {
            Ok(count) if req.queued.get() || req.len() == 0 => {
                locked.write.answer(Ok(count)).map(SharedSubmit::Done)
            }
            // A mapping has sent it back.
            Ok(count) => {
                locked.write.count += count;
                if nowait {
                    return locked.write.answer(Err(EAGAIN)).map(SharedSubmit::Done);
                }
                Ok(SharedSubmit::Hole(Fill(locked)))
            }
            // More than contents would change; nothing was written.
            Err(e) if e == EAGAIN && !nowait && req.len() == len => {
                Ok(SharedSubmit::NeedsExcl(locked.write))
            }
            Err(e) => locked.write.answer(Err(e)).map(SharedSubmit::Done),
        }
    }
}

impl<'k, T: FileSystem> Fill<'k, T> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.0.write.req.inode
    }

    /// Where the write starts.
    pub fn start(&self) -> Offset {
        self.0.write.req.pos()
    }

    /// How much there is to write, in bytes: whole blocks, and at least one.
    pub fn byte_count(&self) -> usize {
        self.0.write.req.len()
    }

    /// Whether the write goes to the end of the file, wherever that is.
    pub fn is_append(&self) -> bool {
        self.0.write.req.has_flag(bindings::IOCB_APPEND)
    }

    /// Moves an append behind what others are appending at the moment.
    ///
    /// Returns the request, without the lock, if it cannot go there: if it is no append, if that is
    /// in front of where it is now, if it would end behind the limit of the process or of the format,
    /// or if `start` is not on the boundary of a page.
    pub fn append_at(self, start: Offset) -> core::result::Result<Self, WriteReq<'k, T>> {
        let req = &self.0.write.req;
        if !self.is_append() || start < req.pos() || start & (PAGE_SIZE as Offset - 1) != 0 {
            return Err(self.0.write);
        }
        let mut count = req.len() as Offset;
        let whole = count;
        // SAFETY: The request is valid, and so is its file; `count` belongs to this call.
        let ret = unsafe {
            bindings::generic_write_check_limits((*req.iocb.as_ptr()).ki_filp, start, &mut count)
        };
        if ret != 0 || count != whole {
            return Err(self.0.write);
        }
        // SAFETY: The request is valid and ours.
        unsafe { (*req.iocb.as_ptr()).ki_pos = start };
        Ok(self)
    }

    /// Gives up: the request comes back without the lock.
    pub fn needs_excl(self) -> WriteReq<'k, T> {
        self.0.write
    }

    /// Writes to blocks that `to` finds or allocates, and waits for the data to be on the device.
    ///
    /// Unless the answer is [`FillSubmit::Filled`], nothing that was allocated may become part of the
    /// file.
    ///
    /// # Errors
    ///
    /// What the device or the file system returns, if earlier steps have written nothing.
    pub fn submit<M: iomap::Fill<FileSystem = T>>(self, to: &mut M) -> Result<FillSubmit<'k, T>> {
        let locked = self.0;
        let req = &locked.write.req;
        let start = req.pos();
        // SAFETY: The request is valid and ours, and the lock is held. The table is for files of type
        // `T` and takes an `M`, which is borrowed until the IO is done, as the call waits for it.
        let ret = unsafe {
            req.direct(
                iomap::FillTable::<M>::OPS,
                bindings::IOMAP_DIO_FORCE_WAIT,
                ptr::from_mut(to).cast(),
            )
        };
        locked.submitted(ret, start)
    }
}

impl<'k, T: FileSystem> Filled<'k, T> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.locked.write.req.inode
    }

    /// Where the write started, and where what was written ends.
    pub fn range(&self) -> (Offset, Offset) {
        (
            self.start,
            self.start.saturating_add_unsigned(self.written as u64),
        )
    }

    /// Makes it a shorter write, up to `end`: what was written behind that does not become part of the
    /// file.
    pub fn shorten(&mut self, end: Offset) {
        let written = usize::try_from(end.saturating_sub(self.start)).unwrap_or(0);
        let less = self.written.saturating_sub(written);
        self.written -= less;
        let req = &self.locked.write.req;
        // SAFETY: The request is valid and ours, and has gone at least that far.
        unsafe {
            (*req.iocb.as_ptr()).ki_pos -= less as Offset;
            bindings::iov_iter_revert(req.iter.as_ptr(), less);
        }
    }

    /// Drops from the page cache what was read before the blocks became part of the file.
    pub fn invalidate(&self) {
        let req = &self.locked.write.req;
        // SAFETY: The request is valid. The call looks at the position, which is set back for it.
        unsafe {
            let pos = (*req.iocb.as_ptr()).ki_pos;
            (*req.iocb.as_ptr()).ki_pos = self.start;
            bindings::fs_invalidate_written(req.iocb.as_ptr(), self.written);
            (*req.iocb.as_ptr()).ki_pos = pos;
        }
    }

    /// Publishes the size of the file, in bytes, if it has grown to that. It is a release store.
    pub fn grow_size(&self, size: Offset) {
        let inode = self.inode();
        // SAFETY: The inode is valid; the lock is held shared, so that the size does not shrink.
        if unsafe { bindings::fs_grow_size(inode.as_ptr(), size) } {
            inode.mark_dirty();
        }
    }

    /// Answers the write, and writes the metadata if the write is synchronous.
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn done(self) -> Result<WriteDone<'k>> {
        let Locked { guard, write } = self.locked;
        drop(guard);
        let iocb = write.req.iocb.as_ptr();
        // SAFETY: The request is valid and ours; its position is behind what was written.
        let synced = unsafe { bindings::generic_write_sync(iocb, self.written as isize) };
        write.answer(to_count(synced))
    }

    /// Answers the write with an error: what was written has not become part of the file.
    ///
    /// # Errors
    ///
    /// `e`, unless earlier steps have written something.
    pub fn failed(self, e: crate::error::Error) -> Result<WriteDone<'k>> {
        // SAFETY: The request is valid and ours. It ends where the earlier steps have.
        unsafe { (*self.locked.write.req.iocb.as_ptr()).ki_pos = self.start };
        self.locked.write.answer(Err(e))
    }
}

impl<'k, T: FileSystem> ExclWrite<'k, T> {
    /// Proves that the lock is held.
    pub fn held(&self) -> Held<'_, T, Excl> {
        self.0.guard.held()
    }

    /// Whether all of it lies below the size of the file.
    pub fn is_within_size(&self) -> bool {
        matches!(self.0.range(), Ok((_, end)) if end <= self.0.write.req.inode.size())
    }

    /// Writes past the page cache over what is there, when all other direct IO is done, and waits
    /// for it.
    ///
    /// # Errors
    ///
    /// What the device or the file system returns.
    pub fn submit_direct<M: iomap::Overwrite<FileSystem = T>>(
        mut self,
    ) -> Result<ExclSubmit<'k, T>> {
        self.held().drain_dio();
        let req = &self.0.write.req;
        // SAFETY: The table is for files of type `T`, and allocates nothing.
        let ret = unsafe {
            req.direct(
                iomap::OverwriteTable::<M>::OPS,
                bindings::IOMAP_DIO_FORCE_WAIT,
                ptr::null_mut(),
            )
        };
        match ret {
            Ok(count) if req.len() == 0 => self.0.write.answer(Ok(count)).map(ExclSubmit::Done),
            Ok(count) => {
                self.0.write.count += count;
                Ok(ExclSubmit::Fallback(self))
            }
            Err(e) => self.0.write.answer(Err(e)).map(ExclSubmit::Done),
        }
    }

    /// Writes through the page cache, and to the device if the write is synchronous or direct.
    ///
    /// # Errors
    ///
    /// What the file system returns.
    pub fn submit_buffered<A: aops::Operations<FileSystem = T>>(self) -> Result<WriteDone<'k>> {
        let (start, _) = self.0.range()?;
        if start > self.0.write.req.inode.size() {
            self.held().zero_eof::<A::Read>(start)?;
        }
        let Locked { guard, write } = self.0;
        let direct = write.is_direct();
        if direct {
            // Direct IO that is under way has to come before what the page cache writes.
            guard.held().drain_dio();
        }
        let (iocb, iter) = (write.req.iocb.as_ptr(), write.req.iter.as_ptr());
        // SAFETY: The arguments are valid and ours; the table is for files of type `T`, and the
        // lock is held exclusively.
        let mut ret = unsafe {
            bindings::fs_iomap_buffered_write(iocb, iter, iomap::AllocTable::<A::Write>::OPS)
        };
        if direct {
            // SAFETY: As above; the position is behind what was written.
            ret = unsafe { bindings::direct_write_fallback(iocb, iter, 0, ret) };
        }
        drop(guard);
        if ret > 0 {
            // SAFETY: The request is valid and ours; its position is behind what was written.
            ret = unsafe { bindings::generic_write_sync(iocb, ret) };
        }
        write.answer(to_count(ret))
    }
}
