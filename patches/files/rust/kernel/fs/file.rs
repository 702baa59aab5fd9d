// SPDX-License-Identifier: GPL-2.0

//! Regular files: reading and writing, buffered and direct.
//!
//! # Direct writes
//!
//! Several direct writes may run at the same time as long as they do not get into each other's way.
//! Whether that is so can only be said with the lock held, and what was found out is worth nothing
//! once the lock is released. So a write is a value that goes through states:
//!
//! ```text
//! WriteReq --lock_shared--> Locked<Shared> --check--> Overwrite --submit--> WriteDone
//!    |                                        |           `---> (hole: Fill)
//!    |                                        |---> Fill --submit--> Filled --done--> WriteDone
//!    |                                        `---> (needs more: WriteReq)
//!    `------lock----------> Locked<Excl> ---check---> ExclWrite --submit_*--> WriteDone
//! ```
//!
//! The lock belongs to the state, so that there is none between the check and the IO in which it
//! is not held. [`Overwrite`] can only be submitted with a mapping that cannot allocate. [`Fill`]
//! writes whole blocks that do not belong to the file before they hold the data, so that nobody sees
//! what was in them; then the file system publishes the blocks and, if the file has grown, the size.
//! Whatever needs more releases the shared lock, starts again with the exclusive one and is checked
//! again.
//!
//! An IO that goes on in the background has consumed its request: who completes it may free it. The
//! request then has been answered, whatever the file system returns. A [`Fill`] comes back as [`Landed`].

