// SPDX-License-Identifier: GPL-2.0

//! From an inode number to an inode.

#![forbid(unsafe_code)]

use crate::{
    file::File,
    ondisk::{self, inode_flags, mode, InodeExtra},
    state,
    super_block::Mount,
    symlink::SlowLink,
    Rext2,
};
use core::{fmt, mem::size_of};
use kernel::{
    fs::{
        inode::{Attributes, Flags, Iget, NewINode, Special, Timespec},
        INode, IRef, Offset, SuperBlock,
    },
    prelude::*,
};

pub(crate) use crate::info::Info;

/// Reports damage, and does what the mount asks for in that case.
pub(crate) fn damaged(sb: &SuperBlock<Rext2>, what: fmt::Arguments<'_>) -> Error {
    state::corrupted(sb, None, what);
    EUCLEAN
}

/// Reports a damaged inode, and does what the mount asks for in that case.
pub(crate) fn corrupted(inode: &INode<Rext2>, what: fmt::Arguments<'_>) -> Error {
    state::corrupted(
        inode.sb(),
        Some(inode),
        format_args!("inode {}: {what}", inode.ino()),
    );
    EUCLEAN
}

/// Where an inode lies: its block, and the byte in it.
pub(crate) fn location(mount: &Mount, ino: u32) -> Result<(u64, usize)> {
    let geo = &mount.geometry;
    if !(1..=geo.inodes_count).contains(&ino) {
        return Err(EINVAL);
    }
    let index = ino - 1;
    let group = mount.group(index / geo.inodes_per_group).ok_or(EINVAL)?;
    let byte = u64::from(index % geo.inodes_per_group) * u64::from(geo.inode_size);
    let block = u64::from(group.inode_table) + (byte >> geo.block_bits);
    Ok((block, (byte & u64::from(geo.block_size - 1)) as usize))
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
    let (block, offset) = location(mount, ino)?;
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

    let info = new.data();
    info.set_file_acl(acl);
    info.set_flags(flags);
    info.set_block_group((ino - 1) / geo.inodes_per_group);
    info.set_blocks(&raw.i_block);

    match file_type {
        mode::REGULAR => Ok(new.finish_file::<File>()),
        mode::DIR => Ok(new.finish_dir::<Rext2>()),
        mode::SYMLINK => {
            // A link is short if all the space that it has is that of its attributes.
            let acl_sectors = if acl == 0 { 0 } else { geo.block_size >> 9 };
            if raw.i_blocks.get() != acl_sectors {
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
