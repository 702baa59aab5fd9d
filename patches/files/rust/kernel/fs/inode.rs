// SPDX-License-Identifier: GPL-2.0

//! Inodes: the slab object, references to it, and how one is set up.
//!
//! [`INode`] is the whole slab object: the VFS inode, and behind it what the file system keeps for
//! it. The private part is initialised when the object is allocated and dropped when it is freed,
//! so that it is there whenever an inode is.
//!
//! [`SuperBlock::iget`] returns an inode that is in use, or [`NewINode`]: one that only the caller
//! sees (`I_NEW`). It is set up from the disk and then finished as one kind of file, with the
//! operations of that kind; dropped before that, it disappears and those who wait for it try again.
//!
//! [`SuperBlock::fresh_inode`] makes an inode that is not on the disk yet: [`FreshINode`] becomes one
//! kind of file, [`Ready`], and is then given a name. Dropped before that, it is discarded.

use super::{FileSystem, Ino, Offset, SuperBlock};
use crate::{
    bindings,
    error::{to_result, Result},
    types::Opaque,
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull},
};

mod new;
mod tables;

pub use new::{Attributes, FreshINode, Iget, NewINode, Ready, Special};
pub use tables::Evicting;

pub(super) use tables::Tables;

/// An inode, with the private data of its file system.
///
/// # Invariants
///
/// - It was allocated by the `alloc_inode` of its superblock, which initialised `data`.
/// - Its superblock is of type `T` and has data.
#[repr(C)]
pub struct INode<T: FileSystem> {
    vfs: Opaque<bindings::inode>,
    data: T::INodeData,
}

// SAFETY: The VFS uses inodes from all tasks, and `T::INodeData` is `Send` and `Sync`.
unsafe impl<T: FileSystem> Send for INode<T> {}

// SAFETY: As above.
unsafe impl<T: FileSystem> Sync for INode<T> {}

impl<T: FileSystem> INode<T> {
    /// Makes a reference from a pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is an inode of a superblock of type `T` and stays in use during `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::inode) -> &'a Self {
        // CAST: The VFS inode is the first member, and the object is `repr(C)`.
        // SAFETY: By the safety requirements; the inodes of type `T` are made by `alloc_inode`.
        unsafe { &*ptr.cast() }
    }

    /// The C inode.
    pub(super) fn as_ptr(&self) -> *mut bindings::inode {
        self.vfs.get()
    }

    /// The private data.
    pub fn data(&self) -> &T::INodeData {
        &self.data
    }

    /// The superblock.
    pub fn sb(&self) -> &SuperBlock<T> {
        // SAFETY: The inode is valid and belongs to a superblock of type `T` with data.
        unsafe { SuperBlock::from_raw((*self.as_ptr()).i_sb) }
    }

    /// The inode number.
    pub fn ino(&self) -> Ino {
        // SAFETY: The inode is valid; its number does not change.
        unsafe { (*self.as_ptr()).i_ino as Ino }
    }

    /// The size of the file, in bytes.
    ///
    /// It is an acquire load, the counterpart of [`Held::set_size`](super::lock::Held::set_size).
    pub fn size(&self) -> Offset {
        // SAFETY: The inode is valid.
        unsafe { bindings::i_size_read(self.as_ptr()) }
    }

    /// The type and the permissions, as in `st_mode`.
    pub fn mode(&self) -> u16 {
        // SAFETY: The inode is valid. `chmod` may store at the same time, hence the volatile load.
        unsafe { ptr::addr_of!((*self.as_ptr()).i_mode).read_volatile() }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.has_type(bindings::S_IFDIR)
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.has_type(bindings::S_IFLNK)
    }

    /// The number of names.
    pub fn nlink(&self) -> u32 {
        // SAFETY: The inode is valid. Another task may store at the same time, hence the volatile
        // load.
        unsafe { ptr::addr_of!((*self.as_ptr()).__bindgen_anon_1.i_nlink).read_volatile() }
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        // SAFETY: The inode is valid.
        unsafe { bindings::i_uid_read(self.as_ptr()) }
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        // SAFETY: The inode is valid.
        unsafe { bindings::i_gid_read(self.as_ptr()) }
    }

    /// The number that tells the users of an inode number apart.
    pub fn generation(&self) -> u32 {
        // SAFETY: The inode is valid.
        unsafe { ptr::addr_of!((*self.as_ptr()).i_generation).read_volatile() }
    }

    /// The flags that the VFS acts on.
    pub fn flags(&self) -> Flags {
        // SAFETY: The inode is valid.
        Flags(unsafe { ptr::addr_of!((*self.as_ptr()).i_flags).read_volatile() })
    }

    /// The device of a special file: major and minor number.
    pub fn device(&self) -> (u32, u32) {
        // SAFETY: The inode is valid; the device does not change once the inode is finished.
        let dev = unsafe { (*self.as_ptr()).i_rdev };
        (dev >> 20, dev & 0xf_ffff)
    }

    /// Last access.
    pub fn atime(&self) -> Timespec {
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_get_atime(self.as_ptr()) }.into()
    }

    /// Last change of the contents.
    pub fn mtime(&self) -> Timespec {
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_get_mtime(self.as_ptr()) }.into()
    }

    /// Last change of the inode.
    pub fn ctime(&self) -> Timespec {
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_get_ctime(self.as_ptr()) }.into()
    }

    /// Space in use, in 512-byte sectors.
    pub fn sectors(&self) -> u64 {
        // SAFETY: The inode is valid.
        unsafe { bindings::fs_sectors(self.as_ptr()) }
    }

    /// Adds to the space in use, in 512-byte sectors; a negative number subtracts.
    pub fn add_sectors(&self, sectors: i64) {
        // SAFETY: The inode is valid.
        unsafe { bindings::fs_add_sectors(self.as_ptr(), sectors) }
    }

    /// Whether writes have to reach the device before they return: by the inode, or the mount.
    pub fn is_sync(&self) -> bool {
        // SAFETY: The inode is valid.
        unsafe { bindings::IS_SYNC(self.as_ptr()) }
    }

    /// Whether changes of the directory have to: by the inode, or the mount.
    pub fn is_dirsync(&self) -> bool {
        // SAFETY: The inode is valid.
        unsafe { bindings::IS_DIRSYNC(self.as_ptr()) }
    }

    /// Has the inode written by [`FileSystem::write_inode`], some time.
    pub fn mark_dirty(&self) {
        // SAFETY: The inode is valid.
        unsafe { bindings::mark_inode_dirty(self.as_ptr()) }
    }

    /// Writes the inode and waits for it.
    ///
    /// # Errors
    ///
    /// What [`FileSystem::write_inode`] returns.
    pub fn sync_metadata(&self) -> Result {
        // SAFETY: The inode is valid.
        to_result(unsafe { bindings::sync_inode_metadata(self.as_ptr(), 1) })
    }

    /// Writes the blocks that were changed on behalf of the inode, and waits for them: those given to
    /// [`BufHead::mark_dirty_inode`](super::buffer::BufHead::mark_dirty_inode).
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn sync_buffers(&self) -> Result {
        // SAFETY: The inode is valid, and so is its mapping.
        to_result(unsafe { bindings::sync_mapping_buffers((*self.as_ptr()).i_mapping) })
    }

    /// Writes what the page cache holds for the file, and waits for it.
    ///
    /// # Errors
    ///
    /// What the device returns, also for writes that others have waited for.
    pub fn write_and_wait(&self) -> Result {
        // SAFETY: The inode is valid, and so is its mapping.
        to_result(unsafe {
            bindings::filemap_write_and_wait_range((*self.as_ptr()).i_mapping, 0, Offset::MAX)
        })
    }

    /// Takes one more reference.
    ///
    /// # Errors
    ///
    /// `EBUSY` for an inode that is being set up or goes out of use, `ENOMEM` if more references
    /// are leaked than can be counted.
    pub fn grab(&self) -> Result<IRef<'_, T>> {
        // SAFETY: The inode is valid; the call looks at its state.
        to_result(unsafe { bindings::fs_grab(self.as_ptr()) })?;
        // INVARIANT: The reference that was just taken.
        Ok(IRef {
            ptr: NonNull::from(self),
            _sb: PhantomData,
        })
    }

    fn has_type(&self, file_type: u32) -> bool {
        u32::from(self.mode()) & bindings::S_IFMT == file_type
    }
}

