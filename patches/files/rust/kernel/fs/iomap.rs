// SPDX-License-Identifier: GPL-2.0

//! Where the data of a file lies: one trait for each use of a mapping.
//!
//! A mapping says for a range of a file what the device holds for it. What a file system may do to
//! answer depends on who asks: a reader must not make it allocate, a direct overwrite under the
//! shared lock must not either, a writer with the exclusive lock may. So there is a trait for each,
//! and the table that the C side gets is made from one of them.
//!
//! C header: [`include/linux/iomap.h`](srctree/include/linux/iomap.h)

use super::{
    inode::NoFs,
    lock::{Excl, Held},
    FileSystem, INode, Offset,
};
use crate::{
    bindings,
    error::{code::*, from_result, Error, Result},
};
use core::marker::PhantomData;

/// What the device holds for a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it reads as zeros.
    Hole,
    /// Data at byte `addr` of the device. `new` says that it was allocated for this request, so
    /// that its old contents mean nothing.
    Mapped {
        /// Byte on the device at which the mapping starts.
        addr: u64,
        /// Whether it was allocated just now.
        new: bool,
    },
    /// Space at byte `addr` of the device that reads as zeros.
    Unwritten {
        /// Byte on the device at which the mapping starts.
        addr: u64,
    },
}

/// A range of a file and what the device holds for it.
///
/// # Examples
///
/// ```
/// use kernel::fs::iomap::{Kind, Mapping};
///
/// let hole = Mapping { offset: 4096, len: 8192, kind: Kind::Hole };
/// assert!(hole.covers(4096));
/// assert!(hole.covers(12287));
/// assert!(!hole.covers(12288));
/// assert!(!Mapping { offset: i64::MAX, len: 2, kind: Kind::Hole }.covers(i64::MAX));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Start of the range in the file, in bytes, a multiple of the block size.
    pub offset: Offset,
    /// Length of the range, in bytes, a multiple of the block size.
    pub len: u64,
    /// What the device holds.
    pub kind: Kind,
}

impl Mapping {
    /// Whether the range is a valid one and `pos` is in it.
    pub fn covers(&self, pos: Offset) -> bool {
        match self.offset.checked_add_unsigned(self.len) {
            Some(end) => 0 <= self.offset && self.offset <= pos && pos < end,
            None => false,
        }
    }

    /// Hands the mapping to the C side, which relies on what is checked here: that it covers `pos`,
    /// and that it is made of whole blocks.
    fn store<T: FileSystem>(
        &self,
        inode: &INode<T>,
        pos: Offset,
        to: &mut bindings::iomap,
    ) -> Result {
        let addr = match self.kind {
            Kind::Hole => 0,
            Kind::Mapped { addr, .. } | Kind::Unwritten { addr } => addr,
        };
        let in_block = u64::from(inode.sb().block_size()) - 1;
        if !self.covers(pos) || (self.offset as u64 | self.len | addr) & in_block != 0 {
            return Err(EIO);
        }
        to.offset = self.offset;
        to.length = self.len;
        // SAFETY: The superblock is valid; its device does not change.
        to.bdev = unsafe { (*inode.sb().as_ptr()).s_bdev };
        let (kind, addr, flags) = match self.kind {
            Kind::Hole => (bindings::IOMAP_HOLE, u64::MAX, 0),
            Kind::Mapped { addr, new: false } => (bindings::IOMAP_MAPPED, addr, 0),
            Kind::Mapped { addr, new: true } => {
                (bindings::IOMAP_MAPPED, addr, bindings::IOMAP_F_NEW)
            }
            Kind::Unwritten { addr } => (bindings::IOMAP_UNWRITTEN, addr, 0),
        };
        to.type_ = kind as u16;
        to.addr = addr;
        to.flags |= flags as u16;
        Ok(())
    }
}

