// SPDX-License-Identifier: GPL-2.0

//! The block map: from a block of a file to a block of the disk.
//!
//! An inode points to twelve blocks itself, and to three trees of indirect blocks with one, two and
//! three levels. A pointer that is 0 stands for a hole as big as what it would point to.

#![forbid(unsafe_code)]

use crate::{inode::corrupted, ondisk, Rext2};
use core::sync::atomic::{fence, Ordering};
use kernel::{fs::INode, prelude::*};

pub(crate) use crate::{
    free::free_range,
    splice::{alloc, append_dir_block, first_block, splice},
};

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// So many blocks are not allocated.
    Hole(u64),
    /// So many blocks follow each other on the disk, from this one on.
    Data(u32, u32),
}

/// The way from the inode to the pointer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The index of a pointer in each block on the way; the first is one in the inode.
    pub(crate) indices: [u32; 4],
    /// How many of them there are, 1 to 4.
    pub(crate) depth: usize,
}

impl Path {
    /// The way to block `block` of a file, if a file can have such a block. An indirect block holds
    /// `1 << bits` pointers.
    pub(crate) fn to(block: u64, bits: u32) -> Option<Self> {
        let direct = ondisk::DIRECT_BLOCKS as u64;
        if block < direct {
            return Some(Self {
                indices: [block as u32, 0, 0, 0],
                depth: 1,
            });
        }
        let mut rest = block - direct;
        for level in 1..=3u32 {
            let tree = 1u64 << (bits * level);
            if rest < tree {
                let mut indices = [ondisk::DIRECT_BLOCKS as u32 + level - 1, 0, 0, 0];
                for (i, index) in indices.iter_mut().skip(1).take(level as usize).enumerate() {
                    let shift = bits * (level - 1 - i as u32);
                    *index = (rest >> shift) as u32 & ((1 << bits) - 1);
                }
                return Some(Self {
                    indices,
                    depth: level as usize + 1,
                });
            }
            rest -= tree;
        }
        None
    }

    /// How many pointers there are from this one to the end of the block that holds it.
    pub(crate) fn left_in_block(&self, bits: u32) -> u32 {
        let index = self.indices.get(self.depth - 1).copied().unwrap_or(0);
        let end = match self.depth {
            1 => ondisk::DIRECT_BLOCKS as u32,
            _ => 1 << bits,
        };
        end - index
    }

    /// How many blocks there are from this one to the end of what the pointer at `level` covers.
    fn left_below(&self, level: usize, bits: u32) -> u64 {
        let below = self.depth - 1 - level;
        let covered = 1u64 << (bits as usize * below);
        let inside = self
            .indices
            .iter()
            .take(self.depth)
            .skip(level + 1)
            .fold(0u64, |sum, &index| sum << bits | u64::from(index));
        covered - inside
    }
}

/// Finds where the blocks of a file from `block` on lie: a run of at most `max` blocks, at least
/// one. `None` if a file cannot have such a block.
///
/// # Errors
///
/// `EUCLEAN` for a pointer to what is not a data block, which is reported; `EIO` if an indirect block
/// cannot be read.
pub(crate) fn find(file: &INode<Rext2>, block: u64, max: u64) -> Result<Option<Run>> {
    let sb = file.sb();
    let bits = sb.data().geometry.block_bits - 2;
    let Some(path) = Path::to(block, bits) else {
        return Ok(None);
    };
    let [first, rest @ ..] = path.indices;

    if path.depth == 1 {
        let pointers = (first as usize..ondisk::DIRECT_BLOCKS).map(|i| file.data().block(i));
        return run(file, pointers, max).map(Some);
    }

    let mut pointer = file.data().block(first as usize);
    let mut leaf = 0;
    for (level, &index) in rest.iter().take(path.depth - 1).enumerate() {
        if pointer == 0 {
            return Ok(Some(Run::Hole(path.left_below(level, bits))));
        }
        check(file, pointer)?;
        if level + 2 == path.depth {
            leaf = index;
            break;
        }
        let indirect = sb.bread(pointer.into())?;
        pointer = indirect.load_le32(4 * index as usize)?;
    }

    let indirect = sb.bread(pointer.into())?;
    let words = indirect.words();
    let pointers = (leaf as usize..words.count()).map_while(|index| words.get(index));
    let found = run(file, pointers, max);
    // What is loaded from here on is not older than the pointers, and neither is what they lead to.
    fence(Ordering::Acquire);
    found.map(Some)
}

/// Joins pointers that follow each other, as long as they do and as there are no more than `max`.
fn run(file: &INode<Rext2>, mut pointers: impl Iterator<Item = u32>, max: u64) -> Result<Run> {
    let first = pointers.next().ok_or(EIO)?;
    let more = max.saturating_sub(1) as usize;
    if first == 0 {
        let holes = pointers.take(more).take_while(|&p| p == 0).count();
        return Ok(Run::Hole(1 + holes as u64));
    }
    // What lies behind that, and is wrong or in another group, is seen to when it is asked for.
    let end = file.sb().data().data_end(first);
    if end == first {
        return Err(no_data_block(file, first));
    }
    let mut next = first;
    let mut len = 1;
    for pointer in pointers.take(more) {
        next += 1;
        if pointer != next || next >= end {
            break;
        }
        len += 1;
    }
    Ok(Run::Data(first, len))
}

/// Refuses a pointer to what cannot belong to a file.
pub(crate) fn check(file: &INode<Rext2>, pointer: u32) -> Result {
    if file.sb().data().is_data_block(pointer) {
        return Ok(());
    }
    Err(no_data_block(file, pointer))
}

/// Reports a pointer to what cannot belong to a file.
#[cold]
pub(crate) fn no_data_block(file: &INode<Rext2>, pointer: u32) -> Error {
    corrupted(
        file,
        format_args!("i_block points to {pointer}, which is not a data block"),
    )
}
