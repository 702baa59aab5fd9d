// SPDX-License-Identifier: GPL-2.0

//! POSIX access control lists.
//!
//! The VFS keeps the lists that were read, and checks permissions with them. A file system only
//! knows how they lie on its disk. Without `CONFIG_FS_POSIX_ACL` there are none: nothing here is
//! called then.
//!
//! C header: [`include/linux/posix_acl.h`](srctree/include/linux/posix_acl.h)

use super::{
    inode::FreshINode,
    lock::{Excl, Held},
    FileSystem, INode, SuperBlock,
};
use crate::{
    bindings,
    error::{code::*, from_result, to_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
    types::{ARef, AlwaysRefCounted, Opaque},
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};

pub use super::Unsupported;

/// The operations on the lists of an inode of any type.
#[vtable]
pub trait Operations {
    /// The file system of the inode.
    type FileSystem: FileSystem;

    /// Reads a list. The VFS remembers it, and also that there is none.
    ///
    /// # Errors
    ///
    /// Whoever needs the list to be let in is refused with the error.
    fn get(_inode: &INode<Self::FileSystem>, _kind: Kind) -> Result<Option<ARef<Acl>>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Stores a list, or removes it. The permissions of the inode are changed by the caller.
    ///
    /// # Errors
    ///
    /// What `setxattr(2)` returns; the old list is still there.
    fn set(_inode: Held<'_, Self::FileSystem, Excl>, _kind: Kind, _acl: Option<&Acl>) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<T: FileSystem> Operations for Unsupported<T> {
    type FileSystem = T;
}

/// What a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Who may access the file.
    Access,
    /// What files get that are created in the directory.
    Default,
}

impl Kind {
    fn from_raw(raw: crate::ffi::c_int) -> Result<Self> {
        match raw as u32 {
            bindings::ACL_TYPE_ACCESS => Ok(Self::Access),
            bindings::ACL_TYPE_DEFAULT => Ok(Self::Default),
            _ => Err(EINVAL),
        }
    }

    fn as_raw(self) -> crate::ffi::c_int {
        match self {
            Self::Access => bindings::ACL_TYPE_ACCESS as _,
            Self::Default => bindings::ACL_TYPE_DEFAULT as _,
        }
    }

    /// The name of the attribute that stands for such a list.
    pub(super) fn attribute(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }
}

/// Whom an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The owner of the file.
    UserObj,
    /// A user, by number.
    User(u32),
    /// The group of the file.
    GroupObj,
    /// A group, by number.
    Group(u32),
    /// No one: the most that users and groups get.
    Mask,
    /// Everybody else.
    Other,
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it is for.
    pub tag: Tag,
    /// What they may do: 4 to read, 2 to write, 1 to execute.
    pub perm: u16,
}

/// A list.
///
/// # Invariants
///
/// `posix_acl_valid` has accepted it, and it does not change any more.
#[repr(transparent)]
pub struct Acl(Opaque<bindings::posix_acl>);

// SAFETY: It does not change, and any task may give a reference back.
unsafe impl Send for Acl {}

// SAFETY: As above.
unsafe impl Sync for Acl {}

