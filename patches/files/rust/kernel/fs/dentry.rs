// SPDX-License-Identifier: GPL-2.0

//! Dentries whose name and parent cannot change while they are looked at.
//!
//! The name of a dentry is stable only in some calls and only until the dentry is attached to an
//! inode. So each call hands over a value that can be read, and that is consumed when it is
//! attached; the call has to return the proof that this was done.
//!
//! C header: [`include/linux/dcache.h`](srctree/include/linux/dcache.h)

use super::{
    inode::Ready,
    lock::{Excl, Held},
    FileSystem, INode, IRef,
};
use crate::{
    bindings,
    error::{code::*, from_err_ptr, to_result, Result},
};
use core::{cell::Cell, marker::PhantomData, ops::Deref, ptr, ptr::NonNull};

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

    /// Gives the dentry a new inode, and lets the others in.
    pub fn instantiate(self, inode: Ready<'_, T>) -> Created<'a> {
        // SAFETY: The dentry is negative, by the type invariant. The inode is new, and the call
        // consumes what `into_raw` gives: the reference and the right to clear `I_NEW`.
        unsafe { bindings::d_instantiate_new(self.dentry.as_ptr(), inode.into_raw()) };
        Created {
            _brand: PhantomData,
        }
    }

    /// Gives the dentry an inode that has other names.
    ///
    /// # Errors
    ///
    /// `EPERM` for a directory: it has one name only.
    pub fn link(self, inode: IRef<'_, T>) -> Result<Created<'a>> {
        if inode.is_dir() {
            return Err(EPERM);
        }
        // SAFETY: The dentry is negative, by the type invariant; the call consumes the reference.
        unsafe { bindings::d_instantiate(self.dentry.as_ptr(), inode.into_raw()) };
        Ok(Created {
            _brand: PhantomData,
        })
    }
}

/// A dentry with an inode, in a directory that is held exclusively.
///
/// # Invariants
///
/// The dentry is valid and positive during `'a`. As `i_rwsem` of its parent is held exclusively, its
/// name, its parent and its inode are stable.
pub struct Entry<'a, T: FileSystem> {
    dentry: NonNull<bindings::dentry>,
    _call: Call<'a, T>,
}

impl<'a, T: FileSystem> Entry<'a, T> {
    /// # Safety
    ///
    /// `dentry` is positive and an argument of a call that lasts for `'a`, in which the VFS holds
    /// `i_rwsem` of its parent exclusively.
    pub(super) unsafe fn new(dentry: NonNull<bindings::dentry>) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            dentry,
            _call: PhantomData,
        }
    }

    /// The name: 1 to 255 bytes.
    pub fn name(&self) -> &'a [u8] {
        // SAFETY: The name is stable during `'a`, by the type invariant.
        unsafe { name(self.dentry) }
    }

    /// The inode that the name leads to.
    pub fn inode(&self) -> &'a INode<T> {
        // SAFETY: The dentry is positive and holds a reference to its inode, which stays during
        // `'a` by the type invariant. It is in a directory of type `T`, and so of that type, too.
        unsafe { INode::from_raw((*self.dentry.as_ptr()).d_inode) }
    }

    /// Says that the inode has changed just now: it is moved.
    ///
    /// The VFS wants this of each rename, also of that of a directory whose `i_rwsem` it does not
    /// hold.
    pub fn touch_ctime(&self) {
        // SAFETY: The inode is in use. Time stamps are stored and loaded by C, which puts up with
        // others who do the same.
        unsafe { bindings::inode_set_ctime_current(self.inode().as_ptr()) };
    }
}

/// An [`Entry`] whose inode is held exclusively, too.
///
/// # Invariants
///
/// `i_rwsem` of the inode is held exclusively during `'a`.
pub struct Positive<'a, T: FileSystem>(Entry<'a, T>);

impl<'a, T: FileSystem> Positive<'a, T> {
    /// # Safety
    ///
    /// As for [`Entry::new`], and the VFS holds `i_rwsem` of the inode exclusively during the call.
    pub(super) unsafe fn new(dentry: NonNull<bindings::dentry>) -> Self {
        // INVARIANT: By the safety requirements.
        // SAFETY: By the safety requirements.
        Self(unsafe { Entry::new(dentry) })
    }

    /// Proves that the inode is held.
    pub fn held(&mut self) -> Held<'_, T, Excl> {
        // SAFETY: It is held during `'a`, which is longer than the borrow.
        unsafe { Held::new(self.0.inode()) }
    }
}

impl<'a, T: FileSystem> Deref for Positive<'a, T> {
    type Target = Entry<'a, T>;

    fn deref(&self) -> &Entry<'a, T> {
        &self.0
    }
}

/// A file that is being opened and is to get a new inode without a name (`O_TMPFILE`).
///
/// # Invariants
///
/// The file is valid and not open. Its dentry is negative, not hashed, without a name of its own,
/// and nobody else sees it.
pub struct Tmpfile<'a, T: FileSystem> {
    file: NonNull<bindings::file>,
    _call: Call<'a, T>,
}

/// Proof that a file was opened.
pub struct Opened<'a> {
    _brand: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a, T: FileSystem> Tmpfile<'a, T> {
    /// # Safety
    ///
    /// `file` is the one that `tmpfile` was called with, and the call lasts for `'a`.
    pub(super) unsafe fn new(file: NonNull<bindings::file>) -> Self {
        // INVARIANT: `tmpfile` is called for such files only.
        Self {
            file,
            _call: PhantomData,
        }
    }

    /// Gives the file a new inode, which has no link from here on, and opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not a regular file, or what opening it returns. The inode goes with the
    /// file.
    pub fn open(self, inode: Ready<'_, T>) -> Result<Opened<'a>> {
        if u32::from(inode.mode()) & bindings::S_IFMT != bindings::S_IFREG {
            return Err(EINVAL);
        }
        // SAFETY: The file and its dentry are as the call wants them, by the type invariant. The
        // inode is new, and the call consumes what `into_raw` gives: the reference and the right to
        // clear `I_NEW`.
        to_result(unsafe { bindings::fs_open_tmpfile(self.file.as_ptr(), inode.into_raw()) })?;
        Ok(Opened {
            _brand: PhantomData,
        })
    }
}

/// The name of a dentry.
///
/// # Safety
///
/// The dentry is valid, and its name does not change during `'a`.
pub(super) unsafe fn name<'a>(dentry: NonNull<bindings::dentry>) -> &'a [u8] {
    // SAFETY: By the safety requirements; the length is that of the name.
    unsafe {
        let name = ptr::addr_of!((*dentry.as_ptr()).d_name);
        let len = (*name).__bindgen_anon_1.__bindgen_anon_1.len;
        core::slice::from_raw_parts((*name).name, len as usize)
    }
}
