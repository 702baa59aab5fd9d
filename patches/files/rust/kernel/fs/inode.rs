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

use super::{
    acl, dir, file, fileattr,
    lock::{Excl, Held},
    symlink, xattr, FileSystem, Ino, Offset, SuperBlock,
};
use crate::{
    bindings,
    error::{code::*, from_err_ptr, from_result, to_result, Result},
    init::PinInit,
    types::Opaque,
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull},
};

/// An inode, with the private data of its file system.
///
/// # Invariants
///
/// - It was allocated by [`Tables::alloc_inode`], which initialised `data`.
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
    /// `ENOMEM` if more references are leaked than can be counted.
    pub fn grab(&self) -> Result<IRef<'_, T>> {
        // SAFETY: The inode is in use.
        if !unsafe { bindings::fs_ihold(self.as_ptr()) } {
            return Err(ENOMEM);
        }
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

/// What [`SuperBlock::iget`] found.
pub enum Iget<'sb, T: FileSystem> {
    /// An inode that has been set up before.
    Cached(IRef<'sb, T>),
    /// An inode that the caller has to set up.
    New(NewINode<'sb, T>),
}

impl<T: FileSystem> SuperBlock<T> {
    /// Looks for an inode, or makes one that is to be set up.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if more references are leaked than can be counted.
    pub fn iget(&self, ino: Ino) -> Result<Iget<'_, T>> {
        // SAFETY: The superblock is valid.
        let inode = unsafe { bindings::fs_iget_locked(self.as_ptr(), ino as _) };
        let inode = IRef {
            ptr: NonNull::new(inode).ok_or(ENOMEM)?.cast(),
            _sb: PhantomData,
        };
        // SAFETY: We have a reference.
        if unsafe { bindings::fs_inode_is_new(inode.as_ptr()) } {
            // INVARIANT: `iget_locked` returns inodes with `I_NEW` only to the one who made them.
            Ok(Iget::New(NewINode {
                inode: ManuallyDrop::new(inode),
                _task: PhantomData,
            }))
        } else {
            Ok(Iget::Cached(inode))
        }
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

/// What the VFS wants to know of an inode, besides the type of the file.
#[derive(Default)]
pub struct Attributes {
    /// The permissions: the low 12 bits of `st_mode`.
    pub perm: u16,
    /// The owner, in the user namespace of the mount.
    pub uid: u32,
    /// The group, in the user namespace of the mount.
    pub gid: u32,
    /// Number of links.
    pub nlink: u32,
    /// Size in bytes.
    pub size: Offset,
    /// Space in use, in 512-byte sectors.
    pub sectors: u64,
    /// The number that tells the users of an inode number apart, for file handles.
    pub generation: u32,
    /// `S_*` flags.
    pub flags: Flags,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
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

/// A file that is neither regular nor a directory nor a link.
#[derive(Clone, Copy)]
pub enum Special {
    /// A character device, by major (12 bits) and minor number (20 bits).
    Char(u32, u32),
    /// A block device, by major (12 bits) and minor number (20 bits).
    Block(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// An inode that only its owner sees, until it is finished as one kind of file.
///
/// # Invariants
///
/// `I_NEW` is set, and this is the only value that can clear it. It owns a reference.
#[must_use = "the inode disappears when it is dropped"]
pub struct NewINode<'sb, T: FileSystem> {
    inode: ManuallyDrop<IRef<'sb, T>>,
    _task: PhantomData<*mut ()>,
}

impl<'sb, T: FileSystem> NewINode<'sb, T> {
    /// Sets all that is not particular to a kind of file.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` for nanoseconds that are more than a second, or a negative size.
    pub fn set_attributes(&mut self, attrs: &Attributes) -> Result {
        const NSEC_PER_SEC: u32 = 1_000_000_000;
        let times = [attrs.atime, attrs.mtime, attrs.ctime];
        if attrs.size < 0 || times.iter().any(|t| t.nsec >= NSEC_PER_SEC) {
            return Err(EUCLEAN);
        }
        let inode = self.inode.as_ptr();
        // SAFETY: The inode is valid, and we are the only one who uses it, by the type invariant.
        unsafe {
            (*inode).i_mode = attrs.perm & 0o7777;
            bindings::i_uid_write(inode, attrs.uid);
            bindings::i_gid_write(inode, attrs.gid);
            bindings::set_nlink(inode, attrs.nlink);
            bindings::i_size_write(inode, attrs.size);
            (*inode).i_blocks = attrs.sectors;
            (*inode).i_generation = attrs.generation;
            (*inode).i_flags |= attrs.flags.0;
            bindings::inode_set_atime(inode, attrs.atime.sec, attrs.atime.nsec as _);
            bindings::inode_set_mtime(inode, attrs.mtime.sec, attrs.mtime.nsec as _);
            bindings::inode_set_ctime(inode, attrs.ctime.sec, attrs.ctime.nsec as _);
        }
        Ok(())
    }

    /// Makes it a regular file.
    pub fn finish_file<F>(self) -> IRef<'sb, T>
    where
        F: file::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_file_ops::<F>(self.inode.as_ptr()) };
        self.finish()
    }

    /// Makes it a directory.
    pub fn finish_dir<D>(self) -> IRef<'sb, T>
    where
        D: dir::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_dir_ops::<D>(self.inode.as_ptr()) };
        self.finish()
    }

    /// Makes it a symbolic link whose target is read when it is followed.
    pub fn finish_symlink<L>(self) -> IRef<'sb, T>
    where
        L: symlink::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_symlink_ops::<L>(self.inode.as_ptr()) };
        self.finish()
    }

    /// Makes it a symbolic link whose target stays in memory and is followed without locks.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if `target` is empty or contains a nul byte, `ENOMEM`.
    pub fn finish_fast_symlink(self, target: &[u8]) -> Result<IRef<'sb, T>> {
        let target = symlink::Target::new(target)?;
        // SAFETY: The inode is ours, by the type invariant, and has no target yet.
        unsafe { set_fast_symlink::<T>(self.inode.as_ptr(), target) };
        Ok(self.finish())
    }

    /// Makes it a special file.
    pub fn finish_special(self, special: Special) -> IRef<'sb, T> {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_special::<T>(self.inode.as_ptr(), special) };
        self.finish()
    }

    /// Lets the others in.
    fn finish(self) -> IRef<'sb, T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: The inode is valid and new. It has the operations of its type.
        unsafe { bindings::unlock_new_inode(this.inode.as_ptr()) };
        // The reference of `this`, whose destructor does not run.
        IRef {
            ptr: this.inode.ptr,
            _sb: PhantomData,
        }
    }
}