/// Finds mappings without changing any: for reads, `SEEK_HOLE`, `SEEK_DATA` and `FIEMAP`.
pub trait Lookup {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`; of the `len` bytes behind it, as much as it can say.
    ///
    /// Called without locks, or with the folio lock: what it reads must be consistent by itself.
    ///
    /// # Errors
    ///
    /// What a read returns, if nothing was read before.
    fn map(file: &INode<Self::FileSystem>, pos: Offset, len: u64) -> Result<Mapping>;
}

/// Finds what a direct write may overwrite, under the shared lock.
pub trait Overwrite {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`. Anything but [`Kind::Mapped`] that is not new makes the
    /// write start again under the exclusive lock.
    ///
    /// # Errors
    ///
    /// What the write returns.
    fn map(file: &INode<Self::FileSystem>, pos: Offset, len: u64) -> Result<Mapping>;
}

/// Allocates what a write needs, under the exclusive lock.
pub trait Alloc {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`, and allocates it where there is none.
    ///
    /// # Errors
    ///
    /// What the write returns, if nothing was written before.
    fn map(file: Held<'_, Self::FileSystem, Excl>, pos: Offset, len: u64) -> Result<Mapping>;

    /// Says that `written` bytes from `pos` on, of what a new mapping covers, have come to the page
    /// cache. Their folio is still locked: from now on it may be written, dropped and read once more.
    fn wrote(_file: Held<'_, Self::FileSystem, Excl>, _pos: Offset, _written: u64) {}

    /// Ends the use of a mapping of `len` bytes from `pos`, of which the first `written` hold data.
    /// What was allocated for the rest is to be given back, or made to read as zeros.
    ///
    /// # Errors
    ///
    /// What the write returns.
    fn end(
        _file: Held<'_, Self::FileSystem, Excl>,
        _pos: Offset,
        _len: u64,
        _written: u64,
    ) -> Result {
        Ok(())
    }
}

/// Finds where a direct write goes that needs blocks, under the shared lock.
///
/// Several such writes run at the same time, and reads as well. What is allocated is therefore not
/// made part of the file here: it belongs to `self` until the data is on the device. The file system
/// publishes it after the write, when nobody can see old contents any more.
pub trait Fill {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`; its blocks are written as a whole.
    ///
    /// # Errors
    ///
    /// What the write returns.
    fn map(&mut self, file: &INode<Self::FileSystem>, pos: Offset, len: u64) -> Result<Mapping>;
}

/// Allocates what a page of a shared mapping needs before it is written to.
///
/// The contents stay in the page cache until the next writeback: it must not be found by who looks
/// at the device before.
pub trait Fault {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`, and allocates it where there is none. It is asked for the
    /// page that is written to, as far as the file goes.
    ///
    /// # Errors
    ///
    /// Any ends in `SIGBUS`.
    fn map(file: &INode<Self::FileSystem>, pos: Offset, len: u64) -> Result<Mapping>;
}

/// Finds where dirty parts of the page cache go.
pub trait Writeback {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Returns a mapping that covers `pos`. What is a [`Kind::Hole`] is not written.
    ///
    /// It is asked for each part of each folio, so that a mapping is never used after the blocks
    /// were freed: that waits for the folio.
    ///
    /// # Errors
    ///
    /// What `fsync(2)` returns.
    fn map(file: &INode<Self::FileSystem>, pos: Offset, len: u64) -> Result<Mapping>;
}

/// What a file system that cannot be written to does for writers.
pub struct ReadOnly<T>(PhantomData<T>);

impl<T: FileSystem> Alloc for ReadOnly<T> {
    type FileSystem = T;

    fn map(_file: Held<'_, T, Excl>, _pos: Offset, _len: u64) -> Result<Mapping> {
        Err(EROFS)
    }
}

impl<T: FileSystem> Fault for ReadOnly<T> {
    type FileSystem = T;

    fn map(_file: &INode<T>, _pos: Offset, _len: u64) -> Result<Mapping> {
        Err(EROFS)
    }
}

impl<T: FileSystem> Writeback for ReadOnly<T> {
    type FileSystem = T;

    fn map(_file: &INode<T>, _pos: Offset, _len: u64) -> Result<Mapping> {
        Err(EROFS)
    }
}

/// Calls `map` for the C side and stores what it returns.
///
/// # Safety
///
/// `inode` is in use and of type `T`; `to` belongs to the caller.
unsafe fn begin<T: FileSystem>(
    inode: *mut bindings::inode,
    pos: Offset,
    to: *mut bindings::iomap,
    map: impl FnOnce(&INode<T>) -> Result<Mapping>,
) -> crate::ffi::c_int {
    from_result(|| {
        // SAFETY: By the safety requirements.
        let inode = unsafe { INode::from_raw(inode) };
        let mapping = map(inode).map_err(not_queued)?;
        // SAFETY: By the safety requirements.
        mapping.store(inode, pos, unsafe { &mut *to })?;
        Ok(0)
    })
}

/// The table made from a [`Lookup`].
pub(super) struct LookupTable<M>(PhantomData<M>);

impl<M: Lookup> LookupTable<M> {
    pub(super) const OPS: &'static bindings::iomap_ops = &bindings::iomap_ops {
        iomap_begin: Some(Self::begin),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem`.
    unsafe extern "C" fn begin(
        inode: *mut bindings::inode,
        pos: Offset,
        len: Offset,
        _flags: u32,
        iomap: *mut bindings::iomap,
        _source: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        let lookup = |file: &INode<M::FileSystem>| {
            let mapping = M::map(file, pos, len as u64)?;
            match mapping.kind {
                // iomap would zero what is not written to, even for a read.
                Kind::Mapped { new: true, .. } => Err(EIO),
                _ => Ok(mapping),
            }
        };
        // SAFETY: By the safety requirements.
        unsafe { begin(inode, pos, iomap, lookup) }
    }
}

