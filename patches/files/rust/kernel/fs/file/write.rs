// SPDX-License-Identifier: GPL-2.0

//! The states of a write, from the request to the proof that it was answered.

use super::{Brand, Request};
use crate::{
    bindings,
    error::{code::*, to_result, Result},
    fs::{
        iomap::{self, to_count},
        lock::{Excl, Guard, Held, Mode, Shared},
        FileSystem, INode, Offset,
    },
};
use core::marker::PhantomData;

/// A write that has neither a lock nor been checked.
pub struct WriteReq<'k, T: FileSystem>(pub(super) Request<'k, T>);

/// Proof that a write was answered, by a number of bytes or by IO in the background.
pub struct WriteDone<'k> {
    pub(super) count: usize,
    _brand: Brand<'k>,
}

impl WriteDone<'_> {
    fn new(count: usize) -> Self {
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
    req: WriteReq<'k, T>,
}

/// A direct write below the size of the file, with the shared lock.
pub struct Overwrite<'k, T: FileSystem>(Locked<'k, T, Shared>);

/// A write with the exclusive lock.
pub struct ExclWrite<'k, T: FileSystem>(Locked<'k, T, Excl>);

/// What the check with the shared lock says.
pub enum SharedCheck<'k, T: FileSystem> {
    /// Nothing but contents change.
    Overwrite(Overwrite<'k, T>),
    /// The size changes, a block changes in part, or privileges have to be removed. The lock is
    /// released.
    NeedsExcl(WriteReq<'k, T>),
    /// There is nothing to write.
    Done(WriteDone<'k>),
}

/// What became of an overwrite.
pub enum SharedSubmit<'k, T: FileSystem> {
    /// It was done, or is on its way.
    Done(WriteDone<'k>),
    /// There is a hole. The lock is released.
    Fallback(WriteReq<'k, T>),
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
    /// The file system wants it to go through the page cache. The lock is still held.
    Fallback(ExclWrite<'k, T>),
}

impl<'k, T: FileSystem> WriteReq<'k, T> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.0.inode
    }

    /// Whether the page cache is to be passed by.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct()
    }

    /// Takes the lock shared.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock_shared(self) -> Result<Locked<'k, T, Shared>> {
        Ok(Locked {
            guard: self.0.lock_shared()?,
            req: self,
        })
    }

    /// Takes the lock exclusively.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock(self) -> Result<Locked<'k, T, Excl>> {
        Ok(Locked {
            guard: self.0.lock()?,
            req: self,
        })
    }
}

impl<'k, T: FileSystem, M: Mode> Locked<'k, T, M> {
    /// The checks that all writes have in common; they also set the position of an append.
    /// Returns whether there is something to write.
    fn generic_checks(&self) -> Result<bool> {
        let req = &self.req.0;
        // SAFETY: The arguments are valid and ours, and the lock is held.
        let len = unsafe { bindings::generic_write_checks(req.iocb.as_ptr(), req.iter.as_ptr()) };
        Ok(to_count(len)? > 0)
    }

    /// Removes privileges and updates the times.
    fn modified(&self) -> Result {
        // SAFETY: The request is valid and ours, and the lock is held.
        to_result(unsafe { bindings::kiocb_modified(self.req.0.iocb.as_ptr()) })
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Shared> {
    /// Finds out whether the write leaves all but contents alone.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<SharedCheck<'k, T>> {
        if !self.generic_checks()? {
            return Ok(SharedCheck::Done(WriteDone::new(0)));
        }
        let req = &self.req.0;
        let start = req.pos();
        let end = start.checked_add_unsigned(req.len() as u64).ok_or(EFBIG)?;
        let in_block = Offset::from(req.inode.sb().block_size()) - 1;
        // SAFETY: The inode is valid.
        let nosec = unsafe { bindings::IS_NOSEC(req.inode.as_ptr()) };
        // The size is read with the lock held: it does not change before the lock is released.
        if end > req.inode.size() || (start | end) & in_block != 0 || !nosec {
            return Ok(SharedCheck::NeedsExcl(self.req));
        }
        self.modified()?;
        Ok(SharedCheck::Overwrite(Overwrite(self)))
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Excl> {
    /// Checks the write and prepares the inode for it.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<ExclCheck<'k, T>> {
        if !self.generic_checks()? {
            return Ok(ExclCheck::Done(WriteDone::new(0)));
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
        let req = &self.0.req.0;
        let (nowait, len) = (req.is_nowait(), req.len());
        // SAFETY: The table is for files of type `T` and allocates nothing.
        let ret = unsafe {
            req.direct(
                iomap::OverwriteTable::<M>::OPS,
                bindings::IOMAP_DIO_OVERWRITE_ONLY,
            )
        };
        let untouched = req.len() == len;
        match ret {
            // iomap answers with 0 where the first mapping sends it back.
            Ok(0) if !req.queued.get() => Ok(SharedSubmit::Fallback(self.0.req)),
            Ok(count) => Ok(SharedSubmit::Done(WriteDone::new(count))),
            // The size has changed, or more than contents would; nothing was written.
            Err(e) if e == EAGAIN && !nowait && untouched => Ok(SharedSubmit::Fallback(self.0.req)),
            Err(e) => Err(e),
        }
    }
}

impl<'k, T: FileSystem> ExclWrite<'k, T> {
    /// Proves that the lock is held.
    pub fn held(&self) -> Held<'_, T, Excl> {
        self.0.guard.held()
    }

    /// Waits until no direct IO on the file is in flight.
    pub fn drain_dio(&self) {
        self.held().drain_dio()
    }

    /// Writes past the page cache, and waits for it, so that the size is updated with the lock.
    ///
    /// # Errors
    ///
    /// What the device or the file system returns.
    pub fn submit_direct<M: iomap::Alloc<FileSystem = T>>(self) -> Result<ExclSubmit<'k, T>> {
        // SAFETY: The table is for files of type `T`, and the lock is held exclusively.
        let count = unsafe {
            self.0
                .req
                .0
                .direct(iomap::AllocTable::<M>::OPS, bindings::IOMAP_DIO_FORCE_WAIT)
        }?;
        if count == 0 {
            // iomap answers with 0 where the first mapping sends it back.
            return Ok(ExclSubmit::Fallback(self));
        }
        Ok(ExclSubmit::Done(WriteDone::new(count)))
    }

    /// Writes through the page cache, and to the device if the write is synchronous.
    ///
    /// # Errors
    ///
    /// What the file system returns.
    pub fn submit_buffered<M: iomap::Alloc<FileSystem = T>>(self) -> Result<WriteDone<'k>> {
        let Locked { guard, req } = self.0;
        let (iocb, iter) = (req.0.iocb.as_ptr(), req.0.iter.as_ptr());
        // SAFETY: The arguments are valid and ours; the table is for files of type `T`, and the
        // lock is held exclusively.
        let ret =
            unsafe { bindings::fs_iomap_buffered_write(iocb, iter, iomap::AllocTable::<M>::OPS) };
        drop(guard);
        let mut count = to_count(ret)?;
        if count > 0 {
            // SAFETY: The request is valid and ours; its position is behind what was written.
            count = to_count(unsafe { bindings::generic_write_sync(iocb, count as isize) })?;
        }
        Ok(WriteDone::new(count))
    }
}