// SAFETY: The functions count the references; the list is freed with the last one.
unsafe impl AlwaysRefCounted for Acl {
    fn inc_ref(&self) {
        // SAFETY: The list is valid, as there is a reference to it.
        unsafe { bindings::posix_acl_dup(self.0.get()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference and gives it up.
        unsafe { bindings::posix_acl_release(obj.as_ptr().cast()) }
    }
}

impl Acl {
    /// Makes a list. The numbers of users and groups are those in the user namespace of `sb`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the entries are not a list: out of order, incomplete, or with permissions or
    /// numbers that there are not; `ENOMEM`.
    pub fn new<T: FileSystem>(sb: &SuperBlock<T>, entries: &[Entry]) -> Result<ARef<Self>> {
        // SAFETY: It returns null or a list with room for that many entries, with one reference.
        let acl = unsafe { bindings::fs_acl_alloc(entries.len().try_into()?) };
        let acl = NonNull::new(acl).ok_or(ENOMEM)?;
        // SAFETY: The reference is ours. If the list turns out to be none, it is just given back.
        let owned = unsafe { ARef::<Acl>::from_raw(acl.cast()) };
        for (index, entry) in entries.iter().enumerate() {
            let (tag, id) = match entry.tag {
                Tag::UserObj => (bindings::ACL_USER_OBJ, 0),
                Tag::User(id) => (bindings::ACL_USER, id),
                Tag::GroupObj => (bindings::ACL_GROUP_OBJ, 0),
                Tag::Group(id) => (bindings::ACL_GROUP, id),
                Tag::Mask => (bindings::ACL_MASK, 0),
                Tag::Other => (bindings::ACL_OTHER, 0),
            };
            // SAFETY: Nobody else knows of the list, and it has as many entries as the slice. The
            // superblock is valid.
            unsafe {
                let to = entries_of(acl.as_ptr()).add(index);
                (*to).e_tag = tag as _;
                (*to).e_perm = entry.perm;
                bindings::fs_acl_set_id(sb.as_ptr(), to, id);
            }
        }
        // SAFETY: The list is complete, and the superblock is valid.
        to_result(unsafe { bindings::fs_acl_valid(sb.as_ptr(), acl.as_ptr()) })?;
        // INVARIANT: Valid, and unchanged from here on.
        Ok(owned)
    }

    /// Makes a reference from a pointer, unless it is null.
    ///
    /// # Safety
    ///
    /// `ptr` is null, or a list as the type invariant says that stays during `'a`.
    unsafe fn from_raw<'a>(ptr: *mut bindings::posix_acl) -> Option<&'a Self> {
        // CAST: `Acl` is transparent.
        // SAFETY: By the safety requirements.
        unsafe { ptr.cast::<Self>().as_ref() }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        // SAFETY: The list is valid and does not change, by the type invariant.
        unsafe { (*self.0.get()).a_count as usize }
    }

    /// Whether it has no entries. It always has some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, with numbers in the user namespace of `sb`.
    pub fn entries<'a, T: FileSystem>(
        &'a self,
        sb: &'a SuperBlock<T>,
    ) -> impl Iterator<Item = Entry> + 'a {
        (0..self.len()).map(move |index| {
            // SAFETY: The list is valid and does not change, and the index is one of an entry.
            let (tag, perm, id) = unsafe {
                let entry = entries_of(self.0.get()).add(index);
                let id = bindings::fs_acl_get_id(sb.as_ptr(), entry);
                ((*entry).e_tag, (*entry).e_perm, id)
            };
            let tag = match tag as u32 {
                bindings::ACL_USER_OBJ => Tag::UserObj,
                bindings::ACL_USER => Tag::User(id),
                bindings::ACL_GROUP_OBJ => Tag::GroupObj,
                bindings::ACL_GROUP => Tag::Group(id),
                bindings::ACL_MASK => Tag::Mask,
                // By the type invariant there is no other.
                _ => Tag::Other,
            };
            Entry { tag, perm }
        })
    }
}

/// The first entry of a list.
///
/// # Safety
///
/// The list is valid.
unsafe fn entries_of(acl: *mut bindings::posix_acl) -> *mut bindings::posix_acl_entry {
    // SAFETY: Valid by the safety requirements; only the address is taken.
    unsafe { ptr::addr_of_mut!((*acl).a_entries).cast() }
}

impl<T: FileSystem> FreshINode<'_, T> {
    /// Gives the inode the lists that its directory keeps for new files; without such, the
    /// permissions lose what the umask of the process takes. To be called once, after
    /// [`init_owner`](Self::init_owner).
    ///
    /// # Errors
    ///
    /// What [`Operations::get`] of the directory or [`Operations::set`] of the inode returns,
    /// `ENOMEM`.
    pub fn inherit_acl(&mut self, dir: &INode<T>) -> Result {
        let mut default = ptr::null_mut();
        let mut access = ptr::null_mut();
        // SAFETY: Both inodes are valid. The new one is ours, so that its mode may change.
        let err = unsafe {
            let mode = ptr::addr_of_mut!((*self.as_ptr()).i_mode);
            bindings::fs_acl_create(dir.as_ptr(), mode, &mut default, &mut access)
        };
        to_result(err)?;
        let own = |acl: *mut bindings::posix_acl| {
            // SAFETY: The call returned null, or a list with a reference. It was made from the list
            // of the directory, of which it keeps all but the permissions.
            NonNull::new(acl).map(|acl| unsafe { ARef::<Acl>::from_raw(acl.cast()) })
        };
        let (default, access) = (own(default), own(access));
        self.store_acl(Kind::Default, default.as_deref())?;
        self.store_acl(Kind::Access, access.as_deref())
    }

    fn store_acl(&self, kind: Kind, acl: Option<&Acl>) -> Result {
        if acl.is_some() {
            let guard = self.lock();
            <T::Acl as Operations>::set(guard.held(), kind, acl)?;
        }
        let acl = acl.map_or(ptr::null_mut(), |acl| acl.0.get());
        // SAFETY: The inode is valid; the call takes a reference to the list of its own.
        unsafe { bindings::fs_acl_set_cached(self.as_ptr(), kind.as_raw(), acl) };
        Ok(())
    }
}

