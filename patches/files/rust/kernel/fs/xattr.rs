// SPDX-License-Identifier: GPL-2.0

//! Extended attributes.
//!
//! C header: [`include/linux/xattr.h`](srctree/include/linux/xattr.h)

use super::{
    acl,
    dentry::Negative,
    inode::FreshINode,
    lock::{Excl, Held},
    FileSystem, INode,
};
use crate::{
    bindings,
    error::{code::*, from_result, to_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{
    ffi::{c_void, CStr},
    marker::PhantomData,
    ptr,
};

pub use super::Unsupported;

/// The operations on the attributes of an inode of any type.
#[vtable]
pub trait Operations {
    /// The file system of the inode.
    type FileSystem: FileSystem;

    /// Copies the value of an attribute with [`Buffer::put`].
    ///
    /// # Errors
    ///
    /// `ENODATA` if there is no such attribute; else what `getxattr(2)` returns.
    fn get(
        _inode: &INode<Self::FileSystem>,
        _namespace: Namespace,
        _name: &[u8],
        _to: &mut Buffer<'_>,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates, replaces or removes an attribute: without a value it is removed, which is no error
    /// if there is none.
    ///
    /// # Errors
    ///
    /// `ENODATA` or `EEXIST` if the condition is not met, `ERANGE` for a name or a value that is too
    /// long, `ENOSPC`, and what else `setxattr(2)` returns; the old value is still there.
    fn set(
        _inode: Held<'_, Self::FileSystem, Excl>,
        _namespace: Namespace,
        _name: &[u8],
        _value: Option<&[u8]>,
        _condition: Condition,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Names the attributes with [`Names::put`] and [`Names::put_acl`].
    ///
    /// # Errors
    ///
    /// What `listxattr(2)` returns.
    fn list(_inode: &INode<Self::FileSystem>, _to: &mut Names<'_>) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<T: FileSystem> Operations for Unsupported<T> {
    type FileSystem = T;
}

/// Whom an attribute is for. The VFS checks who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// `user.`: the owner of the file.
    User,
    /// `trusted.`: privileged processes, who alone know of it.
    Trusted,
    /// `security.`: security modules.
    Security,
}

impl Namespace {
    const ALL: [Self; 3] = [Self::User, Self::Trusted, Self::Security];

    const fn prefix(self) -> &'static core::ffi::CStr {
        match self {
            Self::User => c"user.",
            Self::Trusted => c"trusted.",
            Self::Security => c"security.",
        }
    }
}

/// On what an attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// There has to be one of that name (`XATTR_REPLACE`), else it is `ENODATA`.
    pub replace: bool,
    /// There must be none of that name (`XATTR_CREATE`), else it is `EEXIST`.
    pub create: bool,
}

impl Condition {
    /// Checks the condition, given whether there is an attribute of that name.
    ///
    /// # Errors
    ///
    /// `ENODATA` or `EEXIST` if it is not met.
    pub fn check(self, exists: bool) -> Result {
        match exists {
            false if self.replace => Err(ENODATA),
            true if self.create => Err(EEXIST),
            _ => Ok(()),
        }
    }
}

/// Where a value goes: into the memory of the caller, or nowhere if only its size is asked for.
///
/// # Invariants
///
/// `ptr` is writable for `size` bytes, of which the first `used` are taken; it is null if only the
/// size is asked for.
pub struct Buffer<'a> {
    ptr: *mut u8,
    size: usize,
    used: usize,
    _memory: PhantomData<&'a mut [u8]>,
}

impl Buffer<'_> {
    /// # Safety
    ///
    /// `ptr` is writable for `size` bytes, or null, and not used by others while the value lives.
    unsafe fn new(ptr: *mut u8, size: usize) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            ptr,
            size,
            used: 0,
            _memory: PhantomData,
        }
    }

    /// Adds `len` bytes, which `fill` copies, unless only the size is asked for.
    ///
    /// # Errors
    ///
    /// `ERANGE` if there is not enough room, and what `fill` returns.
    pub fn put(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result) -> Result {
        let used = self.used.checked_add(len).ok_or(ERANGE)?;
        if !self.ptr.is_null() {
            if used > self.size {
                return Err(ERANGE);
            }
            // SAFETY: The bytes are writable and ours, by the type invariant.
            let to = unsafe {
                let to = self.ptr.add(self.used);
                ptr::write_bytes(to, 0, len);
                core::slice::from_raw_parts_mut(to, len)
            };
            fill(to)?;
        }
        // INVARIANT: It was compared with the size.
        self.used = used;
        Ok(())
    }

    fn result(self) -> Result<crate::ffi::c_int> {
        self.used.try_into().map_err(|_| ERANGE)
    }
}

