// SPDX-License-Identifier: GPL-2.0

//! Extended attributes.
//!
//! C header: [`include/linux/xattr.h`](srctree/include/linux/xattr.h)

use super::{FileSystem, INode};
use crate::{
    bindings,
    error::{code::*, from_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{ffi::c_void, marker::PhantomData, ptr};

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

    /// Names the attributes with [`Names::put`].
    ///
    /// # Errors
    ///
    /// What `listxattr(2)` returns.
    fn list(_inode: &INode<Self::FileSystem>, _to: &mut Names<'_>) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The operations of a file system without attributes.
pub struct Unsupported<T>(PhantomData<T>);

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
pub struct Names<'a>(Buffer<'a>);

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
        let prefix = namespace.prefix().to_bytes();
        let total = prefix.len().checked_add(len).and_then(|n| n.checked_add(1));
        self.0.put(total.ok_or(ERANGE)?, |to| {
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
            set: None,
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
        // SAFETY: The handler is one of ours, which hold a namespace.
        let index = unsafe { (*handler).flags };
        let Some(&namespace) = Namespace::ALL.get(index as usize) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The name is a string that ends with nul and lives during the call.
        let name = unsafe { core::ffi::CStr::from_ptr(name.cast()) }.to_bytes();
        // SAFETY: The memory belongs to the call.
        let mut to = unsafe { Buffer::new(value.cast(), size) };
        // SAFETY: The inode is in use during the call.
        let inode = unsafe { INode::from_raw(inode) };
        from_result(|| {
            O::get(inode, namespace, name, &mut to)?;
            to.result()
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode of type `O::FileSystem`.
    unsafe extern "C" fn list(dentry: *mut bindings::dentry, to: *mut u8, size: usize) -> isize {
        // SAFETY: The dentry keeps its inode in use during the call.
        let inode = unsafe { INode::from_raw((*dentry).d_inode) };
        // SAFETY: The memory belongs to the call.
        let mut names = Names(unsafe { Buffer::new(to, size) });
        from_result(|| {
            O::list(inode, &mut names)?;
            names.0.result().map(|len| len as isize)
        })
    }
}