/// A counted reference to an inode, which cannot outlive the borrow of its superblock.
///
/// # Invariants
///
/// The value owns a reference to the inode.
pub struct IRef<'sb, T: FileSystem> {
    ptr: NonNull<INode<T>>,
    _sb: PhantomData<&'sb SuperBlock<T>>,
}

// SAFETY: `INode` is `Sync`, and any task may give a reference back.
unsafe impl<T: FileSystem> Send for IRef<'_, T> {}

// SAFETY: As above.
unsafe impl<T: FileSystem> Sync for IRef<'_, T> {}

impl<T: FileSystem> IRef<'_, T> {
    /// Gives the reference to the caller.
    pub(super) fn into_raw(self) -> *mut bindings::inode {
        ManuallyDrop::new(self).ptr.as_ptr().cast()
    }
}

impl<T: FileSystem> Deref for IRef<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        // SAFETY: The reference keeps the inode in use.
        unsafe { self.ptr.as_ref() }
    }
}

impl<T: FileSystem> Drop for IRef<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, by the type invariant.
        unsafe { bindings::iput(self.ptr.as_ptr().cast()) }
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Default)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, less than 1,000,000,000.
    pub nsec: u32,
}

impl From<bindings::timespec64> for Timespec {
    fn from(time: bindings::timespec64) -> Self {
        Self {
            sec: time.tv_sec,
            nsec: time.tv_nsec as u32,
        }
    }
}

/// A set of inode flags (`S_*`).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Writes are synchronous.
    pub const SYNC: Self = Self(bindings::S_SYNC);
    /// Access times are not updated.
    pub const NOATIME: Self = Self(bindings::S_NOATIME);
    /// Only appending writes.
    pub const APPEND: Self = Self(bindings::S_APPEND);
    /// Nothing can be changed.
    pub const IMMUTABLE: Self = Self(bindings::S_IMMUTABLE);
    /// Changes of the directory are synchronous.
    pub const DIRSYNC: Self = Self(bindings::S_DIRSYNC);
}

impl Flags {
    /// The flags as the C side has them.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Keeps allocations of this task from waiting for file systems.
pub(super) struct NoFs {
    flags: u32,
    _task: PhantomData<*mut ()>,
}

impl NoFs {
    pub(super) fn new() -> Self {
        Self {
            // SAFETY: No preconditions.
            flags: unsafe { bindings::memalloc_nofs_save() },
            _task: PhantomData,
        }
    }
}

impl Drop for NoFs {
    fn drop(&mut self) {
        // SAFETY: It is what the other call returned, to the same task. The values are not moved
        // out of the functions that make them, so that they nest.
        unsafe { bindings::memalloc_nofs_restore(self.flags) }
    }
}
