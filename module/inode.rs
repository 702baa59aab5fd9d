// SPDX-License-Identifier: GPL-2.0

//! From an inode number to an inode.

#![forbid(unsafe_code)]

use crate::{
    file::File,
    ondisk::{self, inode_flags, mode, InodeExtra},
    symlink::SlowLink,
    Rext2,
};
use core::{
    fmt,
    mem::size_of,
    sync::atomic::{AtomicU32, Ordering},
};
use kernel::{
    fs::{
        inode::{Attributes, Flags, Iget, NewINode, Special, Timespec},
        INode, IRef, Offset, SuperBlock,
    },
    prelude::*,
};

/// What we keep for an inode.
pub(crate) struct Info {
    /// `i_block`: the block pointers of a file or a directory.
    blocks: [AtomicU32; ondisk::BLOCK_POINTERS],
    /// `i_file_acl`: the block with the attributes, or 0.
    file_acl: AtomicU32,
    /// The block of a directory in which a name was found last.
    last_found: AtomicU32,
    /// The block of a directory in which there was room last.
    last_room: AtomicU32,
}

impl Info {
    /// An inode without blocks.
    pub(crate) fn new() -> Self {
        Self {
            blocks: [const { AtomicU32::new(0) }; ondisk::BLOCK_POINTERS],
            file_acl: AtomicU32::new(0),
            last_found: AtomicU32::new(0),
            last_room: AtomicU32::new(0),
        }
    }

    /// The block of a directory in which a name was found last: a hint, nothing more.
    pub(crate) fn last_found(&self) -> u64 {
        self.last_found.load(Ordering::Relaxed).into()
    }

    /// Sets the block of a directory in which a name was found last.
    pub(crate) fn set_last_found(&self, block: u64) {
        self.last_found.store(block as u32, Ordering::Relaxed);
    }

    /// The block of a directory in which there was room for an entry last: a hint, nothing more.
    pub(crate) fn last_room(&self) -> u64 {
        self.last_room.load(Ordering::Relaxed).into()
    }

    /// Sets the block of a directory in which there was room last.
    pub(crate) fn set_last_room(&self, block: u64) {
        self.last_room.store(block as u32, Ordering::Relaxed);
    }

    /// The block with the attributes, or 0.
    pub(crate) fn file_acl(&self) -> u32 {
        self.file_acl.load(Ordering::Acquire)
    }

    /// The block pointer at an index, 0 for a hole. A pointer is stored once what it points to is
    /// valid.
    pub(crate) fn block(&self, index: usize) -> u32 {
        self.blocks
            .get(index)
            .map_or(0, |b| b.load(Ordering::Acquire))
    }

    fn set_blocks(&self, blocks: &[kernel::ondisk::Le32; ondisk::BLOCK_POINTERS]) {
        for (to, from) in self.blocks.iter().zip(blocks) {
            to.store(from.get(), Ordering::Release);
        }
    }
}

/// Reports a damaged inode.
pub(crate) fn corrupted(inode: &INode<Rext2>, what: fmt::Arguments<'_>) -> Error {
    inode
        .sb()
        .corrupted(Some(inode), format_args!("inode {}: {what}", inode.ino()));
    EUCLEAN
}

/// Returns an inode, and reads it from the disk if it is not in memory.
///
/// # Errors
///
/// `EINVAL` for a number that no file can have, `ESTALE` for an inode that is not in use,
/// `EUCLEAN` for one that is damaged, which is reported.
pub(crate) fn iget(sb: &SuperBlock<Rext2>, ino: u32) -> Result<IRef<'_, Rext2>> {
    let geo = &sb.data().geometry;
    if ino != ondisk::ROOT_INO && !(geo.first_ino..=geo.inodes_count).contains(&ino) {
        return Err(EINVAL);
    }
    match sb.iget(ino.into())? {
        Iget::Cached(inode) => Ok(inode),
        Iget::New(new) => read(sb, new, ino),
    }
}