/// The C side of lists.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    /// `inode_operations.get_inode_acl`, if there are lists.
    pub(super) const GET: Option<
        unsafe extern "C" fn(
            *mut bindings::inode,
            crate::ffi::c_int,
            bool,
        ) -> *mut bindings::posix_acl,
    > = if O::HAS_GET { Some(Self::get) } else { None };

    /// `inode_operations.set_acl`, if lists can be changed.
    pub(super) const SET: Option<
        unsafe extern "C" fn(
            *mut bindings::mnt_idmap,
            *mut bindings::dentry,
            *mut bindings::posix_acl,
            crate::ffi::c_int,
        ) -> crate::ffi::c_int,
    > = if O::HAS_SET { Some(Self::set) } else { None };

    /// # Safety
    ///
    /// Called by the VFS for an inode of type `O::FileSystem`; `rcu` says that it must not sleep,
    /// and that the superblock may go.
    unsafe extern "C" fn get(
        inode: *mut bindings::inode,
        kind: crate::ffi::c_int,
        rcu: bool,
    ) -> *mut bindings::posix_acl {
        if rcu {
            return ECHILD.to_ptr();
        }
        let acl = Kind::from_raw(kind).and_then(|kind| {
            // SAFETY: The inode is in use during the call.
            O::get(unsafe { INode::from_raw(inode) }, kind)
        });
        match acl {
            // The reference goes to the caller.
            Ok(Some(acl)) => ARef::into_raw(acl).as_ptr().cast(),
            Ok(None) => ptr::null_mut(),
            Err(e) => e.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `O::FileSystem`, whose `i_rwsem` is
    /// held exclusively; `acl` is null, or a list that is valid.
    unsafe extern "C" fn set(
        _idmap: *mut bindings::mnt_idmap,
        dentry: *mut bindings::dentry,
        mut acl: *mut bindings::posix_acl,
        kind: crate::ffi::c_int,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let kind = Kind::from_raw(kind)?;
            // SAFETY: The dentry keeps its inode in use during the call.
            let inode: &INode<O::FileSystem> = unsafe { INode::from_raw((*dentry).d_inode) };
            // SAFETY: The lock is held during the call.
            let held = || unsafe { Held::<_, Excl>::new(inode) };
            let mut mode = None;
            match kind {
                Kind::Access if !acl.is_null() => {
                    // A list that says no more than the permissions becomes null.
                    let mut new = inode.mode();
                    // SAFETY: The arguments are those of the call, and variables of ours.
                    to_result(unsafe {
                        bindings::fs_acl_update_mode(inode.as_ptr(), &mut new, &mut acl)
                    })?;
                    mode = Some(new);
                }
                Kind::Default if !inode.is_dir() => {
                    return if acl.is_null() { Ok(0) } else { Err(EACCES) };
                }
                _ => {}
            }
            // SAFETY: By the safety requirements; the reference of the caller lasts for the call.
            O::set(held(), kind, unsafe { Acl::from_raw(acl) })?;
            // SAFETY: The inode is valid; the call takes a reference to the list of its own.
            unsafe { bindings::fs_acl_set_cached(inode.as_ptr(), kind.as_raw(), acl) };
            if let Some(mode) = mode {
                // SAFETY: The inode is valid. The lock keeps others from storing; who reads does it
                // without, hence the volatile store.
                unsafe { ptr::addr_of_mut!((*inode.as_ptr()).i_mode).write_volatile(mode) };
                held().touch_ctime();
                inode.mark_dirty();
            }
            Ok(0)
        })
    }
}

/// What `setattr` does after it has changed the permissions to `mode`: the list follows them.
///
/// # Safety
///
/// `dentry` has an inode, whose `i_rwsem` is held exclusively.
pub(super) unsafe fn chmod(dentry: *mut bindings::dentry, mode: u16) -> Result {
    // SAFETY: By the safety requirements.
    to_result(unsafe { bindings::fs_acl_chmod(dentry, mode) })
}