use super::{
    acl, aops, compat, fileattr, inode,
    iomap::{self, to_count, LookupTable},
    lock::{Excl, Guard, Held, Shared},
    xattr, FileSystem, INode, Offset,
};
use crate::{
    bindings,
    error::{code::*, from_result, to_result, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{
    cell::Cell,
    ffi::c_void,
    marker::PhantomData,
    ptr::{self, NonNull},
};

mod background;
mod write;

pub use background::{BackgroundSubmit, Landed, Landing};
pub use write::{
    ExclCheck, ExclSubmit, ExclWrite, Fill, FillSubmit, Filled, Locked, Overwrite, SharedCheck,
    SharedSubmit, WriteDone, WriteReq,
};

/// The operations of a regular file.
#[vtable]
pub trait Operations {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// How the page cache is filled; also where `SEEK_HOLE` and `FIEMAP` look.
    type Mapping: aops::Operations<FileSystem = Self::FileSystem>;

    /// What the file can do.
    const FLAGS: Flags = Flags::NONE;

    /// Reads.
    ///
    /// # Errors
    ///
    /// What `read(2)` returns.
    fn read_iter<'k>(req: ReadReq<'k, Self::FileSystem>) -> Result<ReadDone<'k>>;

    /// Writes.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    fn write_iter<'k>(_req: WriteReq<'k, Self::FileSystem>) -> Result<WriteDone<'k>> {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes the bytes from `start` to `end` a hole, or zero. No direct IO is in flight; privileges
    /// have been removed and the times updated.
    ///
    /// # Errors
    ///
    /// What `fallocate(2)` returns.
    fn fallocate(
        _file: Held<'_, Self::FileSystem, Excl>,
        _op: Fallocate,
        _start: Offset,
        _end: Offset,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A file that was opened for writing is closed for the last time.
    fn release(_file: &INode<Self::FileSystem>) {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What `fallocate(2)` is to do, besides allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Make the range a hole. The size stays.
    PunchHole,
    /// Make the range zero. The file grows to its end if `grow`.
    ZeroRange {
        /// Whether the size may change.
        grow: bool,
    },
}

/// A set of abilities of a file (`FOP_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Direct writes may run in parallel: io_uring does not queue them behind each other.
    pub const DIO_PARALLEL_WRITE: Self = Self(bindings::FOP_DIO_PARALLEL_WRITE);
    /// Buffered IO may ask for its folios to be dropped when they are clean.
    pub const UNCACHED: Self = Self(compat::FOP_UNCACHED);

    /// Both sets together.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Makes `'k` invariant, so that a request cannot leave the call that it belongs to.
type Brand<'k> = PhantomData<(fn(&'k ()) -> &'k (), *mut ())>;

/// The common part of requests.
///
/// # Invariants
///
/// `iocb` and `iter` are valid and used by this value only; the file of `iocb` is `inode`. `queued`
/// is set once an IO in the background has taken `iocb` over.
struct Request<'k, T: FileSystem> {
    iocb: NonNull<bindings::kiocb>,
    iter: NonNull<bindings::iov_iter>,
    inode: &'k INode<T>,
    queued: &'k Cell<bool>,
    _brand: Brand<'k>,
}

impl<'k, T: FileSystem> Request<'k, T> {
    /// # Safety
    ///
    /// The arguments are those of a call of `read_iter` or `write_iter` of a file of type `T`,
    /// which lasts for `'k`.
    unsafe fn new(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
        queued: &'k Cell<bool>,
    ) -> Result<Self> {
        // INVARIANT: By the safety requirements.
        Ok(Self {
            iocb: NonNull::new(iocb).ok_or(EINVAL)?,
            iter: NonNull::new(iter).ok_or(EINVAL)?,
            // SAFETY: The request pins the file, and the file pins the inode.
            inode: unsafe { INode::from_raw((*(*iocb).ki_filp).f_inode) },
            queued,
            _brand: PhantomData,
        })
    }

    /// Submits direct IO; returns the number of bytes, which is 0 if it goes on in the background,
    /// and also if the page cache could not be passed by.
    ///
    /// # Safety
    ///
    /// - `ops` is a table for files of type `T` and for the lock that is held.
    /// - `private` is what the table expects, and stays valid while the IO is in flight.
    unsafe fn direct(
        &self,
        ops: &'static bindings::iomap_ops,
        flags: u32,
        private: *mut c_void,
    ) -> Result<usize> {
        // SAFETY: By the safety requirements and the type invariant.
        unsafe { self.direct_as(self.iocb.as_ptr(), ops, flags, private) }
    }

    /// Does what [`direct`](Self::direct) does, with `iocb` in the place of our request.
    ///
    /// # Safety
    ///
    /// As for `direct`; `iocb` is ours or a clone of it that belongs to the caller, and stays valid
    /// while the IO is in flight.
    unsafe fn direct_as(
        &self,
        iocb: *mut bindings::kiocb,
        ops: &'static bindings::iomap_ops,
        flags: u32,
        private: *mut c_void,
    ) -> Result<usize> {
        // SAFETY: The arguments are valid, by the safety requirements and the type invariant.
        let ret = unsafe {
            bindings::fs_iomap_dio_rw(iocb, self.iter.as_ptr(), ops, ptr::null(), flags, private)
        };
        if ret == -(bindings::EIOCBQUEUED as isize) {
            // INVARIANT: The IO has taken the request over.
            self.queued.set(true);
            return Ok(0);
        }
        // A folio of the range cannot be dropped from the page cache now. Nothing was written.
        if ret == -(bindings::ENOTBLK as isize) {
            return Ok(0);
        }
        to_count(ret)
    }

    fn has_flag(&self, flag: u32) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.iocb.as_ptr()).ki_flags as u32 & flag != 0 }
    }

    fn is_direct(&self) -> bool {
        self.has_flag(bindings::IOCB_DIRECT)
    }

    fn is_nowait(&self) -> bool {
        self.has_flag(bindings::IOCB_NOWAIT)
    }

    fn pos(&self) -> Offset {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.iocb.as_ptr()).ki_pos }
    }

    fn len(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::iov_iter_count(self.iter.as_ptr()) }
    }

    fn lock_shared(&self) -> Result<Guard<'k, T, Shared>> {
        if self.is_nowait() {
            self.inode.try_lock_shared().ok_or(EAGAIN)
        } else {
            Ok(self.inode.lock_shared())
        }
    }

    fn lock(&self) -> Result<Guard<'k, T, Excl>> {
        if self.is_nowait() {
            self.inode.try_lock().ok_or(EAGAIN)
        } else {
            Ok(self.inode.lock())
        }
    }
}

