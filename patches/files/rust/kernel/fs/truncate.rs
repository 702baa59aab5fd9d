// SPDX-License-Identifier: GPL-2.0

//! Changes of the size of a file, and holes: blocks, page cache and size in the right order.
//!
//! # What lies behind the end of a file
//!
//! The last page of a file ends behind it. Whoever has mapped that page can store there, and the
//! device may hold anything there. None of that may become part of the file when the file grows: the
//! bytes between the old end and the new one are zero. So every way to grow a file begins with
//! [`Held::zero_eof`].

use super::{
    aops,
    inode::NoFs,
    iomap::{Lookup, LookupTable},
    lock::{Excl, Held},
    FileSystem, Offset,
};
use crate::{
    bindings,
    error::{code::*, to_result, Result},
    page::PAGE_SIZE,
};

/// Holds `invalidate_lock` exclusively: nobody fills the page cache.
struct Invalidating(*mut bindings::address_space);

impl Invalidating {
    /// # Safety
    ///
    /// The mapping is valid for as long as the value lives.
    unsafe fn lock(mapping: *mut bindings::address_space) -> Self {
        // SAFETY: By the safety requirements.
        unsafe { bindings::filemap_invalidate_lock(mapping) };
        Self(mapping)
    }
}

impl Drop for Invalidating {
    fn drop(&mut self) {
        // SAFETY: Locked by `lock`, of the same task, as the value is private to this file.
        unsafe { bindings::filemap_invalidate_unlock(self.0) }
    }
}

