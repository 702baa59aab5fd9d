// SPDX-License-Identifier: GPL-2.0

//! The page cache of regular files, filled and written back through iomap: large folios, readahead,
//! and blocks that are smaller than a page.
//!
//! # Shared mappings
//!
//! What is stored to a page of a shared mapping is written back some time later, when nobody is left
//! to be told that there is no space. So the first store to a page allocates: [`Operations::Fault`].

use super::{
    iomap::{self, LookupTable, WritebackTable},
    lock::{Excl, Held},
    FileSystem, INode, Offset,
};
use crate::{
    bindings,
    error::{Result, VTABLE_DEFAULT_ERROR},
    prelude::vtable,
};
use core::marker::PhantomData;

/// How the page cache of a file is filled and written back.
///
/// A file system that cannot be written to uses [`iomap::ReadOnly`] for all but `Read`.
#[vtable]
pub trait Operations {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Where the data to read lies.
    type Read: iomap::Lookup<FileSystem = Self::FileSystem>;

    /// Where buffered writes go.
    type Write: iomap::Alloc<FileSystem = Self::FileSystem>;

    /// Where stores to shared mappings go.
    type Fault: iomap::Fault<FileSystem = Self::FileSystem>;

    /// Where dirty data lies.
    type Writeback: iomap::Writeback<FileSystem = Self::FileSystem>;

    /// Frees the blocks that lie as a whole between the bytes `start` and `end` of the file.
    ///
    /// `invalidate_lock` is held exclusively, no direct IO is in flight, and the page cache holds
    /// nothing of the range that would be written: a folio over an end of it may stay, but is clean.
    /// Allocations do not wait for file systems.
    ///
    /// # Errors
    ///
    /// What `fallocate(2)` returns. `truncate(2)` has changed the size by then and does not fail.
    fn free_blocks(
        _file: Held<'_, Self::FileSystem, Excl>,
        _start: Offset,
        _end: Offset,
    ) -> Result {
        crate::build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The C side of address spaces.
pub(super) struct Tables<O>(PhantomData<O>);

impl<O: Operations> Tables<O> {
    pub(super) const OPS: &'static bindings::address_space_operations =
        &bindings::address_space_operations {
            bmap: Some(Self::bmap),
            dirty_folio: Some(bindings::iomap_dirty_folio),
            error_remove_folio: Some(bindings::generic_error_remove_folio),
            invalidate_folio: Some(bindings::iomap_invalidate_folio),
            is_partially_uptodate: Some(bindings::iomap_is_partially_uptodate),
            migrate_folio: Some(bindings::filemap_migrate_folio),
            read_folio: Some(Self::read_folio),
            readahead: Some(Self::readahead),
            release_folio: Some(bindings::iomap_release_folio),
            writepages: Some(Self::writepages),
            // SAFETY: The table consists of optional function pointers: zero is `None`.
            ..unsafe { core::mem::zeroed() }
        };

    /// # Safety
    ///
    /// Called by the page cache with a locked folio of a file of type `O::FileSystem`.
    unsafe extern "C" fn read_folio(
        _file: *mut bindings::file,
        folio: *mut bindings::folio,
    ) -> crate::ffi::c_int {
        // SAFETY: The folio is locked, and the table is for files of its type.
        unsafe { bindings::fs_iomap_read_folio(folio, LookupTable::<O::Read>::OPS) }
    }

    /// # Safety
    ///
    /// Called by the page cache for a file of type `O::FileSystem`.
    unsafe extern "C" fn readahead(rac: *mut bindings::readahead_control) {
        // SAFETY: The request is valid, and the table is for files of its type.
        unsafe { bindings::fs_iomap_readahead(rac, LookupTable::<O::Read>::OPS) }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`, with or without the lock of its inode, but
    /// without `invalidate_lock` and the lock of a folio.
    unsafe extern "C" fn bmap(
        mapping: *mut bindings::address_space,
        block: bindings::sector_t,
    ) -> bindings::sector_t {
        // SAFETY: The mapping is valid, and the table is for files of its type. What is locked, so
        // that no blocks are freed meanwhile, is unlocked.
        unsafe {
            bindings::filemap_invalidate_lock_shared(mapping);
            let found = bindings::iomap_bmap(mapping, block, LookupTable::<O::Read>::OPS);
            bindings::filemap_invalidate_unlock_shared(mapping);
            found
        }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn writepages(
        mapping: *mut bindings::address_space,
        wbc: *mut bindings::writeback_control,
    ) -> crate::ffi::c_int {
        // SAFETY: The arguments are those of the call, and the table is for files of this type.
        unsafe { bindings::fs_iomap_writepages(mapping, wbc, WritebackTable::<O::Writeback>::OPS) }
    }

    /// The operations of mappings.
    pub(super) const VM_OPS: &'static bindings::vm_operations_struct =
        &bindings::vm_operations_struct {
            fault: Some(bindings::filemap_fault),
            map_pages: Some(bindings::filemap_map_pages),
            page_mkwrite: Some(Self::page_mkwrite),
            // SAFETY: The table consists of optional function pointers: zero is `None`.
            ..unsafe { core::mem::zeroed() }
        };

    /// # Safety
    ///
    /// Called by the VM for a page of a shared mapping of a file of type `O::FileSystem`.
    unsafe extern "C" fn page_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: The fault is valid, and its area maps a file.
        let (file, inode) = unsafe {
            let file = (*(*vmf).__bindgen_anon_1.vma).vm_file;
            (file, INode::<O::FileSystem>::from_raw((*file).f_inode))
        };
        if inode.flags().contains(super::inode::Flags::IMMUTABLE) {
            return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
        }
        let sb = inode.sb().as_ptr();
        // SAFETY: The superblock, the file and its mapping are valid. What is started and locked is
        // ended and unlocked; the folio that is locked if the first call returns 0 goes to the second.
        unsafe {
            let mapping = (*inode.as_ptr()).i_mapping;
            bindings::sb_start_pagefault(sb);
            bindings::file_update_time(file);
            bindings::filemap_invalidate_lock_shared(mapping);
            let (mut pos, mut len) = (0, 0);
            let mut ret = bindings::fs_page_mkwrite_begin(vmf, &mut pos, &mut len);
            if ret == 0 {
                let result = iomap::fault::<O::Fault>(inode, pos, len);
                ret = bindings::fs_page_mkwrite_end(vmf, to_errno(result));
            }
            bindings::filemap_invalidate_unlock_shared(mapping);
            bindings::sb_end_pagefault(sb);
            ret
        }
    }
}

/// A result as the C side has it.
fn to_errno(result: Result) -> crate::ffi::c_int {
    result.map_or_else(|e| e.to_errno(), |()| 0)
}