impl<T: FileSystem> Deref for NewINode<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        &self.inode
    }
}

impl<T: FileSystem> Drop for NewINode<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The inode is new and was not finished. The call consumes our reference.
        unsafe { bindings::iget_failed(self.inode.as_ptr()) }
    }
}

/// Sets the type of a file.
///
/// # Safety
///
/// `inode` is valid and only the caller uses it.
unsafe fn set_type(inode: *mut bindings::inode, file_type: u32) {
    // SAFETY: By the safety requirements.
    unsafe { (*inode).i_mode = ((*inode).i_mode & 0o7777) | file_type as u16 }
}

/// Makes an inode a regular file.
///
/// # Safety
///
/// `inode` is an [`INode`] of type `F::FileSystem`, and only the caller uses it.
unsafe fn set_file_ops<F: file::Operations>(inode: *mut bindings::inode) {
    // SAFETY: By the safety requirements. The tables are static and made for this type.
    unsafe {
        (*inode).i_op = file::Tables::<F>::INODE_OPS;
        (*inode).__bindgen_anon_3.i_fop = file::Tables::<F>::FILE_OPS;
        (*(*inode).i_mapping).a_ops = super::aops::Tables::<F::Mapping>::OPS;
        bindings::mapping_set_large_folios((*inode).i_mapping);
        set_type(inode, bindings::S_IFREG);
    }
}

/// Makes an inode a directory.
///
/// # Safety
///
/// `inode` is an [`INode`] of type `D::FileSystem`, and only the caller uses it.
unsafe fn set_dir_ops<D: dir::Operations>(inode: *mut bindings::inode) {
    // SAFETY: By the safety requirements. The tables are static and made for this type.
    unsafe {
        (*inode).i_op = dir::Tables::<D>::INODE_OPS;
        (*inode).__bindgen_anon_3.i_fop = dir::Tables::<D>::FILE_OPS;
        set_type(inode, bindings::S_IFDIR);
    }
}

