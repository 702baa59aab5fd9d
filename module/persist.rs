// SPDX-License-Identifier: GPL-2.0

//! From an inode in memory to its place on the disk, and out of both.

#![forbid(unsafe_code)]

use crate::{
    ialloc, indirect, inode,
    ondisk::{self, mode, InodeExtra},
    state::{self, Feature},
    xattr, Rext2,
};
use core::{fmt, mem::size_of};
use kernel::{
    fs::{
        self,
        inode::{Evicting, Timespec},
        INode,
    },
    ondisk::{Le16, Le32},
    prelude::*,
};

/// The biggest size of a file that every implementation can read.
const SMALL_FILE: i64 = i32::MAX as i64;

/// Writes an inode to its place in the inode table, and waits for that if `wait`.
///
/// What we do not know of stays as it is. An inode that was never written takes the place as a whole.
pub(crate) fn write(inode: &INode<Rext2>, wait: bool) -> Result {
    let sb = inode.sb();
    let mount = sb.data();
    let info = inode.data();
    let ino = u32::try_from(inode.ino())?;
    let (block, offset) = inode::location(mount, ino)?;
    let buffer = sb.bread(block)?;
    // What is newer has to come later: who has cleared a pointer relies on it.
    let place = info.place_lock();
    let inode_size = mount.geometry.inode_size as usize;
    let fresh = info.take_fresh();
    if fresh {
        buffer.zero(offset, inode_size)?;
    }

    let size = inode.size();
    let is_file = inode.mode() & mode::TYPE == mode::REGULAR;
    if is_file && size > SMALL_FILE {
        state::set_feature(sb, Feature::LargeFile)?;
    }

    let mut raw: ondisk::Inode = buffer.get(offset)?;
    let (uid, gid, dtime) = (inode.uid(), inode.gid(), info.dtime());
    raw.i_mode = Le16::new(inode.mode());
    raw.i_uid_low = Le16::new(uid as u16);
    raw.i_gid_low = Le16::new(gid as u16);
    // Whoever undeletes a file with an old kernel would take these for something else.
    let high = |id: u32| Le16::new(if dtime == 0 { (id >> 16) as u16 } else { 0 });
    raw.i_uid_high = high(uid);
    raw.i_gid_high = high(gid);
    raw.i_size = Le32::new(size as u32);
    if is_file {
        raw.i_size_high = Le32::new((size as u64 >> 32) as u32);
    }
    let times = [inode.atime(), inode.ctime(), inode.mtime()];
    let [atime, ctime, mtime] = times.map(|time| Le32::new(time.sec as u32));
    raw.i_atime = atime;
    raw.i_ctime = ctime;
    raw.i_mtime = mtime;
    raw.i_dtime = Le32::new(dtime);
    raw.i_links_count = Le16::new(inode.nlink() as u16);
    raw.i_blocks = Le32::new(inode.sectors() as u32);
    raw.i_flags = Le32::new(info.flags());
    raw.i_block = info.blocks();
    raw.i_generation = Le32::new(inode.generation());
    raw.i_file_acl = Le32::new(info.file_acl());
    buffer.put(offset, &raw)?;

    if inode_size > size_of::<ondisk::Inode>() {
        let offset = offset + size_of::<ondisk::Inode>();
        let mut extra: InodeExtra = buffer.get(offset)?;
        if fresh {
            extra.i_extra_isize = Le16::new(ondisk::EXTRA_ISIZE);
        }
        extra.set_times(times.map(extra_time));
        buffer.put(offset, &extra)?;
    }

    buffer.mark_dirty();
    drop(place);
    if wait {
        buffer.sync()?;
    }
    Ok(())
}

/// Waits for what [`write()`] has written without waiting: the block is still dirty then. So may be the
/// block of attributes, of which only the first user has been told.
pub(crate) fn sync(inode: &INode<Rext2>) -> Result {
    let sb = inode.sb();
    match inode.data().file_acl() {
        0 => {}
        number => sb.bread(number.into())?.sync()?,
    }
    let (block, _) = inode::location(sb.data(), u32::try_from(inode.ino())?)?;
    sb.bread(block)?.sync()
}

/// What of a time stamp is behind its 32 bits of seconds: two more bits, and the nanoseconds.
fn extra_time(time: Timespec) -> u32 {
    let high = (time.sec - i64::from(time.sec as i32)) >> 32;
    time.nsec << 2 | high as u32 & 3
}

/// Takes an inode out of use. If no name leads to it, everything that it has on the disk is freed,
/// its number last.
pub(crate) fn evict(inode: &Evicting<'_, Rext2>) {
    let info = inode.data();
    {
        let mut map = info.map();
        inode.sb().data().discard_window(&mut map.window);
    }
    if !inode.is_unlinked() {
        return;
    }
    info.set_dtime(fs::real_seconds() as u32);
    // Links in the inode and devices have no blocks.
    let has_blocks = match inode.mode() & mode::TYPE {
        mode::REGULAR | mode::DIR => true,
        mode::SYMLINK => inode.sectors() != xattr_sectors(inode),
        _ => false,
    };
    let report = |what: fmt::Arguments<'_>, result: Result| {
        if let Err(e) = result {
            inode.sb().err(format_args!(
                "inode {}: {what} failed when it was deleted: error {}",
                inode.ino(),
                e.to_errno()
            ));
        }
    };
    if has_blocks {
        report(
            format_args!("freeing its blocks"),
            indirect::free_range(inode, 0, u64::MAX),
        );
    }
    xattr::release(inode);
    report(format_args!("writing it"), write(inode, inode.is_sync()));
    ialloc::free_inode(inode);
}

/// The space that the attributes of an inode take, in sectors.
fn xattr_sectors(inode: &INode<Rext2>) -> u64 {
    match inode.data().file_acl() {
        0 => 0,
        _ => u64::from(inode.sb().block_size() >> 9),
    }
}
