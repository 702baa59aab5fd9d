// SPDX-License-Identifier: GPL-2.0

//! Mounting: reading and checking the superblock and the group descriptors.
//!
//! Every field that is divided by, shifted by or used as an index is checked here, and only here.

#![forbid(unsafe_code)]

use crate::{
    inode::{self, Info},
    ondisk::{self, incompat, ro_compat, GroupDesc},
    options::{self, Params},
    Rext2,
};
use core::{fmt, mem::size_of};
use kernel::{
    c_str,
    fs::{
        context::{Options, Param},
        sb::{Limits, Mounted, NewSb, Stat},
        FileSystem, Offset, SuperBlock,
    },
    init::PinInit,
    page::PAGE_SIZE,
    prelude::*,
};

/// The size of a group descriptor, in bytes.
const DESC_SIZE: u32 = size_of::<GroupDesc>() as u32;

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
    pub(crate) blocks_per_group: u32,
    /// Number of inodes.
    pub(crate) inodes_count: u32,
    /// Inodes in each group, not 0.
    pub(crate) inodes_per_group: u32,
    /// Size of an inode in bytes, a power of two from 128 to the block size.
    pub(crate) inode_size: u32,
    /// The first inode that is not reserved.
    pub(crate) first_ino: u32,
    /// Blocks of the inode table of a group.
    pub(crate) table_blocks: u32,
    /// Number of groups, not 0.
    pub(crate) groups: u32,
    /// Blocks that hold the group descriptors.
    desc_blocks: u32,
    /// The first of those blocks that lies in the group that it describes.
    first_meta_bg: u32,
    /// Not every group has a copy of the superblock.
    sparse_super: bool,
}

impl Geometry {
    /// Group descriptors in a block.
    fn descs_per_block(&self) -> u32 {
        self.block_size / DESC_SIZE
    }

    /// The first block of a group.
    fn group_start(&self, group: u32) -> u32 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// The block behind the last one of a group.
    fn group_end(&self, group: u32) -> u32 {
        self.group_start(group)
            .saturating_add(self.blocks_per_group)
            .min(self.blocks_count)
    }

    /// The group of a block that is not in front of the first one.
    fn group_of(&self, block: u32) -> u32 {
        (block - self.first_data_block) / self.blocks_per_group
    }

