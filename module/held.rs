// SPDX-License-Identifier: GPL-2.0

//! Indirect blocks that were freed since the file system was synced.
//!
//! As long as the disk does not know that a file has lost an indirect block, nobody may get it. After
//! a crash a check takes its contents for pointers, and clears those that cannot be any: in what may
//! be data of another file by then, which `fsync(2)` has promised.
//!
//! So such blocks stay marked as in use until everything has been written. A crash meanwhile leaves
//! blocks that are marked and belong to nobody, which the check frees.

#![forbid(unsafe_code)]

use crate::{balloc, super_block::Mount, Rext2};
use core::sync::atomic::Ordering;
use kernel::{
    fs::{self, nofs, INode, SuperBlock},
    prelude::*,
};

/// How many blocks are held back before the file system is synced because of them.
const MAX: usize = 1024;

/// The blocks that are held back.
pub(crate) struct Held {
    blocks: KVec<u32>,
    count: usize,
}

impl Held {
    /// Room for all of them: nothing is allocated later.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            blocks: KVec::from_elem(0, MAX, GFP_KERNEL)?,
            count: 0,
        })
    }

    /// Frees the blocks, of which the disk says that they belong to nobody.
    fn free(&mut self, sb: &SuperBlock<Rext2>) {
        for &block in self.blocks.iter().take(self.count) {
            balloc::free_held(sb, block);
        }
        self.count = 0;
        sb.data().held_count.store(0, Ordering::Relaxed);
    }
}

impl Mount {
    /// How many blocks are free, but held back.
    pub(crate) fn held_count(&self) -> u32 {
        self.held_count.load(Ordering::Relaxed)
    }
}

/// Holds back an indirect block that a file has lost. What led to it has been written to the buffers
/// that hold it.
pub(crate) fn hold(file: &INode<Rext2>, block: u32) {
    let sb = file.sb();
    let mount = sb.data();
    let mut held = mount.held.lock();
    if held.count == MAX {
        // If the device fails, there is nothing left to promise.
        let _ = sb.sync_device();
        held.free(sb);
    }
    let at = held.count;
    if let Some(place) = held.blocks.get_mut(at) {
        *place = block;
        held.count = at + 1;
        mount.held_count.store(at as u32 + 1, Ordering::Relaxed);
    }
}

/// Writes all that is in buffers, has the device write its cache, and frees what was held back.
///
/// # Errors
///
/// What the device returns.
pub(crate) fn sync(sb: &SuperBlock<Rext2>) -> Result {
    let mount = sb.data();
    let now = fs::real_seconds() as u32;
    nofs(|| {
        let mut held = mount.held.lock();
        sb.sync_device()?;
        mount.last_sync.store(now, Ordering::Relaxed);
        held.free(sb);
        Ok(())
    })
}

/// Does what [`sync()`] does, if blocks are held back.
///
/// # Errors
///
/// As for [`sync()`].
pub(crate) fn release(sb: &SuperBlock<Rext2>) -> Result {
    match sb.data().held_count() {
        0 => Ok(()),
        _ => sync(sb),
    }
}
