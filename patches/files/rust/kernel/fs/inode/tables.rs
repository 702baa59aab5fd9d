// SPDX-License-Identifier: GPL-2.0

//! The C side of inodes: allocation, attributes, writing and the end.

use super::{INode, NoFs};
use crate::{
    bindings,
    error::{code::*, from_result, to_result, Result},
    fs::{
        acl, fileattr,
        lock::{Excl, Held},
        xattr, FileSystem, Offset,
    },
    init::PinInit,
};
use core::{marker::PhantomData, ops::Deref, ptr};

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

/// The C side of inodes.
pub(in crate::fs) struct Tables<T>(PhantomData<T>);

impl<T: FileSystem> Tables<T> {
    /// The operations of a link whose target is in memory.
    pub(super) const FAST_LINK_OPS: &'static bindings::inode_operations =
        &bindings::inode_operations {
            get_link: Some(bindings::simple_get_link),
            getattr: Some(Self::getattr),
            listxattr: xattr::Tables::<T::Xattr>::LIST,
            setattr: Some(Self::setattr),
            // SAFETY: The table consists of optional function pointers: zero is `None`.
            ..unsafe { core::mem::zeroed() }
        };

    /// The operations of a file that is neither regular nor a directory nor a link.
    pub(super) const SPECIAL_OPS: &'static bindings::inode_operations =
        &bindings::inode_operations {
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
    pub(in crate::fs) unsafe extern "C" fn getattr(
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
    pub(in crate::fs) unsafe extern "C" fn setattr(
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
    pub(in crate::fs) unsafe fn change_attributes(
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
    pub(in crate::fs) unsafe extern "C" fn write_inode(
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
    pub(in crate::fs) unsafe extern "C" fn evict_inode(inode: *mut bindings::inode) {
        // The completion of the last write may be at its end, behind the answer.
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_dio_wait(inode) };
        // SAFETY: The inode is valid, and so is its mapping.
        unsafe { bindings::truncate_inode_pages_final(ptr::addr_of_mut!((*inode).i_data)) };
        if T::HAS_EVICT {
            // SAFETY: The inode is valid during the call. Its superblock has data: that goes when
            // there are no inodes.
            let evicting = Evicting(unsafe { INode::<T>::from_raw(inode) });
            let sb = evicting.sb().as_ptr();
            let unlinked = evicting.is_unlinked();
            if unlinked {
                // SAFETY: The superblock is valid.
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
        // SAFETY: The inode is valid, and nobody else uses it. What `evict` may have put into its
        // page cache goes as well.
        unsafe {
            bindings::truncate_inode_pages_final(ptr::addr_of_mut!((*inode).i_data));
            bindings::invalidate_inode_buffers(inode);
            bindings::clear_inode(inode);
        }
    }

    /// # Safety
    ///
    /// Called by the VFS for a superblock of type `T`.
    pub(in crate::fs) unsafe extern "C" fn alloc_inode(
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
    pub(in crate::fs) unsafe extern "C" fn free_inode(inode: *mut bindings::inode) {
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
