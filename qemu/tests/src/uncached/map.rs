// SPDX-License-Identifier: GPL-2.0

//! Mappings of files.

use anyhow::{Context, Result};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// A mapping of the start of a file.
pub struct Mapping(MmapRegion<()>);

/// What a store does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// It cannot be.
    ReadOnly,
    /// It goes to the file.
    Shared,
    /// It goes to a copy of the page.
    Private,
}

impl Mapping {
    /// Maps `length` bytes; no page is touched yet.
    pub fn new(file: &File, length: u64, kind: Kind) -> Result<Mapping> {
        let (prot, flags) = match kind {
            Kind::ReadOnly => (libc::PROT_READ, libc::MAP_SHARED),
            Kind::Shared => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            Kind::Private => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        };
        let place = FileOffset::new(file.try_clone().context("cannot share a file")?, 0);
        let region = MmapRegion::build(Some(place), length as usize, prot, flags)
            .context("cannot map a file")?;
        Ok(Mapping(region))
    }

    /// The bytes of a range.
    pub fn load(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let slice = self.0.get_slice(range.start as usize, bytes.len())?;
        slice.copy_to(&mut bytes[..]);
        Ok(bytes)
    }

    /// Stores bytes.
    pub fn fill(&self, pos: u64, bytes: &[u8]) -> Result<()> {
        self.0
            .get_slice(pos as usize, bytes.len())?
            .copy_from(bytes);
        Ok(())
    }

    /// The word at a multiple of 8.
    pub fn word(&self, pos: u64) -> Result<u64> {
        let slice = self.0.as_volatile_slice();
        Ok(slice.load(pos as usize, Ordering::Relaxed)?)
    }

    /// Stores a word at a multiple of 8.
    pub fn store(&self, pos: u64, word: u64) -> Result<()> {
        let slice = self.0.as_volatile_slice();
        Ok(slice.store(word, pos as usize, Ordering::Relaxed)?)
    }
}
