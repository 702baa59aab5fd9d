// SPDX-License-Identifier: GPL-2.0

//! Allocating and freeing blocks.
//!
//! The bitmap of a group says which of its blocks are in use. It is searched from a goal on, first in
//! the group of the goal and then in the others; what is found is taken in runs, as long as they are
//! and as they are wanted.
//!
//! A file that grows has a window: a range of blocks that allocations for others leave alone as long
//! as there are other blocks. So files that grow at the same time do not end up interleaved. A window
//! is nothing but a range in memory, which ends with the last writer of the file.
//!
//! Locks: the windows have one, which is held for no more than a look at them; the bitmap and the
//! counts of a group are changed with the lock of the group held.

#![forbid(unsafe_code)]

use crate::{
    group::{self, Group},
    held, inode,
    super_block::Mount,
    Rext2,
};
use core::{fmt, sync::atomic::Ordering};
use kernel::{
    fs::{self, buffer::BufHead, INode, SuperBlock},
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
};

/// Blocks that follow each other on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first block.
    pub(crate) start: u32,
    /// How many there are.
    pub(crate) len: u32,
}

/// The length of the first window of a file, in blocks.
const SMALLEST_WINDOW: u32 = 16;

/// The length of the longest window, in blocks.
const BIGGEST_WINDOW: u32 = 1024;

/// The range of blocks that a file grows into.
#[derive(Default)]
pub(crate) struct Window {
    start: u32,
    /// The block behind the last one; 0 if there is no window.
    end: u32,
    /// How long the next one will be; 0 before the first.
    next_len: u32,
}

/// The windows of all files.
pub(crate) struct Windows {
    /// From the end of a window to its start. They do not overlap.
    tree: RBTree<u32, u32>,
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self {
            tree: RBTree::new(),
        }
    }

    /// The window in which a block lies, or else the first one behind it: start and end.
    fn at_or_behind(&mut self, block: u32) -> Option<(u32, u32)> {
        let cursor = self.tree.cursor_lower_bound(&(block.checked_add(1)?))?;
        let (&end, &start) = cursor.current();
        Some((start, end))
    }
}

impl Mount {
    /// The window in which a block lies, or else the first one behind it.
    fn window_at_or_behind(&self, block: u32) -> Option<(u32, u32)> {
        if self.window_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.windows.lock().at_or_behind(block)
    }

    /// Gives a window back.
    pub(crate) fn discard_window(&self, window: &mut Window) {
        if window.end != 0 && self.windows.lock().tree.remove(&window.end).is_some() {
            self.window_count.fetch_sub(1, Ordering::Relaxed);
        }
        *window = Window::default();
    }

    /// Makes a window that starts at `start`, which is free and in no window, and ends at `limit` at
    /// the latest. Without memory there is none.
    fn make_window(&self, window: &mut Window, start: u32, limit: u32) {
        let len = window.next_len.clamp(SMALLEST_WINDOW, BIGGEST_WINDOW);
        let mut windows = self.windows.lock();
        if window.end != 0 && windows.tree.remove(&window.end).is_some() {
            self.window_count.fetch_sub(1, Ordering::Relaxed);
        }
        *window = Window::default();
        let next = windows.at_or_behind(start).map_or(limit, |(next, _)| next);
        let end = start.saturating_add(len).min(limit).min(next);
        if start >= end {
            return;
        }
        // What is reclaimed may have a window to give back.
        let Ok(node) = RBTreeNode::new(end, start, GFP_NOWAIT) else {
            return;
        };
        windows.tree.insert(node);
        self.window_count.fetch_add(1, Ordering::Relaxed);
        *window = Window {
            start,
            end,
            next_len: 2 * len,
        };
    }
}

/// A group whose bitmap is being searched.
struct Search<'a> {
    mount: &'a Mount,
    sb: &'a SuperBlock<Rext2>,
    nr: u32,
    group: &'a Group,
    bitmap: BufHead<'a>,
    /// The first block of the group and the one behind its last.
    start: u32,
    end: u32,
}

impl<'a> Search<'a> {
    fn new(sb: &'a SuperBlock<Rext2>, nr: u32) -> Result<Self> {
        let mount = sb.data();
        let group = mount.group(nr).ok_or(EIO)?;
        Ok(Self {
            mount,
            sb,
            nr,
            group,
            bitmap: sb.bread(group.block_bitmap.into())?,
            start: mount.geometry.group_start(nr),
            end: mount.geometry.group_end(nr),
        })
    }

    /// The first block that is free, of those from `from` on and in front of `end`.
    fn find_free(&self, from: u32, end: u32) -> Option<u32> {
        let bit = self
            .bitmap
            .find_zero_bit((from - self.start) as usize, (end - self.start) as usize)?;
        Some(self.start + bit as u32)
    }

