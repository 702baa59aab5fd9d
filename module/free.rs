// SPDX-License-Identifier: GPL-2.0

//! Freeing the blocks of a file: all, those behind a new end, or those of a hole.

#![forbid(unsafe_code)]

use crate::{
    balloc,
    indirect::{check, no_data_block},
    ondisk, Rext2,
};
use core::ops::Range;
use kernel::{
    fs::{buffer::BufHead, INode},
    prelude::*,
};

/// Blocks that are freed in runs.
struct Freed<'a> {
    file: &'a INode<Rext2>,
    /// The first block of the run.
    start: u32,
    /// The block behind it; the same as the first if there is no run.
    next: u32,
    /// Where the blocks end that may belong to a file, from the run on.
    end: u32,
    blocks: u64,
    /// Why something stays in use.
    result: Result,
}

impl Freed<'_> {
    /// Frees a block that the file pointed to; one that cannot belong to it is reported and left.
    #[inline(always)]
    fn add(&mut self, block: u32) {
        if block == self.next && block < self.end {
            self.next = block.wrapping_add(1);
        } else {
            self.start_run(block);
        }
    }

    /// Frees the run, and starts another one.
    #[inline(never)]
    fn start_run(&mut self, block: u32) {
        self.flush();
        let end = self.file.sb().data().data_end(block);
        if end == block {
            no_data_block(self.file, block);
            return;
        }
        (self.start, self.next, self.end) = (block, block + 1, end);
    }

    fn flush(&mut self) {
        let len = self.next - self.start;
        if len > 0 {
            balloc::free(self.file, self.start, len);
            self.blocks += u64::from(len);
            self.start = self.next;
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.flush();
        let sectors = self.blocks * u64::from(self.file.sb().block_size() >> 9);
        // What the disk said may have been too little.
        let sectors = sectors.min(self.file.sectors());
        self.file.add_sectors(-(sectors as i64));
        self.file.mark_dirty();
    }
}

/// Frees the blocks of a file from block `start` on and in front of `end`, and the indirect blocks
/// that are not needed any more.
///
/// # Errors
///
/// `EIO` or `EUCLEAN` if an indirect block is damaged: what it leads to stays in use. All else was
/// freed.
pub(crate) fn free_range(file: &INode<Rext2>, start: u64, end: u64) -> Result {
    let sb = file.sb();
    let info = file.data();
    let bits = sb.data().geometry.block_bits - 2;
    let mut map = info.map();
    sb.data().discard_window(&mut map.window);
    map.next = (0, 0);
    let mut freed = Freed {
        file,
        start: 0,
        next: 0,
        end: 0,
        blocks: 0,
        result: Ok(()),
    };

    let direct = ondisk::DIRECT_BLOCKS as u64;
    for index in start.min(direct)..end.min(direct) {
        let block = info.block(index as usize);
        if block != 0 {
            info.set_block(index as usize, 0);
            freed.add(block);
        }
    }
    let mut base = direct;
    for level in 1..=3u32 {
        let covered = 1u64 << (bits * level);
        let index = ondisk::DIRECT_BLOCKS + level as usize - 1;
        let block = info.block(index);
        if block != 0 && start < base + covered && end > base {
            let from = start.max(base) - base;
            let to = (end - base).min(covered);
            if free_tree(block, level, bits, from, to, &mut freed) {
                info.set_block(index, 0);
            }
        }
        base += covered;
    }
    freed.result
}

/// Frees what lies below an indirect block from `start` to `end`, counted from the first block that
/// it covers. Returns whether nothing may lead to it any more: it was freed itself, as it is not
/// needed, or it is damaged and all of it was to be freed.
fn free_tree(
    block: u32,
    level: u32,
    bits: u32,
    start: u64,
    end: u64,
    freed: &mut Freed<'_>,
) -> bool {
    let whole = start == 0 && end == 1 << (bits * level);
    free_below(block, level, bits, start, end, freed).unwrap_or_else(|e| {
        freed.result = Err(e);
        whole
    })
}

/// Does what [`free_tree`] does.
///
/// # Errors
///
/// `EIO` or `EUCLEAN` if the block itself is damaged.
fn free_below(
    block: u32,
    level: u32,
    bits: u32,
    start: u64,
    end: u64,
    freed: &mut Freed<'_>,
) -> Result<bool> {
    let file = freed.file;
    check(file, block)?;
    let buffer = file.sb().bread(block.into())?;
    let covered = 1u64 << (bits * level);
    let whole = start == 0 && end == covered;
    let below = bits * (level - 1);
    let indices = start >> below..(end + (1 << below) - 1) >> below;
    let changed = if level == 1 {
        free_pointers(
            &buffer,
            indices.start as usize..indices.end as usize,
            whole,
            freed,
        )?
    } else {
        let words = buffer.words();
        let mut changed = false;
        for index in indices {
            let child = words.get(index as usize).ok_or(EIO)?;
            if child == 0 {
                continue;
            }
            let base = index << below;
            let from = start.max(base) - base;
            let to = (end - base).min(1 << below);
            if free_tree(child, level - 1, bits, from, to, freed) && !whole {
                buffer.store_le32(4 * index as usize, 0)?;
                changed = true;
            }
        }
        changed
    };
    if whole || is_empty(&buffer, bits) {
        buffer.forget();
        freed.add(block);
        return Ok(true);
    }
    if changed {
        buffer.mark_dirty_inode(file);
    }
    Ok(false)
}

/// Frees the blocks to which an indirect block points itself. Nothing leads to a block that is not
/// needed any more, so that it need not be cleared. Returns whether it was changed.
fn free_pointers(
    buffer: &BufHead<'_>,
    indices: Range<usize>,
    not_needed: bool,
    freed: &mut Freed<'_>,
) -> Result<bool> {
    let words = buffer.words();
    let mut changed = false;
    for index in indices {
        let block = words.get(index).ok_or(EIO)?;
        if block == 0 {
            continue;
        }
        if !not_needed {
            buffer.store_le32(4 * index, 0)?;
            changed = true;
        }
        freed.add(block);
    }
    Ok(changed)
}

/// Whether an indirect block leads to nothing.
fn is_empty(buffer: &BufHead<'_>, bits: u32) -> bool {
    buffer.find_set_bit(0, 32 << bits).is_none()
}
