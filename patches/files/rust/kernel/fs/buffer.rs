// SPDX-License-Identifier: GPL-2.0

//! Metadata blocks, through the page cache of the block device.
//!
//! Who has opened the device may write to that cache at any time. So there is no reference to the
//! contents of a buffer: they are copied out, and what was copied is then checked.
//!
//! C header: [`include/linux/buffer_head.h`](srctree/include/linux/buffer_head.h)

use crate::{
    bindings,
    error::{code::*, Result},
    types::FromBytes,
};
use core::{
    marker::PhantomData,
    mem::{size_of, size_of_val, MaybeUninit},
    ptr::NonNull,
};

/// A block of the device that has been read.
///
/// It cannot outlive the superblock that it was read through, so that it is released while the
/// device is open.
///
/// # Invariants
///
/// `bh` is up to date, and the value owns a reference to it. Its size does not change.
pub struct BufHead<'a> {
    bh: NonNull<bindings::buffer_head>,
    _sb: PhantomData<&'a bindings::super_block>,
}

// SAFETY: Buffers are reference-counted with atomics and belong to no task.
unsafe impl Send for BufHead<'_> {}

// SAFETY: The methods that take `&self` copy from memory that anybody may write to.
unsafe impl Sync for BufHead<'_> {}

impl<'a> BufHead<'a> {
    /// Reads a block.
    ///
    /// # Safety
    ///
    /// `sb` is a superblock on a block device and valid during `'a`, in which its block size does
    /// not change.
    pub(super) unsafe fn read(sb: *mut bindings::super_block, block: u64) -> Result<Self> {
        // SAFETY: By the safety requirements.
        let bh = unsafe { bindings::fs_sb_bread(sb, block) };
        // INVARIANT: It returns a buffer that is up to date, with a reference.
        Ok(BufHead {
            bh: NonNull::new(bh).ok_or(EIO)?,
            _sb: PhantomData,
        })
    }

    /// The size of the block, in bytes.
    pub fn size(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.bh.as_ptr()).b_size }
    }

    /// The number of the block on the device.
    pub fn block(&self) -> u64 {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.bh.as_ptr()).b_blocknr }
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `ERANGE` if they are not all within the block.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result {
        self.check(offset, to.len())?;
        // SAFETY: `to` is writable for its length, and the bytes are within the block.
        unsafe {
            bindings::fs_buffer_copy(to.as_mut_ptr().cast(), self.bh.as_ptr(), offset, to.len())
        };
        Ok(())
    }

    /// Copies a value from `offset` on.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not all within the block.
    pub fn get<S: FromBytes>(&self, offset: usize) -> Result<S> {
        self.check(offset, size_of::<S>())?;
        let mut value = MaybeUninit::<S>::uninit();
        // SAFETY: `value` is writable for its size, and the bytes are within the block.
        unsafe {
            bindings::fs_buffer_copy(
                value.as_mut_ptr().cast(),
                self.bh.as_ptr(),
                offset,
                size_of::<S>(),
            )
        };
        // SAFETY: All bytes are set, and every bit pattern is a value of `S`.
        Ok(unsafe { value.assume_init() })
    }

    /// Loads a little-endian number at `offset`, a multiple of 4.
    ///
    /// It is one load. A value of which others store parts is still one of the values that were
    /// there.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block, or not aligned.
    pub fn load_le32(&self, offset: usize) -> Result<u32> {
        self.check(offset, size_of::<u32>())?;
        if offset % size_of::<u32>() != 0 {
            return Err(ERANGE);
        }
        // SAFETY: The data of a buffer is aligned to the block size, and the number is within it.
        // It is loaded as `READ_ONCE()` does, because others may store at the same time.
        let raw = unsafe {
            let data = (*self.bh.as_ptr()).b_data;
            data.add(offset).cast::<u32>().read_volatile()
        };
        Ok(u32::from_le(raw))
    }

    /// Copies values from `offset` on, as many as there is room for.
    ///
    /// # Errors
    ///
    /// `ERANGE` if they are not all within the block.
    pub fn get_slice<S: FromBytes>(&self, offset: usize, to: &mut [S]) -> Result {
        let len = size_of_val(to);
        self.check(offset, len)?;
        // SAFETY: `to` is writable for its length, of which any bit pattern is a value, and the
        // bytes are within the block.
        unsafe { bindings::fs_buffer_copy(to.as_mut_ptr().cast(), self.bh.as_ptr(), offset, len) };
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(ERANGE),
        }
    }
}

impl Drop for BufHead<'_> {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, by the type invariant.
        unsafe { bindings::brelse(self.bh.as_ptr()) }
    }
}
