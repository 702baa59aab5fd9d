// SPDX-License-Identifier: GPL-2.0

//! The entries of a directory.
//!
//! A directory is a file of whole blocks, each of which is filled by entries. An entry says how long
//! it is, so that they form a list; one whose inode is 0 is not in use. The index that some
//! directories have is hidden in entries that are not in use, so that the list is complete with and
//! without it.

#![forbid(unsafe_code)]

use crate::{ondisk, Rext2};
use kernel::{
    fs::{
        self,
        dir::{Emitter, FileType},
        INode, Offset,
    },
    prelude::*,
};

mod block;
mod change;

use block::{corrupted, entry_len, Block, Entry, Wanted, SHORTEST};
pub(crate) use change::{add, make_empty, Changed, Slot};

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

/// A damaged directory may seem to have millions of blocks.
fn stop_if_killed() -> Result {
    if fs::is_killed() {
        return Err(EINTR);
    }
    Ok(())
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
        stop_if_killed()?;
        let mut block = Block::read(dir, number)?;
        if let Some((entry, before)) = block.find(&wanted)? {
            dir.data().set_last_found(number);
            return Ok(Some(Slot::new(block, entry, before)));
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
        Some(entry) if entry.ino != 0 && block.has_name(&entry, &Wanted::new(b"..")) => {
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
        stop_if_killed()?;
        let mut block = Block::read(dir, number)?;
        while let Some(entry) = block.next_entry()? {
            let ours = block.has_name(&entry, &own) && u64::from(entry.ino) == dir.ino();
            if !ours && !block.has_name(&entry, &parent) {
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
    let size = checked_size(dir)?;
    let block_size = Offset::from(dir.sb().block_size());
    let begin = emitter.pos();
    while (0..size).contains(&emitter.pos()) {
        stop_if_killed()?;
        let next_block = (emitter.pos() & !(block_size - 1)) + block_size;
        match emit_block(dir, emitter) {
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
fn emit_block(dir: &INode<Rext2>, emitter: &mut Emitter<'_>) -> Result<bool> {
    let pos = emitter.pos();
    let bits = dir.sb().data().geometry.block_bits;
    let mut block = Block::read(dir, (pos >> bits) as u64)?;
    let start = (pos - block.start) as usize;
    let with_types = dir.sb().data().filetype;
    let mut improper = false;
    let done = block.for_each_good(start, |entry, next| {
        let taken = emit_entry(&block, &entry, next, with_types, emitter)?;
        // A name that no file can have is not taken either.
        improper = !taken && !block.is_proper(&entry);
        Ok(taken)
    })?;
    if let (Some(done), false) = (done, improper) {
        return Ok(done);
    }
    // Once more, for the names in front of the damage.
    block.skip_to((emitter.pos() - block.start) as usize)?;
    while let Some(entry) = block.next_entry()? {
        if !block.is_proper(&entry) {
            return Err(block.bad(
                entry.offset,
                format_args!("the name is empty or has a nul or slash"),
            ));
        }
        if !emit_entry(&block, &entry, block.next, with_types, emitter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Emits an entry; the one behind it is at `next` in the block. Returns whether it was taken.
#[inline(always)]
fn emit_entry(
    block: &Block<'_>,
    entry: &Entry,
    next: usize,
    with_types: bool,
    emitter: &mut Emitter<'_>,
) -> Result<bool> {
    let name = (entry.offset + ondisk::DIR_HEAD, entry.name_len);
    let file_type = file_type(with_types, entry.file_type);
    let next = block.start + next as Offset;
    emitter.emit_from(&block.buffer, name, entry.ino.into(), file_type, next)
}

/// The type of a file, if directories of this file system say it.
fn file_type(with_types: bool, value: u8) -> FileType {
    if !with_types {
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
