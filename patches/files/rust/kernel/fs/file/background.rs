// SPDX-License-Identifier: GPL-2.0

//! Direct writes to new blocks that complete in the background.
//!
//! What such a write has allocated must not become part of the file before the data is on the device,
//! and the caller must not get its answer before it is. So the IO is submitted with a request of our
//! own, whose completion hands a [`Landed`] to the file system, which answers the request of the caller
//! once there is nothing left to do: at once, or after writes in front of it.
//!
//! The lock is released when the write has been submitted. Until the answer the write counts as direct
//! IO of the inode, so that who takes blocks from the file, which takes the exclusive lock and waits for
//! direct IO, comes after it.

use super::{Fill, FillSubmit, WriteDone};
use crate::{
    alloc::{flags::GFP_KERNEL, KBox},
    bindings, container_of,
    error::{code::*, Error, Result},
    fs::{
        iomap::{self, to_count},
        FileSystem, INode, Offset,
    },
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};

/// A [`Fill`](iomap::Fill) that the completion of a write gets back.
pub trait Landing: iomap::Fill + Send + Sized + 'static {
    /// The IO is done, or has failed. Called by a task that holds no lock. The inode outlives the
    /// call, whoever answers the write.
    fn landed(self, file: &INode<Self::FileSystem>, write: Landed<Self::FileSystem>);
}

/// What became of a write that may complete in the background.
pub enum BackgroundSubmit<'k, T: FileSystem, M> {
    /// It is on its way. [`Landing::landed`] gets the rest.
    Queued(WriteDone<'k>),
    /// It is done already, or has failed, as [`Fill::submit`] returns it.
    Here(Result<FillSubmit<'k, T>>, M),
}

/// A write whose IO was done in the background. The caller gets its answer when this is dropped, at
/// the latest.
///
/// # Invariants
///
/// `iocb` is a request on a file of type `T`, without an answer and used by this value only. The write
/// is counted as direct IO of the inode.
pub struct Landed<T: FileSystem> {
    iocb: NonNull<bindings::kiocb>,
    start: Offset,
    /// How many bytes are on the device.
    written: Result<usize>,
    /// How many bytes of the request were written before.
    earlier: usize,
    _fs: PhantomData<fn() -> T>,
}

// SAFETY: A request may be answered by any task, and belongs to this value.
unsafe impl<T: FileSystem> Send for Landed<T> {}

/// A write in flight.
struct InFlight<M> {
    /// The request that iomap works on.
    iocb: bindings::kiocb,
    /// The request of the caller.
    caller: NonNull<bindings::kiocb>,
    earlier: usize,
    fill: M,
}

impl<'k, T: FileSystem> Fill<'k, T> {
    /// Whether the caller does not wait, so that the write may complete in the background. A
    /// synchronous write does not: what it has to write at the end is known too late for that.
    pub fn is_async(&self) -> bool {
        let req = &self.0.write.req;
        // SAFETY: The request is valid.
        let waits = unsafe { (*req.iocb.as_ptr()).ki_complete.is_none() };
        !waits && !req.has_flag(bindings::IOCB_DSYNC) && !req.inode.is_sync()
    }

    /// Writes to blocks that `to` finds or allocates, and does not wait for the data to be on the
    /// device if [`is_async`](Self::is_async).
    ///
    /// Unless [`Landing::landed`] or [`FillSubmit::Filled`] says so, nothing that was allocated may
    /// become part of the file.
    pub fn submit_background<M: Landing<FileSystem = T>>(
        self,
        to: M,
    ) -> BackgroundSubmit<'k, T, M> {
        let flags = if self.is_async() {
            0
        } else {
            bindings::IOMAP_DIO_FORCE_WAIT
        };
        let locked = self.0;
        let req = &locked.write.req;
        let Ok(flight) = KBox::new_uninit(GFP_KERNEL) else {
            let failed = locked.write.answer(Err(ENOMEM)).map(FillSubmit::Done);
            return BackgroundSubmit::Here(failed, to);
        };
        let flight = KBox::into_raw(flight.write(InFlight {
            // SAFETY: A request consists of numbers and optional pointers.
            iocb: unsafe { core::mem::zeroed() },
            caller: req.iocb,
            earlier: locked.write.count,
            fill: to,
        }));
        // SAFETY: Both requests are valid and ours. The caller's pins the file until its answer, which
        // comes after the completion of ours.
        let iocb = unsafe {
            let iocb = ptr::addr_of_mut!((*flight).iocb);
            bindings::kiocb_clone(iocb, req.iocb.as_ptr(), (*req.iocb.as_ptr()).ki_filp);
            // Nobody polls for ours, and completing it is no matter for an interrupt.
            (*iocb).ki_flags &=
                !((bindings::IOCB_HIPRI | bindings::IOCB_DIO_CALLER_COMP) as crate::ffi::c_int);
            (*iocb).ki_complete = Some(complete::<M>);
            iocb
        };
        // SAFETY: The inode is valid. This count is given up by `Landed`, or below.
        unsafe { bindings::inode_dio_begin(req.inode.as_ptr()) };
        let start = req.pos();
        // SAFETY: Our request and the iterator are valid, and the lock is held. The table is for files
        // of type `T` and takes an `M`, which it uses only until the call returns or the last bio is
        // done, before `complete` takes it. A request whose caller waits is not queued, by the flag.
        let ret = unsafe {
            req.direct_as(
                iocb,
                iomap::FillTable::<M>::OPS,
                flags,
                ptr::addr_of_mut!((*flight).fill).cast(),
            )
        };
        if req.queued.get() {
            // The rest belongs to `complete`, and may be gone.
            return BackgroundSubmit::Queued(WriteDone::new(0));
        }
        // SAFETY: The inode is valid, and the count is the one from above: it was not queued.
        unsafe { bindings::inode_dio_end(req.inode.as_ptr()) };
        // SAFETY: It comes from `into_raw`, and nothing else uses it, as it was not queued.
        let flight = KBox::into_inner(unsafe { KBox::from_raw(flight) });
        // SAFETY: The request is valid and ours; it has gone as far as the one in its place.
        unsafe { (*req.iocb.as_ptr()).ki_pos = flight.iocb.ki_pos };
        let submit = locked.submitted(ret, start);
        BackgroundSubmit::Here(submit, flight.fill)
    }
}