/// Makes an inode a link whose target is read when it is followed.
///
/// # Safety
///
/// `inode` is an [`INode`] of type `L::FileSystem`, and only the caller uses it.
unsafe fn set_symlink_ops<L: symlink::Operations>(inode: *mut bindings::inode) {
    // SAFETY: By the safety requirements. The table is static and made for this type.
    unsafe {
        (*inode).i_op = symlink::Tables::<L>::INODE_OPS;
        set_type(inode, bindings::S_IFLNK);
    }
}

/// Makes an inode a link whose target stays in memory.
///
/// # Safety
///
/// `inode` is an [`INode`] of type `T` without a target, and only the caller uses it.
unsafe fn set_fast_symlink<T: FileSystem>(inode: *mut bindings::inode, target: symlink::Target) {
    // `i_link` is read by walks under RCU: it goes with the slab object, in `free_inode`.
    // SAFETY: By the safety requirements. The table is static.
    unsafe {
        (*inode).__bindgen_anon_4.i_link = target.into_raw().cast();
        (*inode).i_op = Tables::<T>::FAST_LINK_OPS;
        set_type(inode, bindings::S_IFLNK);
    }
}

/// Makes an inode a special file.
///
/// # Safety
///
/// `inode` is an [`INode`] of type `T`, and only the caller uses it.
unsafe fn set_special<T: FileSystem>(inode: *mut bindings::inode, special: Special) {
    let (file_type, major, minor) = match special {
        Special::Char(major, minor) => (bindings::S_IFCHR, major, minor),
        Special::Block(major, minor) => (bindings::S_IFBLK, major, minor),
        Special::Fifo => (bindings::S_IFIFO, 0, 0),
        Special::Socket => (bindings::S_IFSOCK, 0, 0),
    };
    // SAFETY: By the safety requirements. The table is static.
    unsafe {
        set_type(inode, file_type);
        let dev = bindings::fs_mkdev(major & 0xfff, minor & 0xf_ffff);
        bindings::init_special_inode(inode, (*inode).i_mode, dev);
        (*inode).i_op = Tables::<T>::SPECIAL_OPS;
    }
}

impl<T: FileSystem> SuperBlock<T> {
    /// Makes the inode with a number that has just been allocated on the disk.
    ///
    /// # Errors
    ///
    /// `EIO` if there is an inode with this number, `ENOMEM`.
    pub fn fresh_inode(&self, ino: Ino) -> Result<FreshINode<'_, T>> {
        // SAFETY: The superblock is valid.
        let inode = from_err_ptr(unsafe { bindings::fs_new_inode(self.as_ptr(), ino as _) })?;
        // INVARIANT: The call returns a new inode, with a reference.
        Ok(FreshINode {
            inode: ManuallyDrop::new(IRef {
                ptr: NonNull::new(inode).ok_or(ENOMEM)?.cast(),
                _sb: PhantomData,
            }),
            _task: PhantomData,
        })
    }
}

/// An inode that is being created, which only its owner sees.
///
/// Dropped before it has a name, it is discarded like a file whose last name was removed:
/// [`FileSystem::evict`] frees what it has on the disk.
///
/// # Invariants
///
/// `I_NEW` is set, and this is the only value that can clear it. It owns a reference.
#[must_use = "the inode is discarded when it is dropped"]
pub struct FreshINode<'sb, T: FileSystem> {
    inode: ManuallyDrop<IRef<'sb, T>>,
    _task: PhantomData<*mut ()>,
}

impl<'sb, T: FileSystem> FreshINode<'sb, T> {
    /// Sets type and permissions (`mode`), and the owner: the current user, and the current group
    /// or that of `dir`, as the directory says or `grpid` asks for. All times are now.
    pub fn init_owner(&mut self, dir: &INode<T>, mode: u16, grpid: bool) {
        // SAFETY: Both inodes are valid; the new one is ours, by the type invariant.
        unsafe { bindings::fs_init_owner(self.inode.as_ptr(), dir.as_ptr(), mode, grpid) }
    }

    /// Sets the permissions.
    pub fn set_perm(&mut self, perm: u16) {
        let inode = self.inode.as_ptr();
        // SAFETY: The inode is valid and ours, by the type invariant.
        unsafe { (*inode).i_mode = ((*inode).i_mode & !0o7777) | (perm & 0o7777) }
    }

