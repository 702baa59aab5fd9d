// SPDX-License-Identifier: GPL-2.0

//! A superblock while it is being mounted.

use super::{log, Brand, Level};
use crate::{
    alloc::KBox,
    bindings,
    error::{code::*, Result},
    fs::{buffer::BufHead, FileSystem, IRef, Offset, SuperBlock},
};
use core::{fmt, marker::PhantomData, pin::Pin, ptr, ptr::NonNull};

/// A superblock without data: there are no inodes yet, and the block size may change.
///
/// # Invariants
///
/// `sb` is valid during `'a`, only the mounting task uses it, and `s_fs_info` is null.
pub struct NewSb<'a, T: FileSystem> {
    sb: NonNull<bindings::super_block>,
    _brand: Brand<'a>,
    _type: PhantomData<T>,
}

impl<'a, T: FileSystem> NewSb<'a, T> {
    /// # Safety
    ///
    /// `sb` is a new superblock of type `T`, valid during `'a`, which only the calling task uses.
    pub(super) unsafe fn from_raw(sb: NonNull<bindings::super_block>) -> Self {
        // INVARIANT: By the safety requirements; `sget_dev` leaves `s_fs_info` null.
        Self {
            sb,
            _brand: PhantomData,
            _type: PhantomData,
        }
    }

    /// Whether the file system is being mounted read-only.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::sb_rdonly(self.sb.as_ptr()) }
    }

    /// Makes the mount read-only, whatever was asked for.
    pub fn set_read_only(&mut self) {
        // SAFETY: Valid and ours by the type invariant.
        unsafe { (*self.sb.as_ptr()).s_flags |= bindings::SB_RDONLY }
    }

    /// Sets the block size to `size` bytes, or to the logical block size of the device if that is
    /// bigger, and returns it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device cannot be read in such blocks.
    pub fn set_min_block_size(&mut self, size: u32) -> Result<u32> {
        // SAFETY: Valid and ours; no buffer of the device is borrowed, as each borrows `self`.
        match unsafe { bindings::sb_min_blocksize(self.sb.as_ptr(), size.try_into()?) } {
            n if n > 0 => Ok(n as u32),
            _ => Err(EINVAL),
        }
    }

    /// Sets the block size to `size` bytes: a power of two, at least the logical block size of the
    /// device and 512, at most a page.
    ///
    /// # Errors
    ///
    /// `EINVAL` for any other size.
    pub fn set_block_size(&mut self, size: u32) -> Result {
        // SAFETY: Valid and ours; no buffer of the device is borrowed, as each borrows `self`.
        match unsafe { bindings::sb_set_blocksize(self.sb.as_ptr(), size.try_into()?) } {
            0 => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// The size of the device, in blocks of the current block size.
    pub fn device_blocks(&self) -> u64 {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::sb_bdev_nr_blocks(self.sb.as_ptr()) }
    }

    /// Reads a block of metadata; see [`SuperBlock::bread`].
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot read it.
    pub fn bread(&self, block: u64) -> Result<BufHead<'_>> {
        // SAFETY: Valid by the type invariant; the size cannot change while the result is borrowed.
        unsafe { BufHead::read(self.sb.as_ptr(), block) }
    }

    /// Sets the limits of what the format can store.
    pub fn set_limits(&mut self, limits: &Limits) {
        let sb = self.sb.as_ptr();
        // SAFETY: Valid and ours by the type invariant.
        unsafe {
            (*sb).s_magic = limits.magic as _;
            (*sb).s_maxbytes = limits.max_bytes;
            (*sb).s_max_links = limits.max_links;
            (*sb).s_time_min = limits.time_min;
            (*sb).s_time_max = limits.time_max;
            (*sb).s_time_gran = limits.time_granularity;
        }
    }

    /// Sets the identity of the file system, which `statfs` reports as well.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        // SAFETY: Valid and ours by the type invariant; the array has the given length.
        unsafe { bindings::super_set_uuid(self.sb.as_ptr(), uuid.as_ptr(), 16) }
    }

    /// Says on the kernel log why the mount fails.
    pub fn err(&self, args: fmt::Arguments<'_>) {
        // SAFETY: Valid by the type invariant.
        unsafe { log::<T>(self.sb.as_ptr(), Level::Err, args) }
    }

    /// Says on the kernel log what the administrator should look at.
    pub fn warn(&self, args: fmt::Arguments<'_>) {
        // SAFETY: Valid by the type invariant.
        unsafe { log::<T>(self.sb.as_ptr(), Level::Warning, args) }
    }

    /// Says something on the kernel log.
    pub fn info(&self, args: fmt::Arguments<'_>) {
        // SAFETY: Valid by the type invariant.
        unsafe { log::<T>(self.sb.as_ptr(), Level::Info, args) }
    }

    /// Gives the superblock its data. From here on there can be inodes.
    pub fn publish(self, data: Pin<KBox<T::Data>>) -> LiveSb<'a, T> {
        // SAFETY: What the pointer leads to is not moved: it is only used through references, and
        // dropped in its place by `release`.
        let data = KBox::into_raw(unsafe { Pin::into_inner_unchecked(data) });
        // SAFETY: Valid and ours by the type invariant.
        unsafe { (*self.sb.as_ptr()).s_fs_info = data.cast() };
        LiveSb {
            // SAFETY: It has data now. `put_super` is not called before `fill_super` has returned,
            // and `'a` ends with that.
            sb: unsafe { SuperBlock::from_raw(self.sb.as_ptr()) },
            _brand: PhantomData,
        }
    }
}

/// What a format can store, for the VFS to check against.
pub struct Limits {
    /// The magic number that `statfs` reports.
    pub magic: u32,
    /// The size of the biggest file, in bytes.
    pub max_bytes: Offset,
    /// How many links an inode may have.
    pub max_links: u32,
    /// The first second that a time stamp can hold, since 1970.
    pub time_min: i64,
    /// The last second that a time stamp can hold, since 1970.
    pub time_max: i64,
    /// The unit of time stamps, in nanoseconds.
    pub time_granularity: u32,
}

/// A superblock with data but without a root.
pub struct LiveSb<'a, T: FileSystem> {
    sb: &'a SuperBlock<T>,
    _brand: Brand<'a>,
}

impl<'a, T: FileSystem> LiveSb<'a, T> {
    /// The superblock.
    pub fn sb(&self) -> &'a SuperBlock<T> {
        self.sb
    }

    /// Makes `root` the root directory.
    ///
    /// # Errors
    ///
    /// `ENOTDIR` for anything but a directory, `EXDEV` for an inode of another superblock,
    /// `ENOMEM` if there is no memory for the dentry.
    pub fn set_root(self, root: IRef<'a, T>) -> Result<Mounted<'a, T>> {
        if !ptr::eq(root.sb(), self.sb) {
            return Err(EXDEV);
        }
        if !root.is_dir() {
            return Err(ENOTDIR);
        }
        // SAFETY: It is an inode with a reference, which the call consumes even if it fails.
        let dentry = unsafe { bindings::d_make_root(root.into_raw()) };
        if dentry.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: The superblock is valid, and only the mounting task uses it.
        unsafe { (*self.sb.as_ptr()).s_root = dentry };
        Ok(Mounted {
            _brand: PhantomData,
            _type: PhantomData,
        })
    }
}

/// Proof that a superblock has a root.
pub struct Mounted<'a, T: FileSystem> {
    _brand: Brand<'a>,
    _type: PhantomData<T>,
}