    /// Whether a group starts with a copy of the superblock.
    fn has_super(&self, group: u32) -> bool {
        if !self.sparse_super || group <= 1 {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// How many blocks with group descriptors a group has, behind its superblock.
    fn group_desc_blocks(&self, group: u32) -> u32 {
        let meta_bg = group / self.descs_per_block();
        if meta_bg < self.first_meta_bg {
            return if self.has_super(group) {
                self.first_meta_bg
            } else {
                0
            };
        }
        let last = self.descs_per_block() - 1;
        u32::from(matches!(group % self.descs_per_block(), n if n <= 1 || n == last))
    }

    /// How many blocks at the start of a group are not for data.
    fn group_head(&self, group: u32) -> u32 {
        u32::from(self.has_super(group)) + self.group_desc_blocks(group)
    }

    /// The block that holds the group descriptors number `nr * descs_per_block` and following;
    /// `super_block` is the one that the superblock was read from.
    fn desc_location(&self, nr: u32, super_block: u64) -> u64 {
        if nr < self.first_meta_bg {
            return super_block + 1 + u64::from(nr);
        }
        let group = nr * self.descs_per_block();
        u64::from(self.group_start(group)) + u64::from(self.has_super(group))
    }

    /// Blocks that are not for data.
    fn overhead(&self) -> u64 {
        let heads: u64 = (0..self.groups)
            .map(|g| u64::from(self.group_head(g)))
            .sum();
        let rest = u64::from(self.groups) * (2 + u64::from(self.table_blocks));
        u64::from(self.first_data_block) + heads + rest
    }

    /// The size of the biggest file, in bytes. Two things limit it: what the pointers of an inode
    /// reach, and the sectors, those of indirect blocks included, that `i_blocks` can count.
    fn max_file_size(&self) -> Offset {
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
                    .map(|l| here.div_ceil(per_block.pow(l)))
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

/// What a mounted file system knows.
pub(crate) struct Mount {
    /// How the blocks are used.
    pub(crate) geometry: Geometry,
    /// The group descriptors.
    pub(crate) groups: KVVec<GroupDesc>,
    /// Directory entries say the type of the file.
    pub(crate) filetype: bool,
    /// Blocks kept for the privileged.
    reserved_blocks: u32,
    /// Blocks that are not for data.
    overhead: u64,
    /// The option `sb`.
    pub(crate) super_location: Option<u32>,
    /// The option `minixdf`.
    pub(crate) minix_df: bool,
}

impl Mount {
    /// Whether a block may belong to a file: it is on the file system, and neither superblock nor
    /// descriptor nor bitmap nor inode table.
    pub(crate) fn is_data_block(&self, block: u32) -> bool {
        let geo = &self.geometry;
        if block < geo.first_data_block || block >= geo.blocks_count {
            return false;
        }
        let group = geo.group_of(block);
        let Some(desc) = self.groups.get(group as usize) else {
            return false;
        };
        let table = desc.bg_inode_table.get();
        block - geo.group_start(group) >= geo.group_head(group)
            && block != desc.bg_block_bitmap.get()
            && block != desc.bg_inode_bitmap.get()
            && !(table..table + geo.table_blocks).contains(&block)
    }
}

#[vtable]
impl FileSystem for Rext2 {
    const NAME: &'static CStr = c_str!("rext2");

    type Data = Mount;
    type INodeData = Info;
    type Params = Params;

    fn init_inode_data() -> impl PinInit<Info, Error> {
        Info::new()
    }

    fn parse_param(params: &mut Params, param: &Param<'_>) -> Result {
        params.parse(param)
    }

    fn fill_super<'a>(mut sb: NewSb<'a, Self>, params: &Params) -> Result<Mounted<'a, Self>> {
        if !sb.is_read_only() {
            sb.err(format_args!("cannot write yet: mount it read-only (-o ro)"));
            return Err(EROFS);
        }

        let (raw, super_block) = read_super(&mut sb, params)?;
        let geometry = check_super(&mut sb, &raw)?;
        let groups = read_groups(&sb, &geometry, super_block)?;

        sb.set_limits(&Limits {
            magic: ondisk::MAGIC.into(),
            max_bytes: geometry.max_file_size(),
            max_links: ondisk::LINK_MAX,
            time_min: i32::MIN.into(),
            time_max: match geometry.inode_size {
                128 => i32::MAX.into(),
                // Two more bits behind the 32 of the original inode.
                _ => i64::from(i32::MAX) + (3 << 32),
            },
            time_granularity: match geometry.inode_size {
                128 => 1_000_000_000,
                _ => 1,
            },
        });
        sb.set_uuid(&raw.s_uuid);

        let mount = Mount {
            filetype: features(&raw).0 & incompat::FILETYPE != 0,
            reserved_blocks: raw.s_r_blocks_count.get(),
            overhead: geometry.overhead(),
            geometry,
            groups,
            super_location: params.super_location,
            minix_df: params.minix_df,
        };
        let live = sb.publish(KBox::new(mount, GFP_KERNEL)?);
        let root = inode::iget(live.sb(), ondisk::ROOT_INO)?;
        if !root.is_dir() || root.size() == 0 {
            live.sb().corrupted(
                Some(&root),
                format_args!(
                    "root inode is no directory with contents: i_mode {:o}, i_size {}",
                    root.mode(),
                    root.size()
                ),
            );
            return Err(EUCLEAN);
        }
        live.set_root(root)
    }

    fn statfs(sb: &SuperBlock<Self>) -> Result<Stat> {
        let mount = sb.data();
        let geo = &mount.geometry;
        let sum = |count: fn(&GroupDesc) -> u16| -> u64 {
            mount.groups.iter().map(|g| u64::from(count(g))).sum()
        };
        let free_blocks = sum(|g| g.bg_free_blocks_count.get());
        let overhead = if mount.minix_df { 0 } else { mount.overhead };
        Ok(Stat {
            blocks: u64::from(geo.blocks_count).saturating_sub(overhead),
            free_blocks,
            available_blocks: free_blocks.saturating_sub(mount.reserved_blocks.into()),
            files: geo.inodes_count.into(),
            free_files: sum(|g| g.bg_free_inodes_count.get()),
            name_len: ondisk::NAME_LEN as u32,
        })
    }

    fn show_options(sb: &SuperBlock<Self>, to: &mut Options<'_>) -> Result {
        options::show(sb.data(), to);
        Ok(())
    }

    fn reconfigure(sb: &SuperBlock<Self>, _params: &Params, read_only: bool) -> Result {
        if !read_only {
            sb.err(format_args!("cannot write yet: it stays mounted read-only"));
            return Err(EROFS);
        }
        Ok(())
    }
}

/// The features that a superblock says it has: incompatible ones, and those that allow reading.
fn features(raw: &ondisk::SuperBlock) -> (u32, u32) {
    (raw.s_feature_incompat.get(), raw.s_feature_ro_compat.get())
}

/// Reads the superblock, sets the block size that it asks for, and returns the block in which it
/// lies as well.
fn read_super(
    sb: &mut NewSb<'_, Rext2>,
    params: &Params,
) -> Result<(KBox<ondisk::SuperBlock>, u64)> {
    let offset = match params.super_location {
        Some(location) => u64::from(location) * 1024,
        None => ondisk::SUPER_OFFSET,
    };
    let read = |sb: &NewSb<'_, Rext2>, size: u64| -> Result<KBox<ondisk::SuperBlock>> {
        let block = offset / size;
        if block >= sb.device_blocks() {
            sb.err(format_args!(
                "no superblock at byte {offset}: the device ends before it"
            ));
            return Err(EINVAL);
        }
        let raw = sb.bread(block)?.get((offset % size) as usize)?;
        Ok(KBox::new(raw, GFP_KERNEL)?)
    };

    let probe_size = sb.set_min_block_size(1024).inspect_err(|_| {
        sb.err(format_args!(
            "the device cannot be read in blocks of 1024 bytes or more"
        ));
    })?;
    let raw = read(sb, probe_size.into())?;
    if raw.s_magic.get() != ondisk::MAGIC {
        sb.err(format_args!(
            "no ext2 file system: s_magic is {:#06x}",
            raw.s_magic.get()
        ));
        return Err(EINVAL);
    }

    let log = raw.s_log_block_size.get();
    let size = match log {
        0..=6 => 1024usize << log,
        _ => {
            sb.err(format_args!("s_log_block_size {log} is more than 6"));
            return Err(EINVAL);
        }
    };
    if size > PAGE_SIZE || (size as u32) < probe_size {
        sb.err(format_args!(
            "s_log_block_size {log}: blocks of {size} bytes; the machine and the device allow \
             {probe_size} to {PAGE_SIZE}"
        ));
        return Err(EINVAL);
    }
    if size as u32 != probe_size {
        sb.set_block_size(size as u32)?;
    }
    // Read once more: setting the block size has emptied the cache of the device.
    let raw = read(sb, size as u64)?;
    if raw.s_magic.get() != ondisk::MAGIC || raw.s_log_block_size.get() != log {
        sb.err(format_args!(
            "s_magic or s_log_block_size changed while it was read"
        ));
        return Err(EINVAL);
    }
    Ok((raw, offset / size as u64))
}

/// Checks the superblock.
fn check_super(sb: &mut NewSb<'_, Rext2>, raw: &ondisk::SuperBlock) -> Result<Geometry> {
    let rev = raw.s_rev_level.get();
    if rev > ondisk::REV_DYNAMIC {
        sb.warn(format_args!("s_rev_level {rev} is too new: read-only"));
        sb.set_read_only();
    }
    let (incompat, ro_compat) = features(raw);
    check_features(sb, incompat)?;

    let refuse = |field: &str, value: u32, why: fmt::Arguments<'_>| {
        sb.err(format_args!("{field} {value} {why}"));
        Err(EINVAL)
    };

