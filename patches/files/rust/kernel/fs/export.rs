// SPDX-License-Identifier: GPL-2.0

//! File handles, for NFS servers and `open_by_handle_at(2)`.
//!
//! A handle is the number of an inode and its generation, which tells the files apart that have
//! had the number. It comes from outside: nothing in it can be relied on.
//!
//! C header: [`include/linux/exportfs.h`](srctree/include/linux/exportfs.h)

use super::{
    lock::{Held, Shared},
    FileSystem, INode, IRef, Ino, SuperBlock,
};
use crate::{
    bindings,
    error::{code::*, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{marker::PhantomData, ptr};

pub use super::Unsupported;

/// The operations of a file system whose files have handles.
#[vtable]
pub trait Operations {
    /// The file system.
    type FileSystem: FileSystem;

    /// Returns an inode by its number. The generation is compared by the caller.
    ///
    /// # Errors
    ///
    /// `ESTALE` for a number that no file has. Everything but `ENOMEM` counts as that.
    fn inode(_sb: &SuperBlock<Self::FileSystem>, _ino: Ino) -> Result<IRef<'_, Self::FileSystem>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the directory that a directory lies in.
    ///
    /// # Errors
    ///
    /// Whatever is returned, the handle counts as stale.
    fn parent<'a>(_dir: Held<'a, Self::FileSystem, Shared>) -> Result<IRef<'a, Self::FileSystem>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<T: FileSystem> Operations for Unsupported<T> {
    type FileSystem = T;
}

/// The C side of handles.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    const TABLE: &'static bindings::export_operations = &bindings::export_operations {
        encode_fh: Some(bindings::generic_encode_ino32_fh),
        fh_to_dentry: Some(Self::fh_to_dentry),
        fh_to_parent: Some(Self::fh_to_parent),
        get_parent: if O::HAS_PARENT {
            Some(Self::get_parent)
        } else {
            None
        },
        // SAFETY: The table consists of numbers and optional function pointers: zero is a value.
        ..unsafe { core::mem::zeroed() }
    };

    /// `super_block.s_export_op`; null if there are no handles.
    pub(super) const OPS: *const bindings::export_operations = if O::HAS_INODE {
        Self::TABLE
    } else {
        ptr::null()
    };

    /// # Safety
    ///
    /// Called by the VFS with an active superblock of type `O::FileSystem`; `fid` is readable for
    /// `len` words.
    unsafe extern "C" fn fh_to_dentry(
        sb: *mut bindings::super_block,
        fid: *mut bindings::fid,
        len: crate::ffi::c_int,
        kind: crate::ffi::c_int,
    ) -> *mut bindings::dentry {
        // SAFETY: The arguments are those of the call; the callback is for superblocks of the type.
        unsafe { bindings::generic_fh_to_dentry(sb, fid, len, kind, Some(Self::get_inode)) }
    }

    /// # Safety
    ///
    /// As for [`Self::fh_to_dentry`].
    unsafe extern "C" fn fh_to_parent(
        sb: *mut bindings::super_block,
        fid: *mut bindings::fid,
        len: crate::ffi::c_int,
        kind: crate::ffi::c_int,
    ) -> *mut bindings::dentry {
        // SAFETY: The arguments are those of the call; the callback is for superblocks of the type.
        unsafe { bindings::generic_fh_to_parent(sb, fid, len, kind, Some(Self::get_dir)) }
    }

    /// Returns the inode of a handle, with a reference, or an error.
    ///
    /// # Safety
    ///
    /// `sb` is an active superblock of type `O::FileSystem`.
    unsafe extern "C" fn get_inode(
        sb: *mut bindings::super_block,
        ino: u64,
        generation: u32,
    ) -> *mut bindings::inode {
        // SAFETY: The superblock is active during the call, so it has data.
        let sb = unsafe { SuperBlock::from_raw(sb) };
        match Self::find(sb, ino) {
            Ok(inode) if inode.generation() == generation => inode.into_raw(),
            Ok(_) => ESTALE.to_ptr(),
            Err(e) => e.to_ptr(),
        }
    }

    /// The same for the parent in a handle, which may come without its generation: as 0.
    ///
    /// # Safety
    ///
    /// As for [`Self::get_inode`].
    unsafe extern "C" fn get_dir(
        sb: *mut bindings::super_block,
        ino: u64,
        generation: u32,
    ) -> *mut bindings::inode {
        // SAFETY: The superblock is active during the call, so it has data.
        let sb = unsafe { SuperBlock::from_raw(sb) };
        match Self::find(sb, ino) {
            Ok(dir) if dir.is_dir() && (generation == 0 || dir.generation() == generation) => {
                dir.into_raw()
            }
            Ok(_) => ESTALE.to_ptr(),
            Err(e) => e.to_ptr(),
        }
    }

    fn find(sb: &SuperBlock<O::FileSystem>, ino: Ino) -> Result<IRef<'_, O::FileSystem>> {
        let inode = O::inode(sb, ino)?;
        // It would get a dentry of this superblock.
        if !ptr::eq(inode.sb(), sb) {
            return Err(ESTALE);
        }
        Ok(inode)
    }

    /// # Safety
    ///
    /// Called by exportfs with a dentry that has an inode of type `O::FileSystem`, whose `i_rwsem`
    /// is held.
    unsafe extern "C" fn get_parent(child: *mut bindings::dentry) -> *mut bindings::dentry {
        // SAFETY: The dentry keeps its inode in use during the call.
        let child: &INode<O::FileSystem> = unsafe { INode::from_raw((*child).d_inode) };
        if !child.is_dir() {
            return ENOTDIR.to_ptr();
        }
        // SAFETY: The lock is held during the call.
        match O::parent(unsafe { Held::new(child) }) {
            Ok(dir) if dir.is_dir() && ptr::eq(dir.sb(), child.sb()) => {
                // SAFETY: It is an inode with a reference, which the call consumes.
                unsafe { bindings::d_obtain_alias(dir.into_raw()) }
            }
            Ok(_) => ESTALE.to_ptr(),
            Err(e) => e.to_ptr(),
        }
    }
}