    /// The first free block in `from..end` that is not in the window of another file.
    fn find_unclaimed(&self, mut from: u32, end: u32) -> Option<u32> {
        while from < end {
            let block = self.find_free(from, end)?;
            match self.mount.window_at_or_behind(block) {
                Some((start, behind)) if start <= block => from = behind,
                _ => return Some(block),
            }
        }
        None
    }

    /// Takes blocks from `first` on: as many as are free, at most `want`, in front of `end`.
    /// Returns an empty run if others were faster.
    fn take(&self, first: u32, want: u32, end: u32) -> Result<Extent> {
        let end = end.min(first.saturating_add(want));
        let end = end.min(self.mount.data_end(first));
        let bit = (first - self.start) as usize;
        let _lock = self.mount.lock_group(self.nr);
        if first == end {
            if !self.bitmap.test_and_set_bit(bit)? {
                // The bit stays set, as it should have been.
                self.bitmap.mark_dirty();
                inode::damaged(
                    self.sb,
                    format_args!(
                        "bg_block_bitmap of group {}: block {first} of the metadata was free",
                        self.nr
                    ),
                );
            }
            return Ok(Extent {
                start: first,
                len: 0,
            });
        }
        let len = self.bitmap.set_zeros(bit, (end - self.start) as usize) as u32;
        if len > 0 {
            self.bitmap.mark_dirty();
            group::subtract(&self.group.free_blocks, len);
            group::subtract(&self.mount.free_blocks, len);
            self.mount.group_changed(self.nr);
        }
        Ok(Extent { start: first, len })
    }
}

/// Blocks that are left for the pointers to a run, if there are others.
const FOR_POINTERS: u32 = 3;

/// How many blocks the caller may take of `want`: those that are not reserved for others. Of the last
/// ones, no run takes those that it needs for pointers.
fn available(mount: &Mount, want: u32) -> u32 {
    let free = mount.free_blocks.load(Ordering::Relaxed);
    let mut left = free.saturating_sub(mount.reserved_blocks);
    if left < want + FOR_POINTERS {
        let (uid, gid) = mount.options.reserve_for();
        if free > left && fs::may_use_reserve(uid, gid) {
            left = free;
        }
    }
    want.min(left.saturating_sub(FOR_POINTERS).max(left.min(1)))
}

/// Allocates a run of at most `want` blocks for a file, at `goal` or as close behind it as there are
/// free ones. With a window, the run comes from there or from a new one.
///
/// # Errors
///
/// `ENOSPC`, `EIO` if no bitmap can be read.
pub(crate) fn alloc(
    inode: &INode<Rext2>,
    goal: u32,
    want: u32,
    mut window: Option<&mut Window>,
) -> Result<Extent> {
    match alloc_free(inode, goal, want, window.as_deref_mut()) {
        Err(e) if e == ENOSPC && inode.sb().data().held_count() > 0 => {
            held::sync(inode.sb())?;
            alloc_free(inode, goal, want, window)
        }
        result => result,
    }
}

/// Does what [`alloc`] does, with what is not held back.
fn alloc_free(
    inode: &INode<Rext2>,
    goal: u32,
    want: u32,
    window: Option<&mut Window>,
) -> Result<Extent> {
    let mount = inode.sb().data();
    let geo = &mount.geometry;
    let want = available(mount, want);
    if want == 0 {
        return Err(ENOSPC);
    }
    let goal = if (geo.first_data_block..geo.blocks_count).contains(&goal) {
        goal
    } else {
        geo.first_data_block
    };
    let goal_group = geo.group_of(goal);

    if let Some(window) = window {
        let inside = window.start <= goal && goal < window.end;
        // A bitmap that cannot be read is not the only one.
        if let Some(search) = inside
            .then(|| Search::new(inode.sb(), geo.group_of(window.start)))
            .and_then(Result::ok)
        {
            let mut from = goal;
            while let Some(block) = search.find_free(from, window.end) {
                let run = search.take(block, want, window.end)?;
                if run.len > 0 {
                    return Ok(run);
                }
                from = block + 1;
            }
        }
        // There is none yet, or it is used up, or the file goes on elsewhere.
        if let Ok(run) = alloc_claimed(inode, goal, want, Some(window)) {
            return Ok(run);
        }
    } else if let Ok(run) = alloc_claimed(inode, goal, want, None) {
        return Ok(run);
    }

    // What is left is in the windows of others.
    let mut failed = ENOSPC;
    for nr in Iterator::chain(goal_group..geo.groups.get(), 0..goal_group) {
        if mount.group(nr).map_or(0, free_in) == 0 {
            continue;
        }
        let search = match Search::new(inode.sb(), nr) {
            Ok(search) => search,
            Err(e) => {
                failed = e;
                continue;
            }
        };
        let mut from = search.start;
        while let Some(block) = search.find_free(from, search.end) {
            let run = search.take(block, want, search.end)?;
            if run.len > 0 {
                return Ok(run);
            }
            from = block + 1;
        }
    }
    Err(failed)
}

