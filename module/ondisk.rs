// SPDX-License-Identifier: GPL-2.0

//! The structures of ext2 as they lie on the disk, under the names of the format's description.

#![forbid(unsafe_code)]

use kernel::ondisk::{Le16, Le32};

/// `h_magic` of a block with attributes.
pub(crate) const XATTR_MAGIC: u32 = 0xea02_0000;

/// `s_magic` of ext2, and of its successors.
pub(crate) const MAGIC: u16 = 0xef53;

/// Byte at which the first superblock lies.
pub(crate) const SUPER_OFFSET: u64 = 1024;

/// The size of a group descriptor, in bytes.
pub(crate) const DESC_SIZE: u32 = core::mem::size_of::<GroupDesc>() as u32;

/// Binary logarithm of that.
pub(crate) const DESC_BITS: u32 = DESC_SIZE.trailing_zeros();

/// The root directory.
pub(crate) const ROOT_INO: u32 = 2;

/// The first inode that is not reserved, where the superblock does not say.
pub(crate) const FIRST_INO_REV0: u32 = 11;

/// The size of an inode, in bytes, where the superblock does not say; also the part of it that all
/// revisions have in common.
pub(crate) const INODE_SIZE_REV0: u16 = 128;

/// `s_rev_level` of the format with fixed inode size and without features.
pub(crate) const REV_ORIGINAL: u32 = 0;

/// `s_rev_level` of the newest format.
pub(crate) const REV_DYNAMIC: u32 = 1;

/// How many blocks an inode points to itself.
pub(crate) const DIRECT_BLOCKS: usize = 12;

/// How many pointers an inode has: direct ones and one for each level of indirection.
pub(crate) const BLOCK_POINTERS: usize = 15;

/// Number of bytes in which an inode keeps a short link, the nul behind it included.
pub(crate) const FAST_LINK_SIZE: usize = 4 * BLOCK_POINTERS;

/// Length of the longest name, in bytes.
pub(crate) const NAME_LEN: usize = 255;

/// Number of links that an inode may have.
pub(crate) const LINK_MAX: u32 = 32000;

/// `s_feature_incompat`: who does not know one of these must not touch the file system.
pub(crate) mod incompat {
    /// Directory entries say the type of the file.
    pub(crate) const FILETYPE: u32 = 0x2;
    /// Group descriptors lie in the groups that they describe.
    pub(crate) const META_BG: u32 = 0x10;
    /// What we know.
    pub(crate) const SUPPORTED: u32 = FILETYPE | META_BG;

    /// The names of the bits that others have defined.
    pub(crate) const NAMES: [(u32, &str); 14] = [
        (0x1, "compression"),
        (0x4, "needs_recovery"),
        (0x8, "journal_dev"),
        (0x40, "extents"),
        (0x80, "64bit"),
        (0x100, "mmp"),
        (0x200, "flex_bg"),
        (0x400, "ea_inode"),
        (0x1000, "dirdata"),
        (0x2000, "metadata_csum_seed"),
        (0x4000, "large_dir"),
        (0x8000, "inline_data"),
        (0x10000, "encrypt"),
        (0x20000, "casefold"),
    ];
}

/// `s_feature_compat`: who does not know one of these may do everything.
pub(crate) mod compat {
    /// There is a journal, of which we know nothing.
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    /// There are extended attributes.
    pub(crate) const EXT_ATTR: u32 = 0x8;
    /// There are blocks reserved for more group descriptors.
    pub(crate) const RESIZE_INODE: u32 = 0x10;
    /// At most two groups but the first have copies of the superblock: `s_backup_bgs`.
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
}

/// `s_feature_ro_compat`: who does not know one of these may read only.
pub(crate) mod ro_compat {
    /// Not every group has a copy of the superblock.
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    /// There are files of 2 GiB or more.
    pub(crate) const LARGE_FILE: u32 = 0x2;
    /// There are directories with an index, as some have called it.
    pub(crate) const BTREE_DIR: u32 = 0x4;
    /// What we know.
    pub(crate) const SUPPORTED: u32 = SPARSE_SUPER | LARGE_FILE | BTREE_DIR;