/// A read that has not begun.
pub struct ReadReq<'k, T: FileSystem>(Request<'k, T>);

/// Proof that a read was answered, by a number of bytes or by IO in the background.
pub struct ReadDone<'k> {
    count: usize,
    _brand: Brand<'k>,
}

impl ReadDone<'_> {
    fn new(count: usize) -> Self {
        Self {
            count,
            _brand: PhantomData,
        }
    }
}

impl<'k, T: FileSystem> ReadReq<'k, T> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.0.inode
    }

    /// Whether the page cache is to be passed by.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct()
    }

    /// Reads through the page cache.
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn buffered(self) -> Result<ReadDone<'k>> {
        // SAFETY: The arguments are valid and ours, by the type invariant.
        let ret = unsafe { bindings::filemap_read(self.0.iocb.as_ptr(), self.0.iter.as_ptr(), 0) };
        Ok(ReadDone::new(to_count(ret)?))
    }

    /// Reads from the device into the memory of the user. The shared lock keeps blocks from being
    /// freed meanwhile; what goes on in the background is waited for by who frees them.
    ///
    /// Where the mapping answers with `ENOTBLK`, what is left is read through the page cache.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the position, the length or the memory is not aligned as the device asks for,
    /// `EAGAIN` if the lock cannot be had at once and the caller does not wait.
    pub fn direct<M: iomap::Lookup<FileSystem = T>>(self) -> Result<ReadDone<'k>> {
        let req = self.0;
        let total = req.len();
        if total == 0 {
            return Ok(ReadDone::new(0));
        }
        // The request may be gone once it was submitted, so this comes first.
        // SAFETY: The request pins the file.
        unsafe { bindings::file_accessed((*req.iocb.as_ptr()).ki_filp) };
        let guard = req.lock_shared()?;
        let end = req.pos().saturating_add_unsigned(total as u64);
        let end = end.min(req.inode.size());
        // SAFETY: The table is for files of type `T`; finding a mapping takes no lock.
        let count = unsafe { req.direct(LookupTable::<M>::OPS, 0, ptr::null_mut()) }?;
        drop(guard);
        if req.queued.get() || req.pos() >= end {
            return Ok(ReadDone::new(count));
        }
        match ReadReq(req).buffered() {
            Ok(more) => Ok(ReadDone::new(count + more.count)),
            Err(_) if count > 0 => Ok(ReadDone::new(count)),
            Err(e) => Err(e),
        }
    }
}

/// The C side of regular files.
pub(super) struct Tables<O>(PhantomData<O>);

/// What finds the mappings that are only reported or read.
type ReadMap<O> = <<O as Operations>::Mapping as aops::Operations>::Read;

