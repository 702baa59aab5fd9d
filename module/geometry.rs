// SPDX-License-Identifier: GPL-2.0

//! How the blocks of a file system are used, as plain numbers.

#![forbid(unsafe_code)]

use crate::ondisk::{self, DESC_BITS};
use core::num::NonZeroU32;
use kernel::fs::Offset;

/// How the blocks of the device are used. All numbers are checked against each other.
pub(crate) struct Geometry {
    /// Binary logarithm of the block size.
    pub(crate) block_bits: u32,
    /// Block size in bytes, a power of two from 1024 to the size of a page.
    pub(crate) block_size: u32,
    /// Number of the first block of group 0: 1 if blocks are 1 KiB, else 0.
    pub(crate) first_data_block: u32,
    /// Number of blocks, those in front of `first_data_block` included.
    pub(crate) blocks_count: u32,
    /// Blocks in each group but the last, not 0.
    pub(crate) blocks_per_group: NonZeroU32,
    /// Number of inodes.
    pub(crate) inodes_count: u32,
    /// Inodes in each group, not 0.
    pub(crate) inodes_per_group: NonZeroU32,
    /// Size of an inode in bytes, a power of two from 128 to the block size.
    pub(crate) inode_size: u32,
    /// The first inode that is not reserved.
    pub(crate) first_ino: u32,
    /// Blocks of the inode table of a group.
    pub(crate) table_blocks: u32,
    /// Number of groups, not 0.
    pub(crate) groups: NonZeroU32,
    /// Blocks that hold the group descriptors.
    pub(crate) desc_blocks: u32,
    /// The first of those blocks that lies in the group that it describes.
    pub(crate) first_meta_bg: u32,
    /// Blocks behind the group descriptors that are kept for more of them.
    pub(crate) reserved_desc_blocks: u32,
    /// Which groups have copies of the superblock.
    pub(crate) backups: Backups,
}

/// Which groups start with a copy of the superblock; the first always has the original.
pub(crate) enum Backups {
    /// All.
    All,
    /// The second, and the powers of 3, 5 and 7.
    Sparse,
    /// These; 0 stands for none.
    These([u32; 2]),
}

impl Geometry {
    /// Group descriptors in a block.
    pub(crate) fn descs_per_block(&self) -> u32 {
        self.block_size >> DESC_BITS
    }

    /// The first block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u32 {
        self.first_data_block + group * self.blocks_per_group.get()
    }

    /// The block behind the last one of a group.
    pub(crate) fn group_end(&self, group: u32) -> u32 {
        self.group_start(group)
            .saturating_add(self.blocks_per_group.get())
            .min(self.blocks_count)
    }

    /// The group of a block that is not in front of the first one.
    pub(crate) fn group_of(&self, block: u32) -> u32 {
        (block - self.first_data_block) / self.blocks_per_group
    }

    /// Whether a group starts with a copy of the superblock.
    pub(crate) fn has_super(&self, group: u32) -> bool {
        match self.backups {
            _ if group == 0 => true,
            Backups::All => true,
            Backups::Sparse => group == 1 || [3, 5, 7].iter().any(|&n| is_power_of(group, n)),
            Backups::These(groups) => groups.contains(&group),
        }
    }

    /// How many blocks with group descriptors a group has, behind its superblock.
    pub(crate) fn group_desc_blocks(&self, group: u32) -> u32 {
        let meta_bg = group >> (self.block_bits - DESC_BITS);
        if meta_bg < self.first_meta_bg {
            return if self.has_super(group) {
                self.first_meta_bg
            } else {
                0
            };
        }
        let last = self.descs_per_block() - 1;
        u32::from(matches!(group & last, n if n <= 1 || n == last))
    }

    /// How many blocks at the start of a group are not for data.
    pub(crate) fn group_head(&self, group: u32) -> u32 {
        let reserved = if self.has_super(group) {
            1 + self.reserved_desc_blocks
        } else {
            0
        };
        reserved + self.group_desc_blocks(group)
    }

    /// The block that holds the group descriptors number `nr * descs_per_block` and following;
    /// `super_block` is the one that the superblock was read from.
    pub(crate) fn desc_location(&self, nr: u32, super_block: u64) -> u64 {
        if nr < self.first_meta_bg {
            return super_block + 1 + u64::from(nr);
        }
        let group = nr * self.descs_per_block();
        u64::from(self.group_start(group)) + u64::from(self.has_super(group))
    }

    /// Blocks that are not for data, as `statfs` has always counted them: those that are reserved for
    /// descriptors are taken for data.
    pub(crate) fn overhead(&self) -> u64 {
        let heads: u64 = (0..self.groups.get())
            .map(|g| u64::from(self.has_super(g)) + u64::from(self.group_desc_blocks(g)))
            .sum();
        let rest = u64::from(self.groups.get()) * (2 + u64::from(self.table_blocks));
        u64::from(self.first_data_block) + heads + rest
    }

    /// The size of the biggest file, in bytes. Two things limit it: what the pointers of an inode
    /// reach, and the sectors, those of indirect blocks included, that `i_blocks` can count.
    pub(crate) fn max_file_size(&self) -> Offset {
        let per_block = u64::from(self.block_size / 4);
        let direct = ondisk::DIRECT_BLOCKS as u64;
        let reach = direct + per_block + per_block.pow(2) + per_block.pow(3);
        let countable = u64::from(u32::MAX) >> (self.block_bits - 9);
        // The indirect blocks of a file of `n` blocks.
        let indirect = |n: u64| {
            let mut left = n.saturating_sub(direct);
            let mut sum = 0;
            for level in 1..=3 {
                let here = left.min(per_block.pow(level));
                sum += (1..=level)
                    .map(|l| {
                        let bits = l * (self.block_bits - 2);
                        (here + (1 << bits) - 1) >> bits
                    })
                    .sum::<u64>();
                left -= here;
            }
            sum
        };
        let (mut fits, mut too_big) = (0, reach + 1);
        while too_big - fits > 1 {
            let middle = fits + (too_big - fits) / 2;
            if middle + indirect(middle) <= countable {
                fits = middle;
            } else {
                too_big = middle;
            }
        }
        (fits << self.block_bits) as Offset
    }
}

/// Whether `n` is a power of `base`.
fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > base && n % base == 0 {
        n /= base;
    }
    n == base
}
