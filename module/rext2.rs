// SPDX-License-Identifier: GPL-2.0

//! The second extended file system.
//!
//! | file | what it knows |
//! | --- | --- |
//! | [`ondisk`] | the structures as they lie on the disk, and nothing else |
//! | [`check`] | reading and checking the superblock and the group descriptors |
//! | [`super_block`] | mounting, remounting, syncing and unmounting |
//! | [`state`] | what is written to the superblock, and what an error leads to |
//! | [`geometry`] | which blocks are for what |
//! | [`group`] | what is free in each group |
//! | [`options`] | mount options |
//! | [`balloc`], [`ialloc`] | which blocks and inodes are in use |
//! | [`growing`] | direct writes behind the end of a file |
//! | [`held`] | blocks that are free, but that nobody may get before the next sync |
//! | [`inode`] | from an inode number to an inode |
//! | [`info`] | what is kept in memory for an inode |
//! | [`persist`] | from an inode in memory to the disk, and out of both |
//! | [`indirect`] | from a block of a file to a block of the disk |
//! | [`splice`], [`free`] | giving blocks to a file, and taking them away |
//! | [`iomap`] | the same for the page cache and for direct IO |
//! | [`mod@file`] | regular files |
//! | [`dir`] | the entries of a directory |
//! | [`namei`] | the operations on names |
//! | [`symlink`] | symbolic links |
//! | [`xattr`], [`acl`] | extended attributes, and the access control lists among them |
//! | [`ioctl`] | flags of inodes |
//! | [`export`] | file handles |
//!
//! # What is trusted
//!
//! Nothing that comes from the disk. The superblock and the group descriptors are checked once,
//! when the file system is mounted, and are then used as plain numbers ([`geometry::Geometry`],
//! [`group::Group`]). Every block number that an inode or an indirect block holds is checked before
//! it is used: it has to be a data block. What a bitmap says is free is checked as well before it is
//! given to a file. Inodes are checked each time they are read, and so are the entries of a directory,
//! as a whole when their block is used for the first time. From then on a search checks no more than
//! that it gets on and stays in the block, and what it finds. What does not pass is reported, with the
//! name of the field as it is called in the description of the format, ends in `EUCLEAN`, and leads to
//! what the mount option `errors` says.
//!
//! # Locks
//!
//! Those of the VFS come first, as [`kernel::fs`] lists them. Inside of them, in this order:
//!
//! 1. the lock of the attribute blocks (`Mount::xattrs`);
//! 2. the map lock of an inode (`Info::map`): its block pointers, its window, and the direct writes
//!    that make it grow;
//! 3. the lock of the place of an inode on the disk (`Info::place`), or that of the blocks that are
//!    held back (`Mount::held`);
//! 4. the lock of the windows (`Mount::windows`), or that of a group (`Mount::lock_group`): a bitmap
//!    and the counts that belong to it. Nobody holds two of them;
//! 5. the lock of the superblock (`Mount::state`).
//!
//! Whoever holds one of the first three does not wait for memory that other file systems have to give
//! ([`kernel::fs::nofs`]), because evicting an inode takes them, too.
//!
//! Readers take none of these. They follow pointers that are stored with release ordering once all is
//! there that they lead to, and that are removed only when nobody can be on the way: the page cache
//! holds nothing of the range that would be written and gets nothing new (`invalidate_lock`), and
//! direct IO has been waited for. A pointer is cleared before the block that it leads to is free.
//!
//! # One write
//!
//! `write(2)` → [`mod@file`]: the lock, the checks → iomap asks [`iomap::BufferedWrite`] for blocks, a run
//! at a time → [`indirect::find`], or [`splice`] with blocks from [`balloc`] → iomap copies the data
//! to folios → the lock is released. Later, or at once if the write is synchronous or uncached:
//! writeback asks [`iomap::Read`] where each dirty part goes, and [`persist::write`] puts the inode in
//! its place.

#![forbid(unsafe_code)]
// The macro that makes what a mount knows takes its fields one by one.
#![recursion_limit = "256"]

mod acl;
mod balloc;
mod check;
mod dir;
mod export;
mod file;
mod free;
mod geometry;
mod group;
mod growing;
mod held;
mod ialloc;
mod indirect;
mod info;
mod inode;
mod ioctl;
mod iomap;
mod namei;
mod ondisk;
mod options;
mod persist;
mod splice;
mod state;
mod super_block;
mod symlink;
mod xattr;

/// The file system type.
pub(crate) struct Rext2;

kernel::module_fs! {
    type: Rext2,
    name: "rext2",
    author: "The rext2 authors",
    description: "Second extended file system in Rust",
    license: "GPL",
    alias: ["fs-rext2"],
}
