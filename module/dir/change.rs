// SPDX-License-Identifier: GPL-2.0

//! Changing the entries of a directory.
//!
//! An entry takes the room that another one has left: a whole entry that is not in use, or what is
//! behind the name of one that is. A name is removed by giving its entry to the one before it in the
//! block. What is written is valid after each store, because the block may be on its way to the
//! disk. Entries that are not touched stay where they are.
//!
//! The index of a directory knows nothing of this, so that the flag which says that there is one is
//! cleared.

#![forbid(unsafe_code)]

use super::{blocks_from, entry_len, stop_if_killed, Block, Entry, SHORTEST};
use crate::{
    indirect,
    ondisk::{self, inode_flags, mode, DirEntry},
    Rext2,
};
use kernel::{
    fs::{
        buffer::BufHead,
        inode::FreshINode,
        lock::{Excl, Held},
        INode,
    },
    prelude::*,
};

/// An entry that was found, and what is needed to change it.
pub(crate) struct Slot<'a> {
    block: Block<'a>,
    entry: Entry,
    /// Position of an entry before it in its block; it was the one just before when it was found.
    before: Option<usize>,
}

impl<'a> Slot<'a> {
    pub(super) fn new(block: Block<'a>, entry: Entry, before: Option<usize>) -> Self {
        Self {
            block,
            entry,
            before,
        }
    }

    /// The inode that the entry leads to.
    pub(crate) fn ino(&self) -> u32 {
        self.entry.ino
    }

    /// Makes the entry lead to another inode.
    pub(crate) fn set(
        self,
        dir: &mut Held<'a, Rext2, Excl>,
        inode: &INode<Rext2>,
    ) -> Result<Changed<'a>> {
        let buffer = self.store(inode)?;
        dir.touch_mtime();
        Ok(Changed::new(dir, buffer))
    }

    /// Makes the entry `..` lead to another parent. That does not count as a change of the
    /// contents.
    pub(crate) fn set_parent(
        self,
        dir: &mut Held<'a, Rext2, Excl>,
        parent: &INode<Rext2>,
    ) -> Result<Changed<'a>> {
        let buffer = self.store(parent)?;
        Ok(Changed::new(dir, buffer))
    }

    fn store(mut self, inode: &INode<Rext2>) -> Result<BufHead<'a>> {
        let now = self.now()?;
        let head = DirEntry {
            inode: inode.ino() as u32,
            rec_len: rec_len(now.len),
            name_len: now.name_len as u8,
            file_type: file_type(inode),
        };
        put_head(&self.block.buffer, now.offset, head)?;
        Ok(self.block.buffer)
    }

    /// Removes the entry.
    pub(crate) fn remove(mut self, dir: &mut Held<'a, Rext2, Excl>) -> Result<Changed<'a>> {
        let now = self.now()?;
        match self.just_before()? {
            Some(before) => self.block.set_len(&before, now.end() - before.offset)?,
            None => self.block.buffer.store_le32(now.offset, 0)?,
        }
        dir.data().set_last_room(self.block.number());
        dir.touch_mtime();
        Ok(Changed::new(dir, self.block.buffer))
    }

    /// The entry as it is now. Since it was found, another one may have been added behind its name.
    fn now(&mut self) -> Result<Entry> {
        self.block.next = self.entry.offset;
        self.block.step()?.ok_or(EIO)
    }

    /// The entry just before this one. Since this one was found, others may have been added between
    /// the two.
    fn just_before(&mut self) -> Result<Option<Entry>> {
        let Some(before) = self.before else {
            return Ok(None);
        };
        self.block.next = before;
        while let Some(entry) = self.block.step()? {
            if entry.end() == self.entry.offset {
                return Ok(Some(entry));
            }
            if entry.end() > self.entry.offset {
                break;
            }
        }
        Err(self.block.bad(
            before,
            format_args!("rec_len changed while the directory was locked"),
        ))
    }
}

/// A block of a directory that was changed.
#[must_use = "it may have to be written at once"]
pub(crate) struct Changed<'a>(BufHead<'a>);

impl<'a> Changed<'a> {
    fn new(dir: &mut Held<'a, Rext2, Excl>, buffer: BufHead<'a>) -> Self {
        buffer.mark_dirty_inode(dir.inode());
        let flags = dir.data().flags();
        if flags & inode_flags::INDEX != 0 {
            dir.data().set_flags(flags & !inode_flags::INDEX);
        }
        dir.mark_dirty();
        Self(buffer)
    }

