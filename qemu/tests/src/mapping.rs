// SPDX-License-Identifier: GPL-2.0

//! Mappings of files that are read and written by copies.

use crate::sys;
use anyhow::{Context, Result};
use std::fs::File;
use std::ops::Range;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// What a store to a mapping does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// It goes to the file.
    Shared,
    /// It goes to a copy of the page.
    Private,
}

/// A mapping of the start of a file, readable and writable.
pub struct Mapping(MmapRegion<()>);

impl Mapping {
    /// Maps `length` bytes of a file; no page is touched yet.
    pub fn new(file: &File, length: u64, sharing: Sharing) -> Result<Mapping> {
        let flags = match sharing {
            Sharing::Shared => libc::MAP_SHARED,
            Sharing::Private => libc::MAP_PRIVATE,
        };
        let place = FileOffset::new(file.try_clone().context("cannot share a file")?, 0);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let region = MmapRegion::build(Some(place), length as usize, prot, flags)
            .context("cannot map a file")?;
        Ok(Mapping(region))
    }

    /// Copies a range out.
    pub fn load(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let slice = self.0.get_slice(range.start as usize, bytes.len())?;
        slice.copy_to(&mut bytes[..]);
        Ok(bytes)
    }

    /// Copies bytes in.
    pub fn store(&self, pos: u64, bytes: &[u8]) -> Result<()> {
        let slice = self.0.get_slice(pos as usize, bytes.len())?;
        slice.copy_from(bytes);
        Ok(())
    }

    /// Waits until all of it is in the file.
    pub fn sync(&self) -> Result<()> {
        sys::msync(self.0.as_ptr(), self.0.size()).context("msync")
    }
}
