// SPDX-License-Identifier: GPL-2.0

//! Extended attributes, which lie together in one block that several inodes may share.

#![forbid(unsafe_code)]

use crate::{
    inode,
    ondisk::{self, XattrEntry, XattrHeader},
    Rext2,
};
use core::{fmt, mem::size_of};
use kernel::{
    fs::{
        buffer::BufHead,
        xattr::{Buffer, Names, Namespace, Operations},
        INode,
    },
    prelude::*,
};

/// The length of an entry's head, in bytes.
const HEAD: usize = size_of::<XattrEntry>();

/// An attribute.
struct Entry {
    /// The namespace, by number; we may not know it.
    index: u8,
    /// Position of the name in the block.
    name: usize,
    /// Length of the name, not 0.
    name_len: usize,
    /// Position of the value in the block.
    value: usize,
    /// Length of the value.
    value_len: usize,
}

impl Entry {
    fn namespace(&self) -> Option<Namespace> {
        match self.index {
            1 => Some(Namespace::User),
            4 => Some(Namespace::Trusted),
            6 => Some(Namespace::Security),
            _ => None,
        }
    }
}

/// The block with the attributes of an inode.
struct Block<'a> {
    inode: &'a INode<Rext2>,
    buffer: BufHead<'a>,
    /// Position of the next entry in the block.
    next: usize,
}

impl<'a> Block<'a> {
    /// Reads the block, if there is one.
    fn read(inode: &'a INode<Rext2>) -> Result<Option<Self>> {
        let number = inode.data().file_acl();
        if number == 0 {
            return Ok(None);
        }
        let buffer = inode.sb().bread(number.into())?;
        let header: XattrHeader = buffer.get(0)?;
        let block = Self {
            inode,
            buffer,
            next: size_of::<XattrHeader>(),
        };
        let (magic, blocks) = (header.h_magic.get(), header.h_blocks.get());
        if magic != ondisk::XATTR_MAGIC || blocks != 1 {
            return Err(block.bad(format_args!("h_magic {magic:#x}, h_blocks {blocks}")));
        }
        Ok(Some(block))
    }

    /// The next entry.
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        let size = self.buffer.size();
        // Four bytes of zero end the list.
        match self.buffer.get::<[u8; 4]>(self.next) {
            Ok([0, 0, 0, 0]) => return Ok(None),
            Ok(_) => {}
            Err(_) => return Err(self.bad(format_args!("e_name_len: the list has no end"))),
        }
        let Ok(head) = self.buffer.get::<XattrEntry>(self.next) else {
            return Err(self.bad(format_args!("e_name_len: the last entry is cut off")));
        };
        let name_len = usize::from(head.e_name_len);
        let end = self.next + HEAD + name_len.next_multiple_of(4);
        if name_len == 0 || end > size {
            return Err(self.bad(format_args!("e_name_len {name_len}: no room for the name")));
        }
        let value = usize::from(head.e_value_offs.get());
        let value_len = head.e_value_size.get() as usize;
        if head.e_value_block.get() != 0 || value + value_len > size {
            return Err(self.bad(format_args!(
                "e_value_offs {value}, e_value_size {value_len}: not within the block"
            )));
        }
        let entry = Entry {
            index: head.e_name_index,
            name: self.next + HEAD,
            name_len,
            value,
            value_len,
        };
        self.next = end;
        Ok(Some(entry))
    }

    /// Reports a damaged block.
    fn bad(&self, what: fmt::Arguments<'_>) -> Error {
        let number = self.buffer.block();
        inode::corrupted(self.inode, format_args!("i_file_acl {number}: {what}"));
        EIO
    }
}

/// The attributes of an inode.
pub(crate) struct Attributes;

#[vtable]
impl Operations for Attributes {
    type FileSystem = Rext2;

    fn get(inode: &INode<Rext2>, namespace: Namespace, name: &[u8], to: &mut Buffer<'_>) -> Result {
        let Some(mut block) = Block::read(inode)? else {
            return Err(ENODATA);
        };
        let mut copy = [0; u8::MAX as usize];
        while let Some(entry) = block.next_entry()? {
            if entry.namespace() != Some(namespace) || entry.name_len != name.len() {
                continue;
            }
            let copy = copy.get_mut(..entry.name_len).ok_or(EIO)?;
            block.buffer.copy_to(entry.name, copy)?;
            if copy == name {
                return to.put(entry.value_len, |to| block.buffer.copy_to(entry.value, to));
            }
        }
        Err(ENODATA)
    }

    fn list(inode: &INode<Rext2>, to: &mut Names<'_>) -> Result {
        let Some(mut block) = Block::read(inode)? else {
            return Ok(());
        };
        while let Some(entry) = block.next_entry()? {
            if let Some(namespace) = entry.namespace() {
                to.put(namespace, entry.name_len, |to| {
                    block.buffer.copy_to(entry.name, to)
                })?;
            }
        }
        Ok(())
    }
}
