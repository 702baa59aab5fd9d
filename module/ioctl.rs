// SPDX-License-Identifier: GPL-2.0

//! The flags of inodes that users see and change.

#![forbid(unsafe_code)]

use crate::{inode::vfs_flags, ondisk::inode_flags, Rext2};
use kernel::{
    fs::{
        fileattr::Operations,
        lock::{Excl, Held},
        INode,
    },
    prelude::*,
};

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