impl<T: FileSystem> Held<'_, T, Excl> {
    /// Makes the bytes behind the end of the file zero, up to byte `end` or the end of the page.
    ///
    /// # Errors
    ///
    /// `EIO` if the last block cannot be read, `EINVAL` for what is not a regular file, `ENOMEM`.
    pub fn zero_eof<M: Lookup<FileSystem = T>>(&self, end: Offset) -> Result {
        let page = PAGE_SIZE as Offset;
        let size = self.size();
        let page_end = size.checked_add(page - 1).ok_or(EFBIG)? & !(page - 1);
        let end = end.min(page_end);
        if size >= end {
            return Ok(());
        }
        self.zero::<M>(size, end)
    }

    /// Makes bytes of the file zero where there is data.
    fn zero<M: Lookup<FileSystem = T>>(&self, start: Offset, end: Offset) -> Result {
        // SAFETY: The inode is in use and its lock is held; the table is for files of its type. What
        // is not there is left out, so that nothing is allocated.
        to_result(unsafe {
            bindings::fs_iomap_zero_range(
                self.inode().as_ptr(),
                start,
                end - start,
                LookupTable::<M>::OPS,
            )
        })
    }

    /// Has all that the page cache shows from byte `start` to byte `end` of a regular file written, as
    /// far as the file goes, because there are blocks under it that were just allocated. What is not
    /// in the page cache is read first: no lock may be held that reading needs.
    ///
    /// Whoever has mapped the file sees no change.
    ///
    /// # Errors
    ///
    /// What reading returns, `EINVAL` for a negative start or what is not a regular file, `ENOMEM`.
    pub fn dirty_range(&self, start: Offset, end: Offset) -> Result {
        if start < 0 {
            return Err(EINVAL);
        }
        let end = end.min(self.size());
        // SAFETY: The inode is in use and its lock is held exclusively. `start` is not negative, and
        // both are no more than the size. What is not a regular file of iomap is refused there.
        to_result(unsafe { bindings::fs_dirty_range(self.inode().as_ptr(), start, end) })
    }

    /// Changes the size of a regular file to `size` bytes, with all that this means. `truncate(2)`
    /// leaves the times to the file system, so that they are updated here.
    ///
    /// # Errors
    ///
    /// As for [`Held::zero_eof`]; the size has not changed then.
    pub fn truncate<A: aops::Operations<FileSystem = T>>(&mut self, size: Offset) -> Result {
        if size < 0 {
            return Err(EINVAL);
        }
        let inode = self.inode().as_ptr();
        // Who waits for direct IO here sees the size that it has left.
        self.drain_dio();
        if size > self.size() {
            self.zero_eof::<A::Read>(size)?;
            // SAFETY: The inode is valid, and its lock is held exclusively.
            unsafe { bindings::truncate_setsize(inode, size) };
            self.touch_mtime();
            self.mark_dirty();
            return Ok(());
        }
        let block = Offset::from(self.sb().block_size());
        let block_end = size.checked_add(block - 1).ok_or(EFBIG)? & !(block - 1);
        if block_end != size {
            self.zero::<A::Read>(size, block_end.min(self.size().max(size)))?;
        }
        // SAFETY: The inode is in use, so that its mapping is valid.
        let _invalidating = unsafe { Invalidating::lock((*inode).i_mapping) };
        // SAFETY: The inode is valid, and both its locks are held.
        unsafe { bindings::truncate_setsize(inode, size) };
        self.touch_mtime();
        self.mark_dirty();
        let _scope = NoFs::new();
        // Whatever is damaged has been reported; what could not be freed is lost until a check.
        // SAFETY: The lock is held, as `self` shows.
        let _ = A::free_blocks(unsafe { Held::new(self.inode()) }, size, Offset::MAX);
        Ok(())
    }

    /// Makes a range of a regular file a hole. The size stays.
    ///
    /// # Errors
    ///
    /// `EIO` if a block at the ends of the range cannot be read; what
    /// [`free_blocks`](aops::Operations::free_blocks) returns.
    pub fn punch_hole<A: aops::Operations<FileSystem = T>>(
        &mut self,
        start: Offset,
        end: Offset,
    ) -> Result {
        let end = end.min(self.size());
        if start < 0 || start >= end {
            return Ok(());
        }
        self.drain_dio();
        let block = Offset::from(self.sb().block_size());
        let first = start.checked_add(block - 1).ok_or(EFBIG)? & !(block - 1);
        // The last block is a whole one if the file ends in it.
        let last = if end == self.size() {
            end.checked_add(block - 1).ok_or(EFBIG)? & !(block - 1)
        } else {
            end & !(block - 1)
        };
        if first >= last {
            return self.zero::<A::Read>(start, end);
        }
        if start < first {
            self.zero::<A::Read>(start, first)?;
        }
        if last < end {
            self.zero::<A::Read>(last, end)?;
        }
        let inode = self.inode().as_ptr();
        // SAFETY: The inode is in use, so that its mapping is valid.
        let _invalidating = unsafe { Invalidating::lock((*inode).i_mapping) };
        // A folio over an end of the hole that is dirty stays, and would be written to blocks that
        // are free by then.
        for end in [first - 1, last] {
            // SAFETY: The inode is valid. Nobody can dirty the folio by a mapping meanwhile, because
            // that takes the second of the locks.
            to_result(unsafe {
                bindings::filemap_write_and_wait_range((*inode).i_mapping, end.max(0), end.max(0))
            })?;
        }
        // Blocks may be smaller than a page. Whoever has mapped a page that loses some of them has to
        // ask for them once more before the next store.
        let page = PAGE_SIZE as Offset;
        let (from, to) = (
            first & !(page - 1),
            last.saturating_add(page - 1) & !(page - 1),
        );
        // SAFETY: The inode is valid, and both its locks are held. The range is not empty.
        unsafe {
            bindings::unmap_mapping_range((*inode).i_mapping, from, to - from, 0);
            bindings::truncate_pagecache_range(inode, first, last - 1);
        }
        self.mark_dirty();
        let _scope = NoFs::new();
        // SAFETY: The lock is held, as `self` shows.
        A::free_blocks(unsafe { Held::new(self.inode()) }, first, last)
    }

    /// Makes a range of a regular file zero; the file grows to its end if `grow`. Holes stay holes.
    ///
    /// # Errors
    ///
    /// `EIO` if a block at the ends of the range cannot be read, `EFBIG` if the file cannot be that
    /// big, `EINVAL` for a negative start, `ENOMEM`.
    pub fn zero_range<A: aops::Operations<FileSystem = T>>(
        &mut self,
        start: Offset,
        end: Offset,
        grow: bool,
    ) -> Result {
        if start < 0 {
            return Err(EINVAL);
        }
        let size = self.size();
        self.drain_dio();
        if start < end.min(size) {
            self.zero::<A::Read>(start, end.min(size))?;
        }
        if grow && end > size {
            // SAFETY: The inode is valid.
            to_result(unsafe { bindings::inode_newsize_ok(self.inode().as_ptr(), end) })?;
            self.truncate::<A>(end)?;
        }
        self.mark_dirty();
        Ok(())
    }
}
