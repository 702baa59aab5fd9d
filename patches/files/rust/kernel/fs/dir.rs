// SPDX-License-Identifier: GPL-2.0

//! Directories: looking up and listing names, and making new ones.

use super::{
    acl, compat,
    dentry::{Created, Negative, Spliced, Unhashed},
    fileattr, inode,
    lock::{Excl, Held, Shared},
    xattr, FileSystem, INode, Ino, Offset,
};
use crate::{
    bindings,
    error::{code::*, from_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{
    cell::Cell,
    marker::PhantomData,
    ptr::{self, NonNull},
};

/// The operations of a directory.
#[vtable]
pub trait Operations {
    /// The file system of the directory.
    type FileSystem: FileSystem;

    /// Looks a name up. The lock keeps the directory from changing.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what the walk returns; that there is no such name is not an error,
    /// but an answer: [`Unhashed::splice_alias`] with `None`.
    fn lookup<'a>(
        dir: Held<'_, Self::FileSystem, Shared>,
        dentry: Unhashed<'a, Self::FileSystem>,
    ) -> Result<Spliced<'a>>;

    /// Emits names from [`Emitter::pos`] on, until there are no more or the emitter is full.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `getdents(2)` returns if nothing was emitted before.
    fn read_dir(dir: Held<'_, Self::FileSystem, Shared>, emitter: &mut Emitter<'_>) -> Result;

    /// Creates a regular file with the given permissions.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `open(2)` returns.
    fn create<'a>(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _dentry: Negative<'a, Self::FileSystem>,
        _mode: u16,
    ) -> Result<Created<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates a directory with the given permissions.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `mkdir(2)` returns.
    fn mkdir<'a>(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _dentry: Negative<'a, Self::FileSystem>,
        _mode: u16,
    ) -> Result<Created<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The type of a file, as a directory says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// The directory does not say.
    Unknown,
    /// A named pipe.
    Fifo,
    /// A character device.
    Char,
    /// A directory.
    Dir,
    /// A block device.
    Block,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    fn as_raw(self) -> u32 {
        match self {
            FileType::Unknown => bindings::DT_UNKNOWN,
            FileType::Fifo => bindings::DT_FIFO,
            FileType::Char => bindings::DT_CHR,
            FileType::Dir => bindings::DT_DIR,
            FileType::Block => bindings::DT_BLK,
            FileType::Regular => bindings::DT_REG,
            FileType::Symlink => bindings::DT_LNK,
            FileType::Socket => bindings::DT_SOCK,
        }
    }
}

/// Takes the names of a directory.
///
/// # Invariants
///
/// `ctx` is valid during `'a` and used by this value only.
pub struct Emitter<'a> {
    ctx: NonNull<bindings::dir_context>,
    _ctx: PhantomData<&'a mut bindings::dir_context>,
}

impl Emitter<'_> {
    /// The position from which to go on. Any value that a user may have passed to `lseek(2)`.
    pub fn pos(&self) -> Offset {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.ctx.as_ptr()).pos }
    }

    /// Sets the position from which to go on.
    pub fn set_pos(&mut self, pos: Offset) {
        // SAFETY: Valid and ours by the type invariant.
        unsafe { (*self.ctx.as_ptr()).pos = pos }
    }

    /// Emits one name, and moves the position to `next` if it was taken.
    ///
    /// Returns whether it was. If not, the emitter is full: the name is asked for again.
    ///
    /// # Errors
    ///
    /// `EIO` for a name that no file can have: an empty one, or one of more than 255 bytes.
    #[must_use = "a full emitter takes no more names"]
    pub fn emit(
        &mut self,
        name: &[u8],
        ino: Ino,
        file_type: FileType,
        next: Offset,
    ) -> Result<bool> {
        if !(1..=bindings::NAME_MAX as usize).contains(&name.len()) {
            return Err(EIO);
        }
        // SAFETY: The context is valid and ours; the name has the given length.
        let taken = unsafe {
            bindings::dir_emit(
                self.ctx.as_ptr(),
                name.as_ptr(),
                name.len() as _,
                ino,
                file_type.as_raw(),
            )
        };
        if taken {
            self.set_pos(next);
        }
        Ok(taken)
    }
}

/// The C side of directories.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    pub(super) const INODE_OPS: &'static bindings::inode_operations = &bindings::inode_operations {
        create: if O::HAS_CREATE {
            Some(compat::create::<O>)
        } else {
            None
        },
        fileattr_get: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::GET,
        fileattr_set: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::SET,
        get_inode_acl: acl::Tables::<<O::FileSystem as FileSystem>::Acl>::GET,
        getattr: Some(inode::Tables::<O::FileSystem>::getattr),
        listxattr: xattr::Tables::<<O::FileSystem as FileSystem>::Xattr>::LIST,
        set_acl: acl::Tables::<<O::FileSystem as FileSystem>::Acl>::SET,
        lookup: Some(Self::lookup),
        mkdir: if O::HAS_MKDIR {
            Some(compat::mkdir::<O>)
        } else {
            None
        },
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    pub(super) const FILE_OPS: &'static bindings::file_operations = &bindings::file_operations {
        compat_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::COMPAT_IOCTL,
        unlocked_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::IOCTL,
        fsync: Some(compat::fsync),
        iterate_shared: Some(Self::iterate_shared),
        llseek: Some(bindings::generic_file_llseek),
        read: Some(bindings::generic_read_dir),
        // SAFETY: The table consists of numbers and optional function pointers: zero is a value.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by the VFS with a directory of type `O::FileSystem`, whose `i_rwsem` is held, and a
    /// dentry that only the caller sees.
    unsafe extern "C" fn lookup(
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
        _flags: u32,
    ) -> *mut bindings::dentry {
        let Some(dentry) = NonNull::new(dentry) else {
            return EINVAL.to_ptr();
        };
        // SAFETY: The directory is in use, and the lock is held, during the call.
        let dir = unsafe { Held::new(INode::from_raw(dir)) };
        let answer = Cell::new(ptr::null_mut());
        // SAFETY: It is the dentry of this call.
        let dentry = unsafe { Unhashed::new(dentry, &answer) };
        // Links may lead to longer names.
        if dentry.name().len() > bindings::NAME_MAX as usize {
            return ENAMETOOLONG.to_ptr();
        }
        match O::lookup(dir, dentry) {
            Ok(_) => answer.get(),
            Err(e) => {
                // SAFETY: Null, or a reference that the splicing returned and nobody took.
                unsafe { bindings::dput(answer.get()) };
                e.to_ptr()
            }
        }
    }

    /// # Safety
    ///
    /// Called by the VFS with an open directory of type `O::FileSystem`, whose `i_rwsem` is held.
    unsafe extern "C" fn iterate_shared(
        file: *mut bindings::file,
        ctx: *mut bindings::dir_context,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The file keeps the inode in use, and the lock is held during the call.
            let dir = unsafe { Held::new(INode::from_raw((*file).f_inode)) };
            // INVARIANT: The context is an argument of the call.
            let mut emitter = Emitter {
                ctx: NonNull::new(ctx).ok_or(EINVAL)?,
                _ctx: PhantomData,
            };
            O::read_dir(dir, &mut emitter).map(|()| 0)
        })
    }
}
