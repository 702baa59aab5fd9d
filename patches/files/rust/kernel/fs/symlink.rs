// SPDX-License-Identifier: GPL-2.0

//! Symbolic links whose target is read when they are followed.
//!
//! Links that are kept in memory need no operations:
//! [`NewINode::finish_fast_symlink`](super::inode::NewINode::finish_fast_symlink).

use super::{inode, xattr, FileSystem, INode};
use crate::{
    alloc::{flags::GFP_KERNEL, KVec},
    bindings,
    error::{code::*, Result},
    prelude::vtable,
};
use core::{marker::PhantomData, mem::ManuallyDrop};

/// The operations of a symbolic link.
#[vtable]
pub trait Operations {
    /// The file system of the link.
    type FileSystem: FileSystem;

    /// Reads the target. May sleep; a walk under RCU is sent round again before this is called.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what following the link returns.
    fn get_link(link: &INode<Self::FileSystem>) -> Result<Target>;
}

/// The target of a symbolic link.
///
/// # Invariants
///
/// The first byte is not a nul, and the last is one. The target ends at the first nul.
pub struct Target(KVec<u8>);

impl Target {
    /// Copies a target.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if it is empty or contains a nul byte, `ENAMETOOLONG` if it is longer than a path
    /// can be, `ENOMEM`.
    pub fn new(target: &[u8]) -> Result<Self> {
        if target.len() >= bindings::PATH_MAX as usize {
            return Err(ENAMETOOLONG);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(EUCLEAN);
        }
        let mut text = KVec::with_capacity(target.len() + 1, GFP_KERNEL)?;
        text.extend_from_slice(target, GFP_KERNEL)?;
        text.push(0, GFP_KERNEL)?;
        // INVARIANT: The nul that was just pushed is the only one, and there is more than that.
        Ok(Self(text))
    }

    /// Has `read` fill a buffer of `max` bytes, and takes what it has read up to the first nul, or
    /// all of it.
    ///
    /// # Errors
    ///
    /// What `read` returns, `EUCLEAN` if nothing is left, `ENAMETOOLONG` if `max` is more than a
    /// path can have, `ENOMEM`.
    pub fn read(max: usize, read: impl FnOnce(&mut [u8]) -> Result) -> Result<Self> {
        if max >= bindings::PATH_MAX as usize {
            return Err(ENAMETOOLONG);
        }
        let mut text = KVec::with_capacity(max + 1, GFP_KERNEL)?;
        text.extend_with(max + 1, 0, GFP_KERNEL)?;
        read(text.get_mut(..max).ok_or(EUCLEAN)?)?;
        match text.first() {
            // INVARIANT: The last byte is still as it was.
            Some(1..) => Ok(Self(text)),
            _ => Err(EUCLEAN),
        }
    }

    /// Gives the string to the caller, who frees it with `kfree`.
    pub(super) fn into_raw(self) -> *mut u8 {
        ManuallyDrop::new(self.0).as_mut_ptr()
    }
}

/// The C side of symbolic links.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    pub(super) const INODE_OPS: &'static bindings::inode_operations = &bindings::inode_operations {
        get_link: Some(Self::get_link),
        getattr: Some(inode::Tables::<O::FileSystem>::getattr),
        listxattr: xattr::Tables::<<O::FileSystem as FileSystem>::Xattr>::LIST,
        setattr: Some(inode::Tables::<O::FileSystem>::setattr),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by the VFS for a link of type `O::FileSystem`; `dentry` is null under RCU.
    unsafe extern "C" fn get_link(
        dentry: *mut bindings::dentry,
        inode: *mut bindings::inode,
        done: *mut bindings::delayed_call,
    ) -> *const u8 {
        if dentry.is_null() {
            return ECHILD.to_ptr();
        }
        // SAFETY: The inode is in use during the call.
        match O::get_link(unsafe { INode::from_raw(inode) }) {
            Err(e) => e.to_ptr(),
            Ok(target) => {
                let target = target.into_raw();
                // SAFETY: `done` is a variable of the caller, who calls the function with the string
                // when it is done with it.
                unsafe {
                    bindings::set_delayed_call(done, Some(bindings::kfree_link), target.cast())
                };
                target
            }
        }
    }
}
