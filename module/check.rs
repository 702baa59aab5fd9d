// SPDX-License-Identifier: GPL-2.0

//! Reading and checking the superblock and the group descriptors.
//!
//! Every field that is divided by, shifted by or used as an index is checked here, and only here.

#![forbid(unsafe_code)]

use crate::{
    geometry::{Backups, Geometry},
    group::Group,
    ondisk::{self, compat, incompat, ro_compat, GroupDesc, DESC_SIZE},
    options::Params,
    Rext2,
};
use core::{fmt, num::NonZeroU32};
use kernel::{fs::sb::NewSb, page::PAGE_SIZE, prelude::*};

/// The features that a superblock says it has: incompatible ones, and those that allow reading.
pub(crate) fn features(raw: &ondisk::SuperBlock) -> (u32, u32) {
    (raw.s_feature_incompat.get(), raw.s_feature_ro_compat.get())
}

/// Reads the superblock, sets the block size that it asks for, and returns where it lies as well: the
/// block, and the byte in it.
pub(crate) fn read_super(
    sb: &mut NewSb<'_, Rext2>,
    params: &Params,
) -> Result<(KBox<ondisk::SuperBlock>, (u64, usize))> {
    let offset = match params.super_location {
        Some(location) => u64::from(location) * 1024,
        None => ondisk::SUPER_OFFSET,
    };
    let read = |sb: &NewSb<'_, Rext2>, size: u64| -> Result<KBox<ondisk::SuperBlock>> {
        let bits = size.trailing_zeros();
        let block = offset >> bits;
        if block >= sb.device_blocks() {
            sb.err(format_args!(
                "no superblock at byte {offset}: the device ends before it"
            ));
            return Err(EINVAL);
        }
        let raw = sb.bread(block)?.get((offset & (size - 1)) as usize)?;
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
    let size = size as u64;
    let bits = size.trailing_zeros();
    Ok((raw, (offset >> bits, (offset & (size - 1)) as usize)))
}

/// Checks the superblock.
pub(crate) fn check_super(sb: &mut NewSb<'_, Rext2>, raw: &ondisk::SuperBlock) -> Result<Geometry> {
    let rev = raw.s_rev_level.get();
    if rev > ondisk::REV_DYNAMIC {
        sb.warn(format_args!("s_rev_level {rev} is too new: read-only"));
        sb.set_read_only();
    }
    let (incompat, ro_compat) = features(raw);
    check_features(sb, incompat, ro_compat)?;

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
    let inodes_per_block = block_size >> inode_size.trailing_zeros();

    let inodes_per_group = raw.s_inodes_per_group.get();
    if !(inodes_per_block..=bits_in_block).contains(&inodes_per_group) {
        return refuse(
            "s_inodes_per_group",
            inodes_per_group,
            format_args!("is not from {inodes_per_block} to {bits_in_block}"),
        );
    }
    let table_blocks =
        (inodes_per_group + inodes_per_block - 1) >> inodes_per_block.trailing_zeros();

    let blocks_per_group = raw.s_blocks_per_group.get();
    // A group has two bitmaps, the inode table, and some blocks of data.
    if !(table_blocks + 4..=bits_in_block).contains(&blocks_per_group) {
        return refuse(
            "s_blocks_per_group",
            blocks_per_group,
            format_args!("is not from {} to {bits_in_block}", table_blocks + 4),
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

    let (Some(blocks_per_group), Some(inodes_per_group)) = (
        NonZeroU32::new(blocks_per_group),
        NonZeroU32::new(inodes_per_group),
    ) else {
        return Err(EINVAL);
    };
    // The last group may be a part of one; there is at least one block in it.
    let groups = (blocks_count - first_data_block - 1) / blocks_per_group + 1;
    let groups = NonZeroU32::new(groups).ok_or(EINVAL)?;
    let inodes_count = raw.s_inodes_count.get();
    let computed = u64::from(groups.get()) * u64::from(inodes_per_group.get());
    if computed != u64::from(inodes_count) {
        return refuse(
            "s_inodes_count",
            inodes_count,
            format_args!("is not that of {groups} groups, which is {computed}"),
        );
    }

    let first_ino = match rev {
        ondisk::REV_ORIGINAL => ondisk::FIRST_INO_REV0,
        _ => raw.s_first_ino.get(),
    };
    if !(ondisk::FIRST_INO_REV0..=inodes_count).contains(&first_ino) {
        return refuse(
            "s_first_ino",
            first_ino,
            format_args!("is not from {} to {inodes_count}", ondisk::FIRST_INO_REV0),
        );
    }

    let reserved_desc_blocks = match raw.s_feature_compat.get() & compat::RESIZE_INODE {
        0 => 0,
        _ => u32::from(raw.s_reserved_gdt_blocks.get()),
    };
    // The resize inode points to them from one indirect block.
    if reserved_desc_blocks > block_size / 4 {
        return refuse(
            "s_reserved_gdt_blocks",
            reserved_desc_blocks,
            format_args!("is more than {}", block_size / 4),
        );
    }

    let backups = if raw.s_feature_compat.get() & compat::SPARSE_SUPER2 != 0 {
        Backups::These(raw.s_backup_bgs.map(|group| group.get()))
    } else if ro_compat & ro_compat::SPARSE_SUPER != 0 {
        Backups::Sparse
    } else {
        Backups::All
    };

    let desc_bits = block_bits - ondisk::DESC_BITS;
    let desc_blocks = (groups.get() + (1 << desc_bits) - 1) >> desc_bits;
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
        reserved_desc_blocks,
        backups,
    })
}

/// Refuses features that change what is on the disk in ways that we do not know.
fn check_features(sb: &NewSb<'_, Rext2>, incompat: u32, ro_compat: u32) -> Result {
    let refuse = |field: &str, features: u32, unknown: u32, names: &[(u32, &str)], what: &str| {
        let name = names.iter().find(|(bit, _)| unknown & bit != 0);
        sb.err(format_args!(
            "{field} {features:#x}: cannot {what} a file system with feature {}{}",
            name.map_or("unknown", |(_, name)| name),
            if unknown.is_power_of_two() {
                ""
            } else {
                " and others"
            },
        ));
        Err(EINVAL)
    };
    let unknown = incompat & !incompat::SUPPORTED;
    if unknown != 0 {
        let names = &incompat::NAMES;
        return refuse("s_feature_incompat", incompat, unknown, names, "read");
    }
    let unknown = ro_compat & !ro_compat::SUPPORTED;
    if unknown != 0 && !sb.is_read_only() {
        let names = &ro_compat::NAMES;
        return refuse("s_feature_ro_compat", ro_compat, unknown, names, "write to");
    }
    Ok(())
}

/// Reads and checks the group descriptors.
pub(crate) fn read_groups(
    sb: &NewSb<'_, Rext2>,
    geo: &Geometry,
    super_block: u64,
) -> Result<KVVec<Group>> {
    let mut groups = KVVec::new();
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
        for i in 0..geo.descs_per_block().min(geo.groups.get() - first) {
            let desc = buffer.get((i * DESC_SIZE) as usize)?;
            check_group(sb, geo, first + i, &desc)?;
            let head = geo.group_head(first + i);
            groups.push(Group::new(&desc, head), GFP_KERNEL | __GFP_NOWARN)?;
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
