// SPDX-License-Identifier: GPL-2.0

//! Regular files: reading and writing, buffered and direct.
//!
//! # Direct writes
//!
//! Several direct writes may run at the same time as long as none of them changes the size of the
//! file or needs space. Whether that is so can only be said with the lock held, and what was found
//! out is worth nothing once the lock is released. So a write is a value that goes through states:
//!
//! ```text
//! WriteReq --lock_shared--> Locked<Shared> --check--> Overwrite --submit--> WriteDone
//!    |                                         |          `------> (falls back: WriteReq)
//!    |                                         `--> (needs more: WriteReq)
//!    `------lock----------> Locked<Excl> ----check--> ExclWrite --submit_*--> WriteDone
//! ```
//!
//! The lock belongs to the state, so that there is none between the check and the IO in which it
//! is not held. [`Overwrite`] can only be submitted with a mapping that cannot allocate. Whatever
//! needs more releases the shared lock, starts again with the exclusive one and is checked again.
//!
//! An IO that goes on in the background has consumed its request: who completes it may free it.

use super::{
    aops, compat,
    iomap::{self, to_count, LookupTable},
    lock::{Excl, Guard, Held, Mode, Shared},
    FileSystem, INode, Offset,
};
use crate::{
    bindings,
    error::{code::*, to_result, Error, Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::{marker::PhantomData, ptr::NonNull};

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
}

/// A set of abilities of a file (`FOP_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Direct writes may run in parallel: io_uring does not queue them behind each other.
    pub const DIO_PARALLEL_WRITE: Self = Self(bindings::FOP_DIO_PARALLEL_WRITE);

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
/// `iocb` and `iter` are valid and used by this value only; the file of `iocb` is `inode`.
struct Request<'k, T: FileSystem> {
    iocb: NonNull<bindings::kiocb>,
    iter: NonNull<bindings::iov_iter>,
    inode: &'k INode<T>,
    _brand: Brand<'k>,
}

impl<'k, T: FileSystem> Request<'k, T> {
    /// # Safety
    ///
    /// The arguments are those of a call of `read_iter` or `write_iter` of a file of type `T`,
    /// which lasts for `'k`.
    unsafe fn new(iocb: *mut bindings::kiocb, iter: *mut bindings::iov_iter) -> Result<Self> {
        // INVARIANT: By the safety requirements.
        Ok(Self {
            iocb: NonNull::new(iocb).ok_or(EINVAL)?,
            iter: NonNull::new(iter).ok_or(EINVAL)?,
            // SAFETY: The request pins the file, and the file pins the inode.
            inode: unsafe { INode::from_raw((*(*iocb).ki_filp).f_inode) },
            _brand: PhantomData,
        })
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
    ret: isize,
    _brand: Brand<'k>,
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
        Ok(ReadDone {
            ret: to_count(ret)? as isize,
            _brand: PhantomData,
        })
    }

    /// Reads from the device into the memory of the user. The shared lock keeps blocks from being
    /// freed meanwhile; what goes on in the background is waited for by who frees them.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the position, the length or the memory is not aligned as the device asks for,
    /// `EAGAIN` if the lock cannot be had at once and the caller does not wait.
    pub fn direct<M: iomap::Lookup<FileSystem = T>>(self) -> Result<ReadDone<'k>> {
        let req = self.0;
        let mut ret = 0;
        if req.len() > 0 {
            // The request may be gone once it was submitted, so this comes first.
            // SAFETY: The request pins the file.
            unsafe { bindings::file_accessed((*req.iocb.as_ptr()).ki_filp) };
            let _guard = req.lock_shared()?;
            // SAFETY: The arguments are valid and ours; the table is for files of type `T`.
            ret = unsafe {
                bindings::fs_iomap_dio_rw(
                    req.iocb.as_ptr(),
                    req.iter.as_ptr(),
                    &LookupTable::<M>::OPS,
                    core::ptr::null(),
                    0,
                )
            };
        }
        if ret != -(bindings::EIOCBQUEUED as isize) {
            to_count(ret)?;
        }
        Ok(ReadDone {
            ret,
            _brand: PhantomData,
        })
    }
}

/// A write that has neither a lock nor been checked.
pub struct WriteReq<'k, T: FileSystem>(Request<'k, T>);

/// Proof that a write was answered, by a number of bytes or by IO in the background.
pub struct WriteDone<'k> {
    ret: isize,
    _brand: Brand<'k>,
}

impl WriteDone<'_> {
    fn new(ret: isize) -> Self {
        Self {
            ret,
            _brand: PhantomData,
        }
    }
}

/// A write with the lock, not checked.
pub struct Locked<'k, T: FileSystem, M: Mode> {
    // Dropped first: the request of `Shared` is handed back without the lock.
    guard: Guard<'k, T, M>,
    req: WriteReq<'k, T>,
}

