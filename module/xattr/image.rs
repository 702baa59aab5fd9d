// SPDX-License-Identifier: GPL-2.0

//! A block of attributes that is being composed: entries from the front, values from the back.

#![forbid(unsafe_code)]

use crate::ondisk::{self, XattrEntry, XattrHeader};
use core::mem::size_of;
use kernel::{fs::buffer::BufHead, prelude::*};

/// The length of an entry's head, in bytes.
pub(super) const HEAD: usize = size_of::<XattrEntry>();

/// Where the number of inodes that use the block lies in it.
pub(super) const REFCOUNT: usize = 4;

/// The name of an attribute. They are ordered as entries are: by namespace, length, then text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name<'a> {
    /// The namespace, by number.
    pub(super) index: u8,
    len: usize,
    pub(super) text: &'a [u8],
}

impl<'a> Name<'a> {
    /// A name in a namespace; it may be empty.
    pub(crate) fn new(index: u8, text: &'a [u8]) -> Self {
        Self {
            index,
            len: text.len(),
            text,
        }
    }

    /// Its length, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// The contents of a block of attributes, for one user.
///
/// There is one way to write down a list of attributes, so that equal lists are equal bytes.
pub(super) struct Image {
    bytes: KVec<u8>,
    /// Where the next entry goes.
    next: usize,
    /// Where the values begin.
    values: usize,
    /// The hash of all entries.
    hash: u32,
    /// The block must not be found by its hash, because one of its entries has none.
    unhashed: bool,
}

impl Image {
    /// A block without attributes.
    pub(super) fn new(block_size: usize) -> Result<Self> {
        Ok(Self {
            bytes: KVec::from_elem(0, block_size, GFP_KERNEL)?,
            next: size_of::<XattrHeader>(),
            values: block_size,
            hash: 0,
            unhashed: false,
        })
    }

    /// Whether there are no attributes in it.
    pub(super) fn is_empty(&self) -> bool {
        self.next == size_of::<XattrHeader>()
    }

    /// The hash by which others may find the block; 0 if they must not.
    pub(super) fn hash(&self) -> u32 {
        if self.unhashed {
            0
        } else {
            self.hash
        }
    }

    /// Adds an attribute, which comes behind those that are there. `fill` copies its value.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is not enough room, and what `fill` returns.
    pub(super) fn push(
        &mut self,
        name: Name<'_>,
        value_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let name_at = self.next + HEAD;
        let end = name_at + name.len.next_multiple_of(4);
        let room = self.values.checked_sub(value_len.next_multiple_of(4));
        // Four bytes of zero end the list.
        let value_at = room.filter(|&at| end + 4 <= at).ok_or(ENOSPC)?;

        self.part(name_at, name.len)?.copy_from_slice(name.text);
        fill(self.part(value_at, value_len)?)?;
        let mut hash = name
            .text
            .iter()
            .fold(0u32, |hash, &c| hash.rotate_left(5) ^ u32::from(c));
        for word in self.part(value_at, self.values - value_at)?.chunks_exact(4) {
            let word = word.iter().rfold(0, |word, &b| word << 8 | u32::from(b));
            hash = hash.rotate_left(16) ^ word;
        }

        let offset = if value_len == 0 { 0 } else { value_at };
        let fields: [&[u8]; 5] = [
            &[name.len as u8, name.index],
            &(offset as u16).to_le_bytes(),
            // `e_value_block`
            &[0; 4],
            &(value_len as u32).to_le_bytes(),
            &hash.to_le_bytes(),
        ];
        let head = self.part(self.next, HEAD)?.iter_mut();
        head.zip(fields.into_iter().flatten())
            .for_each(|(to, from)| *to = *from);

        self.next = end;
        self.values = value_at;
        self.hash = self.hash.rotate_left(16) ^ hash;
        self.unhashed |= hash == 0;
        Ok(())
    }

    /// Writes the head, after the last attribute.
    pub(super) fn finish(&mut self) -> Result {
        let fields = [ondisk::XATTR_MAGIC, 1, 1, self.hash()];
        let fields = fields.into_iter().flat_map(u32::to_le_bytes);
        let head = self.part(0, size_of::<XattrHeader>())?;
        head.iter_mut()
            .zip(fields)
            .for_each(|(to, from)| *to = from);
        Ok(())
    }

    /// The whole block.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a block holds the same, no matter for how many users. The image is finished.
    pub(super) fn is_in(&self, block: &BufHead<'_>) -> Result<bool> {
        const STEP: usize = 64;
        let mut there = [0; STEP];
        for (i, here) in self.bytes.chunks_exact(STEP).enumerate() {
            block.copy_to(i * STEP, &mut there)?;
            if i == 0 {
                if let (Some(there), Some(here)) = (
                    there.get_mut(REFCOUNT..REFCOUNT + 4),
                    here.get(REFCOUNT..REFCOUNT + 4),
                ) {
                    there.copy_from_slice(here);
                }
            }
            if there != here {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn part(&mut self, at: usize, len: usize) -> Result<&mut [u8]> {
        self.bytes.get_mut(at..at + len).ok_or(EIO)
    }
}