    /// Sets the number of names.
    pub fn set_nlink(&mut self, nlink: u32) {
        // SAFETY: The inode is valid and ours, by the type invariant.
        unsafe { bindings::set_nlink(self.inode.as_ptr(), nlink) }
    }

    /// Sets the number that tells the users of an inode number apart.
    pub fn set_generation(&mut self, generation: u32) {
        // SAFETY: The inode is valid and ours, by the type invariant.
        unsafe { (*self.inode.as_ptr()).i_generation = generation }
    }

    /// Adds flags.
    pub fn set_flags(&mut self, flags: Flags) {
        // SAFETY: The inode is valid and ours, by the type invariant.
        unsafe { (*self.inode.as_ptr()).i_flags |= flags.0 }
    }

    /// Sets the size, in bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative size.
    pub fn set_size(&mut self, size: Offset) -> Result {
        if size < 0 {
            return Err(EINVAL);
        }
        // SAFETY: The inode is valid and ours, by the type invariant.
        unsafe { bindings::i_size_write(self.inode.as_ptr(), size) };
        Ok(())
    }

    /// Makes it a regular file.
    pub fn into_file<F>(self) -> Ready<'sb, T>
    where
        F: file::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_file_ops::<F>(self.inode.as_ptr()) };
        Ready(self)
    }

    /// Makes it a directory.
    pub fn into_dir<D>(self) -> Ready<'sb, T>
    where
        D: dir::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_dir_ops::<D>(self.inode.as_ptr()) };
        Ready(self)
    }

    /// Makes it a symbolic link whose target is read when it is followed.
    pub fn into_symlink<L>(self) -> Ready<'sb, T>
    where
        L: symlink::Operations<FileSystem = T>,
    {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_symlink_ops::<L>(self.inode.as_ptr()) };
        Ready(self)
    }

    /// Makes it a symbolic link whose target stays in memory.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if `target` is empty or contains a nul byte, `ENOMEM`.
    pub fn into_fast_symlink(self, target: &[u8]) -> Result<Ready<'sb, T>> {
        let target = symlink::Target::new(target)?;
        // SAFETY: The inode is ours, by the type invariant, and has no target yet.
        unsafe { set_fast_symlink::<T>(self.inode.as_ptr(), target) };
        Ok(Ready(self))
    }

    /// Makes it a special file.
    pub fn into_special(self, special: Special) -> Ready<'sb, T> {
        // SAFETY: The inode is ours, by the type invariant.
        unsafe { set_special::<T>(self.inode.as_ptr(), special) };
        Ready(self)
    }
}

impl<T: FileSystem> Deref for FreshINode<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        &self.inode
    }
}

impl<T: FileSystem> Drop for FreshINode<'_, T> {
    fn drop(&mut self) {
        let inode = self.inode.as_ptr();
        // SAFETY: The inode is new and ours. The second call consumes our reference.
        unsafe {
            bindings::clear_nlink(inode);
            bindings::discard_new_inode(inode);
        }
    }
}

/// An inode that is one kind of file, and waits for a name.
///
/// # Invariants
///
/// It has the operations of its type.
#[must_use = "the inode is discarded when it is dropped"]
pub struct Ready<'sb, T: FileSystem>(FreshINode<'sb, T>);

impl<T: FileSystem> Ready<'_, T> {
    /// Gives the reference to the caller, and with it the right to clear `I_NEW`.
    pub(super) fn into_raw(self) -> *mut bindings::inode {
        ManuallyDrop::new(self).0.inode.as_ptr()
    }
}

impl<T: FileSystem> Deref for Ready<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        &self.0
    }
}

/// An inode that goes out of use: nobody else uses it, and nobody will.
pub struct Evicting<'a, T: FileSystem>(&'a INode<T>);

impl<T: FileSystem> Evicting<'_, T> {
    /// Whether no name leads to it, so that what it has on the disk is to be freed.
    pub fn is_unlinked(&self) -> bool {
        // SAFETY: The inode is valid.
        self.0.nlink() == 0 && !unsafe { bindings::is_bad_inode(self.0.as_ptr()) }
    }
}