/// The table made from an [`Overwrite`].
pub(super) struct OverwriteTable<M>(PhantomData<M>);

impl<M: Overwrite> OverwriteTable<M> {
    pub(super) const OPS: &'static bindings::iomap_ops = &bindings::iomap_ops {
        iomap_begin: Some(Self::begin),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem`.
    unsafe extern "C" fn begin(
        inode: *mut bindings::inode,
        pos: Offset,
        len: Offset,
        _flags: u32,
        iomap: *mut bindings::iomap,
        _source: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        let overwrite = |file: &INode<M::FileSystem>| {
            let mapping = M::map(file, pos, len as u64)?;
            match mapping.kind {
                Kind::Mapped { new: false, .. } => Ok(mapping),
                _ => Err(ENOTBLK),
            }
        };
        // What leads to the data may be in memory only: a synchronous write has to sync that, too, and
        // iomap leaves it out where the device writes through.
        // SAFETY: The mapping belongs to the call.
        unsafe { (*iomap).flags |= bindings::IOMAP_F_DIRTY as u16 };
        // SAFETY: By the safety requirements.
        unsafe { begin(inode, pos, iomap, overwrite) }
    }
}

/// The table made from an [`Alloc`]. It is used only while `i_rwsem` is held exclusively.
pub(super) struct AllocTable<M>(PhantomData<M>);

impl<M: Alloc> AllocTable<M> {
    pub(super) const OPS: &'static bindings::iomap_ops = &bindings::iomap_ops {
        iomap_begin: Some(Self::begin),
        iomap_end: Some(Self::end),
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem` whose lock is held exclusively.
    unsafe extern "C" fn begin(
        inode: *mut bindings::inode,
        pos: Offset,
        len: Offset,
        _flags: u32,
        iomap: *mut bindings::iomap,
        _source: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        let mut is_new = false;
        let alloc = |file: &INode<M::FileSystem>| {
            let _scope = NoFs::new();
            // SAFETY: By the safety requirements.
            let mapping = M::map(unsafe { Held::new(file) }, pos, len as u64)?;
            is_new = matches!(mapping.kind, Kind::Mapped { new: true, .. });
            Ok(mapping)
        };
        // SAFETY: By the safety requirements.
        let ret = unsafe { begin(inode, pos, iomap, alloc) };
        if ret == 0 && is_new {
            // SAFETY: The mapping belongs to the call.
            unsafe { (*iomap).folio_ops = Self::FOLIO_OPS };
        }
        ret
    }