    let log_size = raw.s_log_block_size.get();
    let block_bits = 10 + log_size;
    let block_size = 1u32 << block_bits;
    let bits_in_block = 8 * block_size;
    if raw.s_log_frag_size.get() != log_size {
        let value = raw.s_log_frag_size.get();
        return refuse(
            "s_log_frag_size",
            value,
            format_args!("differs from s_log_block_size {log_size}"),
        );
    }

    let inode_size = match rev {
        ondisk::REV_ORIGINAL => ondisk::INODE_SIZE_REV0.into(),
        _ => u32::from(raw.s_inode_size.get()),
    };
    let smallest = u32::from(ondisk::INODE_SIZE_REV0);
    if !inode_size.is_power_of_two() || !(smallest..=block_size).contains(&inode_size) {
        return refuse(
            "s_inode_size",
            inode_size,
            format_args!("is not a power of two from {smallest} to the block size"),
        );
    }
    let inodes_per_block = block_size / inode_size;

    let inodes_per_group = raw.s_inodes_per_group.get();
    if !(inodes_per_block..=bits_in_block).contains(&inodes_per_group) {
        return refuse(
            "s_inodes_per_group",
            inodes_per_group,
            format_args!("is not from {inodes_per_block} to {bits_in_block}"),
        );
    }
    let table_blocks = inodes_per_group.div_ceil(inodes_per_block);

    let first_ino = match rev {
        ondisk::REV_ORIGINAL => ondisk::FIRST_INO_REV0,
        _ => raw.s_first_ino.get(),
    };
    if !(ondisk::FIRST_INO_REV0..=inodes_per_group).contains(&first_ino) {
        return refuse(
            "s_first_ino",
            first_ino,
            format_args!(
                "is not from {} to {inodes_per_group}",
                ondisk::FIRST_INO_REV0
            ),
        );
    }

    let blocks_per_group = raw.s_blocks_per_group.get();
    // A group has at least two bitmaps, the inode table, and a block of data.
    if !(table_blocks + 3..=bits_in_block).contains(&blocks_per_group) {
        return refuse(
            "s_blocks_per_group",
            blocks_per_group,
            format_args!("is not from {} to {bits_in_block}", table_blocks + 3),
        );
    }

