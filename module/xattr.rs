// SPDX-License-Identifier: GPL-2.0

//! Extended attributes, which lie together in one block that several inodes may share.
//!
//! A block that several inodes use does not change, except for their number, `h_refcount`. Who
//! changes its attributes gets another block: one that already holds the same, if we remember it,
//! or a new one. A block with one user is changed where it is.
//!
//! The lock of an inode keeps its attributes from changing while they are read. The lock of
//! [`Cache`], inside of it, keeps the number of users of all blocks.
//!
//! Attributes that lie in the inode itself, behind its first 128 bytes, are not ext2's; they stay as
//! they are.

#![forbid(unsafe_code)]

use crate::{
    balloc, inode,
    ondisk::{self, XattrEntry, XattrHeader},
    state::{self, Feature},
    Rext2,
};
use core::{fmt, mem::size_of};
use image::{Image, HEAD, REFCOUNT};
use kernel::{
    fs::{
        acl::Kind,
        buffer::BufHead,
        lock::{Excl, Held},
        xattr::{Buffer, Condition, Names, Namespace, Operations},
        INode,
    },
    prelude::*,
};

mod cache;
mod image;

pub(crate) use cache::Cache;
pub(crate) use image::Name;

/// Number of inodes that may use a block.
const MAX_USERS: u32 = 1024;

/// The number of an access control list in the place of a namespace.
pub(crate) fn acl_index(kind: Kind) -> u8 {
    match kind {
        Kind::Access => 2,
        Kind::Default => 3,
    }
}

fn index(namespace: Namespace) -> u8 {
    match namespace {
        Namespace::User => 1,
        Namespace::Trusted => 4,
        Namespace::Security => 6,
    }
}

