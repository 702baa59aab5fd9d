// SPDX-License-Identifier: GPL-2.0

//! One block of a directory, and the entries in it.
//!
//! Entries begin and end at multiples of four, so that a block is a list of words of which any can be
//! loaded.

#![forbid(unsafe_code)]

use crate::{
    indirect::{self, Run},
    inode,
    ondisk::{self, DirEntry},
    Rext2,
};
use core::{array, fmt};
use kernel::{
    fs::{
        buffer::{BufHead, Words},
        INode, Offset,
    },
    page::PAGE_SIZE,
    prelude::*,
};

/// The length of the shortest entry: a head and a name, rounded up.
pub(super) const SHORTEST: usize = entry_len(1);

/// The length of an entry with a name of so many bytes.
pub(super) const fn entry_len(name_len: usize) -> usize {
    (ondisk::DIR_HEAD + name_len + 3) & !3
}

/// Whether blocks may be so big that the length of an entry does not fit in 16 bits.
const HUGE_BLOCKS: bool = PAGE_SIZE >= 1 << 16;

/// An entry.
pub(super) struct Entry {
    /// The inode, or 0 if the entry is not in use.
    pub(super) ino: u32,
    /// The type of the file, where the directory says it.
    pub(super) file_type: u8,
    /// Position of the entry in its block.
    pub(super) offset: usize,
    /// Length of the entry.
    pub(super) len: usize,
    /// Length of the name.
    pub(super) name_len: usize,
}

impl Entry {
    /// The bytes that the entry needs; the rest of it is room for another one.
    pub(super) fn used(&self) -> usize {
        match self.ino {
            0 => 0,
            _ => entry_len(self.name_len.max(1)),
        }
    }

    /// The position behind the entry.
    pub(super) fn end(&self) -> usize {
        self.offset + self.len
    }
}

/// A name that is looked for.
pub(super) struct Wanted<'n> {
    name: &'n [u8],
    /// The last bytes of the name, up to four, which begin at a multiple of four: names that are
    /// alike mostly differ there.
    tail: u32,
    /// Position of the tail in the name.
    tail_at: usize,
    /// The bits of the tail that count.
    mask: u32,
}

impl<'n> Wanted<'n> {
    pub(super) fn new(name: &'n [u8]) -> Self {
        let tail_at = name.len().saturating_sub(1) & !3;
        Self {
            name,
            tail: word(name, tail_at),
            tail_at,
            mask: u32::MAX
                .checked_shr(8 * (4 - (name.len() - tail_at).min(4)) as u32)
                .unwrap_or(0),
        }
    }
}

/// Four bytes of a name as a number; those behind its end are 0.
fn word(name: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array::from_fn(|i| name.get(at + i).copied().unwrap_or(0)))
}

/// Whether one of the four bytes of a number is this one.
#[inline]
fn has_byte(word: u32, byte: u8) -> bool {
    // The highest bit of the lowest byte that is zero is set, and of none below it.
    let zero = word ^ u32::from_le_bytes([byte; 4]);
    zero.wrapping_sub(0x0101_0101) & !zero & 0x8080_8080 != 0
}

/// Reports a damaged directory. Its error is that of a block that cannot be read, as always with
/// ext2.
pub(super) fn corrupted(dir: &INode<Rext2>, what: fmt::Arguments<'_>) -> Error {
    inode::corrupted(dir, what);
    EIO
}

/// Finds the next entry of a good block whose name is so long, from word `at` on: its first word, and
/// that of the entry before it unless it starts at `at`. Returns `Some(None)` if there is none, and
/// `None` for damage.
///
/// This is the loop of every search. It makes sure of no more than that it gets on and ends.
fn next_alike(
    words: Words<'_>,
    mut at: usize,
    name_len: usize,
) -> Option<Option<(usize, Option<usize>)>> {
    const NAME_LEN: u32 = 0xff_0000;
    let alike = (name_len as u32) << 16;
    let last = words.count().checked_sub(SHORTEST / 4)?;
    let mut before = None;
    while at <= last {
        let second = words.get(at + 1)?;
        if second & NAME_LEN == alike {
            return Some(Some((at, before)));
        }
        let len = usize::from(second as u16) / 4;
        if len < SHORTEST / 4 {
            return None;
        }
        before = Some(at);
        at = at.wrapping_add(len);
    }
    (at == words.count()).then_some(None)
}

