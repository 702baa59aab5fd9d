// SPDX-License-Identifier: GPL-2.0

//! Inode numbers: which one a new file gets, and giving it back.
//!
//! A file is put in the group of its directory, so that what is used together lies together. A
//! directory is put there as well, as long as the group is not worse than others; directories at
//! the top, which have little to do with each other, are spread over the groups (Orlov's rule).
//!
//! The bits of a bitmap are set and cleared atomically, without a lock: who sets a bit owns the
//! number. The counters of the groups only say where to look first.

#![forbid(unsafe_code)]

use crate::{
    group::{self, Group},
    held, inode,
    ondisk::{self, inode_flags, mode},
    super_block::Mount,
    Rext2,
};
use core::{
    mem::offset_of,
    num::NonZeroU64,
    sync::atomic::{AtomicU32, Ordering},
};
use kernel::{
    fs::{inode::FreshINode, INode, SuperBlock},
    ondisk::Le16,
    prelude::*,
};

/// Allocates an inode for a file of a directory; `mode` is its type and its permissions.
///
/// It has one link and no blocks. Dropped before it has a name, it gives back its number.
///
/// # Errors
///
/// `ENOSPC` if there is none, `EIO` if a bitmap or the place of the inode cannot be read.
pub(crate) fn new_inode<'sb>(dir: &'sb INode<Rext2>, mode: u16) -> Result<FreshINode<'sb, Rext2>> {
    let sb = dir.sb();
    let mount = sb.data();
    let is_dir = mode & mode::TYPE == mode::DIR;
    let first = if is_dir {
        group_for_dir(mount, dir)
    } else {
        group_for_file(mount, dir)
    };
    let first = first.ok_or(ENOSPC)?;
    let mut lately = is_dir.then(|| Lately::new(mount));
    let mut groups = Iterator::chain(first..mount.geometry.groups.get(), 0..first);
    let over = |lately: &Option<Lately>| lately.as_ref().is_some_and(Lately::is_over);
    loop {
        let Some(number) = groups.next().filter(|_| !over(&lately)) else {
            // What was freed is on the disk after this, with the names that are gone.
            if lately.take().is_some_and(|lately| lately.passed > 0) {
                held::sync(sb)?;
                groups = Iterator::chain(first..mount.geometry.groups.get(), 0..first);
                continue;
            }
            return Err(ENOSPC);
        };
        let Some(mut new) = take(sb, number, lately.as_mut())? else {
            continue;
        };
        new.init_owner(dir, mode, mount.options.grpid());
        if let (true, Some(group)) = (is_dir, mount.group(number)) {
            group::add(&group.used_dirs, 1);
            group::add(&mount.dirs, 1);
        }
        let flags = inherited(dir.data().flags(), mode);
        new.set_flags(inode::vfs_flags(flags));
        new.data().set_flags(flags);
        new.data().set_block_group(number);
        return Ok(new);
    }
}

/// Inodes that were freed since the file system was synced, and that no directory gets.
///
/// A name that was removed may still be on the disk. After a crash it leads to whatever has the number
/// then. That makes one more name of a file; but of two names of a directory, a check removes one, and
/// it may be the one that `fsync(2)` has promised.
struct Lately {
    /// The time of the last sync, as inodes have it.
    since: u32,
    /// How many have been passed over.
    passed: u32,
}

impl Lately {
    /// From so many on, syncing is cheaper than looking at more.
    const ENOUGH: u32 = 64;

    fn new(mount: &Mount) -> Self {
        Self {
            since: mount.last_sync.load(Ordering::Relaxed),
            passed: 0,
        }
    }

    /// Whether enough of them have been passed over.
    fn is_over(&self) -> bool {
        self.passed >= Self::ENOUGH
    }

    /// Whether an inode is to be passed over.
    fn passes(&mut self, sb: &SuperBlock<Rext2>, ino: u32) -> Result<bool> {
        let (block, offset) = inode::location(sb.data(), ino)?;
        let dtime = offset + offset_of!(ondisk::Inode, i_dtime);
        let passes = sb.bread(block)?.load_le32(dtime)? >= self.since;
        self.passed += u32::from(passes);
        Ok(passes)
    }
}

