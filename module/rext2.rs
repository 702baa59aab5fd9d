// SPDX-License-Identifier: GPL-2.0

//! The second extended file system.
//!
//! | file | what it knows |
//! | --- | --- |
//! | [`ondisk`] | the structures as they lie on the disk, and nothing else |
//! | [`super_block`] | reading and checking the superblock and the group descriptors |
//! | [`geometry`] | which blocks are for what |
//! | [`options`] | mount options |
//! | [`inode`] | from an inode number to an inode |
//! | [`indirect`] | from a block of a file to a block of the disk |
//! | [`iomap`] | the same for the page cache and for direct IO |
//! | [`file`] | regular files |
//! | [`dir`] | the entries of a directory |
//! | [`ialloc`] | which inode number a new file gets |
//! | [`namei`] | the operations on names |
//! | [`symlink`] | symbolic links |
//! | [`xattr`] | extended attributes |
//!
//! # What is trusted
//!
//! Nothing that comes from the disk. The superblock and the group descriptors are checked once,
//! when the file system is mounted, and are then used as plain numbers ([`geometry::Geometry`]).
//! Every block number that an inode or an indirect block holds is checked before it is used: it
//! has to be a data block. Inodes and directory entries are checked each time they are read. What
//! does not pass is reported once, with the name of the field as it is called in the description
//! of the format, and ends in `EUCLEAN`.
//!
//! # Locks
//!
//! There is no lock of our own yet: the file system is mounted read-only, and what an inode holds is
//! written before others see it.

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
