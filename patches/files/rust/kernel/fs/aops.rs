// SPDX-License-Identifier: GPL-2.0

//! The page cache of regular files, filled through iomap: large folios, readahead, and blocks that
//! are smaller than a page.

use super::{
    iomap::{Lookup, LookupTable},
    FileSystem,
};
use crate::{bindings, prelude::vtable};
use core::marker::PhantomData;

/// How the page cache of a file is filled.
#[vtable]
pub trait Operations {
    /// The file system of the file.
    type FileSystem: FileSystem;

    /// Where the data to read lies.
    type Read: Lookup<FileSystem = Self::FileSystem>;
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
    /// Called by the VFS for a file of type `O::FileSystem`.
    unsafe extern "C" fn bmap(
        mapping: *mut bindings::address_space,
        block: bindings::sector_t,
    ) -> bindings::sector_t {
        // SAFETY: The mapping is valid, and the table is for files of its type.
        unsafe { bindings::iomap_bmap(mapping, block, LookupTable::<O::Read>::OPS) }
    }
}
