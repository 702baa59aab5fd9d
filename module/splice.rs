// SPDX-License-Identifier: GPL-2.0

//! Giving blocks to a file.
//!
//! Blocks are allocated first, and become part of the file with the store of one pointer, to which
//! all that it leads to was written before. So who follows pointers without a lock sees either a hole
//! or the whole.

#![forbid(unsafe_code)]

use crate::{
    balloc::{self, Extent},
    indirect::{check, find, Path, Run},
    info::Map,
    inode::corrupted,
    ondisk, Rext2,
};
use kernel::{
    fs::{
        buffer::BufHead,
        lock::{Excl, Held},
        nofs, INode,
    },
    prelude::*,
};

/// The most blocks that are allocated at a time.
const MAX_RUN: u64 = 1024;

/// Where a pointer is.
enum Slot<'a> {
    /// In the inode.
    Inode(usize),
    /// In an indirect block.
    Indirect(BufHead<'a>, usize),
}

impl<'a> Slot<'a> {
    fn load(&self, file: &INode<Rext2>) -> Result<u32> {
        match self {
            Slot::Inode(index) => Ok(file.data().block(*index)),
            Slot::Indirect(buffer, index) => buffer.load_le32(4 * index),
        }
    }

    /// Stores a pointer. Others follow it from then on.
    fn store(&self, file: &INode<Rext2>, block: u32) -> Result {
        match self {
            Slot::Inode(index) => {
                file.data().set_block(*index, block);
                file.mark_dirty();
            }
            Slot::Indirect(buffer, index) => {
                buffer.store_le32(4 * index, block)?;
                buffer.mark_dirty_inode(file);
            }
        }
        Ok(())
    }
}

/// Where new blocks of a file should lie.
pub(crate) fn goal(file: &INode<Rext2>, map: &Map, block: u64) -> Result<u32> {
    let (next, goal) = map.next;
    if goal != 0 && next == block {
        return Ok(goal);
    }
    if let Some(before) = block.checked_sub(1) {
        if let Some(Run::Data(at, _)) = find(file, before, 1)? {
            return Ok(at + 1);
        }
    }
    // Parallel writes come in any order: what belongs together still comes together.
    if goal != 0 && block.abs_diff(next) <= MAX_RUN {
        return Ok(goal);
    }
    let geo = &file.sb().data().geometry;
    Ok(geo.group_start(file.data().block_group().min(geo.groups.get() - 1)))
}

/// Allocates up to `want` blocks for a file, which belong to nobody until they are given to
/// [`splice`].
///
/// # Errors
///
/// `ENOSPC`, `EIO`.
pub(crate) fn alloc(file: &INode<Rext2>, map: &mut Map, block: u64, want: u64) -> Result<Extent> {
    let mount = file.sb().data();
    let goal = goal(file, map, block)?;
    // The first blocks of a file come without a window: many files stay small.
    let (_, at) = map.next;
    let grows = mount.options.reservation() && at != 0 && goal == at;
    let window = grows.then_some(&mut map.window);
    // One piece for `splice`: all or nothing.
    let bits = mount.geometry.block_bits - 2;
    let left = Path::to(block, bits).ok_or(EFBIG)?.left_in_block(bits);
    let want = want.min(MAX_RUN).min(left.into()) as u32;
    let extent = balloc::alloc(file, goal, want, window)?;
    map.next = (
        block + u64::from(extent.len),
        extent.start.saturating_add(extent.len),
    );
    file.sb()
        .clean_aliases(extent.start.into(), extent.len.into());
    Ok(extent)
}