/// The flags of a new file in a directory that has the given ones.
fn inherited(flags: u32, mode: u16) -> u32 {
    let flags = flags & inode_flags::INHERITED;
    match mode & mode::TYPE {
        mode::DIR => flags,
        mode::REGULAR => flags & !inode_flags::DIR_ONLY,
        _ => flags & inode_flags::ALL_KINDS,
    }
}

/// Takes a number of a group, if there is one that is not to be passed over.
fn take<'sb>(
    sb: &'sb SuperBlock<Rext2>,
    number: u32,
    mut lately: Option<&mut Lately>,
) -> Result<Option<FreshINode<'sb, Rext2>>> {
    let mount = sb.data();
    let geo = &mount.geometry;
    let Some(group) = mount.group(number) else {
        return Ok(None);
    };
    let bitmap = sb.bread(group.inode_bitmap.into())?;
    let before = number * geo.inodes_per_group.get();
    // Reserved inodes are in use, whatever the bitmap says.
    let mut next = (geo.first_ino - 1).saturating_sub(before) as usize;
    while let Some(bit) = bitmap.find_zero_bit(next, geo.inodes_per_group.get() as usize) {
        next = bit + 1;
        if let Some(lately) = &mut lately {
            if lately.is_over() {
                break;
            }
            if lately.passes(sb, before + bit as u32 + 1)? {
                continue;
            }
        }
        if bitmap.test_and_set_bit(bit)? {
            // Another task was faster.
            continue;
        }
        bitmap.mark_dirty();
        group::subtract(&group.free_inodes, 1);
        group::subtract(&mount.free_inodes, 1);
        mount.group_changed(number);
        let ino = before + bit as u32 + 1;
        match make(sb, ino) {
            Ok(Some(new)) => return Ok(Some(new)),
            // It stays marked, and is not tried again.
            Ok(None) => {
                inode::damaged(
                    sb,
                    format_args!("inode {ino} is in use, but free in the bitmap of group {number}"),
                );
            }
            Err(e) => {
                release(sb, ino, false);
                return Err(e);
            }
        }
    }
    Ok(None)
}

/// Makes the inode with a number that was free in the bitmap; `None` if it is in use nevertheless, on
/// the disk or in memory.
fn make(sb: &SuperBlock<Rext2>, ino: u32) -> Result<Option<FreshINode<'_, Rext2>>> {
    let mount = sb.data();
    let (block, offset) = inode::location(mount, ino)?;
    let links = offset + offset_of!(ondisk::Inode, i_links_count);
    // As for e2fsck, it is the links that say it: the mode stays when an inode is deleted.
    if sb.bread(block)?.get::<Le16>(links)?.get() != 0 {
        return Ok(None);
    }
    match sb.fresh_inode(ino.into()) {
        Ok(mut new) => {
            new.set_generation(mount.next_generation.fetch_add(1, Ordering::Relaxed));
            new.data().set_fresh();
            Ok(Some(new))
        }
        Err(e) if e == EIO => Ok(None),
        Err(e) => Err(e),
    }
}

/// Gives back the number of an inode that is not in use any more.
pub(crate) fn free_inode(inode: &INode<Rext2>) {
    let geo = &inode.sb().data().geometry;
    match u32::try_from(inode.ino()) {
        Ok(ino) if (geo.first_ino..=geo.inodes_count).contains(&ino) => {
            release(inode.sb(), ino, inode.is_dir());
        }
        _ => {
            inode::corrupted(inode, format_args!("a reserved inode lost its last link"));
        }
    }
}

