// SPDX-License-Identifier: GPL-2.0

//! `i_rwsem` as types: who holds it, and in which mode.
//!
//! [`Guard`] owns the lock. [`Held`] proves that somebody up the stack owns it: the VFS around a
//! callback, or a [`Guard`]. What needs the lock takes one of them, or is a method of it.

use super::{FileSystem, INode, Offset};
use crate::{
    bindings,
    error::{code::*, Result},
};
use core::{marker::PhantomData, mem::ManuallyDrop, ops::Deref};

mod private {
    pub trait Sealed {}
}

/// A mode in which `i_rwsem` can be held.
pub trait Mode: private::Sealed {
    /// Unlocks the lock of `inode`.
    ///
    /// # Safety
    ///
    /// `inode` is valid, and the calling task holds its `i_rwsem` in this mode and gives it up.
    #[doc(hidden)]
    unsafe fn unlock(inode: *mut bindings::inode);
}

/// Held together with other readers. Where a callback gets [`Held`] in this mode, the lock may in
/// fact be held exclusively.
pub struct Shared;

/// Held by one task alone.
pub struct Excl;

impl private::Sealed for Shared {}
impl private::Sealed for Excl {}

impl Mode for Shared {
    unsafe fn unlock(inode: *mut bindings::inode) {
        // SAFETY: By the safety requirements of this function.
        unsafe { bindings::inode_unlock_shared(inode) }
    }
}

impl Mode for Excl {
    unsafe fn unlock(inode: *mut bindings::inode) {
        // SAFETY: By the safety requirements of this function.
        unsafe { bindings::inode_unlock(inode) }
    }
}

/// Makes a type that is bound to the task: the owner of a semaphore is the task that took it.
type NotThreadSafe = PhantomData<*mut ()>;

/// Owns `i_rwsem` of an inode in mode `M`.
///
/// # Invariants
///
/// The current task holds the lock in mode `M` until the guard is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<'a, T: FileSystem, M: Mode> {
    inode: &'a INode<T>,
    _mode: PhantomData<M>,
    _task: NotThreadSafe,
}

impl<'a, T: FileSystem, M: Mode> Guard<'a, T, M> {
    /// Takes over a lock.
    ///
    /// # Safety
    ///
    /// The current task holds `i_rwsem` of `inode` in mode `M` and hands it to the guard.
    unsafe fn new(inode: &'a INode<T>) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            inode,
            _mode: PhantomData,
            _task: PhantomData,
        }
    }

    /// Proves that the lock is held, for as long as the guard is borrowed.
    pub fn held(&self) -> Held<'_, T, M> {
        // SAFETY: The lock is held by the type invariant, and the result borrows the guard.
        unsafe { Held::new(self.inode) }
    }

    /// The inode that is locked.
    pub fn inode(&self) -> &'a INode<T> {
        self.inode
    }
}

impl<'a, T: FileSystem> Guard<'a, T, Excl> {
    /// Lets other readers in, without a moment in which the lock is free.
    pub fn downgrade(self) -> Guard<'a, T, Shared> {
        let this = ManuallyDrop::new(self);
        // SAFETY: The lock is held exclusively, by the type invariant.
        unsafe { bindings::fs_inode_downgrade(this.inode.as_ptr()) };
        // SAFETY: It is held shared now, and the destructor of the old guard does not run.
        unsafe { Guard::new(this.inode) }
    }
}

impl<T: FileSystem, M: Mode> Drop for Guard<'_, T, M> {
    fn drop(&mut self) {
        // SAFETY: The lock is held in this mode, by the type invariant, and given up here.
        unsafe { M::unlock(self.inode.as_ptr()) }
    }
}

/// Proves that `i_rwsem` of an inode is held in mode `M`.
///
/// # Invariants
///
/// The current task holds the lock in mode `M`, or exclusively, for the lifetime `'a`.
pub struct Held<'a, T: FileSystem, M: Mode> {
    inode: &'a INode<T>,
    _mode: PhantomData<M>,
    _task: NotThreadSafe,
}