fn free_in(group: &Group) -> u32 {
    group.free_blocks.load(Ordering::Relaxed)
}

/// Allocates outside of the windows of other files, and makes a window if one is wanted.
fn alloc_claimed(
    inode: &INode<Rext2>,
    goal: u32,
    want: u32,
    mut window: Option<&mut Window>,
) -> Result<Extent> {
    let mount = inode.sb().data();
    let geo = &mount.geometry;
    let goal_group = geo.group_of(goal);
    // The group of the goal comes once more, from its start, at the end.
    let groups = Iterator::chain(goal_group..geo.groups.get(), 0..=goal_group);
    let mut start = goal;
    for nr in groups {
        let from = core::mem::replace(&mut start, 0);
        if mount.group(nr).map_or(0, free_in) == 0 {
            continue;
        }
        let Ok(search) = Search::new(inode.sb(), nr) else {
            continue;
        };
        let mut from = from.max(search.start);
        while let Some(block) = search.find_unclaimed(from, search.end) {
            let limit = match mount.window_at_or_behind(block) {
                Some((next, _)) if next > block => next.min(search.end),
                _ => search.end,
            };
            if let Some(window) = &mut window {
                mount.make_window(window, block, limit);
            }
            let run = search.take(block, want, limit)?;
            if run.len > 0 {
                return Ok(run);
            }
            from = block + 1;
        }
    }
    Err(ENOSPC)
}

/// Allocates one block, for metadata.
///
/// # Errors
///
/// As for [`alloc`].
pub(crate) fn alloc_one(inode: &INode<Rext2>, goal: u32) -> Result<u32> {
    alloc(inode, goal, 1, None).map(|run| run.start)
}

/// Frees blocks. Those that cannot belong to a file, or are free already, are reported and left.
pub(crate) fn free(inode: &INode<Rext2>, block: u32, count: u32) {
    free_run(inode.sb(), Some(inode), block, count);
}

/// Frees a block that was held back.
pub(crate) fn free_held(sb: &SuperBlock<Rext2>, block: u32) {
    free_run(sb, None, block, 1);
}

fn free_run(sb: &SuperBlock<Rext2>, inode: Option<&INode<Rext2>>, block: u32, count: u32) {
    let geo = &sb.data().geometry;
    let mut left = Extent {
        start: block,
        len: count,
    };
    while left.len > 0 {
        if !(geo.first_data_block..geo.blocks_count).contains(&left.start) {
            report(
                sb,
                inode,
                format_args!("block {} that is freed is not on the disk", left.start),
            );
            return;
        }
        let nr = geo.group_of(left.start);
        let len = left.len.min(geo.group_end(nr) - left.start);
        match free_in_group(sb, nr, left.start, len) {
            Ok(None) => {}
            Ok(Some(bad)) => report(
                sb,
                inode,
                format_args!("block {bad} that is freed was free, or is not a data block"),
            ),
            Err(e) => sb.err(format_args!(
                "bg_block_bitmap of group {nr}: {len} blocks from {} stay in use: error {}",
                left.start,
                e.to_errno()
            )),
        }
        left.start = left.start.saturating_add(len);
        left.len -= len;
    }
}

fn report(sb: &SuperBlock<Rext2>, inode: Option<&INode<Rext2>>, what: fmt::Arguments<'_>) {
    match inode {
        Some(inode) => inode::corrupted(inode, what),
        None => inode::damaged(sb, what),
    };
}

/// Frees blocks of a group. Returns one that was free or cannot be, if there is one.
fn free_in_group(sb: &SuperBlock<Rext2>, nr: u32, first: u32, len: u32) -> Result<Option<u32>> {
    let search = Search::new(sb, nr)?;
    let mount = search.mount;
    let mut freed = 0;
    let mut bad = None;
    let _lock = mount.lock_group(nr);
    let last = first + len;
    let mut block = first;
    while block < last {
        let from = block;
        let end = last.min(mount.data_end(block));
        let bits = |block: u32| (block - search.start) as usize;
        block += search.bitmap.clear_ones(bits(block), bits(end)) as u32;
        freed += block - from;
        if block == from || block < end {
            bad = Some(block);
            block += 1;
        }
    }
    if freed > 0 {
        search.bitmap.mark_dirty();
        group::add(&search.group.free_blocks, freed);
        group::add(&mount.free_blocks, freed);
        mount.group_changed(nr);
    }
    Ok(bad)
}