impl<O: Operations> Tables<O> {
    pub(super) const INODE_OPS: &'static bindings::inode_operations = &bindings::inode_operations {
        fiemap: Some(Self::fiemap),
        fileattr_get: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::GET,
        fileattr_set: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::SET,
        get_inode_acl: acl::Tables::<<O::FileSystem as FileSystem>::Acl>::GET,
        getattr: Some(inode::Tables::<O::FileSystem>::getattr),
        listxattr: xattr::Tables::<<O::FileSystem as FileSystem>::Xattr>::LIST,
        set_acl: acl::Tables::<<O::FileSystem as FileSystem>::Acl>::SET,
        setattr: if <O::Mapping as aops::Operations>::HAS_FREE_BLOCKS {
            Some(Self::setattr)
        } else {
            Some(inode::Tables::<O::FileSystem>::setattr)
        },
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    pub(super) const FILE_OPS: &'static bindings::file_operations = &bindings::file_operations {
        compat_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::COMPAT_IOCTL,
        unlocked_ioctl: fileattr::Tables::<<O::FileSystem as FileSystem>::FileAttr>::IOCTL,
        fallocate: if O::HAS_FALLOCATE {
            Some(Self::fallocate)
        } else {
            None
        },
        fop_flags: O::FLAGS.0,
        fsync: Some(compat::fsync::<O::FileSystem>),
        llseek: Some(Self::llseek),
        mmap: if O::HAS_WRITE_ITER {
            Some(Self::mmap)
        } else {
            Some(bindings::generic_file_readonly_mmap)
        },
        open: Some(Self::open),
        read_iter: Some(Self::read_iter),
        release: if O::HAS_RELEASE {
            Some(Self::release)
        } else {
            None
        },
        splice_read: Some(bindings::filemap_splice_read),
        splice_write: if O::HAS_WRITE_ITER {
            Some(bindings::iter_file_splice_write)
        } else {
            None
        },
        write_iter: if O::HAS_WRITE_ITER {
            Some(Self::write_iter)
        } else {
            None
        },
        // SAFETY: The table consists of numbers and optional function pointers: zero is a value.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by the VFS with a new file of type `O::FileSystem`.
    unsafe extern "C" fn open(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> crate::ffi::c_int {
        // SAFETY: The file is not in use yet.
        unsafe { bindings::fs_file_set_can_odirect(file) };
        // SAFETY: The arguments are those of the call.
        unsafe { bindings::generic_file_open(inode, file) }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn read_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        let queued = Cell::new(false);
        // SAFETY: By the safety requirements.
        let req = unsafe { Request::new(iocb, iter, &queued) };
        let result = req.and_then(|req| O::read_iter(ReadReq(req)));
        answer(&queued, result.map(|done| done.count))
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn write_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        let queued = Cell::new(false);
        // SAFETY: By the safety requirements.
        let req = unsafe { Request::new(iocb, iter, &queued) };
        let result = req.and_then(|req| O::write_iter(WriteReq::new(req)));
        answer(&queued, result.map(|done| done.count))
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry that has an inode with these operations, whose `i_rwsem` is
    /// held exclusively.
    unsafe extern "C" fn setattr(
        _idmap: *mut bindings::mnt_idmap,
        dentry: *mut bindings::dentry,
        attr: *mut bindings::iattr,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let mut resized = false;
            let set_size = |mut file: Held<'_, O::FileSystem, Excl>, size| {
                resized = true;
                file.truncate::<O::Mapping>(size)
            };
            // SAFETY: By the safety requirements.
            let ret = unsafe {
                inode::Tables::<O::FileSystem>::change_attributes(dentry, attr, set_size)
            }?;
            // SAFETY: The dentry has an inode, which is in use during the call.
            let file = unsafe { INode::<O::FileSystem>::from_raw((*dentry).d_inode) };
            if resized && file.is_sync() {
                // SAFETY: The inode is valid.
                unsafe { bindings::fs_sync_buffers(file.as_ptr()) };
                file.sync_metadata()?;
            }
            Ok(ret)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> crate::ffi::c_int {
        // SAFETY: The file is valid, and the area is being set up. The table is static.
        unsafe {
            bindings::file_accessed(file);
            (*vma).vm_ops = aops::Tables::<O::Mapping>::VM_OPS;
        }
        0
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn release(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> crate::ffi::c_int {
        // SAFETY: The file is valid during the call.
        if unsafe { (*file).f_mode } & bindings::FMODE_WRITE != 0 {
            // SAFETY: The file keeps the inode in use.
            O::release(unsafe { INode::from_raw(inode) });
        }
        0
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem` that is open for writing. The range is
    /// not empty and lies below the size that a file can have.
    unsafe extern "C" fn fallocate(
        file: *mut bindings::file,
        mode: crate::ffi::c_int,
        start: Offset,
        len: Offset,
    ) -> crate::ffi::c_long {
        const PUNCH: u32 = bindings::FALLOC_FL_PUNCH_HOLE | bindings::FALLOC_FL_KEEP_SIZE;
        const ZERO: u32 = bindings::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: u32 = ZERO | bindings::FALLOC_FL_KEEP_SIZE;
        let op = match mode as u32 {
            PUNCH => Fallocate::PunchHole,
            ZERO => Fallocate::ZeroRange { grow: true },
            ZERO_KEEP => Fallocate::ZeroRange { grow: false },
            _ => return EOPNOTSUPP.to_errno() as _,
        };
        let result: i32 = from_result(|| {
            let end = start.checked_add(len).ok_or(EFBIG)?;
            // SAFETY: The file pins the inode.
            let inode = unsafe { INode::<O::FileSystem>::from_raw((*file).f_inode) };
            let guard = inode.lock();
            guard.held().drain_dio();
            // SAFETY: The file is valid, and the lock of its inode is held.
            to_result(unsafe { bindings::file_modified(file) })?;
            O::fallocate(guard.held(), op, start, end)?;
            drop(guard);
            // SAFETY: The file is valid.
            if inode.is_sync() || unsafe { (*file).f_flags } & bindings::O_DSYNC != 0 {
                // SAFETY: The file is valid.
                to_result(unsafe { bindings::vfs_fsync(file, 0) })?;
            }
            Ok(0)
        });
        result as _
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn llseek(
        file: *mut bindings::file,
        offset: Offset,
        whence: crate::ffi::c_int,
    ) -> Offset {
        let seek = match whence as u32 {
            bindings::SEEK_HOLE => bindings::iomap_seek_hole,
            bindings::SEEK_DATA => bindings::iomap_seek_data,
            // SAFETY: The arguments are those of the call.
            _ => return unsafe { bindings::generic_file_llseek(file, offset, whence) },
        };
        // SAFETY: The file pins the inode.
        let inode = unsafe { INode::<O::FileSystem>::from_raw((*file).f_inode) };
        let guard = inode.lock_shared();
        // SAFETY: The inode is valid, its lock is held, and the table is for files of its type.
        let found = unsafe { seek(inode.as_ptr(), offset, LookupTable::<ReadMap<O>>::OPS) };
        drop(guard);
        if found < 0 {
            return found;
        }
        // SAFETY: The file is valid; the superblock belongs to its inode.
        unsafe { bindings::vfs_setpos(file, found, (*inode.sb().as_ptr()).s_maxbytes) }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn fiemap(
        inode: *mut bindings::inode,
        info: *mut bindings::fiemap_extent_info,
        start: u64,
        len: u64,
    ) -> crate::ffi::c_int {
        // SAFETY: The inode is in use during the call.
        let file = unsafe { INode::<O::FileSystem>::from_raw(inode) };
        let _guard = file.lock_shared();
        // An empty range is an error, even of an empty file.
        let len = len.min(file.size().max(1) as u64);
        // SAFETY: The arguments are those of the call, and the table is for files of this type.
        unsafe { bindings::iomap_fiemap(inode, info, start, len, LookupTable::<ReadMap<O>>::OPS) }
    }
}

/// What the VFS is told. An IO in the background answers by itself and only once, and nothing but
/// such an IO may be taken for one.
fn answer(queued: &Cell<bool>, result: Result<usize>) -> isize {
    match result {
        _ if queued.get() => -(bindings::EIOCBQUEUED as isize),
        Ok(count) => count as isize,
        Err(e) if e == EIOCBQUEUED => EIO.to_errno() as isize,
        Err(e) => e.to_errno() as isize,
    }
}
