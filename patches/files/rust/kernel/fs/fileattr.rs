// SPDX-License-Identifier: GPL-2.0

//! The flags of files that `chattr(1)` shows and changes, and their generation.
//!
//! The VFS translates between the interfaces and checks who may change what. Attributes that are
//! not flags, such as projects and extent sizes, are refused here.
//!
//! C header: [`include/linux/fileattr.h`](srctree/include/linux/fileattr.h)

use super::{
    compat,
    inode::Flags,
    lock::{Excl, Held},
    FileSystem, INode,
};
use crate::{
    bindings,
    error::{code::*, from_result, to_result, Result, VTABLE_DEFAULT_ERROR},
    ioctl::{_IOR, _IOW},
    prelude::vtable,
    uaccess::UserSlice,
};
use core::{marker::PhantomData, mem::size_of, ptr};

pub use super::Unsupported;

/// The operations on the flags of a regular file or a directory.
#[vtable]
pub trait Operations {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns the flags that users see (`FS_*_FL`).
    fn get(_inode: &INode<Self::FileSystem>) -> Result<u32> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes those of the flags that users may change to what they are in `flags`. What the VFS
    /// has to know of them is told with [`Held::set_flags`].
    ///
    /// # Errors
    ///
    /// What the `ioctl(2)` returns.
    fn set(_inode: Held<'_, Self::FileSystem, Excl>, _flags: u32) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<T: FileSystem> Operations for Unsupported<T> {
    type FileSystem = T;
}

impl<T: FileSystem> Held<'_, T, Excl> {
    /// Sets the flags that the VFS acts on, all of those that [`Flags`] names.
    pub fn set_flags(&mut self, flags: Flags) {
        let all = Flags::SYNC | Flags::NOATIME | Flags::APPEND | Flags::IMMUTABLE | Flags::DIRSYNC;
        // SAFETY: The inode is valid. The call changes the given bits only, atomically.
        unsafe { bindings::inode_set_flags(self.as_ptr(), flags.bits(), all.bits()) }
    }
}

/// Adds the flags that `statx(2)` returns and the VFS does not know.
pub(super) fn fill_stat<O: Operations>(inode: &INode<O::FileSystem>, stat: &mut bindings::kstat) {
    if !O::HAS_GET {
        return;
    }
    let Ok(flags) = O::get(inode) else {
        return;
    };
    for (flag, attribute) in [
        (bindings::FS_COMPR_FL, bindings::STATX_ATTR_COMPRESSED),
        (bindings::FS_NODUMP_FL, bindings::STATX_ATTR_NODUMP),
    ] {
        stat.attributes_mask |= u64::from(attribute);
        if flags & flag != 0 {
            stat.attributes |= u64::from(attribute);
        }
    }
}

/// The C side of flags.
pub(super) struct Tables<O>(PhantomData<O>);

/// `file_operations.unlocked_ioctl`.
type Ioctl = unsafe extern "C" fn(
    *mut bindings::file,
    crate::ffi::c_uint,
    crate::ffi::c_ulong,
) -> crate::ffi::c_long;

impl<O: Operations> Tables<O> {
    /// `inode_operations.fileattr_get`, if there are flags.
    pub(super) const GET: Option<
        unsafe extern "C" fn(*mut bindings::dentry, *mut compat::FileAttr) -> crate::ffi::c_int,
    > = if O::HAS_GET { Some(Self::get) } else { None };

    /// `inode_operations.fileattr_set`, if flags can be changed.
    pub(super) const SET: Option<
        unsafe extern "C" fn(
            *mut bindings::mnt_idmap,
            *mut bindings::dentry,
            *mut compat::FileAttr,
        ) -> crate::ffi::c_int,
    > = if O::HAS_SET { Some(Self::set) } else { None };

    /// `file_operations.unlocked_ioctl`: the generation, where there are flags.
    pub(super) const IOCTL: Option<Ioctl> = if O::HAS_SET { Some(Self::ioctl) } else { None };

