// SPDX-License-Identifier: GPL-2.0

//! The operations on names.

#![forbid(unsafe_code)]

use crate::{dir, inode, ondisk, Rext2};
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
        if dentry.name().len() > ondisk::NAME_LEN {
            return Err(ENAMETOOLONG);
        }
        let Some(ino) = dir::find(&dir, dentry.name())? else {
            return dentry.splice_alias(None);
        };
        match inode::iget(dir.sb(), ino) {
            Ok(inode) => dentry.splice_alias(Some(inode)),
            // A name of an inode that no file can have, or that has been freed.
            Err(e) if e == EINVAL || e == ESTALE => {
                let what = if e == EINVAL {
                    "reserved"
                } else {
                    "not in use"
                };
                Err(inode::corrupted(
                    &dir,
                    format_args!("directory entry with inode {ino}, which is {what}"),
                ))
            }
            Err(e) => Err(e),
        }
    }

    fn read_dir(dir: Held<'_, Rext2, Shared>, emitter: &mut Emitter<'_>) -> Result {
        dir::emit(&dir, emitter)
    }
}