impl<T: FileSystem> Deref for Evicting<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        self.0
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

/// The C side of inodes.
pub(super) struct Tables<T>(PhantomData<T>);

impl<T: FileSystem> Tables<T> {
    /// The operations of a link whose target is in memory.
    const FAST_LINK_OPS: &'static bindings::inode_operations = &bindings::inode_operations {
        get_link: Some(bindings::simple_get_link),
        getattr: Some(Self::getattr),
        listxattr: xattr::Tables::<T::Xattr>::LIST,
        setattr: Some(Self::setattr),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// The operations of a file that is neither regular nor a directory nor a link.
    const SPECIAL_OPS: &'static bindings::inode_operations = &bindings::inode_operations {
        get_inode_acl: acl::Tables::<T::Acl>::GET,
        getattr: Some(Self::getattr),
        listxattr: xattr::Tables::<T::Xattr>::LIST,
        set_acl: acl::Tables::<T::Acl>::SET,
        setattr: Some(Self::setattr),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// What `stat(2)` returns: what the VFS knows of the inode, its flags included.
    ///
    /// # Safety
    ///
    /// Called by the VFS with a path to an inode.
    pub(super) unsafe extern "C" fn getattr(
        idmap: *mut bindings::mnt_idmap,
        path: *const bindings::path,
        stat: *mut bindings::kstat,
        mask: u32,
        _flags: u32,
    ) -> crate::ffi::c_int {
        // SAFETY: The path pins its dentry, which has an inode, and `stat` belongs to the caller.
        unsafe {
            let inode = (*(*path).dentry).d_inode;
            bindings::generic_fillattr(idmap, mask, inode, stat);
            bindings::generic_fill_statx_attr(inode, stat);
            fileattr::fill_stat::<T::FileAttr>(INode::from_raw(inode), &mut *stat);
        }
        0
    }