/// Makes blocks part of a file, from block `block` of it on. Where the file has a block already, that
/// one stays and the new one is freed.
///
/// # Errors
///
/// `ENOSPC` if there is no space for an indirect block, `EIO`, `EUCLEAN`. What has not become part of
/// the file is freed then.
pub(crate) fn splice(
    file: &INode<Rext2>,
    _map: &mut Map,
    mut block: u64,
    mut extent: Extent,
) -> Result {
    while extent.len > 0 {
        match splice_some(file, block, extent) {
            Ok(done) => {
                block += u64::from(done);
                extent.start += done;
                extent.len -= done;
            }
            Err(e) => {
                balloc::free(file, extent.start, extent.len);
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Does what [`splice`] does, as far as the block goes that holds the first pointer. Returns how many
/// blocks were seen to.
fn splice_some(file: &INode<Rext2>, block: u64, extent: Extent) -> Result<u32> {
    let sb = file.sb();
    let bits = sb.data().geometry.block_bits - 2;
    let path = Path::to(block, bits).ok_or(EFBIG)?;
    let [first, rest @ ..] = path.indices;

    let mut slot = Slot::Inode(first as usize);
    let mut end = ondisk::DIRECT_BLOCKS;
    for (level, &index) in (1..).zip(rest.iter().take(path.depth - 1)) {
        let pointer = slot.load(file)?;
        if pointer == 0 {
            let missing = path.depth - level;
            return splice_new(file, &slot, &path, missing, extent);
        }
        check(file, pointer)?;
        slot = Slot::Indirect(sb.bread(pointer.into())?, index as usize);
        end = 1 << bits;
    }

    let first = match &slot {
        Slot::Inode(index) | Slot::Indirect(_, index) => *index,
    };
    let len = extent.len.min((end - first) as u32);
    let mut used = 0;
    for i in 0..len {
        let new = extent.start + i;
        let here = match &slot {
            Slot::Inode(index) => file.data().block(index + i as usize),
            Slot::Indirect(buffer, index) => buffer.load_le32(4 * (index + i as usize))?,
        };
        if here != 0 {
            balloc::free(file, new, 1);
            continue;
        }
        match &slot {
            Slot::Inode(index) => file.data().set_block(index + i as usize, new),
            Slot::Indirect(buffer, index) => buffer.store_le32(4 * (index + i as usize), new)?,
        }
        used += 1;
    }
    if let Slot::Indirect(buffer, _) = &slot {
        buffer.mark_dirty_inode(file);
    }
    add_blocks(file, used);
    Ok(len)
}

/// Makes `missing` levels of indirect blocks that lead to the first of the new blocks, and makes them
/// part of the file as the last step. Returns how many of the new blocks are in them.
fn splice_new(
    file: &INode<Rext2>,
    slot: &Slot<'_>,
    path: &Path,
    missing: usize,
    extent: Extent,
) -> Result<u32> {
    let sb = file.sb();
    let bits = sb.data().geometry.block_bits - 2;
    let len = extent.len.min(path.left_in_block(bits));
    // Behind the data, which stays in one piece.
    let near = extent.start.saturating_add(extent.len);
    let mut blocks = [0u32; 3];
    let result = (|| -> Result {
        for block in blocks.iter_mut().take(missing) {
            *block = balloc::alloc_one(file, near)?;
        }
        // From the leaf up: what points to it comes after it.
        let mut below = None;
        let levels = path.indices.iter().take(path.depth).rev();
        for (&block, &index) in blocks.iter().take(missing).zip(levels) {
            let buffer = sb.bnew(block.into())?;
            match below {
                None => {
                    for i in 0..len {
                        buffer.store_le32(4 * (index + i) as usize, extent.start + i)?;
                    }
                }
                Some(below) => buffer.store_le32(4 * index as usize, below)?,
            }
            buffer.mark_dirty_inode(file);
            below = Some(block);
        }
        slot.store(file, below.ok_or(EIO)?)
    })();
    if let Err(e) = result {
        for &block in blocks.iter().filter(|&&block| block != 0) {
            balloc::free(file, block, 1);
        }
        return Err(e);
    }
    add_blocks(file, len + missing as u32);
    Ok(len)
}

/// Adds to the space that a file takes.
fn add_blocks(file: &INode<Rext2>, blocks: u32) {
    if blocks != 0 {
        file.add_sectors(i64::from(blocks) * i64::from(file.sb().block_size() >> 9));
        file.mark_dirty();
    }
}

/// Adds a block to the end of a directory. Returns its number in the directory, and the block, which
/// is zero.
///
/// # Errors
///
/// `ENOSPC`, `EIO`, `EUCLEAN`; the directory is as before.
pub(crate) fn append_dir_block<'a>(dir: &mut Held<'a, Rext2, Excl>) -> Result<(u64, BufHead<'a>)> {
    let inode: &'a INode<Rext2> = dir.inode();
    let bits = inode.sb().data().geometry.block_bits;
    let number = inode.size() as u64 >> bits;
    let buffer = nofs(|| add_block(inode, number))?;
    dir.set_size(((number + 1) << bits) as i64)?;
    inode.mark_dirty();
    Ok((number, buffer))
}

/// Makes the first block of an inode that is being created. It is zero.
///
/// # Errors
///
/// `ENOSPC`, `EIO`.
pub(crate) fn first_block(inode: &INode<Rext2>) -> Result<BufHead<'_>> {
    nofs(|| add_block(inode, 0))
}

/// Allocates a block of metadata that belongs to an inode.
fn add_block(inode: &INode<Rext2>, number: u64) -> Result<BufHead<'_>> {
    let sb = inode.sb();
    let mut map = inode.data().map();
    if let Some(Run::Data(..)) = find(inode, number, 1)? {
        return Err(corrupted(
            inode,
            format_args!("i_size: there is a block {number} behind the end"),
        ));
    }
    let goal = goal(inode, &map, number)?;
    let block = balloc::alloc_one(inode, goal)?;
    map.next = (number + 1, block.saturating_add(1));
    let extent = Extent {
        start: block,
        len: 1,
    };
    let buffer = match sb.bnew(block.into()) {
        Ok(buffer) => buffer,
        Err(e) => {
            balloc::free(inode, block, 1);
            return Err(e);
        }
    };
    splice(inode, &mut map, number, extent)?;
    Ok(buffer)
}