    /// Writes the change and the inode of the directory if the directory or the mount ask for it.
    pub(crate) fn sync(self, dir: &INode<Rext2>) -> Result {
        if !dir.is_dirsync() {
            return Ok(());
        }
        self.sync_now(dir)
    }

    /// Writes the change, what leads to it, and the inode of the directory.
    pub(crate) fn sync_now(&self, dir: &INode<Rext2>) -> Result {
        self.0.sync()?;
        dir.sync_buffers()?;
        dir.sync_metadata()
    }
}

impl Block<'_> {
    /// The number of the block in the directory.
    fn number(&self) -> u64 {
        self.start as u64 >> self.dir.sb().data().geometry.block_bits
    }

    /// Sets the length of an entry.
    fn set_len(&self, entry: &Entry, len: usize) -> Result {
        let (_, second) = DirEntry {
            inode: entry.ino,
            rec_len: rec_len(len),
            name_len: entry.name_len as u8,
            file_type: entry.file_type,
        }
        .words();
        self.buffer.store_le32(entry.offset + 4, second)
    }
}

/// Adds an entry. There is none with this name.
pub(crate) fn add<'a>(
    dir: &mut Held<'a, Rext2, Excl>,
    name: &[u8],
    inode: &INode<Rext2>,
) -> Result<Changed<'a>> {
    let need = entry_len(name.len());
    let buffer = match find_room(dir.inode(), need)? {
        Some((block, entry)) => {
            dir.data().set_last_room(block.number());
            let used = entry.used();
            let offset = entry.offset + used;
            put(&block.buffer, offset, entry.len - used, name, inode)?;
            if used != 0 {
                block.set_len(&entry, used)?;
            }
            block.buffer
        }
        None => {
            let (number, buffer) = indirect::append_dir_block(dir)?;
            dir.data().set_last_room(number);
            put(&buffer, 0, buffer.size(), name, inode)?;
            buffer
        }
    };
    dir.touch_mtime();
    Ok(Changed::new(dir, buffer))
}

/// Finds an entry with room for another one of `need` bytes.
///
/// The search starts in the block where there was room last, because the blocks before it are often
/// full.
fn find_room(dir: &INode<Rext2>, need: usize) -> Result<Option<(Block<'_>, Entry)>> {
    for number in blocks_from(dir, dir.data().last_room())? {
        stop_if_killed()?;
        let mut block = Block::read(dir, number)?;
        while let Some(entry) = block.step()? {
            if entry.len - entry.used() >= need {
                return Ok(Some((block, entry)));
            }
        }
    }
    Ok(None)
}

/// Fills a new directory, which has no blocks yet.
pub(crate) fn make_empty(dir: &FreshINode<'_, Rext2>, parent: &INode<Rext2>) -> Result {
    let buffer = indirect::first_block(dir)?;
    put(&buffer, 0, SHORTEST, b".", dir)?;
    put(&buffer, SHORTEST, buffer.size() - SHORTEST, b"..", parent)?;
    buffer.mark_dirty_inode(dir);
    if parent.is_dirsync() {
        buffer.sync()?;
    }
    Ok(())
}

/// Writes an entry: its head last, so that it is valid whenever it is seen.
fn put(
    buffer: &BufHead<'_>,
    offset: usize,
    len: usize,
    name: &[u8],
    inode: &INode<Rext2>,
) -> Result {
    buffer.write(offset + ondisk::DIR_HEAD, name)?;
    let head = DirEntry {
        inode: inode.ino() as u32,
        rec_len: rec_len(len),
        name_len: name.len() as u8,
        file_type: file_type(inode),
    };
    put_head(buffer, offset, head)
}

fn put_head(buffer: &BufHead<'_>, offset: usize, head: DirEntry) -> Result {
    let (first, second) = head.words();
    buffer.store_le32(offset + 4, second)?;
    buffer.store_le32(offset, first)
}

/// The length of an entry as it is stored.
fn rec_len(len: usize) -> u16 {
    // 64 KiB is more than 16 bits hold.
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// The type of a file as an entry says it: 0 if directories of this file system do not.
fn file_type(inode: &INode<Rext2>) -> u8 {
    if !inode.sb().data().filetype {
        return 0;
    }
    match inode.mode() & mode::TYPE {
        mode::REGULAR => 1,
        mode::DIR => 2,
        mode::CHAR => 3,
        mode::BLOCK => 4,
        mode::FIFO => 5,
        mode::SOCKET => 6,
        mode::SYMLINK => 7,
        _ => 0,
    }
}