/// The completion of our request.
///
/// # Safety
///
/// Called once by iomap, in a task, with the request of an [`InFlight<M>`] that was queued.
unsafe extern "C" fn complete<M: Landing>(iocb: *mut bindings::kiocb, ret: crate::ffi::c_long) {
    // SAFETY: By the safety requirements the request is a part of an allocation that `submit_background`
    // has given up, and that nobody but this call uses.
    let flight = unsafe { KBox::from_raw(container_of!(iocb, InFlight<M>, iocb).cast_mut()) };
    let flight = KBox::into_inner(flight);
    // SAFETY: The request of the caller is valid until its answer, and pins the file and its inode.
    let (start, inode) = unsafe {
        let caller = flight.caller.as_ptr();
        ((*caller).ki_pos, (*(*caller).ki_filp).f_inode)
    };
    // SAFETY: The inode is valid. With one count more it stays so until the end of this function: who
    // takes it out of use waits for direct IO.
    unsafe { bindings::inode_dio_begin(inode) };
    // INVARIANT: The request of the caller was given to this write, together with the first count.
    let write = Landed {
        iocb: flight.caller,
        start,
        written: to_count(ret),
        earlier: flight.earlier,
        _fs: PhantomData,
    };
    // SAFETY: The inode is valid, and of the type that the write was submitted for.
    flight.fill.landed(unsafe { INode::from_raw(inode) }, write);
    // SAFETY: The inode is valid, and the count is the one from above.
    unsafe { bindings::inode_dio_end(inode) };
}

impl<T: FileSystem> Landed<T> {
    /// The file.
    pub fn inode(&self) -> &INode<T> {
        // SAFETY: The request pins the file, and the file pins the inode, by the type invariant.
        unsafe { INode::from_raw((*(*self.iocb.as_ptr()).ki_filp).f_inode) }
    }

    /// Where the write starts, and where what was written ends.
    ///
    /// # Errors
    ///
    /// What the device or the file system has returned.
    pub fn range(&self) -> Result<(Offset, Offset)> {
        let written = self.written?;
        Ok((
            self.start,
            self.start.saturating_add_unsigned(written as u64),
        ))
    }

    /// Makes it a shorter write, up to `end`: what was written behind that does not become part of the
    /// file.
    pub fn shorten(&mut self, end: Offset) {
        let most = usize::try_from(end.saturating_sub(self.start)).unwrap_or(0);
        self.written = self.written.map(|written| written.min(most));
    }

    /// Drops from the page cache what was read before the blocks became part of the file.
    pub fn invalidate(&self) {
        let Ok(written @ 1..) = self.written else {
            return;
        };
        // SAFETY: The request is valid and ours, and at the start of the write.
        unsafe { bindings::fs_invalidate_written(self.iocb.as_ptr(), written) };
    }

    /// Publishes the size of the file, in bytes, if it has grown to that. It is a release store.
    pub fn grow_size(&self, size: Offset) {
        let inode = self.inode();
        // SAFETY: The inode is valid. Who makes it smaller waits for direct IO, and so for this write.
        if unsafe { bindings::fs_grow_size(inode.as_ptr(), size) } {
            inode.mark_dirty();
        }
    }

    /// Answers the write.
    pub fn answer(self) {}

    /// Answers the write with an error: what was written has not become part of the file.
    pub fn fail(mut self, e: Error) {
        self.written = Err(e);
    }
}

impl<T: FileSystem> Drop for Landed<T> {
    fn drop(&mut self) {
        let iocb = self.iocb.as_ptr();
        let (more, result) = match self.written {
            Ok(written) => (written, Ok(self.earlier + written)),
            Err(_) if self.earlier > 0 => (0, Ok(self.earlier)),
            Err(e) => (0, Err(e)),
        };
        let ret = match result {
            Ok(count) => count as crate::ffi::c_long,
            // Not taken for another IO in the background, nor for a reason to submit it again.
            Err(e) if [EIOCBQUEUED, EAGAIN, EOPNOTSUPP].contains(&e) => {
                EIO.to_errno() as crate::ffi::c_long
            }
            Err(e) => e.to_errno() as crate::ffi::c_long,
        };
        // SAFETY: The request and its inode are valid, by the type invariant. The count is given up
        // before the answer, which may free them.
        unsafe {
            (*iocb).ki_pos = self.start + more as Offset;
            bindings::inode_dio_end(self.inode().as_ptr());
            if let Some(complete) = (*iocb).ki_complete {
                complete(iocb, ret);
            }
        }
    }
}