/// An attribute.
struct Entry {
    /// The namespace, by number; we may not know it.
    index: u8,
    /// Position of the name in the block.
    name: usize,
    /// Length of the name.
    name_len: usize,
    /// Position of the value in the block.
    value: usize,
    /// Length of the value.
    value_len: usize,
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
        match inode.data().file_acl() {
            0 => Ok(None),
            number => Self::read_at(inode, number).map(Some),
        }
    }

    /// Reads a block.
    fn read_at(inode: &'a INode<Rext2>, number: u32) -> Result<Self> {
        let buffer = inode.sb().bread(number.into())?;
        let words = buffer.words();
        let (magic, blocks) = (words.get(0).unwrap_or(0), words.get(2).unwrap_or(0));
        let block = Self {
            inode,
            buffer,
            next: size_of::<XattrHeader>(),
        };
        if magic != ondisk::XATTR_MAGIC || blocks != 1 {
            return Err(block.bad(format_args!("h_magic {magic:#x}, h_blocks {blocks}")));
        }
        Ok(block)
    }

    /// The number of the block.
    fn number(&self) -> u32 {
        self.buffer.block() as u32
    }

    /// How many inodes use the block; the lock of the cache is held.
    fn users(&self) -> Result<u32> {
        self.buffer.load_le32(REFCOUNT)
    }

    /// The next entry.
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        let size = self.buffer.size();
        let words = self.buffer.words();
        // Four bytes of zero end the list.
        let first = match words.get(self.next / 4) {
            Some(0) => return Ok(None),
            Some(first) => first,
            None => return Err(self.bad(format_args!("e_name_len: the list has no end"))),
        };
        let more = [1, 2, 3].map(|i| words.get(self.next / 4 + i));
        let [Some(second), Some(third), Some(fourth)] = more else {
            return Err(self.bad(format_args!("e_name_len: the last entry is cut off")));
        };
        let head = XattrEntry::new([first, second, third, fourth]);
        let index = head.e_name_index;
        let name_len = usize::from(head.e_name_len);
        let end = self.next + HEAD + name_len.next_multiple_of(4);
        if end > size || (index == 0 && name_len == 0) {
            return Err(self.bad(format_args!(
                "e_name_index {index}, e_name_len {name_len}: no name, or no room for it"
            )));
        }
        let value = usize::from(head.e_value_offs.get());
        let value_len = head.e_value_size.get() as usize;
        if head.e_value_block.get() != 0 || value + value_len > size {
            return Err(self.bad(format_args!(
                "e_value_offs {value}, e_value_size {value_len}: not within the block"
            )));
        }
        let entry = Entry {
            index,
            name: self.next + HEAD,
            name_len,
            value,
            value_len,
        };
        self.next = end;
        Ok(Some(entry))
    }

    /// The name of an entry, in `copy`.
    fn name<'b>(&self, entry: &Entry, copy: &'b mut [u8; u8::MAX as usize]) -> Result<Name<'b>> {
        let copy = copy.get_mut(..entry.name_len).ok_or(EIO)?;
        self.buffer.copy_to(entry.name, copy)?;
        Ok(Name::new(entry.index, copy))
    }

    /// Whether an entry has this name.
    fn is_named(&self, entry: &Entry, name: Name<'_>) -> bool {
        if entry.index != name.index || entry.name_len != name.len() {
            return false;
        }
        // Entries begin and end at multiples of four, so that whole words of a name can be loaded.
        let words = self.buffer.words();
        name.text.chunks(4).enumerate().all(|(i, bytes)| {
            let wanted = bytes.iter().rfold(0, |word, &b| word << 8 | u32::from(b));
            let mask = u32::MAX >> (8 * (4 - bytes.len()));
            words.get(entry.name / 4 + i).map(|word| word & mask) == Some(wanted)
        })
    }

    /// Looks for an attribute.
    fn find(&mut self, name: Name<'_>) -> Result<Option<Entry>> {
        self.next = size_of::<XattrHeader>();
        while let Some(entry) = self.next_entry()? {
            if self.is_named(&entry, name) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Copies all attributes to `image`, with `value` for that of `name`.
    fn rewrite(&mut self, image: &mut Image, name: Name<'_>, value: Option<&[u8]>) -> Result {
        let mut copy = [0; u8::MAX as usize];
        let mut value = value;
        self.next = size_of::<XattrHeader>();
        while let Some(entry) = self.next_entry()? {
            let there = self.name(&entry, &mut copy)?;
            if there >= name {
                push(image, name, value.take())?;
            }
            if there != name {
                image.push(there, entry.value_len, |to| {
                    self.buffer.copy_to(entry.value, to)
                })?;
            }
        }
        push(image, name, value)
    }

    /// Reports a damaged block.
    fn bad(&self, what: fmt::Arguments<'_>) -> Error {
        let number = self.buffer.block();
        inode::corrupted(self.inode, format_args!("i_file_acl {number}: {what}"));
        EIO
    }
}

fn push(image: &mut Image, name: Name<'_>, value: Option<&[u8]>) -> Result {
    let Some(value) = value else {
        return Ok(());
    };
    image.push(name, value.len(), |to| {
        to.copy_from_slice(value);
        Ok(())
    })
}

/// Reads an attribute: `fill` is called with its length and a function that copies the value.
pub(crate) fn get<R>(
    inode: &INode<Rext2>,
    name: Name<'_>,
    fill: impl FnOnce(usize, &dyn Fn(&mut [u8]) -> Result) -> Result<R>,
) -> Result<Option<R>> {
    let _lock = inode.data().xattr_lock();
    let Some(mut block) = Block::read(inode)? else {
        return Ok(None);
    };
    let Some(entry) = block.find(name)? else {
        return Ok(None);
    };
    let copy = |to: &mut [u8]| block.buffer.copy_to(entry.value, to);
    fill(entry.value_len, &copy).map(Some)
}

/// Sets an attribute, or removes it.
///
/// # Errors
///
/// As for [`Operations::set`]. The old attributes are there then, unless the device has failed to
/// write the new ones.
pub(crate) fn set(
    inode: &mut Held<'_, Rext2, Excl>,
    name: Name<'_>,
    value: Option<&[u8]>,
    condition: Condition,
) -> Result {
    let size = inode.sb().block_size() as usize;
    if name.len() > u8::MAX.into() || value.is_some_and(|value| value.len() > size) {
        return Err(ERANGE);
    }
    // Who frees memory may have to wait for the locks below, so this comes before them.
    let mut image = Image::new(size)?;
    let node = inode.inode();
    let _lock = node.data().xattr_lock();
    let mut old = Block::read(node)?;
    let exists = match &mut old {
        Some(block) => block.find(name)?.is_some(),
        None => false,
    };
    condition.check(exists)?;
    if !exists && value.is_none() {
        return Ok(());
    }
    match &mut old {
        Some(block) => block.rewrite(&mut image, name, value)?,
        None => push(&mut image, name, value)?,
    }
    image.finish()?;

    let was = old.as_ref().map_or(0, Block::number);
    let number = match &old {
        _ if image.is_empty() => 0,
        Some(block) if image.is_in(&block.buffer)? => was,
        _ => {
            let new = store(node, &image, old.as_ref())?;
            let number = new.block() as u32;
            if node.is_sync() {
                new.sync().inspect_err(|_| {
                    if number != was {
                        put(node, number);
                    }
                })?;
            }
            number
        }
    };
    node.data().set_file_acl(number);
    inode.touch_ctime();
    inode.mark_dirty();
    let result = if node.is_sync() {
        node.sync_metadata()
    } else {
        Ok(())
    };
    // The old block may get other contents from here on.
    if was != 0 && was != number {
        put(node, was);
    }
    result
}

/// Returns a block with the contents of `image`, of which the inode is a user.
fn store<'a>(
    inode: &'a INode<Rext2>,
    image: &Image,
    old: Option<&Block<'a>>,
) -> Result<BufHead<'a>> {
    let sb = inode.sb();
    let mount = sb.data();
    let mut cache = mount.xattrs.lock();
    if let Some(block) = cache.find(image.hash()) {
        if let Some(buffer) = share(inode, image, block, old)? {
            return Ok(buffer);
        }
    }
    let buffer = match old {
        Some(old) if old.users()? == 1 => {
            cache.remove(old.number());
            sb.bread(old.number().into())?
        }
        _ => {
            let group = inode.data().block_group();
            let number = balloc::alloc_one(inode, mount.geometry.group_start(group))?;
            if let Err(e) = state::set_feature(sb, Feature::ExtAttr) {
                balloc::free(inode, number, 1);
                return Err(e);
            }
            inode.add_sectors(sectors(inode));
            sb.bnew(number.into()).inspect_err(|_| {
                inode.add_sectors(-sectors(inode));
                balloc::free(inode, number, 1);
            })?
        }
    };
    buffer.write(0, image.bytes())?;
    buffer.mark_dirty_inode(inode);
    cache.insert(image.hash(), buffer.block() as u32);
    Ok(buffer)
}

