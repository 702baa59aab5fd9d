// SPDX-License-Identifier: GPL-2.0

//! The operations on names.

#![forbid(unsafe_code)]

use crate::{dir, inode, Rext2};
use kernel::{
    fs::{
        dentry::{Spliced, Unhashed},
        dir::{Emitter, Operations},
        lock::{Held, Shared},
    },
    prelude::*,
};

#[vtable]
impl Operations for Rext2 {
    type FileSystem = Rext2;

    fn lookup<'a>(
        dir: Held<'_, Rext2, Shared>,
        dentry: Unhashed<'a, Rext2>,
    ) -> Result<Spliced<'a>> {
        let Some(ino) = dir::find(&dir, dentry.name())? else {
            return dentry.splice_alias(None);
        };
        match inode::iget(dir.sb(), ino) {
            Ok(inode) => dentry.splice_alias(Some(inode)),
            Err(e) if e == EINVAL => Err(inode::corrupted(
                &dir,
                format_args!("directory entry with inode {ino}, which is reserved"),
            )),
            // Not `ESTALE`, which is for file handles.
            Err(e) if e == ESTALE => {
                inode::corrupted(
                    &dir,
                    format_args!("directory entry with inode {ino}, whose i_links_count is 0"),
                );
                Err(EIO)
            }
            Err(e) => Err(e),
        }
    }

    fn read_dir(dir: Held<'_, Rext2, Shared>, emitter: &mut Emitter<'_>) -> Result {
        dir::emit(&dir, emitter)
    }
}
