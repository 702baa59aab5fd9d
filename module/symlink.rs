// SPDX-License-Identifier: GPL-2.0

//! Symbolic links: the target lies in the inode if it is short, else in a block of its own.

#![forbid(unsafe_code)]

use crate::{
    indirect::{self, Run},
    inode::corrupted,
    ondisk, Rext2,
};
use kernel::{
    fs::{
        inode::{FreshINode, Ready},
        symlink::{Operations, Target},
        INode, Offset,
    },
    prelude::*,
};

/// Gives a new link its target, which with a nul behind it fits in a block. If `sync` is set, its
/// block is written at once.
pub(crate) fn set_target<'sb>(
    mut new: FreshINode<'sb, Rext2>,
    target: &[u8],
    sync: bool,
) -> Result<Ready<'sb, Rext2>> {
    new.set_size(target.len() as Offset)?;
    if target.len() < ondisk::FAST_LINK_SIZE {
        new.data().set_link_bytes(target);
        return new.into_fast_symlink(target);
    }
    {
        let buffer = indirect::first_block(&new)?;
        buffer.write(0, target)?;
        buffer.mark_dirty_inode(&new);
        if sync {
            buffer.sync()?;
        }
    }
    Ok(new.into_symlink::<SlowLink>())
}

/// A symbolic link that is too long to lie in its inode.
pub(crate) struct SlowLink;

#[vtable]
impl Operations for SlowLink {
    type FileSystem = Rext2;

    fn get_link(link: &INode<Rext2>) -> Result<Target> {
        let sb = link.sb();
        let size = link.size();
        // The target is shorter than the block, because it was written with a nul behind it.
        let max = sb.block_size() as usize - 1;
        let len = usize::try_from(size).map_or(max, |size| size.min(max));
        let Some(Run::Data(block, _)) = indirect::find(link, 0, 1)? else {
            return Err(corrupted(
                link,
                format_args!("i_block: the block of the link is a hole"),
            ));
        };
        let buffer = sb.bread(block.into())?;
        match Target::read(len, |to| buffer.copy_to(0, to)) {
            Err(e) if e == EUCLEAN => Err(corrupted(
                link,
                format_args!("i_size {size}, but the link has no target"),
            )),
            target => target,
        }
    }
}
