// SPDX-License-Identifier: GPL-2.0

//! The flags of inodes that users see and change.

#![forbid(unsafe_code)]

use crate::{
    inode::vfs_flags,
    ondisk::{inode_flags, mode},
    Rext2,
};
use kernel::{
    fs::{
        fileattr::Operations,
        lock::{Excl, Held},
        INode,
    },
    prelude::*,
};

/// The flags that a new inode of the given type gets from its directory.
pub(crate) fn inherited(dir: u32, file_type: u16) -> u32 {
    let flags = dir & inode_flags::INHERITED;
    match file_type {
        mode::DIR => flags,
        mode::REGULAR => flags & !(inode_flags::DIRSYNC | inode_flags::TOPDIR),
        _ => flags & (inode_flags::NODUMP | inode_flags::NOATIME),
    }
}

#[vtable]
impl Operations for Rext2 {
    type FileSystem = Rext2;

    fn get(inode: &INode<Rext2>) -> Result<u32> {
        Ok(inode.data().flags() & inode_flags::VISIBLE)
    }

    fn set(mut inode: Held<'_, Rext2, Excl>, flags: u32) -> Result {
        let info = inode.inode().data();
        let kept = info.flags() & !inode_flags::MODIFIABLE;
        let flags = kept | flags & inode_flags::MODIFIABLE;
        info.set_flags(flags);
        inode.set_flags(vfs_flags(flags));
        inode.touch_ctime();
        inode.mark_dirty();
        Ok(())
    }
}