    const FOLIO_OPS: &'static bindings::iomap_folio_ops = &bindings::iomap_folio_ops {
        put_folio: Some(Self::put_folio),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem` whose lock is held exclusively, with a
    /// locked folio of it and a reference to that, which are given up.
    unsafe extern "C" fn put_folio(
        inode: *mut bindings::inode,
        pos: Offset,
        written: crate::ffi::c_uint,
        folio: *mut bindings::folio,
    ) {
        if written > 0 {
            // SAFETY: By the safety requirements.
            M::wrote(
                unsafe { Held::new(INode::from_raw(inode)) },
                pos,
                written.into(),
            );
        }
        // SAFETY: By the safety requirements.
        unsafe { bindings::fs_unlock_folio(folio) };
    }

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem` whose lock is held exclusively.
    unsafe extern "C" fn end(
        inode: *mut bindings::inode,
        pos: Offset,
        len: Offset,
        written: isize,
        _flags: u32,
        iomap: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: By the safety requirements.
            let file = unsafe { Held::new(INode::from_raw(inode)) };
            // SAFETY: The mapping belongs to the call.
            if u32::from(unsafe { (*iomap).flags }) & bindings::IOMAP_F_SIZE_CHANGED != 0 {
                file.mark_dirty();
            }
            let _scope = NoFs::new();
            M::end(file, pos, len as u64, written.max(0) as u64).map_err(not_queued)?;
            Ok(0)
        })
    }
}

/// The table made from a [`Fill`].
pub(super) struct FillTable<M>(PhantomData<M>);

impl<M: Fill> FillTable<M> {
    pub(super) const OPS: &'static bindings::iomap_ops = &bindings::iomap_ops {
        iomap_begin: Some(Self::begin),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem`, with an `M` as the private pointer that
    /// only this call uses, in an iteration (`iomap` is a member of one).
    unsafe extern "C" fn begin(
        inode: *mut bindings::inode,
        pos: Offset,
        len: Offset,
        _flags: u32,
        iomap: *mut bindings::iomap,
        _source: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        // SAFETY: By the safety requirements.
        let to = unsafe { &mut *bindings::fs_iomap_private(iomap).cast::<M>() };
        let fill = |file: &INode<M::FileSystem>| {
            let _scope = NoFs::new();
            let mapping = to.map(file, pos, len as u64)?;
            match mapping.kind {
                Kind::Mapped { new: false, .. } => Ok(mapping),
                _ => Err(EIO),
            }
        };
        // SAFETY: By the safety requirements.
        unsafe { begin(inode, pos, iomap, fill) }
    }
}

/// Has a [`Fault`] allocate all of a part of a file.
pub(super) fn fault<M: Fault>(file: &INode<M::FileSystem>, pos: Offset, len: u64) -> Result {
    let _scope = NoFs::new();
    let end = pos.checked_add_unsigned(len).ok_or(EFBIG)?;
    let mut pos = pos;
    while pos < end {
        let mapping = M::map(file, pos, (end - pos) as u64)?;
        match mapping.kind {
            Kind::Mapped { .. } if mapping.covers(pos) => {}
            _ => return Err(EIO),
        }
        pos = mapping.offset.saturating_add_unsigned(mapping.len);
    }
    Ok(())
}

/// The table made from a [`Writeback`].
pub(super) struct WritebackTable<M>(PhantomData<M>);

impl<M: Writeback> WritebackTable<M> {
    pub(super) const OPS: &'static bindings::iomap_writeback_ops = &bindings::iomap_writeback_ops {
        map_blocks: Some(Self::map_blocks),
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// # Safety
    ///
    /// Called by iomap for a file of type `M::FileSystem`, with a locked folio of it.
    unsafe extern "C" fn map_blocks(
        wpc: *mut bindings::iomap_writepage_ctx,
        inode: *mut bindings::inode,
        pos: Offset,
        len: u32,
    ) -> crate::ffi::c_int {
        // SAFETY: The context belongs to the call. The mapping in it is replaced.
        let iomap = unsafe {
            (*wpc).iomap = core::mem::zeroed();
            core::ptr::addr_of_mut!((*wpc).iomap)
        };
        let writeback = |file: &INode<M::FileSystem>| {
            let _scope = NoFs::new();
            M::map(file, pos, len.into())
        };
        // SAFETY: By the safety requirements.
        unsafe { begin(inode, pos, iomap, writeback) }
    }
}

/// Keeps an error from being taken for an IO that goes on in the background.
fn not_queued(e: Error) -> Error {
    if e == EIOCBQUEUED {
        EIO
    } else {
        e
    }
}

/// Turns the result of an IO function into a number of bytes.
pub(super) fn to_count(ret: isize) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret as i32))
}
