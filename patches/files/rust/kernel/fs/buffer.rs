// SPDX-License-Identifier: GPL-2.0

//! Metadata blocks, through the page cache of the block device.
//!
//! Who has opened the device may write to that cache at any time. So there is no reference to the
//! contents of a buffer: they are copied out, and what was copied is then checked; and they are
//! copied in. File systems keep their own writers of a block apart.
//!
//! C header: [`include/linux/buffer_head.h`](srctree/include/linux/buffer_head.h)

use super::{FileSystem, INode};
use crate::{
    bindings,
    error::{code::*, to_result, Result},
    types::{AsBytes, FromBytes},
};
use core::{
    marker::PhantomData,
    mem::{size_of, size_of_val, ManuallyDrop, MaybeUninit},
    ptr::NonNull,
    sync::atomic::{fence, Ordering},
};

/// A block of the device that has been read.
///
/// It cannot outlive the superblock that it was read through, so that it is released while the
/// device is open.
///
/// # Invariants
///
/// `bh` is up to date, and the value owns a reference to it. As long as it does, `b_data` points to
/// `b_size` mapped bytes, neither of the two changes, and the data is aligned to its size, a power of
/// two of at least 512.
pub struct BufHead<'a> {
    bh: NonNull<bindings::buffer_head>,
    _sb: PhantomData<&'a bindings::super_block>,
}

// SAFETY: Buffers are reference-counted with atomics and belong to no task.
unsafe impl Send for BufHead<'_> {}