/// A direct write below the size of the file, with the shared lock.
pub struct Overwrite<'k, T: FileSystem>(Locked<'k, T, Shared>);

/// A write with the exclusive lock.
pub struct ExclWrite<'k, T: FileSystem>(Locked<'k, T, Excl>);

/// What the check with the shared lock says.
pub enum SharedCheck<'k, T: FileSystem> {
    /// Nothing but contents change.
    Overwrite(Overwrite<'k, T>),
    /// The size changes, a block changes in part, or privileges have to be removed. The lock is
    /// released.
    NeedsExcl(WriteReq<'k, T>),
    /// There is nothing to write.
    Done(WriteDone<'k>),
}

/// What became of an overwrite.
pub enum SharedSubmit<'k, T: FileSystem> {
    /// It was done, or is on its way.
    Done(WriteDone<'k>),
    /// There is a hole. The lock is released.
    Fallback(WriteReq<'k, T>),
}

/// What the check with the exclusive lock says.
pub enum ExclCheck<'k, T: FileSystem> {
    /// It may be submitted.
    Write(ExclWrite<'k, T>),
    /// There is nothing to write.
    Done(WriteDone<'k>),
}

/// What became of a direct write with the exclusive lock.
pub enum ExclSubmit<'k, T: FileSystem> {
    /// It was done.
    Done(WriteDone<'k>),
    /// The file system wants it to go through the page cache. The lock is still held.
    Fallback(ExclWrite<'k, T>),
}

impl<'k, T: FileSystem> WriteReq<'k, T> {
    /// The file.
    pub fn inode(&self) -> &'k INode<T> {
        self.0.inode
    }

    /// Whether the page cache is to be passed by.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct()
    }

    /// Takes the lock shared.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock_shared(self) -> Result<Locked<'k, T, Shared>> {
        Ok(Locked {
            guard: self.0.lock_shared()?,
            req: self,
        })
    }

    /// Takes the lock exclusively.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it cannot be had at once and the caller does not wait.
    pub fn lock(self) -> Result<Locked<'k, T, Excl>> {
        Ok(Locked {
            guard: self.0.lock()?,
            req: self,
        })
    }
}

impl<'k, T: FileSystem, M: Mode> Locked<'k, T, M> {
    /// The checks that all writes have in common; they also set the position of an append.
    /// Returns whether there is something to write.
    fn generic_checks(&self) -> Result<bool> {
        let req = &self.req.0;
        // SAFETY: The arguments are valid and ours, and the lock is held.
        let len = unsafe { bindings::generic_write_checks(req.iocb.as_ptr(), req.iter.as_ptr()) };
        Ok(to_count(len)? > 0)
    }

    /// Removes privileges and updates the times.
    fn modified(&self) -> Result {
        // SAFETY: The request is valid and ours, and the lock is held.
        to_result(unsafe { bindings::kiocb_modified(self.req.0.iocb.as_ptr()) })
    }

    fn submit_direct<const FLAGS: u32>(&self, ops: &'static bindings::iomap_ops) -> isize {
        let req = &self.req.0;
        // SAFETY: The arguments are valid and ours. The table is one for files of type `T` and for
        // the lock that is held: the callers take it from the trait that belongs to their state.
        unsafe {
            bindings::fs_iomap_dio_rw(
                req.iocb.as_ptr(),
                req.iter.as_ptr(),
                ops,
                core::ptr::null(),
                FLAGS,
            )
        }
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Shared> {
    /// Finds out whether the write leaves all but contents alone.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<SharedCheck<'k, T>> {
        if !self.generic_checks()? {
            return Ok(SharedCheck::Done(WriteDone::new(0)));
        }
        let req = &self.req.0;
        let start = req.pos();
        let end = start.checked_add_unsigned(req.len() as u64).ok_or(EFBIG)?;
        let in_block = Offset::from(req.inode.sb().block_size()) - 1;
        // SAFETY: The inode is valid.
        let nosec = unsafe { bindings::IS_NOSEC(req.inode.as_ptr()) };
        // The size is read with the lock held: it does not change before the lock is released.
        if end > req.inode.size() || (start | end) & in_block != 0 || !nosec {
            return Ok(SharedCheck::NeedsExcl(self.req));
        }
        self.modified()?;
        Ok(SharedCheck::Overwrite(Overwrite(self)))
    }
}

impl<'k, T: FileSystem> Locked<'k, T, Excl> {
    /// Checks the write and prepares the inode for it.
    ///
    /// # Errors
    ///
    /// What `write(2)` returns.
    pub fn check(self) -> Result<ExclCheck<'k, T>> {
        if !self.generic_checks()? {
            return Ok(ExclCheck::Done(WriteDone::new(0)));
        }
        self.modified()?;
        Ok(ExclCheck::Write(ExclWrite(self)))
    }
}

impl<'k, T: FileSystem> Overwrite<'k, T> {
    /// Writes over what is there. iomap looks at the size once more and allocates nothing.
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn submit<M: iomap::Overwrite<FileSystem = T>>(self) -> Result<SharedSubmit<'k, T>> {
        const FLAGS: u32 = bindings::IOMAP_DIO_OVERWRITE_ONLY;
        let nowait = self.0.req.0.is_nowait();
        let ret = self
            .0
            .submit_direct::<FLAGS>(&iomap::OverwriteTable::<M>::OPS);
        if ret == -(bindings::EIOCBQUEUED as isize) {
            return Ok(SharedSubmit::Done(WriteDone::new(ret)));
        }
        match to_count(ret) {
            Ok(_) => Ok(SharedSubmit::Done(WriteDone::new(ret))),
            Err(e) if e == ENOTBLK || (e == EAGAIN && !nowait) => {
                Ok(SharedSubmit::Fallback(self.0.req))
            }
            Err(e) => Err(e),
        }
    }
}