    /// The names of the bits that others have defined.
    pub(crate) const NAMES: [(u32, &str); 12] = [
        (0x8, "huge_file"),
        (0x10, "uninit_bg"),
        (0x20, "dir_nlink"),
        (0x40, "extra_isize"),
        (0x100, "quota"),
        (0x200, "bigalloc"),
        (0x400, "metadata_csum"),
        (0x1000, "read-only"),
        (0x2000, "project"),
        (0x4000, "shared_blocks"),
        (0x8000, "verity"),
        (0x10000, "orphan_present"),
    ];
}

/// `s_state`.
pub(crate) mod state {
    /// It was unmounted.
    pub(crate) const VALID: u16 = 0x1;
    /// Errors were found.
    pub(crate) const ERROR: u16 = 0x2;
}

/// `s_default_mount_opts`.
pub(crate) mod default_mount_opts {
    /// `debug`.
    pub(crate) const DEBUG: u32 = 0x1;
    /// `bsdgroups`.
    pub(crate) const BSD_GROUPS: u32 = 0x2;
    /// `user_xattr`.
    pub(crate) const USER_XATTR: u32 = 0x4;
    /// `acl`.
    pub(crate) const ACL: u32 = 0x8;
}

/// What new inodes use of the space behind their first 128 bytes.
pub(crate) const EXTRA_ISIZE: u16 = 32;

/// `i_flags`.
pub(crate) mod inode_flags {
    /// To be deleted for good.
    pub(crate) const SECRM: u32 = 0x1;
    /// To be kept for undeletion.
    pub(crate) const UNRM: u32 = 0x2;
    /// To be compressed.
    pub(crate) const COMPR: u32 = 0x4;
    /// Writes are synchronous.
    pub(crate) const SYNC: u32 = 0x8;
    /// Nothing can be changed.
    pub(crate) const IMMUTABLE: u32 = 0x10;
    /// Only appending writes.
    pub(crate) const APPEND: u32 = 0x20;
    /// Not to be saved by dump.
    pub(crate) const NODUMP: u32 = 0x40;
    /// Access times are not updated.
    pub(crate) const NOATIME: u32 = 0x80;
    /// There are compressed blocks.
    pub(crate) const COMPRBLK: u32 = 0x200;
    /// Not to be compressed.
    pub(crate) const NOCOMP: u32 = 0x400;
    /// The directory has an index.
    pub(crate) const INDEX: u32 = 0x1000;
    /// Data goes through the journal.
    pub(crate) const JOURNAL_DATA: u32 = 0x4000;
    /// The end of the file is not to be merged with that of others.
    pub(crate) const NOTAIL: u32 = 0x8000;
    /// Changes of the directory are synchronous.
    pub(crate) const DIRSYNC: u32 = 0x10000;
    /// What is in the directory has nothing to do with each other, and is spread.
    pub(crate) const TOPDIR: u32 = 0x20000;
    /// `i_block` is an extent tree, which ext2 does not have.
    pub(crate) const EXTENTS: u32 = 0x80000;
    /// `i_block` is data, which ext2 does not have.
    pub(crate) const INLINE_DATA: u32 = 0x1000_0000;

    /// What a new file takes over from its directory.
    pub(crate) const INHERITED: u32 = SECRM
        | UNRM
        | COMPR
        | SYNC
        | NODUMP
        | NOATIME
        | COMPRBLK
        | NOCOMP
        | JOURNAL_DATA
        | NOTAIL
        | DIRSYNC;
    /// What only directories have.
    pub(crate) const DIR_ONLY: u32 = DIRSYNC | TOPDIR;
    /// What all kinds of files have.
    pub(crate) const ALL_KINDS: u32 = NODUMP | NOATIME;
    /// What users see, also of what only other systems act on.
    pub(crate) const VISIBLE: u32 = 0x3_dfff;
    /// What users may change.
    pub(crate) const MODIFIABLE: u32 = 0x3_80ff;
}