// SAFETY: The methods that take `&self` access the data by copies of C code, by volatile loads and
// stores of aligned numbers, and by atomic operations on bits, all of which may run at the same time;
// they change the state of the buffer by atomic operations.
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
        // INVARIANT: It returns a buffer that is up to date, with a reference, which keeps its folio
        // where it is. Folios of block devices are in low memory and aligned to their size.
        Ok(BufHead {
            bh: NonNull::new(bh).ok_or(EIO)?,
            _sb: PhantomData,
        })
    }

    /// Takes a block whose old contents mean nothing, and fills it with zeros.
    ///
    /// # Safety
    ///
    /// As for [`BufHead::read`].
    pub(super) unsafe fn new(sb: *mut bindings::super_block, block: u64) -> Result<Self> {
        // SAFETY: By the safety requirements.
        let bh = unsafe { bindings::fs_sb_bnew(sb, block) };
        // INVARIANT: It returns a buffer that is up to date, with a reference.
        Ok(BufHead {
            bh: NonNull::new(bh).ok_or(EIO)?,
            _sb: PhantomData,
        })
    }

    /// The size of the block, in bytes.
    #[inline]
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

    /// The numbers of which the block consists.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        // INVARIANT: By the type invariant of the buffer, its data is aligned to more than a number
        // and consists of that many bytes, as long as the buffer is borrowed.
        Words {
            // SAFETY: The start of the block is within it.
            first: unsafe { self.data(0) }.cast(),
            count: self.size() / size_of::<u32>(),
            _block: PhantomData,
        }
    }

    /// Whether [`BufHead::set_checked`] was called for the block, since it came to memory or was taken
    /// by [`SuperBlock::bnew`](super::SuperBlock::bnew).
    ///
    /// That is no proof of anything: the contents may have changed since, by the file system or by
    /// whoever has opened the device.
    #[inline]
    pub fn is_checked(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::buffer_checked(self.bh.as_ptr()) }
    }

    /// Remembers that the file system has checked the block, as long as it is in memory.
    pub fn set_checked(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::set_buffer_checked(self.bh.as_ptr()) }
    }

    /// Loads a little-endian number at `offset`, a multiple of 4.
    ///
    /// It is one load, with acquire ordering: the counterpart of [`BufHead::store_le32`]. A value
    /// of which others store parts is still one of the values that were there.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block, or not aligned.
    #[inline]
    pub fn load_le32(&self, offset: usize) -> Result<u32> {
        self.check(offset, size_of::<u32>())?;
        if offset % size_of::<u32>() != 0 {
            return Err(ERANGE);
        }
        // SAFETY: The data of a buffer is aligned to the block size, and the number is within it.
        // It is loaded as `READ_ONCE()` does, because others may store at the same time.
        let raw = unsafe { self.data(offset).cast::<u32>().read_volatile() };
        // The two make an `smp_load_acquire()`, without a call.
        fence(Ordering::Acquire);
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

    /// Copies bytes into the block, from `offset` on.
    ///
    /// # Errors
    ///
    /// `ERANGE` if they are not all within the block.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result {
        self.check(offset, from.len())?;
        // SAFETY: `from` is readable for its length, and the bytes are within the block.
        unsafe {
            bindings::fs_buffer_write(self.bh.as_ptr(), offset, from.as_ptr().cast(), from.len())
        };
        Ok(())
    }

    /// Copies a value into the block, to `offset`.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not all within the block.
    pub fn put<S: AsBytes>(&self, offset: usize, value: &S) -> Result {
        self.check(offset, size_of::<S>())?;
        // SAFETY: All bytes of the value are initialised, and they are within the block.
        unsafe {
            bindings::fs_buffer_write(
                self.bh.as_ptr(),
                offset,
                core::ptr::from_ref(value).cast(),
                size_of::<S>(),
            )
        };
        Ok(())
    }

    /// Fills a part of the block with zeros.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not all within the block.
    pub fn zero(&self, offset: usize, len: usize) -> Result {
        self.check(offset, len)?;
        // SAFETY: The bytes are within the block.
        unsafe { bindings::fs_buffer_zero(self.bh.as_ptr(), offset, len) };
        Ok(())
    }

    /// Stores a little-endian number at `offset`, a multiple of 4.
    ///
    /// It is one store, with release ordering: who loads it with [`BufHead::load_le32`] sees all
    /// that was written before.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block, or not aligned.
    #[inline]
    pub fn store_le32(&self, offset: usize, value: u32) -> Result {
        self.check(offset, size_of::<u32>())?;
        if offset % size_of::<u32>() != 0 {
            return Err(ERANGE);
        }
        // The two make an `smp_store_release()`, without a call.
        fence(Ordering::Release);
        // SAFETY: The data of a buffer is aligned and can be written by the type invariant; the number
        // is within it, at a multiple of its size. It is stored as `WRITE_ONCE()` does, because others may load at the same time.
        unsafe {
            self.data(offset)
                .cast::<u32>()
                .write_volatile(value.to_le())
        };
        Ok(())
    }

    /// Has the block written, some time.
    pub fn mark_dirty(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::fs_buffer_mark_dirty(self.bh.as_ptr()) }
    }

    /// Has the block written, and by an `fsync(2)` of `inode` at the latest.
    pub fn mark_dirty_inode<T: FileSystem>(&self, inode: &INode<T>) {
        // SAFETY: Valid by the type invariant; the inode is in use.
        unsafe { bindings::fs_buffer_mark_dirty_inode(self.bh.as_ptr(), inode.as_ptr()) }
    }

    /// Writes the block if it is dirty, and waits for it.
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot write it.
    pub fn sync(&self) -> Result {
        // SAFETY: Valid by the type invariant.
        to_result(unsafe { bindings::sync_dirty_buffer(self.bh.as_ptr()) })
    }

    /// Gives the block up because it is not in use any more: it is not written.
    pub fn forget(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: The reference is ours, by the type invariant, and the destructor does not run.
        unsafe { bindings::bforget(this.bh.as_ptr()) }
    }

    /// Whether a bit of a bitmap is set. The first bit is the lowest of the first byte.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block.
    pub fn test_bit(&self, bit: usize) -> Result<bool> {
        self.check_bit(bit)?;
        // SAFETY: The bit is within the block.
        Ok(unsafe { bindings::fs_buffer_test_bit(self.bh.as_ptr(), bit) })
    }

    /// Sets a bit of a bitmap, and returns whether it was set before.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block.
    pub fn test_and_set_bit(&self, bit: usize) -> Result<bool> {
        self.check_bit(bit)?;
        // SAFETY: The bit is within the block.
        Ok(unsafe { bindings::fs_buffer_test_and_set_bit(self.bh.as_ptr(), bit) })
    }

    /// Clears a bit of a bitmap, and returns whether it was set before.
    ///
    /// # Errors
    ///
    /// `ERANGE` if it is not within the block.
    pub fn test_and_clear_bit(&self, bit: usize) -> Result<bool> {
        self.check_bit(bit)?;
        // SAFETY: The bit is within the block.
        Ok(unsafe { bindings::fs_buffer_test_and_clear_bit(self.bh.as_ptr(), bit) })
    }

    /// Sets the bits of a bitmap from `from` on and in front of `end`, up to the first one that is
    /// set already. Returns how many have been set.
    pub fn set_zeros(&self, from: usize, end: usize) -> usize {
        let end = end.min(8 * self.size());
        // SAFETY: The bits in front of `end` are within the block, which consists of whole words of
        // the machine by the type invariant.
        unsafe { bindings::fs_buffer_set_zeros(self.bh.as_ptr(), from, end) }
    }

    /// Clears the bits of a bitmap from `from` on and in front of `end`, up to the first one that is
    /// clear already. Returns how many have been cleared.
    pub fn clear_ones(&self, from: usize, end: usize) -> usize {
        let end = end.min(8 * self.size());
        // SAFETY: The bits in front of `end` are within the block, which consists of whole words of
        // the machine by the type invariant.
        unsafe { bindings::fs_buffer_clear_ones(self.bh.as_ptr(), from, end) }
    }

    /// The first bit that is not set, of those from `from` on and in front of `end`.
    pub fn find_zero_bit(&self, from: usize, end: usize) -> Option<usize> {
        let end = end.min(8 * self.size());
        if from >= end {
            return None;
        }
        // SAFETY: The bits in front of `end` are within the block.
        let bit = unsafe { bindings::fs_buffer_find_zero_bit(self.bh.as_ptr(), from, end) };
        (bit < end).then_some(bit)
    }

    /// The first bit that is set, of those from `from` on and in front of `end`.
    pub fn find_set_bit(&self, from: usize, end: usize) -> Option<usize> {
        let end = end.min(8 * self.size());
        if from >= end {
            return None;
        }
        // SAFETY: The bits in front of `end` are within the block.
        let bit = unsafe { bindings::fs_buffer_find_set_bit(self.bh.as_ptr(), from, end) };
        (bit < end).then_some(bit)
    }

    /// The address of a byte of the block.
    ///
    /// # Safety
    ///
    /// `offset` is within the block, or just behind it.
    #[inline]
    unsafe fn data(&self, offset: usize) -> *mut u8 {
        // SAFETY: By the safety requirements; the buffer is valid by the type invariant.
        unsafe { (*self.bh.as_ptr()).b_data.cast::<u8>().add(offset) }
    }

    /// Bytes of the block, for C code that reads them. They are valid as long as the buffer is.
    ///
    /// # Errors
    ///
    /// `ERANGE` if they are not all within the block.
    #[inline]
    pub(super) fn bytes(&self, offset: usize, len: usize) -> Result<*const u8> {
        self.check(offset, len)?;
        // SAFETY: The offset is within the block, or just behind it.
        Ok(unsafe { self.data(offset) })
    }

    fn check_bit(&self, bit: usize) -> Result {
        if bit / 8 < self.size() {
            Ok(())
        } else {
            Err(ERANGE)
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(ERANGE),
        }
    }
}

/// The little-endian numbers of 32 bits of which a block consists.
///
/// Each is loaded as a whole, and there is no order between the loads: it is for those who keep their
/// writers away, or who need no order until a fence of their own.
///
/// # Invariants
///
/// `first` points to `count` aligned numbers that can be read during `'a`.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    first: *const u32,
    count: usize,
    _block: PhantomData<&'a BufHead<'a>>,
}

impl Words<'_> {
    /// How many there are.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Loads a number, if there are so many.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<u32> {
        if index >= self.count {
            return None;
        }
        // SAFETY: There are more than `index` numbers, which are aligned and can be read by the type
        // invariant. It is loaded as `READ_ONCE()` does, because others may store at the same time.
        Some(u32::from_le(unsafe {
            self.first.add(index).read_volatile()
        }))
    }
}

impl Drop for BufHead<'_> {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, by the type invariant.
        unsafe { bindings::brelse(self.bh.as_ptr()) }
    }
}