/// Makes the inode a user of a block that is remembered, if that holds the contents of `image`.
fn share<'a>(
    inode: &'a INode<Rext2>,
    image: &Image,
    block: u32,
    old: Option<&Block<'a>>,
) -> Result<Option<BufHead<'a>>> {
    // Without it, the attributes go to a block of their own.
    let Ok(buffer) = inode.sb().bread(block.into()) else {
        return Ok(None);
    };
    let users = buffer.load_le32(REFCOUNT)?;
    if !(1..MAX_USERS).contains(&users) || !image.is_in(&buffer)? {
        return Ok(None);
    }
    if !old.is_some_and(|old| old.number() == block) {
        buffer.store_le32(REFCOUNT, users + 1)?;
        buffer.mark_dirty_inode(inode);
        inode.add_sectors(sectors(inode));
    }
    Ok(Some(buffer))
}

/// What a user of a block has of it in `i_blocks`.
fn sectors(inode: &INode<Rext2>) -> i64 {
    i64::from(inode.sb().block_size() >> 9)
}

/// Makes the inode no user of a block any more. The last one frees it.
fn put(inode: &INode<Rext2>, number: u32) {
    let mut cache = inode.sb().data().xattrs.lock();
    let users = Block::read_at(inode, number).and_then(|block| Ok((block.users()?, block)));
    match users {
        Ok((0, block)) => {
            block.bad(format_args!("h_refcount 0, but in use"));
        }
        Ok((1, block)) => {
            cache.remove(number);
            block.buffer.forget();
            balloc::free(inode, number, 1);
        }
        Ok((users, block)) => {
            if block.buffer.store_le32(REFCOUNT, users - 1).is_ok() {
                block.buffer.mark_dirty();
            }
        }
        // It stays allocated: better lost than used twice.
        Err(_) => {}
    }
    inode.add_sectors(-sectors(inode));
}

/// Gives up the attributes of an inode that is being deleted.
pub(crate) fn release(inode: &INode<Rext2>) {
    let number = inode.data().file_acl();
    if number != 0 {
        inode.data().set_file_acl(0);
        put(inode, number);
    }
}

/// The attributes of an inode.
pub(crate) struct Attributes;

/// Refuses the attributes of users on a mount that has none.
fn check_namespace(inode: &INode<Rext2>, namespace: Namespace) -> Result {
    if namespace == Namespace::User && !inode.sb().data().options.user_xattr() {
        return Err(EOPNOTSUPP);
    }
    Ok(())
}

#[vtable]
impl Operations for Attributes {
    type FileSystem = Rext2;

    fn get(inode: &INode<Rext2>, namespace: Namespace, name: &[u8], to: &mut Buffer<'_>) -> Result {
        check_namespace(inode, namespace)?;
        let name = Name::new(index(namespace), name);
        get(inode, name, |len, fill| to.put(len, fill))?.ok_or(ENODATA)
    }

    fn set(
        mut inode: Held<'_, Rext2, Excl>,
        namespace: Namespace,
        name: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
    ) -> Result {
        check_namespace(&inode, namespace)?;
        set(
            &mut inode,
            Name::new(index(namespace), name),
            value,
            condition,
        )
    }

    fn list(inode: &INode<Rext2>, to: &mut Names<'_>) -> Result {
        let _lock = inode.data().xattr_lock();
        let Some(mut block) = Block::read(inode)? else {
            return Ok(());
        };
        while let Some(entry) = block.next_entry()? {
            let mut put = |namespace| {
                if check_namespace(inode, namespace).is_err() {
                    return Ok(());
                }
                to.put(namespace, entry.name_len, |to| {
                    block.buffer.copy_to(entry.name, to)
                })
            };
            match entry.index {
                1 => put(Namespace::User)?,
                2 => to.put_acl(Kind::Access)?,
                3 => to.put_acl(Kind::Default)?,
                4 => put(Namespace::Trusted)?,
                6 => put(Namespace::Security)?,
                _ => {}
            }
        }
        Ok(())
    }
}
