// SPDX-License-Identifier: GPL-2.0

//! Freeing the blocks of a file: all, those behind a new end, or those of a hole.

#![forbid(unsafe_code)]

use crate::{
    balloc, held,
    indirect::{check, no_data_block},
    ondisk, persist, Rext2,
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

    /// Frees an indirect block that the file has lost.
    fn add_indirect(&mut self, block: u32) {
        held::hold(self.file, block);
        self.blocks += 1;
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
/// `EIO` or `EUCLEAN` if an indirect block is damaged, or the inode cannot be written: what it leads to
/// stays in use. All else was freed.
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
            let range = start.max(base) - base..(end - base).min(covered);
            let tree = Tree { block, level, bits };
            tree.free(range, &mut freed, || {
                info.set_block(index, 0);
                // To the buffer of the inode, before the blocks below are held back.
                persist::write(file, false)
            });
        }
        base += covered;
    }
    freed.result
}

/// An indirect block and what lies below it.
struct Tree {
    block: u32,
    level: u32,
    /// An indirect block holds `1 << bits` pointers.
    bits: u32,
}

impl Tree {
    /// How many blocks of the file it covers.
    fn covered(&self) -> u64 {
        1 << (self.bits * self.level)
    }

    /// Frees what lies below in `range`, counted from the first block that it covers, and the indirect
    /// block itself if it is not needed any more. What goes wrong is noted in `freed`, and what is below
    /// stays in use then; if all of it was to be freed, nothing leads to it any more either.
    ///
    /// `unlink` clears the pointer to it. Nothing leads to a block when it is freed, because somebody
    /// else may have it then.
    fn free(&self, range: Range<u64>, freed: &mut Freed<'_>, unlink: impl FnOnce() -> Result) {
        let whole = range == (0..self.covered());
        let not_needed = if whole {
            unlink().and_then(|()| self.free_below(range, freed))
        } else {
            self.free_below(range, freed).and_then(|empty| {
                if empty.is_some() {
                    unlink()?;
                }
                Ok(empty)
            })
        };
        match not_needed {
            Ok(Some(buffer)) => {
                // Not before the pointer to it is gone: until then, a sync has to write what leads no
                // more to blocks that it lets others have. Whoever gets here once more, by a damaged
                // tree, finds it empty.
                buffer.forget();
                freed.add_indirect(self.block);
            }
            Ok(None) => {}
            Err(e) => freed.result = Err(e),
        }
    }

    /// Frees what lies below. Returns the block if it is not needed any more.
    ///
    /// # Errors
    ///
    /// `EIO` or `EUCLEAN` if the block itself is damaged.
    fn free_below<'a>(
        &self,
        range: Range<u64>,
        freed: &mut Freed<'a>,
    ) -> Result<Option<BufHead<'a>>> {
        let file = freed.file;
        check(file, self.block)?;
        let buffer = file.sb().bread(self.block.into())?;
        let below = self.bits * (self.level - 1);
        let whole = range == (0..self.covered());
        let indices =
            (range.start >> below) as usize..((range.end + (1 << below) - 1) >> below) as usize;
        let changed = if self.level == 1 {
            free_pointers(&buffer, indices, freed)?
        } else {
            let words = buffer.words();
            for index in indices {
                let block = words.get(index).ok_or(EIO)?;
                if block == 0 {
                    continue;
                }
                let base = (index as u64) << below;
                let range = range.start.max(base) - base..(range.end - base).min(1 << below);
                let tree = Tree {
                    block,
                    level: self.level - 1,
                    bits: self.bits,
                };
                tree.free(range, freed, || {
                    buffer.store_le32(4 * index, 0)?;
                    // Before the blocks below are held back.
                    if !whole {
                        buffer.mark_dirty_inode(file);
                    }
                    Ok(())
                });
            }
            false
        };
        if changed && !whole {
            buffer.mark_dirty_inode(file);
        }
        let needed = !whole && !is_empty(&buffer, self.bits);
        Ok((!needed).then_some(buffer))
    }
}

/// Frees the blocks to which an indirect block points itself. Returns whether it was changed.
fn free_pointers(
    buffer: &BufHead<'_>,
    indices: Range<usize>,
    freed: &mut Freed<'_>,
) -> Result<bool> {
    let words = buffer.words();
    let mut changed = false;
    for index in indices {
        let block = words.get(index).ok_or(EIO)?;
        if block != 0 {
            buffer.store_le32(4 * index, 0)?;
            changed = true;
            freed.add(block);
        }
    }
    Ok(changed)
}

/// Whether an indirect block leads to nothing.
fn is_empty(buffer: &BufHead<'_>, bits: u32) -> bool {
    buffer.find_set_bit(0, 32 << bits).is_none()
}