/// An entry that was found, and the position of the one before it.
pub(super) type Found = (Entry, Option<usize>);

/// One block of a directory.
pub(crate) struct Block<'a> {
    pub(super) dir: &'a INode<Rext2>,
    pub(super) buffer: BufHead<'a>,
    /// Position of the block in the directory.
    pub(super) start: Offset,
    /// Position of the next entry in the block, a multiple of four.
    pub(super) next: usize,
    /// The biggest inode number.
    inodes: u32,
}

impl<'a> Block<'a> {
    /// Reads a block of the directory.
    pub(super) fn read(dir: &'a INode<Rext2>, number: u64) -> Result<Self> {
        let geo = &dir.sb().data().geometry;
        match indirect::find(dir, number, 1)? {
            Some(Run::Data(block, _)) => Ok(Self {
                dir,
                buffer: dir.sb().bread(block.into())?,
                start: (number << geo.block_bits) as Offset,
                next: 0,
                inodes: geo.inodes_count,
            }),
            _ => Err(corrupted(
                dir,
                format_args!("i_block: block {number} of the directory is a hole"),
            )),
        }
    }

    /// The entry at a position, a multiple of four; nothing if it is damaged.
    #[inline]
    fn entry_at(&self, offset: usize) -> Option<Entry> {
        let words = self.buffer.words();
        let (first, second) = (words.get(offset / 4)?, words.get(offset / 4 + 1)?);
        let head = DirEntry::new(first, second);
        let size = self.buffer.size();
        let entry = Entry {
            ino: head.inode,
            file_type: head.file_type,
            offset,
            len: match head.rec_len {
                // What 16 bits cannot hold.
                0 | u16::MAX if HUGE_BLOCKS && size == 1 << 16 => size,
                len => len.into(),
            },
            name_len: head.name_len.into(),
        };
        let good = entry.len >= SHORTEST
            && entry.len % 4 == 0
            && entry.len <= size - offset
            && ondisk::DIR_HEAD + entry.name_len <= entry.len
            && entry.ino <= self.inodes;
        good.then_some(entry)
    }

    /// The next entry, in use or not.
    #[inline]
    pub(super) fn step(&mut self) -> Result<Option<Entry>> {
        if self.next >= self.buffer.size() {
            return Ok(None);
        }
        match self.entry_at(self.next) {
            Some(entry) => {
                self.next = entry.end();
                Ok(Some(entry))
            }
            None => Err(self.bad_entry(self.next)),
        }
    }

    /// Reports what is wrong with an entry.
    #[cold]
    fn bad_entry(&self, offset: usize) -> Error {
        let words = self.buffer.words();
        let (Some(first), Some(second)) = (words.get(offset / 4), words.get(offset / 4 + 1)) else {
            return self.bad(offset, format_args!("rec_len of the entry before it"));
        };
        let head = DirEntry::new(first, second);
        let (len, name_len) = (usize::from(head.rec_len), usize::from(head.name_len));
        if len < SHORTEST || len % 4 != 0 || len > self.buffer.size() - offset {
            self.bad(
                offset,
                format_args!("rec_len {len} is not a multiple of 4 from {SHORTEST} to the end"),
            )
        } else if ondisk::DIR_HEAD + name_len > len {
            self.bad(
                offset,
                format_args!("name_len {name_len} is more than rec_len {len}"),
            )
        } else {
            let (ino, inodes) = (head.inode, self.inodes);
            self.bad(offset, format_args!("inode {ino} is more than {inodes}"))
        }
    }

    /// Whether all entries were good when the block was used for the first time. It is no proof that
    /// they still are, as whoever has opened the device may write to it: who goes by this checks what
    /// it needs to get on and to stay in the block, and leaves all else to those who report damage.
    pub(super) fn is_good(&self) -> bool {
        if HUGE_BLOCKS {
            return false;
        }
        if self.buffer.is_checked() {
            return true;
        }
        let mut offset = 0;
        while offset < self.buffer.size() {
            match self.entry_at(offset) {
                Some(entry) if entry.ino == 0 || self.is_proper(&entry) => offset = entry.end(),
                _ => return false,
            }
        }
        self.buffer.set_checked();
        true
    }

