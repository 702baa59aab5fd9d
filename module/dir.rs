// SPDX-License-Identifier: GPL-2.0

//! The entries of a directory.
//!
//! A directory is a file of whole blocks, each of which is filled by entries. An entry says how long
//! it is, so that they form a list; one whose inode is 0 is not in use. The index that some
//! directories have is hidden in entries that are not in use, so that the list is complete with and
//! without it.

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
        buffer::BufHead,
        dir::{Emitter, FileType},
        INode, Offset,
    },
    page::PAGE_SIZE,
    prelude::*,
};

mod change;

pub(crate) use change::{add, make_empty, Changed, Slot};

/// The length of the shortest entry: a head and a name, rounded up.
const SHORTEST: usize = entry_len(1);

/// The length of an entry with a name of so many bytes.
const fn entry_len(name_len: usize) -> usize {
    (ondisk::DIR_HEAD + name_len + 3) & !3
}

/// An entry.
struct Entry {
    /// The inode, or 0 if the entry is not in use.
    ino: u32,
    /// The type of the file, where the directory says it.
    file_type: u8,
    /// Position of the entry in its block.
    offset: usize,
    /// Length of the entry.
    len: usize,
    /// Length of the name.
    name_len: usize,
}

impl Entry {
    /// The bytes that the entry needs; the rest of it is room for another one.
    fn used(&self) -> usize {
        match self.ino {
            0 => 0,
            _ => entry_len(self.name_len.max(1)),
        }
    }

    /// The position behind the entry.
    fn end(&self) -> usize {
        self.offset + self.len
    }
}

/// A name that is looked for.
struct Wanted<'n> {
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
    fn new(name: &'n [u8]) -> Self {
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

/// Reports a damaged directory. Its error is that of a block that cannot be read, as always with
/// ext2.
fn corrupted(dir: &INode<Rext2>, what: fmt::Arguments<'_>) -> Error {
    inode::corrupted(dir, what);
    EIO
}

/// One block of a directory.
pub(crate) struct Block<'a> {
    dir: &'a INode<Rext2>,
    buffer: BufHead<'a>,
    /// Position of the block in the directory.
    start: Offset,
    /// Position of the next entry in the block.
    next: usize,
    /// The biggest inode number.
    inodes: u32,
}

impl<'a> Block<'a> {
    /// Reads a block of the directory.
    fn read(dir: &'a INode<Rext2>, number: u64) -> Result<Self> {
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

    /// The next entry, in use or not. This is the loop of every search.
    #[inline(always)]
    fn step(&mut self) -> Result<Option<Entry>> {
        let offset = self.next;
        let size = self.buffer.size();
        if offset >= size {
            return Ok(None);
        }
        let Ok([first, second]) = self.buffer.load_le32s(offset) else {
            return Err(self.bad(offset, format_args!("rec_len of the entry before it")));
        };
        let head = DirEntry::new(first, second);
        let entry = Entry {
            ino: head.inode,
            file_type: head.file_type,
            offset,
            len: match head.rec_len {
                // What 16 bits cannot hold.
                0 | u16::MAX if PAGE_SIZE >= 1 << 16 && size == 1 << 16 => size,
                len => len.into(),
            },
            name_len: head.name_len.into(),
        };
        if entry.len < SHORTEST
            || entry.len % 4 != 0
            || entry.len > size - offset
            || ondisk::DIR_HEAD + entry.name_len > entry.len
            || entry.ino > self.inodes
        {
            return Err(self.bad_entry(offset, head, entry.len));
        }
        self.next = entry.end();
        Ok(Some(entry))
    }

    /// Reports what is wrong with an entry.
    #[cold]
    fn bad_entry(&self, offset: usize, head: DirEntry, len: usize) -> Error {
        let (ino, name_len) = (head.inode, usize::from(head.name_len));
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
            let inodes = self.inodes;
            self.bad(offset, format_args!("inode {ino} is more than {inodes}"))
        }
    }