/// Reads an inode from the disk.
fn read<'sb>(
    sb: &'sb SuperBlock<Rext2>,
    mut new: NewINode<'sb, Rext2>,
    ino: u32,
) -> Result<IRef<'sb, Rext2>> {
    let mount = sb.data();
    let geo = &mount.geometry;
    let index = ino - 1;
    let desc = mount
        .groups
        .get((index / geo.inodes_per_group) as usize)
        .ok_or(EINVAL)?;
    let byte = u64::from(index % geo.inodes_per_group) * u64::from(geo.inode_size);
    let block = u64::from(desc.bg_inode_table.get()) + (byte >> geo.block_bits);
    let offset = (byte % u64::from(geo.block_size)) as usize;
    let buffer = sb.bread(block)?;
    let raw: ondisk::Inode = buffer.get(offset)?;

    let nlink = raw.i_links_count.get();
    if nlink == 0 {
        if raw.i_mode.get() == 0 || raw.i_dtime.get() != 0 {
            return Err(ESTALE);
        }
        return Err(corrupted(
            &new,
            format_args!("in use, but i_links_count is 0"),
        ));
    }
    let flags = raw.i_flags.get();
    if flags & (inode_flags::EXTENTS | inode_flags::INLINE_DATA) != 0 {
        return Err(corrupted(
            &new,
            format_args!("i_flags {flags:#x}: not a block map"),
        ));
    }
    let acl = raw.i_file_acl.get();
    if acl != 0 && !mount.is_data_block(acl) {
        return Err(corrupted(
            &new,
            format_args!("i_file_acl {acl} is not a data block"),
        ));
    }

    let file_type = raw.i_mode.get() & mode::TYPE;
    let size_high = match file_type {
        // For a directory the same bytes are an ACL block.
        mode::REGULAR => raw.i_size_high.get(),
        _ => 0,
    };
    let size = u64::from(size_high) << 32 | u64::from(raw.i_size.get());
    let Ok(size) = Offset::try_from(size) else {
        return Err(corrupted(&new, format_args!("i_size {size} is negative")));
    };

    let [ctime, mtime, atime] = extra_times(&new, geo.inode_size, || {
        buffer.get(offset + size_of::<ondisk::Inode>())
    })?;
    new.set_attributes(&Attributes {
        perm: raw.i_mode.get() & !mode::TYPE,
        uid: u32::from(raw.i_uid_high.get()) << 16 | u32::from(raw.i_uid_low.get()),
        gid: u32::from(raw.i_gid_high.get()) << 16 | u32::from(raw.i_gid_low.get()),
        nlink: nlink.into(),
        size,
        sectors: raw.i_blocks.get().into(),
        generation: raw.i_generation.get(),
        flags: vfs_flags(flags),
        atime: time(raw.i_atime.get(), atime),
        mtime: time(raw.i_mtime.get(), mtime),
        ctime: time(raw.i_ctime.get(), ctime),
    })?;

    new.data().file_acl.store(acl, Ordering::Release);

    match file_type {
        mode::REGULAR => {
            new.data().set_blocks(&raw.i_block);
            Ok(new.finish_file::<File>())
        }
        mode::DIR => {
            new.data().set_blocks(&raw.i_block);
            Ok(new.finish_dir::<Rext2>())
        }
        mode::SYMLINK => {
            // A link is short if all the space that it has is that of its attributes.
            let acl_sectors = if acl == 0 { 0 } else { geo.block_size >> 9 };
            if raw.i_blocks.get() != acl_sectors {
                new.data().set_blocks(&raw.i_block);
                return Ok(new.finish_symlink::<SlowLink>());
            }
            let (target, len) = fast_link(&raw, size);
            match target.get(..len) {
                Some(target @ [_, ..]) => new.finish_fast_symlink(target),
                _ => Err(corrupted(
                    &new,
                    format_args!("i_size {size}: a link without a target"),
                )),
            }
        }
        mode::CHAR => {
            let (major, minor) = device(&raw);
            Ok(new.finish_special(Special::Char(major, minor)))
        }
        mode::BLOCK => {
            let (major, minor) = device(&raw);
            Ok(new.finish_special(Special::Block(major, minor)))
        }
        mode::FIFO => Ok(new.finish_special(Special::Fifo)),
        mode::SOCKET => Ok(new.finish_special(Special::Socket)),
        _ => Err(corrupted(
            &new,
            format_args!("i_mode {:o} is of no type", raw.i_mode.get()),
        )),
    }
}

/// What the part behind the first 128 bytes adds to the time stamps.
fn extra_times(
    inode: &INode<Rext2>,
    inode_size: u32,
    read: impl FnOnce() -> Result<InodeExtra>,
) -> Result<[u32; 3]> {
    let room = inode_size - u32::from(ondisk::INODE_SIZE_REV0);
    if room == 0 {
        return Ok([0; 3]);
    }
    let extra = read()?;
    let used = u32::from(extra.i_extra_isize.get());
    if used > room || used % 4 != 0 {
        return Err(corrupted(
            inode,
            format_args!("i_extra_isize {used} is not a multiple of 4 up to {room}"),
        ));
    }
    Ok(extra.times())
}

/// A time stamp: 32 bits of seconds and, behind them, two more and the nanoseconds.
///
/// A file system that does not know of the second part leaves it as it was, so that what it holds
/// may be anything: nanoseconds that are none count as zero.
fn time(sec: u32, extra: u32) -> Timespec {
    let nsec = extra >> 2;
    Timespec {
        sec: i64::from(sec as i32) + (i64::from(extra & 3) << 32),
        nsec: if nsec < 1_000_000_000 { nsec } else { 0 },
    }
}

/// The flags that the VFS acts on.
pub(crate) fn vfs_flags(flags: u32) -> Flags {
    const MAP: [(u32, Flags); 5] = [
        (inode_flags::SYNC, Flags::SYNC),
        (inode_flags::IMMUTABLE, Flags::IMMUTABLE),
        (inode_flags::APPEND, Flags::APPEND),
        (inode_flags::NOATIME, Flags::NOATIME),
        (inode_flags::DIRSYNC, Flags::DIRSYNC),
    ];
    MAP.iter()
        .filter(|(bit, _)| flags & bit != 0)
        .fold(Flags::default(), |all, &(_, flag)| all | flag)
}

/// The device that a special file stands for: 8 bits of major and minor number in the first
/// pointer, or, if that is 0, 12 and 20 bits in the second.
fn device(raw: &ondisk::Inode) -> (u32, u32) {
    let [old, new, ..] = raw.i_block.map(|b| b.get());
    if old != 0 {
        return (old >> 8 & 0xff, old & 0xff);
    }
    (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00)
}

/// The target of a link that lies in the inode: as long as the size says, but no longer than there
/// is room, and up to the first nul.
fn fast_link(raw: &ondisk::Inode, size: Offset) -> ([u8; ondisk::FAST_LINK_SIZE], usize) {
    let mut target = [0; ondisk::FAST_LINK_SIZE];
    for (to, word) in target.chunks_exact_mut(4).zip(&raw.i_block) {
        to.copy_from_slice(&word.get().to_le_bytes());
    }
    let max = target.len() - 1;
    let len = usize::try_from(size).map_or(max, |size| size.min(max));
    let len = target.iter().take(len).position(|&b| b == 0).unwrap_or(len);
    (target, len)
}
