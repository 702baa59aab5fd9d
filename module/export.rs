// SPDX-License-Identifier: GPL-2.0

//! File handles.

#![forbid(unsafe_code)]

use crate::{dir, inode, Rext2};
use kernel::{
    fs::{
        export::Operations,
        lock::{Held, Shared},
        IRef, Ino, SuperBlock,
    },
    prelude::*,
};

#[vtable]
impl Operations for Rext2 {
    type FileSystem = Rext2;

    fn inode(sb: &SuperBlock<Rext2>, ino: Ino) -> Result<IRef<'_, Rext2>> {
        inode::iget(sb, ino.try_into().map_err(|_| ESTALE)?)
    }

    fn parent<'a>(dir: Held<'a, Rext2, Shared>) -> Result<IRef<'a, Rext2>> {
        let ino = dir::find(&dir, b"..")?.ok_or(ESTALE)?;
        inode::iget(dir.inode().sb(), ino)
    }
}