/// The types of `i_mode`.
pub(crate) mod mode {
    /// The bits that hold the type.
    pub(crate) const TYPE: u16 = 0o170000;
    /// Socket.
    pub(crate) const SOCKET: u16 = 0o140000;
    /// Symbolic link.
    pub(crate) const SYMLINK: u16 = 0o120000;
    /// Regular file.
    pub(crate) const REGULAR: u16 = 0o100000;
    /// Block device.
    pub(crate) const BLOCK: u16 = 0o060000;
    /// Directory.
    pub(crate) const DIR: u16 = 0o040000;
    /// Character device.
    pub(crate) const CHAR: u16 = 0o020000;
    /// Named pipe.
    pub(crate) const FIFO: u16 = 0o010000;
}

kernel::on_disk! {
    /// The superblock, 1024 bytes from the start of the device and in front of some groups.
    pub(crate) struct SuperBlock(1024) {
        pub(crate) s_inodes_count: Le32,
        pub(crate) s_blocks_count: Le32,
        pub(crate) s_r_blocks_count: Le32,
        pub(crate) s_free_blocks_count: Le32,
        pub(crate) s_free_inodes_count: Le32,
        pub(crate) s_first_data_block: Le32,
        pub(crate) s_log_block_size: Le32,
        pub(crate) s_log_frag_size: Le32,
        pub(crate) s_blocks_per_group: Le32,
        pub(crate) s_frags_per_group: Le32,
        pub(crate) s_inodes_per_group: Le32,
        pub(crate) s_mtime: Le32,
        pub(crate) s_wtime: Le32,
        pub(crate) s_mnt_count: Le16,
        pub(crate) s_max_mnt_count: Le16,
        pub(crate) s_magic: Le16,
        pub(crate) s_state: Le16,
        pub(crate) s_errors: Le16,
        pub(crate) s_minor_rev_level: Le16,
        pub(crate) s_lastcheck: Le32,
        pub(crate) s_checkinterval: Le32,
        pub(crate) s_creator_os: Le32,
        pub(crate) s_rev_level: Le32,
        pub(crate) s_def_resuid: Le16,
        pub(crate) s_def_resgid: Le16,
        // From here on: only if `s_rev_level` is at least 1.
        pub(crate) s_first_ino: Le32,
        pub(crate) s_inode_size: Le16,
        pub(crate) s_block_group_nr: Le16,
        pub(crate) s_feature_compat: Le32,
        pub(crate) s_feature_incompat: Le32,
        pub(crate) s_feature_ro_compat: Le32,
        pub(crate) s_uuid: [u8; 16],
        pub(crate) s_volume_name: [u8; 16],
        pub(crate) s_last_mounted: [u8; 64],
        pub(crate) s_algorithm_usage_bitmap: Le32,
        pub(crate) s_prealloc_blocks: u8,
        pub(crate) s_prealloc_dir_blocks: u8,
        pub(crate) s_reserved_gdt_blocks: Le16,
        pub(crate) s_journal_uuid: [u8; 16],
        pub(crate) s_journal_inum: Le32,
        pub(crate) s_journal_dev: Le32,
        pub(crate) s_last_orphan: Le32,
        pub(crate) s_hash_seed: [u8; 16],
        pub(crate) s_def_hash_version: u8,
        pub(crate) s_reserved_char_pad: u8,
        pub(crate) s_desc_size: Le16,
        pub(crate) s_default_mount_opts: Le32,
        pub(crate) s_first_meta_bg: Le32,
        pub(crate) s_unused: [u8; 324],
        pub(crate) s_backup_bgs: [Le32; 2],
        pub(crate) s_reserved: [u8; 428],
    }

    /// A group descriptor.
    pub(crate) struct GroupDesc(32) {
        pub(crate) bg_block_bitmap: Le32,
        pub(crate) bg_inode_bitmap: Le32,
        pub(crate) bg_inode_table: Le32,
        pub(crate) bg_free_blocks_count: Le16,
        pub(crate) bg_free_inodes_count: Le16,
        pub(crate) bg_used_dirs_count: Le16,
        pub(crate) bg_pad: Le16,
        pub(crate) bg_reserved: [u8; 12],
    }

    /// The part of an inode that all revisions have.
    pub(crate) struct Inode(128) {
        pub(crate) i_mode: Le16,
        pub(crate) i_uid_low: Le16,
        pub(crate) i_size: Le32,
        pub(crate) i_atime: Le32,
        pub(crate) i_ctime: Le32,
        pub(crate) i_mtime: Le32,
        pub(crate) i_dtime: Le32,
        pub(crate) i_gid_low: Le16,
        pub(crate) i_links_count: Le16,
        pub(crate) i_blocks: Le32,
        pub(crate) i_flags: Le32,
        pub(crate) i_reserved1: Le32,
        pub(crate) i_block: [Le32; 15],
        pub(crate) i_generation: Le32,
        pub(crate) i_file_acl: Le32,
        pub(crate) i_size_high: Le32,
        pub(crate) i_faddr: Le32,
        pub(crate) i_frag: u8,
        pub(crate) i_fsize: u8,
        pub(crate) i_pad1: Le16,
        pub(crate) i_uid_high: Le16,
        pub(crate) i_gid_high: Le16,
        pub(crate) i_reserved2: Le32,
    }

    /// What bigger inodes have behind that: the first `i_extra_isize` bytes of it are in use.
    pub(crate) struct InodeExtra(16) {
        pub(crate) i_extra_isize: Le16,
        pub(crate) i_checksum_hi: Le16,
        pub(crate) i_ctime_extra: Le32,
        pub(crate) i_mtime_extra: Le32,
        pub(crate) i_atime_extra: Le32,
    }

    /// The head of a block with attributes; the entries follow.
    pub(crate) struct XattrHeader(32) {
        pub(crate) h_magic: Le32,
        pub(crate) h_refcount: Le32,
        pub(crate) h_blocks: Le32,
        pub(crate) h_hash: Le32,
        pub(crate) h_reserved: [Le32; 4],
    }

    /// The head of an attribute; the name follows.
    pub(crate) struct XattrEntry(16) {
        pub(crate) e_name_len: u8,
        pub(crate) e_name_index: u8,
        pub(crate) e_value_offs: Le16,
        pub(crate) e_value_block: Le32,
        pub(crate) e_value_size: Le32,
        pub(crate) e_hash: Le32,
    }
}

