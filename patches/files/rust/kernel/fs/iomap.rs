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

    /// Ends the use of a mapping of `len` bytes from `pos`, of which the first `written` hold data.
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
        let alloc = |file: &INode<M::FileSystem>| {
            // SAFETY: By the safety requirements.
            M::map(unsafe { Held::new(file) }, pos, len as u64)
        };
        // SAFETY: By the safety requirements.
        unsafe { begin(inode, pos, iomap, alloc) }
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
        _iomap: *mut bindings::iomap,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: By the safety requirements.
            let file = unsafe { Held::new(INode::from_raw(inode)) };
            M::end(file, pos, len as u64, written.max(0) as u64).map_err(not_queued)?;
            Ok(0)
        })
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