impl<'k, T: FileSystem> ExclWrite<'k, T> {
    /// Proves that the lock is held.
    pub fn held(&self) -> Held<'_, T, Excl> {
        self.0.guard.held()
    }

    /// Waits until no direct IO on the file is in flight.
    pub fn drain_dio(&self) {
        self.held().drain_dio()
    }

    /// Writes past the page cache, and waits for it, so that the size is updated with the lock.
    ///
    /// # Errors
    ///
    /// What the device or the file system returns.
    pub fn submit_direct<M: iomap::Alloc<FileSystem = T>>(self) -> Result<ExclSubmit<'k, T>> {
        const FLAGS: u32 = bindings::IOMAP_DIO_FORCE_WAIT;
        let ret = self.0.submit_direct::<FLAGS>(&iomap::AllocTable::<M>::OPS);
        match to_count(ret) {
            Ok(_) => Ok(ExclSubmit::Done(WriteDone::new(ret))),
            Err(e) if e == ENOTBLK => Ok(ExclSubmit::Fallback(self)),
            Err(e) => Err(e),
        }
    }

    /// Writes through the page cache, and to the device if the write is synchronous.
    ///
    /// # Errors
    ///
    /// What the file system returns.
    pub fn submit_buffered<M: iomap::Alloc<FileSystem = T>>(self) -> Result<WriteDone<'k>> {
        let Locked { guard, req } = self.0;
        let (iocb, iter) = (req.0.iocb.as_ptr(), req.0.iter.as_ptr());
        // SAFETY: The arguments are valid and ours; the table is for files of type `T`, and the
        // lock is held exclusively.
        let ret =
            unsafe { bindings::fs_iomap_buffered_write(iocb, iter, &iomap::AllocTable::<M>::OPS) };
        drop(guard);
        let written = to_count(ret)? as isize;
        // SAFETY: The request is valid and ours; its position is behind what was written.
        let ret = unsafe { bindings::generic_write_sync(iocb, written) };
        Ok(WriteDone::new(to_count(ret)? as isize))
    }
}

/// The C side of regular files.
pub(super) struct Tables<O>(PhantomData<O>);

/// What finds the mappings that are only reported or read.
type ReadMap<O> = <<O as Operations>::Mapping as aops::Operations>::Read;

impl<O: Operations> Tables<O> {
    pub(super) const INODE_OPS: bindings::inode_operations = bindings::inode_operations {
        fiemap: Some(Self::fiemap),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    pub(super) const FILE_OPS: bindings::file_operations = bindings::file_operations {
        fop_flags: O::FLAGS.0,
        fsync: Some(compat::fsync),
        llseek: Some(Self::llseek),
        mmap: Some(bindings::generic_file_mmap),
        open: Some(Self::open),
        read_iter: Some(Self::read_iter),
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
        // SAFETY: By the safety requirements.
        match unsafe { Request::new(iocb, iter) }.and_then(|req| O::read_iter(ReadReq(req))) {
            Ok(done) => done.ret,
            Err(e) => errno(e),
        }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn write_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: By the safety requirements.
        match unsafe { Request::new(iocb, iter) }.and_then(|req| O::write_iter(WriteReq(req))) {
            Ok(done) => done.ret,
            Err(e) => errno(e),
        }
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
        let found = unsafe { seek(inode.as_ptr(), offset, &LookupTable::<ReadMap<O>>::OPS) };
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
        unsafe { bindings::iomap_fiemap(inode, info, start, len, &LookupTable::<ReadMap<O>>::OPS) }
    }
}

fn errno(e: Error) -> isize {
    e.to_errno() as isize
}