    /// The next entry that is in use.
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        while let Some(entry) = self.step()? {
            if entry.ino != 0 {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Whether an entry has this name.
    #[inline]
    fn has_name(&self, entry: &Entry, wanted: &Wanted<'_>) -> Result<bool> {
        if entry.name_len != wanted.name.len() {
            return Ok(false);
        }
        // Entries begin and end at multiples of four, so that whole words of a name can be loaded.
        let name = entry.offset + ondisk::DIR_HEAD;
        let [tail] = self.buffer.load_le32s(name + wanted.tail_at)?;
        if tail & wanted.mask != wanted.tail {
            return Ok(false);
        }
        for at in (0..wanted.tail_at).step_by(4) {
            let [bytes] = self.buffer.load_le32s(name + at)?;
            if bytes != word(wanted.name, at) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes to the first entry that starts at `offset` or behind it, wherever `offset` points to.
    fn skip_to(&mut self, offset: usize) -> Result {
        while self.next < offset && self.step()?.is_some() {}
        Ok(())
    }

    /// Copies the name of an entry.
    fn name<'n>(&self, entry: &Entry, to: &'n mut [u8; ondisk::NAME_LEN]) -> Result<&'n [u8]> {
        let name = to.get_mut(..entry.name_len).ok_or(EIO)?;
        self.buffer.copy_to(entry.offset + ondisk::DIR_HEAD, name)?;
        Ok(name)
    }

    /// Reports a damaged entry.
    #[cold]
    fn bad(&self, offset: usize, what: fmt::Arguments<'_>) -> Error {
        let pos = self.start + offset as Offset;
        corrupted(
            self.dir,
            format_args!("directory entry at byte {pos}: {what}"),
        )
    }
}

/// The size of a directory.
fn checked_size(dir: &INode<Rext2>) -> Result<Offset> {
    let size = dir.size();
    if size & Offset::from(dir.sb().block_size() - 1) != 0 {
        return Err(corrupted(
            dir,
            format_args!("i_size {size} of a directory is not whole blocks"),
        ));
    }
    Ok(size)
}

/// The numbers of the blocks of a directory, from a given one on and round.
fn blocks_from(dir: &INode<Rext2>, start: u64) -> Result<impl Iterator<Item = u64>> {
    let blocks = (checked_size(dir)? >> dir.sb().data().geometry.block_bits) as u64;
    let start = if start < blocks { start } else { 0 };
    Ok(Iterator::chain(start..blocks, 0..start))
}

/// Finds the inode number of a name.
pub(crate) fn find(dir: &INode<Rext2>, name: &[u8]) -> Result<Option<u32>> {
    Ok(find_slot(dir, name)?.map(|slot| slot.ino()))
}

/// Finds the entry with a name.
///
/// The search starts in the block where the last one ended, because names are often looked up in
/// the order in which the directory lists them.
pub(crate) fn find_slot<'a>(dir: &'a INode<Rext2>, name: &[u8]) -> Result<Option<Slot<'a>>> {
    let wanted = Wanted::new(name);
    for number in blocks_from(dir, dir.data().last_found())? {
        let mut block = Block::read(dir, number)?;
        let mut before = None;
        while let Some(entry) = block.step()? {
            // Most names differ in their lengths: not worth a call.
            let alike = entry.ino != 0 && entry.name_len == name.len();
            if alike && block.has_name(&entry, &wanted)? {
                dir.data().set_last_found(number);
                return Ok(Some(Slot::new(block, entry, before)));
            }
            before = Some(entry.offset);
        }
    }
    Ok(None)
}

/// The entry `..` of a directory, which names its parent.
pub(crate) fn dot_dot(dir: &INode<Rext2>) -> Result<Slot<'_>> {
    checked_size(dir)?;
    let mut block = Block::read(dir, 0)?;
    let first = block.step()?.map(|entry| entry.offset);
    match block.step()? {
        Some(entry) if entry.ino != 0 && block.has_name(&entry, &Wanted::new(b".."))? => {
            Ok(Slot::new(block, entry, first))
        }
        _ => Err(corrupted(
            dir,
            format_args!("the second directory entry is not \"..\""),
        )),
    }
}

/// Whether there are no names in a directory but its own and that of its parent.
pub(crate) fn is_empty(dir: &INode<Rext2>) -> Result<bool> {
    let (own, parent) = (Wanted::new(b"."), Wanted::new(b".."));
    for number in blocks_from(dir, 0)? {
        let mut block = Block::read(dir, number)?;
        while let Some(entry) = block.next_entry()? {
            let ours = block.has_name(&entry, &own)? && u64::from(entry.ino) == dir.ino();
            if !ours && !block.has_name(&entry, &parent)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Emits the entries from the position of the emitter on.
///
/// The position may be one that a user made up, or one where another entry started before the
/// directory changed: the list is followed from the start of the block.
pub(crate) fn emit(dir: &INode<Rext2>, emitter: &mut Emitter<'_>) -> Result {
    let mut copy = [0; ondisk::NAME_LEN];
    let size = checked_size(dir)?;
    let block_size = Offset::from(dir.sb().block_size());
    let begin = emitter.pos();
    while (0..size).contains(&emitter.pos()) {
        let next_block = (emitter.pos() & !(block_size - 1)) + block_size;
        match emit_block(dir, emitter, &mut copy) {
            Ok(true) => emitter.set_pos(next_block),
            Ok(false) => break,
            // With names before it, the error is only seen by who asks again, and gets here once
            // more. Who goes on after that goes on behind the damage.
            Err(e) => {
                if emitter.pos() == begin {
                    emitter.set_pos(next_block);
                }
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Emits the entries of one block. Returns whether all of them were taken.
fn emit_block(
    dir: &INode<Rext2>,
    emitter: &mut Emitter<'_>,
    copy: &mut [u8; ondisk::NAME_LEN],
) -> Result<bool> {
    let pos = emitter.pos();
    let bits = dir.sb().data().geometry.block_bits;
    let mut block = Block::read(dir, (pos >> bits) as u64)?;
    block.skip_to((pos - block.start) as usize)?;
    while let Some(entry) = block.next_entry()? {
        let name = block.name(&entry, copy)?;
        if name.is_empty() || name.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(block.bad(
                entry.offset,
                format_args!("the name is empty or has a nul or slash"),
            ));
        }
        let next = block.start + block.next as Offset;
        let file_type = file_type(dir, entry.file_type);
        if !emitter.emit(name, entry.ino.into(), file_type, next)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The type of a file, if directories of this file system say it.
fn file_type(dir: &INode<Rext2>, value: u8) -> FileType {
    if !dir.sb().data().filetype {
        return FileType::Unknown;
    }
    match value {
        1 => FileType::Regular,
        2 => FileType::Dir,
        3 => FileType::Char,
        4 => FileType::Block,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => FileType::Unknown,
    }
}
