// SPDX-License-Identifier: GPL-2.0

//! Directories: looking up and listing names, making new ones, moving and removing them.
//!
//! The VFS holds `i_rwsem` of a directory around all operations on its names, shared for those that
//! only look and exclusively for those that change something. The exception is
//! [`Operations::tmpfile`], which is called with no lock at all. It also holds `i_rwsem` of each
//! inode that loses a name or gets another one; the exception is in [`Rename::Within`].

use super::{
    acl,
    buffer::BufHead,
    compat,
    dentry::{Created, Negative, Opened, Positive, Spliced, Tmpfile, Unhashed},
    fileattr,
    inode::{self, Special},
    lock::{Excl, Held, Shared},
    xattr, FileSystem, INode, Ino, Offset,
};
use crate::{
    bindings,
    error::{code::*, from_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
    str::CStr,
};
use core::{
    cell::Cell,
    marker::PhantomData,
    ptr::{self, NonNull},
};

mod rename;

pub use rename::{NewName, Rename};

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

    /// Creates a device, a pipe or a socket with the given permissions.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `mknod(2)` returns.
    fn mknod<'a>(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _dentry: Negative<'a, Self::FileSystem>,
        _mode: u16,
        _special: Special,
    ) -> Result<Created<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates a symbolic link to `target`, which is not empty and shorter than a path can be.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `symlink(2)` returns.
    fn symlink<'a>(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _dentry: Negative<'a, Self::FileSystem>,
        _target: &[u8],
    ) -> Result<Created<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives an inode, which is not a directory, one more name. The VFS has checked that the inode
    /// has not as many links as it can have.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `link(2)` returns.
    fn link<'a>(
        _inode: Held<'_, Self::FileSystem, Excl>,
        _dir: Held<'_, Self::FileSystem, Excl>,
        _dentry: Negative<'a, Self::FileSystem>,
    ) -> Result<Created<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Removes a name of what is not a directory.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `unlink(2)` returns, and the name stays.
    fn unlink(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _victim: Positive<'_, Self::FileSystem>,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Removes a directory.
    ///
    /// # Errors
    ///
    /// `ENOTEMPTY` if there are names in it. Whatever is returned is what `rmdir(2)` returns, and
    /// the name stays.
    fn rmdir(
        _dir: Held<'_, Self::FileSystem, Excl>,
        _victim: Positive<'_, Self::FileSystem>,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Moves a name. The VFS has checked that neither directory gets more links than it can have.
    ///
    /// # Errors
    ///
    /// `ENOTEMPTY` if a directory would replace one in which there are names. Whatever is returned
    /// is what `rename(2)` returns, and the names stay.
    fn rename(_rename: Rename<'_, Self::FileSystem>) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates a regular file without a name. No lock is held, and the directory may have been
    /// removed.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `open(2)` returns.
    fn tmpfile<'a>(
        _dir: &INode<Self::FileSystem>,
        _file: Tmpfile<'a, Self::FileSystem>,
        _mode: u16,
    ) -> Result<Opened<'a>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The type of a file, as a directory says it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// The directory does not say.
    Unknown = bindings::DT_UNKNOWN,
    /// A named pipe.
    Fifo = bindings::DT_FIFO,
    /// A character device.
    Char = bindings::DT_CHR,
    /// A directory.
    Dir = bindings::DT_DIR,
    /// A block device.
    Block = bindings::DT_BLK,
    /// A regular file.
    Regular = bindings::DT_REG,
    /// A symbolic link.
    Symlink = bindings::DT_LNK,
    /// A socket.
    Socket = bindings::DT_SOCK,
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
                file_type as u32,
            )
        };
        if taken {
            self.set_pos(next);
        }
        Ok(taken)
    }

    /// Emits a name that lies in a block: `len` bytes from `offset` on. The block is not changed
    /// meanwhile, as its directory is locked; where somebody writes to the device nevertheless, what
    /// is emitted is some mixture of the bytes.
    ///
    /// All else is as for [`Emitter::emit`].
    ///
    /// # Errors
    ///
    /// As for [`Emitter::emit`]; `ERANGE` if the name is not all within the block.
    #[inline]
    #[must_use = "a full emitter takes no more names"]
    pub fn emit_from(
        &mut self,
        block: &BufHead<'_>,
        (offset, len): (usize, usize),
        ino: Ino,
        file_type: FileType,
        next: Offset,
    ) -> Result<bool> {
        if !(1..=bindings::NAME_MAX as usize).contains(&len) {
            return Err(EIO);
        }
        let name = block.bytes(offset, len)?;
        // SAFETY: The context is valid and ours by the type invariant. `name` points to so many bytes
        // that can be read, no more than 255, as long as `block` is borrowed. They are only read by C
        // code, which makes of them what it finds.
        let taken =
            unsafe { bindings::dir_emit(self.ctx.as_ptr(), name, len as _, ino, file_type as u32) };
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
        link: if O::HAS_LINK { Some(Self::link) } else { None },
        listxattr: xattr::Tables::<<O::FileSystem as FileSystem>::Xattr>::LIST,
        set_acl: acl::Tables::<<O::FileSystem as FileSystem>::Acl>::SET,
        lookup: Some(Self::lookup),
        mkdir: if O::HAS_MKDIR {
            Some(compat::mkdir::<O>)
        } else {
            None
        },
        mknod: if O::HAS_MKNOD {
            Some(Self::mknod)
        } else {
            None
        },
        rename: if O::HAS_RENAME {
            Some(Self::rename)
        } else {
            None
        },
        rmdir: if O::HAS_RMDIR {
            Some(Self::rmdir)
        } else {
            None
        },
        setattr: Some(inode::Tables::<O::FileSystem>::setattr),
        symlink: if O::HAS_SYMLINK {
            Some(Self::symlink)
        } else {
            None
        },
        tmpfile: if O::HAS_TMPFILE {
            Some(Self::tmpfile)
        } else {
            None
        },
        unlink: if O::HAS_UNLINK {
            Some(Self::unlink)
        } else {
            None
        },
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    pub(super) const FILE_OPS: &'static bindings::file_operations = &bindings::file_operations {
        compat_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::COMPAT_IOCTL,
        unlocked_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::IOCTL,
        fsync: Some(compat::fsync::<O::FileSystem>),
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
    /// Called by the VFS with a directory of type `O::FileSystem`, a negative dentry in it, and a
    /// dentry with an inode of the same superblock that is not a directory. `i_rwsem` of both inodes
    /// is held exclusively.
    unsafe extern "C" fn link(
        old_dentry: *mut bindings::dentry,
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
            // SAFETY: The dentry is positive during the call, and the lock of its inode is held.
            let inode = unsafe { Held::new(INode::from_raw((*old_dentry).d_inode)) };
            // SAFETY: The directory is in use, and its lock is held, during the call.
            let dir = unsafe { Held::new(INode::from_raw(dir)) };
            // SAFETY: It is the dentry of this call.
            let dentry = unsafe { Negative::new(dentry) };
            O::link(inode, dir, dentry).map(|_| 0)
        })
    }

    /// # Safety
    ///
    /// As for [`compat::create`]; the mode comes with the type of the file.
    unsafe extern "C" fn mknod(
        _idmap: *mut bindings::mnt_idmap,
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
        mode: bindings::umode_t,
        dev: bindings::dev_t,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
            let (major, minor) = (dev >> bindings::MINORBITS, dev & bindings::MINORMASK);
            let special = match u32::from(mode) & bindings::S_IFMT {
                bindings::S_IFCHR => Special::Char(major, minor),
                bindings::S_IFBLK => Special::Block(major, minor),
                bindings::S_IFIFO => Special::Fifo,
                bindings::S_IFSOCK => Special::Socket,
                _ => return Err(EINVAL),
            };
            // SAFETY: The directory is in use, and its lock is held, during the call.
            let dir = unsafe { Held::new(INode::from_raw(dir)) };
            // SAFETY: It is the dentry of this call.
            let dentry = unsafe { Negative::new(dentry) };
            O::mknod(dir, dentry, mode & 0o7777, special).map(|_| 0)
        })
    }

    /// # Safety
    ///
    /// As for [`compat::create`]; `target` is a string.
    unsafe extern "C" fn symlink(
        _idmap: *mut bindings::mnt_idmap,
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
        target: *const crate::ffi::c_char,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
            // SAFETY: The directory is in use, and its lock is held, during the call.
            let dir = unsafe { Held::new(INode::from_raw(dir)) };
            // SAFETY: It is the dentry of this call.
            let dentry = unsafe { Negative::new(dentry) };
            // SAFETY: The string belongs to the caller and does not change during the call.
            let target = unsafe { CStr::from_char_ptr(target) };
            O::symlink(dir, dentry, target.as_bytes()).map(|_| 0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with a directory of type `O::FileSystem` and a positive dentry in it, which
    /// is not a directory. `i_rwsem` of both inodes is held exclusively.
    unsafe extern "C" fn unlink(
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
    ) -> crate::ffi::c_int {
        // SAFETY: By the safety requirements.
        from_result(|| unsafe { Self::remove(dir, dentry, O::unlink) })
    }

    /// # Safety
    ///
    /// Called by the VFS with a directory of type `O::FileSystem` and the dentry of a directory in
    /// it. `i_rwsem` of both inodes is held exclusively.
    unsafe extern "C" fn rmdir(
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
    ) -> crate::ffi::c_int {
        // SAFETY: By the safety requirements.
        from_result(|| unsafe { Self::remove(dir, dentry, O::rmdir) })
    }

    /// # Safety
    ///
    /// As for [`Self::unlink`] or [`Self::rmdir`], whichever `remove` is.
    unsafe fn remove(
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
        remove: impl FnOnce(Held<'_, O::FileSystem, Excl>, Positive<'_, O::FileSystem>) -> Result,
    ) -> Result<crate::ffi::c_int> {
        let dentry = NonNull::new(dentry).ok_or(EINVAL)?;
        // SAFETY: The directory is in use, and its lock is held, during the call.
        let dir = unsafe { Held::new(INode::from_raw(dir)) };
        // SAFETY: It is the dentry of this call, and the lock of its inode is held.
        let victim = unsafe { Positive::new(dentry) };
        remove(dir, victim).map(|()| 0)
    }

    /// # Safety
    ///
    /// Called by the VFS with a directory of type `O::FileSystem`, of which no lock is held, and a
    /// file that is not open and has a dentry of its own in that directory.
    unsafe extern "C" fn tmpfile(
        _idmap: *mut bindings::mnt_idmap,
        dir: *mut bindings::inode,
        file: *mut bindings::file,
        mode: bindings::umode_t,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let file = NonNull::new(file).ok_or(EINVAL)?;
            // SAFETY: The directory is in use during the call.
            let dir = unsafe { INode::from_raw(dir) };
            // SAFETY: It is the file of this call.
            let file = unsafe { Tmpfile::new(file) };
            O::tmpfile(dir, file, mode & 0o7777).map(|_| 0)
        })
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