/// Where the names of attributes go.
pub struct Names<'a> {
    to: Buffer<'a>,
    /// Whether the mount has access control lists.
    acls: bool,
}

impl Names<'_> {
    /// Adds a name, if the caller may see it. `fill` copies the `len` bytes behind the prefix.
    ///
    /// # Errors
    ///
    /// `ERANGE` if there is not enough room, and what `fill` returns.
    pub fn put(
        &mut self,
        namespace: Namespace,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        if namespace == Namespace::Trusted {
            // SAFETY: The number is one of a capability.
            let privileged = unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as _) };
            if !privileged {
                return Ok(());
            }
        }
        self.put_text(namespace.prefix().to_bytes(), len, fill)
    }

    /// Adds the name that stands for an access control list, if the mount has such lists.
    ///
    /// # Errors
    ///
    /// `ERANGE` if there is not enough room.
    pub fn put_acl(&mut self, kind: acl::Kind) -> Result {
        if !self.acls {
            return Ok(());
        }
        self.put_text(kind.attribute(), 0, |_| Ok(()))
    }

    /// Adds a text of which `fill` copies the last `len` bytes, and a nul.
    fn put_text(
        &mut self,
        prefix: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let total = prefix.len().checked_add(len).and_then(|n| n.checked_add(1));
        self.to.put(total.ok_or(ERANGE)?, |to| {
            let (head, rest) = to.split_at_mut(prefix.len());
            head.copy_from_slice(prefix);
            // The last byte is the nul behind the name.
            rest.get_mut(..len).map_or(Err(ERANGE), fill)
        })
    }
}

