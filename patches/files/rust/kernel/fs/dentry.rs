// SPDX-License-Identifier: GPL-2.0

//! Dentries whose name and parent cannot change while they are looked at.
//!
//! The name of a dentry is stable only in some calls and only until the dentry is attached to an
//! inode. So each call hands over a value that can be read, and that is consumed when it is
//! attached; the call has to return the proof that this was done.
//!
//! C header: [`include/linux/dcache.h`](srctree/include/linux/dcache.h)

use super::{FileSystem, IRef};
use crate::{
    bindings,
    error::{code::*, from_err_ptr, Result},
};
use core::{cell::Cell, marker::PhantomData, ptr, ptr::NonNull};

/// Binds a dentry to the call that it is an argument of, and to the task that runs the call.
type Call<'a, T> = PhantomData<(fn(&'a ()) -> &'a (), T, *mut ())>;

/// The dentry that a lookup has to resolve.
///
/// # Invariants
///
/// The dentry is valid, negative and not hashed: nobody else finds it, so that its name and parent
/// are stable.
pub struct Unhashed<'a, T: FileSystem> {
    dentry: NonNull<bindings::dentry>,
    answer: &'a Cell<*mut bindings::dentry>,
    _call: Call<'a, T>,
}

/// Proof that a lookup was answered.
pub struct Spliced<'a> {
    _brand: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a, T: FileSystem> Unhashed<'a, T> {
    /// # Safety
    ///
    /// `dentry` is the one that `lookup` was called with, and the call lasts for `'a`. The caller
    /// takes the reference that is stored in `answer`.
    pub(super) unsafe fn new(
        dentry: NonNull<bindings::dentry>,
        answer: &'a Cell<*mut bindings::dentry>,
    ) -> Self {
        // INVARIANT: `lookup` is called for such dentries only.
        Self {
            dentry,
            answer,
            _call: PhantomData,
        }
    }

    /// The name that is looked up: 1 to 255 bytes, neither `.` nor `..`.
    pub fn name(&self) -> &[u8] {
        // SAFETY: The name is stable, by the type invariant.
        unsafe { name(self.dentry) }
    }

    /// Answers the lookup: with an inode, or that there is no such name.
    ///
    /// # Errors
    ///
    /// `ELOOP` or `ESTALE` if the inode is a directory that is found in a second place from which
    /// it cannot be moved, `ENOMEM`.
    pub fn splice_alias(self, inode: Option<IRef<'_, T>>) -> Result<Spliced<'a>> {
        let inode = inode.map_or(ptr::null_mut(), IRef::into_raw);
        // SAFETY: The dentry is as the call wants it, by the type invariant; the call consumes the
        // reference to the inode, even if it fails.
        let answer =
            from_err_ptr(unsafe { bindings::d_splice_alias(inode, self.dentry.as_ptr()) })?;
        self.answer.set(answer);
        Ok(Spliced {
            _brand: PhantomData,
        })
    }
}

/// A dentry without an inode, in a directory that is held exclusively.
///
/// # Invariants
///
/// The dentry is valid and negative. As `i_rwsem` of its parent is held exclusively, its name and
/// parent are stable.
pub struct Negative<'a, T: FileSystem> {
    dentry: NonNull<bindings::dentry>,
    _call: Call<'a, T>,
}

/// Proof that a negative dentry was given an inode.
pub struct Created<'a> {
    _brand: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a, T: FileSystem> Negative<'a, T> {
    /// # Safety
    ///
    /// `dentry` is the one that an operation which creates a file was called with, and the call
    /// lasts for `'a`.
    pub(super) unsafe fn new(dentry: NonNull<bindings::dentry>) -> Self {
        // INVARIANT: Such operations are called for negative dentries, under the lock of the parent.
        Self {
            dentry,
            _call: PhantomData,
        }
    }

    /// The name, as the C side takes it; stable as long as `self` is borrowed.
    pub(super) fn qstr(&self) -> *const bindings::qstr {
        // SAFETY: Valid by the type invariant; only the address is taken.
        unsafe { ptr::addr_of!((*self.dentry.as_ptr()).d_name) }
    }

    /// The name of the file to create: 1 to 255 bytes.
    pub fn name(&self) -> &[u8] {
        // SAFETY: The name is stable, by the type invariant.
        unsafe { name(self.dentry) }
    }

    /// Gives the dentry an inode that has been finished.
    ///
    /// # Errors
    ///
    /// `EEXIST` for a directory that has a name already.
    pub fn instantiate(self, inode: IRef<'_, T>) -> Result<Created<'a>> {
        // SAFETY: The inode is in use.
        if unsafe { bindings::fs_is_named_directory(inode.as_ptr()) } {
            return Err(EEXIST);
        }
        // SAFETY: The dentry is negative, by the type invariant; the call consumes the reference.
        unsafe { bindings::d_instantiate(self.dentry.as_ptr(), inode.into_raw()) };
        Ok(Created {
            _brand: PhantomData,
        })
    }
}

/// The name of a dentry.
///
/// # Safety
///
/// The dentry is valid, and its name does not change during `'a`.
unsafe fn name<'a>(dentry: NonNull<bindings::dentry>) -> &'a [u8] {
    // SAFETY: By the safety requirements; the length is that of the name.
    unsafe {
        let name = ptr::addr_of!((*dentry.as_ptr()).d_name);
        let len = (*name).__bindgen_anon_1.__bindgen_anon_1.len;
        core::slice::from_raw_parts((*name).name, len as usize)
    }
}