impl<'a, T: FileSystem, M: Mode> Held<'a, T, M> {
    /// States that the lock is held.
    ///
    /// # Safety
    ///
    /// The current task holds `i_rwsem` of `inode` in mode `M`, or exclusively, for `'a`.
    pub(super) unsafe fn new(inode: &'a INode<T>) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            inode,
            _mode: PhantomData,
            _task: PhantomData,
        }
    }

    /// The inode that is locked.
    pub fn inode(&self) -> &'a INode<T> {
        self.inode
    }
}

impl<T: FileSystem, M: Mode> Deref for Held<'_, T, M> {
    type Target = INode<T>;

    fn deref(&self) -> &INode<T> {
        self.inode
    }
}

impl<T: FileSystem> Held<'_, T, Excl> {
    /// Publishes a new file size, in bytes.
    ///
    /// It is a release store: who reads the size with [`INode::size`] sees all that was written
    /// before. The exclusive lock keeps others from storing at the same time.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative size.
    pub fn set_size(&mut self, size: Offset) -> Result {
        if size < 0 {
            return Err(EINVAL);
        }
        // SAFETY: The inode is valid and its lock is held exclusively, by the type invariant.
        unsafe { bindings::i_size_write(self.inode.as_ptr(), size) };
        Ok(())
    }

    /// One more name leads to the inode.
    pub fn inc_nlink(&mut self) {
        // SAFETY: The inode is valid and its lock is held exclusively.
        unsafe { bindings::inc_nlink(self.inode.as_ptr()) }
    }

    /// One name less leads to the inode. A count of zero stays zero.
    pub fn dec_nlink(&mut self) {
        if self.inode.nlink() != 0 {
            // SAFETY: The inode is valid and its lock is held exclusively.
            unsafe { bindings::drop_nlink(self.inode.as_ptr()) }
        }
    }

    /// No name leads to the inode: it goes with its last reference.
    pub fn clear_nlink(&mut self) {
        // SAFETY: The inode is valid and its lock is held exclusively.
        unsafe { bindings::clear_nlink(self.inode.as_ptr()) }
    }

    /// Says that the inode has changed just now.
    pub fn touch_ctime(&mut self) {
        // SAFETY: The inode is valid and its lock is held exclusively.
        unsafe { bindings::inode_set_ctime_current(self.inode.as_ptr()) };
    }

    /// Says that the contents have changed just now, and so the inode.
    pub fn touch_mtime(&mut self) {
        // SAFETY: The inode is valid and its lock is held exclusively.
        unsafe { bindings::fs_touch_mtime(self.inode.as_ptr()) }
    }

    /// Waits until no direct IO on the inode is in flight. None can start before the lock is
    /// released, because who starts it holds the lock.
    pub fn drain_dio(&self) {
        // SAFETY: The inode is valid, and the lock is held exclusively.
        unsafe { bindings::inode_dio_wait(self.inode.as_ptr()) }
    }
}

impl<T: FileSystem> INode<T> {
    /// Takes `i_rwsem` exclusively.
    pub fn lock(&self) -> Guard<'_, T, Excl> {
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_lock(self.as_ptr()) };
        // SAFETY: Just locked.
        unsafe { Guard::new(self) }
    }

    /// Takes `i_rwsem` shared.
    pub fn lock_shared(&self) -> Guard<'_, T, Shared> {
        // SAFETY: The inode is valid.
        unsafe { bindings::inode_lock_shared(self.as_ptr()) };
        // SAFETY: Just locked.
        unsafe { Guard::new(self) }
    }

    /// Takes `i_rwsem` exclusively if that is possible at once.
    pub fn try_lock(&self) -> Option<Guard<'_, T, Excl>> {
        // SAFETY: The inode is valid.
        if unsafe { bindings::inode_trylock(self.as_ptr()) } {
            // SAFETY: Just locked.
            Some(unsafe { Guard::new(self) })
        } else {
            None
        }
    }

    /// Takes `i_rwsem` shared if that is possible at once.
    pub fn try_lock_shared(&self) -> Option<Guard<'_, T, Shared>> {
        // SAFETY: The inode is valid.
        if unsafe { bindings::inode_trylock_shared(self.as_ptr()) } {
            // SAFETY: Just locked.
            Some(unsafe { Guard::new(self) })
        } else {
            None
        }
    }
}