    let first_data_block = raw.s_first_data_block.get();
    let expected = u32::from(block_size == 1024);
    if first_data_block != expected {
        return refuse(
            "s_first_data_block",
            first_data_block,
            format_args!("is not {expected}, where blocks of {block_size} bytes start"),
        );
    }

    let blocks_count = raw.s_blocks_count.get();
    let device_blocks = sb.device_blocks();
    if blocks_count <= first_data_block + 1 || u64::from(blocks_count) > device_blocks {
        return refuse(
            "s_blocks_count",
            blocks_count,
            format_args!("is not from {} to {device_blocks}", first_data_block + 2),
        );
    }

    let groups = (blocks_count - first_data_block).div_ceil(blocks_per_group);
    let inodes_count = raw.s_inodes_count.get();
    let computed = u64::from(groups) * u64::from(inodes_per_group);
    if computed != u64::from(inodes_count) {
        return refuse(
            "s_inodes_count",
            inodes_count,
            format_args!("is not that of {groups} groups, which is {computed}"),
        );
    }

    let desc_blocks = groups.div_ceil(block_size / DESC_SIZE);
    let first_meta_bg = match incompat & incompat::META_BG {
        0 => desc_blocks,
        _ => raw.s_first_meta_bg.get(),
    };
    if first_meta_bg > desc_blocks {
        return refuse(
            "s_first_meta_bg",
            first_meta_bg,
            format_args!("is more than the {desc_blocks} blocks of descriptors"),
        );
    }

    Ok(Geometry {
        block_bits,
        block_size,
        first_data_block,
        blocks_count,
        blocks_per_group,
        inodes_count,
        inodes_per_group,
        inode_size,
        first_ino,
        table_blocks,
        groups,
        desc_blocks,
        first_meta_bg,
        sparse_super: ro_compat & ro_compat::SPARSE_SUPER != 0,
    })
}

/// Refuses features that change what is on the disk in ways that we do not know.
fn check_features(sb: &NewSb<'_, Rext2>, features: u32) -> Result {
    let unknown = features & !incompat::SUPPORTED;
    if unknown == 0 {
        return Ok(());
    }
    let name = incompat::NAMES.iter().find(|(bit, _)| unknown & bit != 0);
    sb.err(format_args!(
        "s_feature_incompat {features:#x}: cannot read a file system with feature {}{}",
        name.map_or("unknown", |(_, name)| name),
        if unknown.is_power_of_two() {
            ""
        } else {
            " and others"
        },
    ));
    Err(EINVAL)
}

/// Reads and checks the group descriptors.
fn read_groups(
    sb: &NewSb<'_, Rext2>,
    geo: &Geometry,
    super_block: u64,
) -> Result<KVVec<GroupDesc>> {
    let mut groups = KVVec::with_capacity(geo.groups as usize, GFP_KERNEL)?;
    for nr in 0..geo.desc_blocks {
        let block = geo.desc_location(nr, super_block);
        if block >= u64::from(geo.blocks_count) {
            sb.err(format_args!(
                "group descriptors at block {block}: the file system ends before"
            ));
            return Err(EINVAL);
        }
        let buffer = sb.bread(block)?;
        let first = nr * geo.descs_per_block();
        for i in 0..geo.descs_per_block().min(geo.groups - first) {
            let desc = buffer.get((i * DESC_SIZE) as usize)?;
            check_group(sb, geo, first + i, &desc)?;
            groups.push(desc, GFP_KERNEL)?;
        }
    }
    Ok(groups)
}

/// Checks that the bitmaps and the inode table of a group lie in it, and not over each other.
fn check_group(sb: &NewSb<'_, Rext2>, geo: &Geometry, group: u32, desc: &GroupDesc) -> Result {
    let start = geo.group_start(group).saturating_add(geo.group_head(group));
    let end = geo.group_end(group);
    let parts = [
        ("bg_block_bitmap", desc.bg_block_bitmap.get(), 1),
        ("bg_inode_bitmap", desc.bg_inode_bitmap.get(), 1),
        (
            "bg_inode_table",
            desc.bg_inode_table.get(),
            geo.table_blocks,
        ),
    ];
    for (i, &(field, block, len)) in parts.iter().enumerate() {
        if !end
            .checked_sub(len)
            .is_some_and(|last| (start..=last).contains(&block))
        {
            sb.err(format_args!(
                "{field} {block} of group {group} is not from {start} to {end}"
            ));
            return Err(EINVAL);
        }
        // All of them are within the group, so that the sums do not overflow.
        for &(other, other_block, other_len) in parts.iter().take(i) {
            if block < other_block + other_len && other_block < block + len {
                sb.err(format_args!(
                    "{field} {block} of group {group} lies over its {other}"
                ));
                return Err(EINVAL);
            }
        }
    }
    Ok(())
}
