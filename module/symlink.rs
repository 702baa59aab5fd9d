// SPDX-License-Identifier: GPL-2.0

//! Symbolic links whose target has a block of its own.

#![forbid(unsafe_code)]

use crate::{
    indirect::{self, Run},
    inode::corrupted,
    Rext2,
};
use kernel::{
    fs::{
        symlink::{Operations, Target},
        INode,
    },
    prelude::*,
};

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
        let mut target = KVec::with_capacity(len, GFP_KERNEL)?;
        target.extend_with(len, 0, GFP_KERNEL)?;
        sb.bread(block.into())?.copy_to(0, &mut target)?;
        let end = target.iter().position(|&b| b == 0).unwrap_or(len);
        match target.get(..end) {
            Some(target @ [_, ..]) => Target::new(target),
            _ => Err(corrupted(
                link,
                format_args!("i_size {size}, but the link has no target"),
            )),
        }
    }
}