/// The C side of attributes.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    const fn handler(namespace: Namespace) -> bindings::xattr_handler {
        bindings::xattr_handler {
            name: ptr::null(),
            prefix: namespace.prefix().as_ptr().cast(),
            flags: namespace as _,
            list: None,
            get: Some(Self::get),
            set: if O::HAS_SET { Some(Self::set) } else { None },
        }
    }

    const USER: &'static bindings::xattr_handler = &Self::handler(Namespace::User);
    const TRUSTED: &'static bindings::xattr_handler = &Self::handler(Namespace::Trusted);
    const SECURITY: &'static bindings::xattr_handler = &Self::handler(Namespace::Security);

    /// The handlers of a superblock, with a null behind them.
    pub(super) const HANDLERS: &'static [*const bindings::xattr_handler; 4] =
        &[Self::USER, Self::TRUSTED, Self::SECURITY, ptr::null()];

    /// `inode_operations.listxattr`, if there are attributes.
    pub(super) const LIST: Option<
        unsafe extern "C" fn(*mut bindings::dentry, *mut u8, usize) -> isize,
    > = if O::HAS_LIST { Some(Self::list) } else { None };

    /// # Safety
    ///
    /// Called by the VFS with one of [`Self::HANDLERS`] for an inode of type `O::FileSystem`.
    unsafe extern "C" fn get(
        handler: *const bindings::xattr_handler,
        _dentry: *mut bindings::dentry,
        inode: *mut bindings::inode,
        name: *const u8,
        value: *mut c_void,
        size: usize,
    ) -> crate::ffi::c_int {
        // SAFETY: The name is a string that ends with nul and lives during the call.
        let name = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
        // SAFETY: The memory belongs to the call.
        let mut to = unsafe { Buffer::new(value.cast(), size) };
        // SAFETY: The inode is in use during the call.
        let inode = unsafe { INode::from_raw(inode) };
        from_result(|| {
            // SAFETY: The handler is one of ours.
            let namespace = unsafe { Self::namespace(handler) }?;
            O::get(inode, namespace, name, &mut to)?;
            to.result()
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with one of [`Self::HANDLERS`] for an inode of type `O::FileSystem`, whose
    /// `i_rwsem` is held exclusively; `value` is null, or readable for `size` bytes.
    unsafe extern "C" fn set(
        handler: *const bindings::xattr_handler,
        _idmap: *mut bindings::mnt_idmap,
        _dentry: *mut bindings::dentry,
        inode: *mut bindings::inode,
        name: *const u8,
        value: *const c_void,
        size: usize,
        flags: crate::ffi::c_int,
    ) -> crate::ffi::c_int {
        // SAFETY: The name is a string that ends with nul and lives during the call.
        let name = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
        // SAFETY: The inode is in use, and the lock is held, during the call.
        let inode = unsafe { Held::new(INode::from_raw(inode)) };
        from_result(|| {
            // SAFETY: The handler is one of ours.
            let namespace = unsafe { Self::namespace(handler) }?;
            // SAFETY: By the safety requirements; the value belongs to the caller during the call.
            let value = unsafe { value_of(value, size) }?;
            let condition = Condition {
                replace: flags as u32 & bindings::XATTR_REPLACE != 0,
                create: flags as u32 & bindings::XATTR_CREATE != 0,
            };
            O::set(inode, namespace, name, value, condition).map(|()| 0)
        })
    }

    /// The namespace of a handler.
    ///
    /// # Safety
    ///
    /// The handler is one of [`Self::HANDLERS`].
    unsafe fn namespace(handler: *const bindings::xattr_handler) -> Result<Namespace> {
        // SAFETY: By the safety requirements.
        let index = unsafe { (*handler).flags };
        Namespace::ALL.get(index as usize).copied().ok_or(EINVAL)
    }

    /// Stores what the security modules want to be stored with a new inode.
    ///
    /// # Safety
    ///
    /// `inode` is an inode of type `O::FileSystem` that is in use; `array` is a list of attributes
    /// that ends with one without a name.
    unsafe extern "C" fn store_security(
        inode: *mut bindings::inode,
        mut array: *const bindings::xattr,
        _data: *mut c_void,
    ) -> crate::ffi::c_int {
        // SAFETY: The inode is in use during the call.
        let inode: &INode<O::FileSystem> = unsafe { INode::from_raw(inode) };
        let guard = inode.lock();
        from_result(|| {
            // SAFETY: The last element is the one without a name, and was not passed yet.
            while let Some(attr) = unsafe { array.as_ref() }.filter(|attr| !attr.name.is_null()) {
                // SAFETY: The name is a string that ends with nul, and it and the value belong to the
                // caller during the call.
                let (name, value) = unsafe {
                    (
                        CStr::from_ptr(attr.name.cast()).to_bytes(),
                        value_of(attr.value.cast_const(), attr.value_len)?.unwrap_or_default(),
                    )
                };
                let condition = Condition::default();
                O::set(
                    guard.held(),
                    Namespace::Security,
                    name,
                    Some(value),
                    condition,
                )?;
                // SAFETY: This is not the last element.
                array = unsafe { array.add(1) };
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `O::FileSystem`.
    unsafe extern "C" fn list(dentry: *mut bindings::dentry, to: *mut u8, size: usize) -> isize {
        // SAFETY: The dentry keeps its inode in use during the call.
        let inode: &INode<O::FileSystem> = unsafe { INode::from_raw((*dentry).d_inode) };
        let mut names = Names {
            // SAFETY: The memory belongs to the call.
            to: unsafe { Buffer::new(to, size) },
            acls: inode.sb().has_posix_acl(),
        };
        from_result(|| {
            O::list(inode, &mut names)?;
            names.to.result().map(|len| len as isize)
        })
    }
}

/// A value that is to be stored; none if there is no memory.
///
/// # Safety
///
/// `value` is null, or readable for `size` bytes, which nobody writes to during `'a`.
unsafe fn value_of<'a>(value: *const c_void, size: usize) -> Result<Option<&'a [u8]>> {
    if value.is_null() {
        return Ok(None);
    }
    if size > bindings::XATTR_SIZE_MAX as usize {
        return Err(E2BIG);
    }
    // SAFETY: By the safety requirements.
    Ok(Some(unsafe {
        core::slice::from_raw_parts(value.cast(), size)
    }))
}

impl<T: FileSystem> FreshINode<'_, T> {
    /// Gives the inode the attributes with which the security modules mark new files. `name` is the
    /// one that it will get, if it gets one.
    ///
    /// # Errors
    ///
    /// What the modules or [`Operations::set`] of the inode return, `ENOMEM`.
    pub fn init_security(&mut self, dir: &INode<T>, name: Option<&Negative<'_, T>>) -> Result {
        let name = name.map_or(ptr::null(), Negative::qstr);
        // SAFETY: Both inodes are valid; the name is null, or stable during the call. The callback is
        // for inodes of this type.
        to_result(unsafe {
            bindings::security_inode_init_security(
                self.as_ptr(),
                dir.as_ptr(),
                name,
                Some(Tables::<T::Xattr>::store_security),
                ptr::null_mut(),
            )
        })
    }
}
