// SPDX-License-Identifier: GPL-2.0

//! The callbacks whose prototypes differ between kernel versions.

use super::{dentry::Negative, dir, lock::Held, FileSystem, INode, Offset};
use crate::{
    bindings,
    error::{code::*, from_result, to_result},
};
use core::ptr::NonNull;

/// What `inode_operations.fileattr_get` fills and `fileattr_set` reads.
pub(super) type FileAttr = bindings::fileattr;

/// The flag of files whose buffered IO may ask for its folios to be dropped.
pub(super) const FOP_UNCACHED: u32 = bindings::FOP_UNCACHED;

/// `file_operations.fsync` of files whose metadata is in buffers of the device.
///
/// # Safety
///
/// Called by the VFS with an open file of type `T` on a block device.
pub(super) unsafe extern "C" fn fsync<T: FileSystem>(
    file: *mut bindings::file,
    start: Offset,
    end: Offset,
    datasync: crate::ffi::c_int,
) -> crate::ffi::c_int {
    from_result(|| {
        // SAFETY: The arguments are those of the call.
        let err =
            unsafe { bindings::generic_buffers_fsync_noflush(file, start, end, datasync != 0) };
        // SAFETY: The file pins the inode.
        let inode = unsafe { INode::<T>::from_raw((*file).f_inode) };
        let written = if T::HAS_SYNC_INODE {
            T::sync_inode(inode)
        } else {
            Ok(())
        };
        to_result(err)?;
        written?;
        // SAFETY: The superblock is valid, and its device is open.
        to_result(unsafe { bindings::blkdev_issue_flush((*inode.sb().as_ptr()).s_bdev) })?;
        Ok(0)
    })
}

/// `inode_operations.create`.
///
/// # Safety
///
/// Called by the VFS with a directory of type `D::FileSystem`, whose `i_rwsem` is held exclusively,
/// and a negative dentry in it.
pub(super) unsafe extern "C" fn create<D: dir::Operations>(
    _idmap: *mut bindings::mnt_idmap,
    dir: *mut bindings::inode,
    dentry: *mut bindings::dentry,
    mode: bindings::umode_t,
    _excl: bool,
) -> crate::ffi::c_int {
    from_result(|| {
        let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
        // SAFETY: The directory is in use, and its lock is held, during the call.
        let dir = unsafe { Held::new(INode::from_raw(dir)) };
        // SAFETY: It is the dentry of this call.
        let dentry = unsafe { Negative::new(dentry) };
        D::create(dir, dentry, mode & 0o7777).map(|_| 0)
    })
}

/// `inode_operations.mkdir`; the mode comes without the type of the file.
///
/// # Safety
///
/// As for [`create`].
pub(super) unsafe extern "C" fn mkdir<D: dir::Operations>(
    _idmap: *mut bindings::mnt_idmap,
    dir: *mut bindings::inode,
    dentry: *mut bindings::dentry,
    mode: bindings::umode_t,
) -> crate::ffi::c_int {
    from_result(|| {
        let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
        // SAFETY: The directory is in use, and its lock is held, during the call.
        let dir = unsafe { Held::new(INode::from_raw(dir)) };
        // SAFETY: It is the dentry of this call.
        let dentry = unsafe { Negative::new(dentry) };
        D::mkdir(dir, dentry, mode & 0o7777).map(|_| 0)
    })
}