/// Clears the bit of a number, of which the caller is the owner.
fn release(sb: &SuperBlock<Rext2>, ino: u32, is_dir: bool) {
    let mount = sb.data();
    let index = ino - 1;
    let number = index / mount.geometry.inodes_per_group;
    let Some(group) = mount.group(number) else {
        return;
    };
    let bit = index % mount.geometry.inodes_per_group;
    let cleared = sb.bread(group.inode_bitmap.into()).and_then(|bitmap| {
        let was_set = bitmap.test_and_clear_bit(bit as usize)?;
        bitmap.mark_dirty();
        Ok(was_set)
    });
    match cleared {
        Ok(true) => {
            group::add(&group.free_inodes, 1);
            group::add(&mount.free_inodes, 1);
            if is_dir {
                group::subtract(&group.used_dirs, 1);
                group::subtract(&mount.dirs, 1);
            }
            mount.group_changed(number);
        }
        Ok(false) => {
            inode::damaged(
                sb,
                format_args!("inode {ino} was in use, but free in the bitmap of group {number}"),
            );
        }
        Err(_) => sb.err(format_args!(
            "inode {ino} is lost: cannot read the inode bitmap of group {number}"
        )),
    }
}

fn load(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::Relaxed)
}

/// The first group that fulfils a condition, from a given one on and round.
fn first_group(mount: &Mount, start: u32, fits: impl Fn(&Group) -> bool) -> Option<u32> {
    Iterator::chain(start..mount.geometry.groups.get(), 0..start)
        .find(|&number| mount.group(number).is_some_and(&fits))
}

/// The group for a file: that of its directory, if there is room for its blocks as well.
///
/// Else one that depends on the directory, so that its files stay together, away from those of
/// others that come from the same group.
fn group_for_file(mount: &Mount, dir: &INode<Rext2>) -> Option<u32> {
    let groups = mount.geometry.groups;
    let home = dir.data().block_group();
    let has_room = |number: u32| {
        mount
            .group(number)
            .is_some_and(|group| load(&group.free_inodes) != 0 && load(&group.free_blocks) != 0)
    };
    if has_room(home) {
        return Some(home);
    }
    let mut number = (u64::from(home) + dir.ino()) % NonZeroU64::from(groups);
    let mut step = 1;
    while step < u64::from(groups.get()) {
        number = (number + step) % NonZeroU64::from(groups);
        if has_room(number as u32) {
            return Some(number as u32);
        }
        step <<= 1;
    }
    first_group(mount, home, |group| load(&group.free_inodes) != 0)
}

/// The group for a directory.
fn group_for_dir(mount: &Mount, dir: &INode<Rext2>) -> Option<u32> {
    let geo = &mount.geometry;
    let home = dir.data().block_group();
    let average_inodes = load(&mount.free_inodes) / geo.groups;
    let average_blocks = load(&mount.free_blocks) / geo.groups;
    let enough = |group: &Group, inodes: u32, blocks: u32| {
        load(&group.free_inodes) >= inodes.max(1) && load(&group.free_blocks) >= blocks
    };
    let at_top = mount.options.orlov()
        && (dir.ino() == u64::from(ondisk::ROOT_INO)
            || dir.data().flags() & inode_flags::TOPDIR != 0);
    let good = if at_top {
        // The one with the fewest directories of those that are not worse than the average.
        Iterator::chain(home..geo.groups.get(), 0..home)
            .filter_map(|number| Some((number, mount.group(number)?)))
            .filter(|(_, group)| enough(group, average_inodes, average_blocks))
            .min_by_key(|(_, group)| load(&group.used_dirs))
            .map(|(number, _)| number)
    } else {
        // The nearest one that is not much worse than the average.
        let max_dirs = load(&mount.dirs) / geo.groups + geo.inodes_per_group.get() / 16;
        let min_inodes = average_inodes.saturating_sub(geo.inodes_per_group.get() / 4);
        let min_blocks = average_blocks.saturating_sub(geo.blocks_per_group.get() / 4);
        first_group(mount, home, |group| {
            load(&group.used_dirs) < max_dirs && enough(group, min_inodes, min_blocks)
        })
    };
    good.or_else(|| {
        first_group(mount, home, |group| {
            load(&group.free_inodes) >= average_inodes.max(1)
        })
    })
    .or_else(|| first_group(mount, home, |group| load(&group.free_inodes) != 0))
}