/// The length of the head of a directory entry, in bytes; the name follows.
pub(crate) const DIR_HEAD: usize = 8;

/// The head of a directory entry.
#[derive(Clone, Copy)]
pub(crate) struct DirEntry {
    pub(crate) inode: u32,
    pub(crate) rec_len: u16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

impl DirEntry {
    /// Takes the two words apart that make up the head.
    pub(crate) fn new(first: u32, second: u32) -> Self {
        Self {
            inode: first,
            rec_len: second as u16,
            name_len: (second >> 16) as u8,
            file_type: (second >> 24) as u8,
        }
    }

    /// The two words that make up the head.
    pub(crate) fn words(self) -> (u32, u32) {
        let second = u32::from(self.rec_len)
            | u32::from(self.name_len) << 16
            | u32::from(self.file_type) << 24;
        (self.inode, second)
    }
}

impl XattrEntry {
    /// Takes the words apart that make up the head.
    pub(crate) fn new([first, value_block, value_size, hash]: [u32; 4]) -> Self {
        Self {
            e_name_len: first as u8,
            e_name_index: (first >> 8) as u8,
            e_value_offs: Le16::new((first >> 16) as u16),
            e_value_block: Le32::new(value_block),
            e_value_size: Le32::new(value_size),
            e_hash: Le32::new(hash),
        }
    }
}

impl InodeExtra {
    /// What is to be added to `i_ctime`, `i_mtime` and `i_atime`: 0 for what is not in use.
    pub(crate) fn times(&self) -> [u32; 3] {
        let used = self.i_extra_isize.get();
        [
            (8, self.i_ctime_extra),
            (12, self.i_mtime_extra),
            (16, self.i_atime_extra),
        ]
        .map(|(end, field)| if end <= used { field.get() } else { 0 })
    }

    /// Sets what is added to `i_atime`, `i_ctime` and `i_mtime`, where there is room in use.
    pub(crate) fn set_times(&mut self, [atime, ctime, mtime]: [u32; 3]) {
        let used = self.i_extra_isize.get();
        for (end, field, value) in [
            (8, &mut self.i_ctime_extra, ctime),
            (12, &mut self.i_mtime_extra, mtime),
            (16, &mut self.i_atime_extra, atime),
        ] {
            if end <= used {
                *field = Le32::new(value);
            }
        }
    }
}