    /// The next entry that is in use.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>> {
        while let Some(entry) = self.step()? {
            if entry.ino != 0 {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Whether an entry has this name.
    #[inline]
    pub(super) fn has_name(&self, entry: &Entry, wanted: &Wanted<'_>) -> bool {
        if entry.name_len != wanted.name.len() {
            return false;
        }
        // Entries begin and end at multiples of four, so that whole words of a name can be loaded.
        let words = self.buffer.words();
        let word_at = |at: usize| words.get((entry.offset + ondisk::DIR_HEAD + at) / 4);
        word_at(wanted.tail_at).map(|tail| tail & wanted.mask) == Some(wanted.tail)
            && (0..wanted.tail_at)
                .step_by(4)
                .all(|at| word_at(at) == Some(word(wanted.name, at)))
    }

    /// Finds the entry with a name, and the position of the one before it.
    ///
    /// # Errors
    ///
    /// `EIO` for a damaged entry in front of it, which is reported.
    pub(super) fn find(&mut self, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        if self.is_good() {
            if let Some(answer) = self.find_in_good(wanted) {
                return Ok(answer);
            }
        }
        let mut before = None;
        while let Some(entry) = self.step()? {
            if entry.ino != 0 && self.has_name(&entry, wanted) {
                return Ok(Some((entry, before)));
            }
            before = Some(entry.offset);
        }
        Ok(None)
    }

    /// Does what [`find`](Self::find) does in a good block. Returns nothing if there is damage now.
    fn find_in_good(&self, wanted: &Wanted<'_>) -> Option<Option<Found>> {
        let words = self.buffer.words();
        let (mut at, mut before) = (0, None);
        while let Some((alike, previous)) = next_alike(words, at, wanted.name.len())? {
            before = previous.or(before);
            let entry = self.entry_at(4 * alike)?;
            at = entry.end() / 4;
            if entry.ino != 0 && self.has_name(&entry, wanted) {
                return Some(Some((entry, before.map(|word: usize| 4 * word))));
            }
            before = Some(alike);
        }
        Some(None)
    }

    /// Calls `emit` with the position of the next entry and each entry that is in use, of those that
    /// start at `offset` or behind it, until it returns `false`. Returns whether it never did, or
    /// nothing if the block is not good.
    #[inline(always)]
    pub(super) fn for_each_good(
        &self,
        offset: usize,
        mut emit: impl FnMut(Entry, usize) -> Result<bool>,
    ) -> Result<Option<bool>> {
        if !self.is_good() {
            return Ok(None);
        }
        let words = self.buffer.words();
        let mut at = 0;
        while let (Some(ino), Some(second)) = (words.get(at), words.get(at + 1)) {
            let head = DirEntry::new(ino, second);
            let len = usize::from(head.rec_len);
            // Positions in a block are small numbers.
            let next = at.wrapping_add(len / 4);
            if next > words.count()
                || len < ondisk::DIR_HEAD + usize::from(head.name_len).max(1)
                || ino > self.inodes
            {
                break;
            }
            if ino != 0 && 4 * at >= offset {
                let entry = Entry {
                    ino,
                    file_type: head.file_type,
                    offset: 4 * at,
                    len,
                    name_len: head.name_len.into(),
                };
                if !emit(entry, next << 2)? {
                    return Ok(Some(false));
                }
            }
            at = next;
        }
        Ok((at == words.count()).then_some(true))
    }

    /// Goes to the first entry that starts at `offset` or behind it, wherever `offset` points to.
    pub(super) fn skip_to(&mut self, offset: usize) -> Result {
        while self.next < offset && self.step()?.is_some() {}
        Ok(())
    }

    /// Whether a file can have the name of an entry: it is not empty and has no nul or slash.
    #[inline]
    pub(super) fn is_proper(&self, entry: &Entry) -> bool {
        let words = self.buffer.words();
        (0..entry.name_len).step_by(4).all(|at| {
            // What lies behind the name is no nul or slash in this way.
            let left = (entry.name_len - at).min(4) as u32;
            let behind = u32::MAX.checked_shl(8 * left).unwrap_or(0);
            let word = words.get((entry.offset + ondisk::DIR_HEAD + at) / 4);
            word.is_some_and(|word| !has_byte(word | behind, 0) && !has_byte(word | behind, b'/'))
        }) && entry.name_len != 0
    }

    /// Reports a damaged entry.
    #[cold]
    pub(super) fn bad(&self, offset: usize, what: fmt::Arguments<'_>) -> Error {
        let pos = self.start + offset as Offset;
        corrupted(
            self.dir,
            format_args!("directory entry at byte {pos}: {what}"),
        )
    }
}
