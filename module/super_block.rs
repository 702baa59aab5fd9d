// SPDX-License-Identifier: GPL-2.0

//! A mounted file system: mounting, remounting, syncing and unmounting.

#![forbid(unsafe_code)]

use crate::{
    balloc::Windows,
    check::{check_super, features, read_groups, read_super},
    geometry::Geometry,
    group::{self, Group},
    held::{self, Held},
    inode::{self, Info},
    ondisk::{self, compat, incompat, ro_compat},
    options::{self, Params},
    persist,
    state::{self, State},
    xattr::{self, Attributes},
    Rext2,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kernel::{
    c_str,
    fs::{
        context::{Options, Param},
        inode::Evicting,
        random_u32, real_seconds,
        sb::{Limits, Mounted, NewSb, Stat},
        FileSystem, INode, SuperBlock,
    },
    init::{pin_init_array_from_fn, PinInit},
    new_condvar, new_mutex,
    prelude::*,
    sync::{CondVar, Mutex},
};

/// What a mounted file system knows.
#[pin_data]
pub(crate) struct Mount {
    /// How the blocks are used.
    pub(crate) geometry: Geometry,
    /// The groups.
    pub(crate) groups: KVVec<Group>,
    /// The locks of the groups.
    #[pin]
    pub(crate) group_locks: [Mutex<()>; group::LOCKS],
    /// Free blocks of all groups.
    pub(crate) free_blocks: AtomicU32,
    /// Free inodes of all groups.
    pub(crate) free_inodes: AtomicU32,
    /// Directories of all groups.
    pub(crate) dirs: AtomicU32,
    /// Directory entries say the type of the file.
    pub(crate) filetype: bool,
    /// Blocks kept for the privileged.
    pub(crate) reserved_blocks: u32,
    /// Blocks that are not for data.
    overhead: u64,
    /// The block in which the superblock lies, and the byte in it.
    pub(crate) super_block: u64,
    pub(crate) super_offset: usize,
    /// Whether something keeps the file system from being written to.
    read_only_format: bool,
    /// Whether the superblock says that there are big files, or extended attributes.
    pub(crate) large_file: AtomicBool,
    pub(crate) ext_attr: AtomicBool,
    /// When the file system was synced last, in seconds as inodes have them.
    pub(crate) last_sync: AtomicU32,
    /// The generation of the next new inode.
    pub(crate) next_generation: AtomicU32,
    /// The mount options.
    pub(crate) options: options::Options,
    /// The windows of files that grow, and how many there are.
    #[pin]
    pub(crate) windows: Mutex<Windows>,
    pub(crate) window_count: AtomicU32,
    /// Indirect blocks that are free, but held back until the next sync, and how many there are.
    #[pin]
    pub(crate) held: Mutex<Held>,
    pub(crate) held_count: AtomicU32,
    /// Which blocks of attributes may be shared.
    #[pin]
    pub(crate) xattrs: Mutex<xattr::Cache>,
    /// Those who wait for a file to grow.
    #[pin]
    pub(crate) grown: CondVar,
    /// What is known of the superblock on the disk.
    #[pin]
    pub(crate) state: Mutex<State>,
    /// When damage was reported last, and how often.
    pub(crate) reports: AtomicU64,
}

impl Mount {
    fn new(
        raw: &ondisk::SuperBlock,
        geometry: Geometry,
        groups: KVVec<Group>,
        (super_block, super_offset): (u64, usize),
        held: Held,
        params: &Params,
    ) -> impl PinInit<Self, Error> {
        let sum = |count: fn(&Group) -> &AtomicU32| -> AtomicU32 {
            let counts = groups.iter().map(|g| count(g).load(Ordering::Relaxed));
            AtomicU32::new(counts.fold(0, u32::saturating_add))
        };
        let (incompat, ro_compat) = features(raw);
        let (free_blocks, free_inodes, dirs) = (
            sum(|g| &g.free_blocks),
            sum(|g| &g.free_inodes),
            sum(|g| &g.used_dirs),
        );
        let filetype = incompat & incompat::FILETYPE != 0;
        let read_only_format =
            ro_compat & !ro_compat::SUPPORTED != 0 || raw.s_rev_level.get() > ondisk::REV_DYNAMIC;
        let large_file = ro_compat & ro_compat::LARGE_FILE != 0;
        let ext_attr = raw.s_feature_compat.get() & compat::EXT_ATTR != 0;
        let reserved_blocks = raw.s_r_blocks_count.get();
        let overhead = geometry.overhead();
        let options = options::Options::new(params, raw);
        try_pin_init!(Self {
            geometry,
            groups,
            group_locks <- pin_init_array_from_fn(|_| new_mutex!((), "rext2_group")),
            free_blocks,
            free_inodes,
            dirs,
            filetype,
            reserved_blocks,
            overhead,
            super_block,
            super_offset,
            read_only_format,
            large_file: AtomicBool::new(large_file),
            ext_attr: AtomicBool::new(ext_attr),
            last_sync: AtomicU32::new(real_seconds() as u32),
            next_generation: AtomicU32::new(random_u32()),
            options,
            windows <- new_mutex!(Windows::new(), "rext2_windows"),
            window_count: AtomicU32::new(0),
            held <- new_mutex!(held, "rext2_held"),
            held_count: AtomicU32::new(0),
            xattrs <- new_mutex!(xattr::Cache::new(), "rext2_xattrs"),
            grown <- new_condvar!("rext2_grown"),
            state <- new_mutex!(State::default(), "rext2_state"),
            reports: AtomicU64::new(0),
        }? Error)
    }

    /// Whether a block may belong to a file: it is on the file system, and neither superblock nor
    /// descriptor nor bitmap nor inode table.
    pub(crate) fn is_data_block(&self, block: u32) -> bool {
        block < self.data_end(block)
    }

    /// The end of the run of blocks from `block` on that may belong to a file. It does not go into
    /// another group; if there is no such run, it is `block` itself.
    pub(crate) fn data_end(&self, block: u32) -> u32 {
        let geo = &self.geometry;
        if block < geo.first_data_block || block >= geo.blocks_count {
            return block;
        }
        let nr = geo.group_of(block);
        let Some(group) = self.group(nr) else {
            return block;
        };
        if block - geo.group_start(nr) < group.head {
            return block;
        }
        let mut end = geo.group_end(nr);
        for (start, len) in [
            (group.block_bitmap, 1),
            (group.inode_bitmap, 1),
            (group.inode_table, geo.table_blocks),
        ] {
            if block < start {
                end = end.min(start);
            } else if block - start < len {
                return block;
            }
        }
        end
    }
}

#[vtable]
impl FileSystem for Rext2 {
    const NAME: &'static CStr = c_str!("rext2");

    type Data = Mount;
    type INodeData = Info;
    type Params = Params;
    type Xattr = Attributes;
    type Acl = Self;
    type FileAttr = Self;
    type Export = Self;

    fn init_inode_data() -> impl PinInit<Info, Error> {
        Info::new()
    }

    fn parse_param(params: &mut Params, param: &Param<'_>) -> Result {
        params.parse(param)
    }

    fn fill_super<'a>(mut sb: NewSb<'a, Self>, params: &Params) -> Result<Mounted<'a, Self>> {
        let (raw, place) = read_super(&mut sb, params)?;
        let geometry = check_super(&mut sb, &raw)?;
        let groups = read_groups(&sb, &geometry, place.0)?;

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
        if raw.s_feature_compat.get() & compat::HAS_JOURNAL != 0 {
            sb.warn(format_args!("the journal is left alone"));
        }

        let mount = Mount::new(&raw, geometry, groups, place, Held::new()?, params);
        let live = sb.publish(KBox::pin_init(mount, GFP_KERNEL)?);
        let sb = live.sb();
        sb.set_posix_acl(sb.data().options.acl());
        let root = inode::iget(sb, ondisk::ROOT_INO)?;
        if !root.is_dir() || root.size() == 0 {
            inode::corrupted(
                &root,
                format_args!(
                    "root inode is no directory with contents: i_mode {:o}, i_size {}",
                    root.mode(),
                    root.size()
                ),
            );
            return Err(EINVAL);
        }
        let mounted = live.set_root(root)?;
        if !sb.is_read_only() {
            state::activate(sb)?;
        }
        Ok(mounted)
    }

    fn statfs(sb: &SuperBlock<Self>) -> Result<Stat> {
        let mount = sb.data();
        let geo = &mount.geometry;
        let free_blocks = mount.free_blocks.load(Ordering::Relaxed);
        let free_blocks = u64::from(free_blocks) + u64::from(mount.held_count());
        let overhead = if mount.options.minix_df() {
            0
        } else {
            mount.overhead
        };
        Ok(Stat {
            blocks: u64::from(geo.blocks_count).saturating_sub(overhead),
            free_blocks,
            available_blocks: free_blocks.saturating_sub(mount.reserved_blocks.into()),
            files: geo.inodes_count.into(),
            free_files: mount.free_inodes.load(Ordering::Relaxed).into(),
            name_len: ondisk::NAME_LEN as u32,
        })
    }

    fn show_options(sb: &SuperBlock<Self>, to: &mut Options<'_>) -> Result {
        sb.data().options.show(to);
        Ok(())
    }

    fn reconfigure(sb: &SuperBlock<Self>, params: &Params, read_only: bool) -> Result {
        let mount = sb.data();
        if !read_only && mount.read_only_format {
            sb.err(format_args!(
                "s_feature_ro_compat or s_rev_level: can only be mounted read-only"
            ));
            return Err(EROFS);
        }
        mount.options.check_change(sb, params)?;
        match (sb.is_read_only(), read_only) {
            (false, true) => state::deactivate(sb)?,
            (true, false) => state::activate(sb)?,
            _ => (),
        }
        mount.options.apply(params);
        sb.set_posix_acl(mount.options.acl());
        Ok(())
    }

    fn write_inode(inode: &INode<Self>, wait: bool) -> Result {
        persist::write(inode, wait)
    }

    fn sync_inode(inode: &INode<Self>) -> Result {
        persist::sync(inode)
    }

    fn evict(inode: Evicting<'_, Self>) {
        persist::evict(&inode);
    }

    fn sync_fs(sb: &SuperBlock<Self>, wait: bool) -> Result {
        state::counts(sb)?;
        if wait {
            held::sync(sb)?;
        }
        Ok(())
    }

    fn freeze(sb: &SuperBlock<Self>) -> Result {
        state::deactivate(sb)
    }

    fn thaw(sb: &SuperBlock<Self>) -> Result {
        state::reactivate(sb)
    }

    fn put_super(sb: &SuperBlock<Self>) {
        if let Err(e) = state::deactivate(sb) {
            sb.err(format_args!(
                "cannot write the superblock: error {}",
                e.to_errno()
            ));
        }
    }
}