    /// Changes attributes other than the size, which only regular files have.
    ///
    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `T`, whose `i_rwsem` is held
    /// exclusively.
    pub(super) unsafe extern "C" fn setattr(
        _idmap: *mut bindings::mnt_idmap,
        dentry: *mut bindings::dentry,
        attr: *mut bindings::iattr,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: By the safety requirements.
            unsafe { Self::change_attributes(dentry, attr, |_, _| Err(EINVAL)) }
        })
    }

    /// Checks the change of attributes, has the size changed, and changes the rest.
    ///
    /// # Safety
    ///
    /// As for [`Self::setattr`].
    pub(super) unsafe fn change_attributes(
        dentry: *mut bindings::dentry,
        attr: *mut bindings::iattr,
        set_size: impl FnOnce(Held<'_, T, Excl>, Offset) -> Result,
    ) -> Result<crate::ffi::c_int> {
        // SAFETY: The arguments are those of the call.
        to_result(unsafe { bindings::fs_setattr_prepare(dentry, attr) })?;
        // SAFETY: The dentry is valid and has an inode.
        let inode = unsafe { (*dentry).d_inode };
        // SAFETY: The attributes belong to the call.
        let (valid, size) = unsafe { ((*attr).ia_valid, (*attr).ia_size) };
        // SAFETY: The inode is in use, and its lock is held, during the call.
        let held = unsafe { Held::new(INode::from_raw(inode)) };
        if valid & bindings::ATTR_SIZE != 0 && size != held.size() {
            set_size(held, size)?;
            // `truncate(2)` does not ask for it.
            // SAFETY: As above.
            unsafe { Held::<T, Excl>::new(INode::from_raw(inode)) }.touch_mtime();
        }
        // SAFETY: The arguments are those of the call, and the lock is held.
        unsafe { bindings::fs_setattr_copy(inode, attr) };
        if valid & bindings::ATTR_MODE != 0 {
            // SAFETY: The inode is valid, and its lock keeps others from storing.
            let mode = unsafe { (*inode).i_mode };
            // SAFETY: The dentry has an inode, whose lock is held.
            unsafe { acl::chmod(dentry, mode) }?;
        }
        Ok(0)
    }

    /// Writes an inode to its place on the disk.
    ///
    /// # Safety
    ///
    /// Called by the VFS with an inode of type `T`.
    pub(super) unsafe extern "C" fn write_inode(
        inode: *mut bindings::inode,
        wbc: *mut bindings::writeback_control,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let _scope = NoFs::new();
            // SAFETY: The inode is in use during the call.
            let inode = unsafe { INode::from_raw(inode) };
            // SAFETY: The request is valid.
            let wait = unsafe { bindings::fs_is_sync_all(wbc) };
            T::write_inode(inode, wait).map(|()| 0)
        })
    }

    /// Takes an inode out of use, and frees what it has on the disk if no name leads to it.
    ///
    /// # Safety
    ///
    /// Called by the VFS as the last use of an inode of type `T` but for `free_inode`.
    pub(super) unsafe extern "C" fn evict_inode(inode: *mut bindings::inode) {
        // SAFETY: The inode is valid, and so is its mapping.
        unsafe { bindings::truncate_inode_pages_final(ptr::addr_of_mut!((*inode).i_data)) };
        if T::HAS_EVICT {
            // SAFETY: The inode is valid during the call. Its superblock has data: that goes when
            // there are no inodes.
            let evicting = Evicting(unsafe { INode::<T>::from_raw(inode) });
            let sb = evicting.sb().as_ptr();
            let unlinked = evicting.is_unlinked();
            if unlinked {
                // SAFETY: The superblock is valid. A last reference is not put while it is frozen
                // for internal writes.
                unsafe { bindings::sb_start_intwrite(sb) };
            } else {
                // SAFETY: The inode is valid.
                unsafe { bindings::fs_sync_buffers(inode) };
            }
            {
                let _scope = NoFs::new();
                T::evict(evicting);
            }
            if unlinked {
                // SAFETY: Started above.
                unsafe { bindings::sb_end_intwrite(sb) };
            }
        }
        // SAFETY: The inode is valid, has no pages, and nobody else uses it.
        unsafe {
            bindings::invalidate_inode_buffers(inode);
            bindings::clear_inode(inode);
        }
    }

    /// # Safety
    ///
    /// Called by the VFS for a superblock of type `T`.
    pub(super) unsafe extern "C" fn alloc_inode(
        sb: *mut bindings::super_block,
    ) -> *mut bindings::inode {
        let cache = T::fs_type().cache();
        // SAFETY: The superblock is valid. As it exists, the type is registered and has a cache.
        let inode = unsafe { bindings::fs_alloc_inode_sb(sb, cache) }.cast::<INode<T>>();
        if inode.is_null() {
            return ptr::null_mut();
        }
        // The slab reuses objects, and the VFS leaves the type of the last inode in them.
        // SAFETY: The object starts with a VFS inode, and nobody else uses it.
        unsafe { (*inode.cast::<bindings::inode>()).i_mode = 0 };
        // SAFETY: The object has the layout of `INode<T>`; nobody else uses it, and it does not
        // move. The constructor of the slab has initialised the VFS inode.
        let data = unsafe { ptr::addr_of_mut!((*inode).data) };
        // SAFETY: `data` is valid for writes and pinned; it is not used if this fails.
        if unsafe { T::init_inode_data().__pinned_init(data) }.is_err() {
            // SAFETY: The object is from this cache, and nothing in it needs to be dropped.
            unsafe { bindings::kmem_cache_free(cache, inode.cast()) };
            return ptr::null_mut();
        }
        inode.cast()
    }

    /// The superblock may be gone when this runs.
    ///
    /// # Safety
    ///
    /// Called by the VFS as the last use of an inode of type `T`, after a grace period.
    pub(super) unsafe extern "C" fn free_inode(inode: *mut bindings::inode) {
        // SAFETY: The inode is valid, and nobody else uses it.
        unsafe {
            if u32::from((*inode).i_mode) & bindings::S_IFMT == bindings::S_IFLNK {
                // Null, or the target that `finish_fast_symlink` set.
                bindings::kfree((*inode).__bindgen_anon_4.i_link.cast());
            }
        }
        let inode = inode.cast::<INode<T>>();
        // SAFETY: `data` was initialised by `alloc_inode`.
        unsafe { ptr::drop_in_place(ptr::addr_of_mut!((*inode).data)) };
        // SAFETY: The object is from this cache, which lives until the callbacks of RCU have run
        // after the type was unregistered.
        unsafe { bindings::kmem_cache_free(T::fs_type().cache(), inode.cast()) };
    }
}
