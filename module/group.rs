// SPDX-License-Identifier: GPL-2.0

//! The groups of a mounted file system: where their tables are, and what is free in them.
//!
//! What is free is counted in memory and written to the descriptors when the file system is synced.
//! After a crash the counts on the disk are those of the last sync; a check of the file system, which
//! is needed then anyway, counts the bitmaps.

#![forbid(unsafe_code)]

use crate::{
    ondisk::{self, GroupDesc},
    super_block::Mount,
    Rext2,
};
use core::{
    mem::offset_of,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};
use kernel::{
    fs::SuperBlock,
    ondisk::Le16,
    prelude::*,
    sync::lock::{mutex::MutexBackend, Guard},
};

/// Number of locks for all groups together.
pub(crate) const LOCKS: usize = 16;

/// A group. The numbers of the blocks were checked when the file system was mounted.
pub(crate) struct Group {
    /// The block that says which blocks are in use.
    pub(crate) block_bitmap: u32,
    /// The block that says which inodes are in use.
    pub(crate) inode_bitmap: u32,
    /// The first block of the inode table.
    pub(crate) inode_table: u32,
    /// How many blocks at its start are not for data: superblock and descriptors.
    pub(crate) head: u32,
    /// Free blocks. All counts are changed with the lock of the group held.
    pub(crate) free_blocks: AtomicU32,
    /// Free inodes.
    pub(crate) free_inodes: AtomicU32,
    /// Directories.
    pub(crate) used_dirs: AtomicU32,
    /// Whether the descriptor on the disk is older than the counts.
    changed: AtomicBool,
}

impl Group {
    /// What the descriptor of a group says. Its counts may be wrong, which does not matter: what is
    /// free is what the bitmaps say.
    pub(crate) fn new(desc: &GroupDesc, head: u32) -> Self {
        let count = |said: Le16| AtomicU32::new(said.get().into());
        Self {
            block_bitmap: desc.bg_block_bitmap.get(),
            inode_bitmap: desc.bg_inode_bitmap.get(),
            inode_table: desc.bg_inode_table.get(),
            head,
            free_blocks: count(desc.bg_free_blocks_count),
            free_inodes: count(desc.bg_free_inodes_count),
            used_dirs: count(desc.bg_used_dirs_count),
            changed: AtomicBool::new(false),
        }
    }
}

/// Adds to a count that never overflows, whatever the disk said at first.
pub(crate) fn add(count: &AtomicU32, n: u32) {
    let more = |old: u32| Some(old.saturating_add(n));
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
}

/// Subtracts from a count that never becomes negative, whatever the disk said at first. Returns what
/// was subtracted.
pub(crate) fn subtract(count: &AtomicU32, n: u32) -> u32 {
    let mut old = count.load(Ordering::Relaxed);
    loop {
        let less = n.min(old);
        match count.compare_exchange_weak(old, old - less, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return less,
            Err(now) => old = now,
        }
    }
}

impl Mount {
    /// A group, by its number.
    pub(crate) fn group(&self, nr: u32) -> Option<&Group> {
        self.groups.get(nr as usize)
    }

    /// Keeps others from changing the bitmaps and the counts of a group. Groups share a few locks:
    /// nobody holds two of them.
    pub(crate) fn lock_group(&self, nr: u32) -> Guard<'_, (), MutexBackend> {
        let [first, rest @ ..] = &self.group_locks;
        match nr as usize % LOCKS {
            0 => first.lock(),
            n => rest.get(n - 1).unwrap_or(first).lock(),
        }
    }

    /// Says that the counts of a group have changed.
    pub(crate) fn group_changed(&self, nr: u32) {
        if let Some(group) = self.group(nr) {
            group.changed.store(true, Ordering::Relaxed);
        }
    }
}

/// Has the counts that have changed written to the descriptors. The buffers are only marked.
pub(crate) fn write_descriptors(sb: &SuperBlock<Rext2>) -> Result {
    let mount = sb.data();
    let geo = &mount.geometry;
    let (bits, mask) = (
        geo.block_bits - ondisk::DESC_BITS,
        geo.descs_per_block() - 1,
    );
    let mut buffer = None;
    for (nr, group) in (0u32..).zip(mount.groups.iter()) {
        if !group.changed.load(Ordering::Relaxed) {
            continue;
        }
        let location = geo.desc_location(nr >> bits, mount.super_block);
        let buffer = match &mut buffer {
            Some((at, buffer)) if *at == location => buffer,
            other => &mut other.insert((location, sb.bread(location)?)).1,
        };
        // The counts of one call must not be written by another that was slower.
        let _lock = mount.lock_group(nr);
        group.changed.store(false, Ordering::Relaxed);
        let offset = ((nr & mask) * ondisk::DESC_SIZE) as usize;
        let counts = [
            (
                offset_of!(GroupDesc, bg_free_blocks_count),
                &group.free_blocks,
            ),
            (
                offset_of!(GroupDesc, bg_free_inodes_count),
                &group.free_inodes,
            ),
            (offset_of!(GroupDesc, bg_used_dirs_count), &group.used_dirs),
        ];
        for (field, count) in counts {
            let count = count.load(Ordering::Relaxed).min(u16::MAX.into()) as u16;
            buffer.put(offset + field, &Le16::new(count))?;
        }
        buffer.mark_dirty();
    }
    Ok(())
}
