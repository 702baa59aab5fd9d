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
use core::fmt;
use kernel::{
    fs::{
        buffer::BufHead,
        dir::{Emitter, FileType},
        INode, Offset,
    },
    prelude::*,
};

/// The length of the shortest entry: a head and a name, rounded up.
const SHORTEST: usize = ondisk::DIR_HEAD + 4;

/// An entry that is in use.
pub(crate) struct Entry {
    /// The inode, not 0.
    pub(crate) ino: u32,
    /// The type of the file, where the directory says it.
    file_type: u8,
    /// Position of the entry in its block.
    offset: usize,
    /// Length of the name.
    name_len: usize,
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
            }),
            _ => Err(corrupted(
                dir,
                format_args!("i_block: block {number} of the directory is a hole"),
            )),
        }
    }

    /// The next entry, in use or not, and the position behind it.
    fn step(&mut self) -> Result<Option<(DirEntry, usize)>> {
        let offset = self.next;
        let size = self.buffer.size();
        if offset >= size {
            return Ok(None);
        }
        let head = match (
            self.buffer.load_le32(offset),
            self.buffer.load_le32(offset + 4),
        ) {
            (Ok(first), Ok(second)) => DirEntry::new(first, second),
            _ => return Err(self.bad(offset, format_args!("rec_len of the entry before it"))),
        };
        let rec_len = match head.rec_len {
            // What 16 bits cannot hold.
            0 | u16::MAX if size == 1 << 16 => size,
            len => len.into(),
        };
        let name_len = usize::from(head.name_len);
        if rec_len < SHORTEST || rec_len % 4 != 0 || rec_len > size - offset {
            return Err(self.bad(
                offset,
                format_args!("rec_len {rec_len} is not a multiple of 4 from {SHORTEST} to the end"),
            ));
        }
        if ondisk::DIR_HEAD + name_len > rec_len {
            return Err(self.bad(
                offset,
                format_args!("name_len {name_len} is more than rec_len {rec_len}"),
            ));
        }
        let inodes = self.dir.sb().data().geometry.inodes_count;
        if head.inode > inodes {
            let ino = head.inode;
            return Err(self.bad(offset, format_args!("inode {ino} is more than {inodes}")));
        }
        self.next = offset + rec_len;
        Ok(Some((head, offset)))
    }

    /// The next entry that is in use.
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        while let Some((head, offset)) = self.step()? {
            if head.inode != 0 {
                return Ok(Some(Entry {
                    ino: head.inode,
                    file_type: head.file_type,
                    offset,
                    name_len: head.name_len.into(),
                }));
            }
        }
        Ok(None)
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

/// Finds the inode number of a name.
///
/// The search starts in the block where the last one ended, because names are often looked up in
/// the order in which the directory lists them.
pub(crate) fn find(dir: &INode<Rext2>, name: &[u8]) -> Result<Option<u32>> {
    let mut copy = [0; ondisk::NAME_LEN];
    let bits = dir.sb().data().geometry.block_bits;
    let blocks = (checked_size(dir)? >> bits) as u64;
    let start = dir.data().last_found();
    let start = if start < blocks { start } else { 0 };
    for number in Iterator::chain(start..blocks, 0..start) {
        let mut block = Block::read(dir, number)?;
        while let Some(entry) = block.next_entry()? {
            if entry.name_len == name.len() && block.name(&entry, &mut copy)? == name {
                dir.data().set_last_found(number);
                return Ok(Some(entry.ino));
            }
        }
    }
    Ok(None)
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
