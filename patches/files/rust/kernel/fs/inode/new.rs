// SPDX-License-Identifier: GPL-2.0

//! Inodes that only their maker sees, until they are one kind of file.

use super::{Flags, INode, IRef, Tables, Timespec};
use crate::{
    bindings,
    error::{code::*, from_err_ptr, Result},
    fs::{aops, dir, file, symlink, FileSystem, Ino, Offset, SuperBlock},
};
use core::{marker::PhantomData, mem::ManuallyDrop, ops::Deref, ptr::NonNull};

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
        (*(*inode).i_mapping).a_ops = aops::Tables::<F::Mapping>::OPS;
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
    pub(in crate::fs) fn into_raw(self) -> *mut bindings::inode {
        ManuallyDrop::new(self).0.inode.as_ptr()
    }
}

impl<T: FileSystem> Deref for Ready<'_, T> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        &self.0
    }
}