    /// `file_operations.compat_ioctl`. The argument is a pointer to 4 bytes in any case.
    #[cfg(CONFIG_COMPAT)]
    pub(super) const COMPAT_IOCTL: Option<Ioctl> = if O::HAS_SET {
        Some(bindings::compat_ptr_ioctl)
    } else {
        None
    };

    /// `file_operations.compat_ioctl`.
    #[cfg(not(CONFIG_COMPAT))]
    pub(super) const COMPAT_IOCTL: Option<Ioctl> = None;

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `O::FileSystem`.
    unsafe extern "C" fn get(
        dentry: *mut bindings::dentry,
        attr: *mut compat::FileAttr,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The dentry keeps its inode in use during the call.
            let flags = O::get(unsafe { INode::from_raw((*dentry).d_inode) })?;
            // SAFETY: `attr` belongs to the caller.
            unsafe { bindings::fileattr_fill_flags(attr, flags) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `O::FileSystem`, whose `i_rwsem` is
    /// held exclusively.
    unsafe extern "C" fn set(
        _idmap: *mut bindings::mnt_idmap,
        dentry: *mut bindings::dentry,
        attr: *mut compat::FileAttr,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: `attr` belongs to the caller.
            if unsafe { bindings::fileattr_has_fsx(attr) } {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The dentry keeps its inode in use, and the lock is held, during the call;
            // `attr` belongs to the caller.
            let (inode, flags) =
                unsafe { (Held::new(INode::from_raw((*dentry).d_inode)), (*attr).flags) };
            O::set(inode, flags).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with an open file of type `O::FileSystem`.
    unsafe extern "C" fn ioctl(
        file: *mut bindings::file,
        command: crate::ffi::c_uint,
        arg: crate::ffi::c_ulong,
    ) -> crate::ffi::c_long {
        // The numbers say `long`; what is read and written is an `int`.
        const GET: u32 = _IOR::<crate::ffi::c_long>('v' as u32, 1);
        const GET32: u32 = _IOR::<crate::ffi::c_int>('v' as u32, 1);
        const SET: u32 = _IOW::<crate::ffi::c_long>('v' as u32, 2);
        const SET32: u32 = _IOW::<crate::ffi::c_int>('v' as u32, 2);

        let user = UserSlice::new(arg, size_of::<u32>());
        from_result(|| {
            // SAFETY: The file keeps the inode in use.
            let inode: &INode<O::FileSystem> = unsafe { INode::from_raw((*file).f_inode) };
            match command {
                GET | GET32 => user.writer().write(&inode.generation())?,
                SET | SET32 => {
                    // SAFETY: The inode is valid; there are no idmapped mounts.
                    let may = unsafe {
                        let idmap = ptr::addr_of_mut!(bindings::nop_mnt_idmap);
                        bindings::inode_owner_or_capable(idmap, inode.as_ptr())
                    };
                    if !may {
                        return Err(EPERM);
                    }
                    let generation = user.reader().read()?;
                    // SAFETY: The file is open.
                    to_result(unsafe { bindings::mnt_want_write_file(file) })?;
                    set_generation(inode, generation);
                    // SAFETY: The call above succeeded.
                    unsafe { bindings::mnt_drop_write_file(file) };
                }
                _ => return Err(ENOTTY),
            }
            Ok(0)
        })
    }
}

/// Changes the generation: handles of the file become stale.
fn set_generation<T: FileSystem>(inode: &INode<T>, generation: u32) {
    let guard = inode.lock();
    // SAFETY: The inode is valid. The lock keeps others from storing; who reads does it without,
    // hence the volatile store.
    unsafe { ptr::addr_of_mut!((*inode.as_ptr()).i_generation).write_volatile(generation) };
    guard.held().touch_ctime();
    inode.mark_dirty();
}
