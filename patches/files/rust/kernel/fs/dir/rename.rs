// SPDX-License-Identifier: GPL-2.0

//! Moving a name: what is moved where, and what the VFS holds meanwhile.

use super::{Operations, Tables};
use crate::{
    bindings,
    error::{code::*, from_result, Result},
    fs::{
        dentry::{self, Entry, Positive},
        lock::{Excl, Held},
        FileSystem, INode,
    },
};
use core::ptr::NonNull;

/// A name that is to be moved.
///
/// The dentries are moved by the VFS once the operation has succeeded.
pub enum Rename<'a, T: FileSystem> {
    /// From one name to another of the same directory.
    ///
    /// `i_rwsem` of a directory that stays in its parent is not held: nothing in it changes.
    Within {
        /// The directory.
        dir: Held<'a, T, Excl>,
        /// What is moved.
        old: Entry<'a, T>,
        /// Where it is moved.
        new: NewName<'a, T, Entry<'a, T>>,
    },
    /// From one directory to another one. Everything is held.
    Across {
        /// The directory that loses the name.
        old_dir: Held<'a, T, Excl>,
        /// The directory that gets it.
        new_dir: Held<'a, T, Excl>,
        /// What is moved.
        old: Positive<'a, T>,
        /// Where it is moved.
        new: NewName<'a, T, Positive<'a, T>>,
    },
}

/// What has the name to which something is moved.
pub enum NewName<'a, T: FileSystem, E> {
    /// Nothing has this name, of 1 to 255 bytes.
    Free(&'a [u8]),
    /// This loses its name. It is a directory if what is moved is one.
    Replaced(Positive<'a, T>),
    /// This gets the old name (`RENAME_EXCHANGE`).
    Exchanged(E),
}

/// Makes the target of a rename. `exchanged` is called if it gets the old name.
///
/// # Safety
///
/// `dentry` is the new dentry of a rename that lasts for `'a`. The VFS holds `i_rwsem` of its parent
/// exclusively and, if it is replaced, that of its inode, too.
unsafe fn target<'a, T: FileSystem, E>(
    dentry: NonNull<bindings::dentry>,
    flags: u32,
    exchanged: impl FnOnce(NonNull<bindings::dentry>) -> E,
) -> Result<NewName<'a, T, E>> {
    // SAFETY: The dentry is valid, and the lock of its parent keeps it from being attached.
    let free = unsafe { (*dentry.as_ptr()).d_inode.is_null() };
    match (flags, free) {
        (bindings::RENAME_EXCHANGE, true) => Err(ENOENT),
        (bindings::RENAME_EXCHANGE, false) => Ok(NewName::Exchanged(exchanged(dentry))),
        (0 | bindings::RENAME_NOREPLACE, true) => {
            // SAFETY: The lock of the parent keeps the name as it is during `'a`.
            Ok(NewName::Free(unsafe { dentry::name(dentry) }))
        }
        (0, false) => {
            // SAFETY: The dentry is positive, and the locks are held, by the safety requirements.
            Ok(NewName::Replaced(unsafe { Positive::new(dentry) }))
        }
        (bindings::RENAME_NOREPLACE, false) => Err(EEXIST),
        _ => Err(EINVAL),
    }
}

impl<O: Operations> Tables<O> {
    /// # Safety
    ///
    /// Called by the VFS with two directories of the same superblock of type `O::FileSystem`, or
    /// twice the same, a positive dentry in the first and a dentry in the second. `i_rwsem` is held
    /// exclusively of the directories and, unless it is a directory that stays in its parent, of
    /// each inode that is moved; and of the one that is replaced in any case.
    pub(super) unsafe extern "C" fn rename(
        _idmap: *mut bindings::mnt_idmap,
        old_dir: *mut bindings::inode,
        old_dentry: *mut bindings::dentry,
        new_dir: *mut bindings::inode,
        new_dentry: *mut bindings::dentry,
        flags: crate::ffi::c_uint,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let old = NonNull::new(old_dentry).ok_or(EINVAL)?;
            let new = NonNull::new(new_dentry).ok_or(EINVAL)?;
            // SAFETY: The directory is in use, and its lock is held, during the call.
            let dir = unsafe { Held::new(INode::from_raw(old_dir)) };
            let rename = if old_dir == new_dir {
                Rename::Within {
                    dir,
                    // SAFETY: It is the dentry of this call, and positive.
                    old: unsafe { Entry::new(old) },
                    // SAFETY: It is the new dentry of this call, and positive if it is exchanged.
                    new: unsafe { target(new, flags, |new| Entry::new(new)) }?,
                }
            } else {
                Rename::Across {
                    old_dir: dir,
                    // SAFETY: As above; it is another one.
                    new_dir: unsafe { Held::new(INode::from_raw(new_dir)) },
                    // SAFETY: It is the dentry of this call, and positive. Between directories, all
                    // that is moved is locked.
                    old: unsafe { Positive::new(old) },
                    // SAFETY: As above.
                    new: unsafe { target(new, flags, |new| Positive::new(new)) }?,
                }
            };
            O::rename(rename).map(|()| 0)
        })
    }
}
