// SPDX-License-Identifier: GPL-2.0

//! Which blocks of attributes were written last, so that inodes with equal attributes share one.

#![forbid(unsafe_code)]

/// Number of blocks that are remembered.
const SLOTS: usize = 64;

/// A block that may be shared.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    /// The block, or 0.
    block: u32,
}

/// Blocks of attributes that are in use, by the hash of their contents.
///
/// Its lock is held by whoever changes such a block or the number of its users: a block that is
/// found stays in use, and is as it is, until the lock is released.
pub(crate) struct Cache([Slot; SLOTS]);

impl Cache {
    /// No block.
    pub(crate) const fn new() -> Self {
        Self([Slot { hash: 0, block: 0 }; SLOTS])
    }

    /// The block with a hash, if it is remembered.
    pub(super) fn find(&self, hash: u32) -> Option<u32> {
        let slot = self.0.get(hash as usize % SLOTS)?;
        (hash != 0 && slot.hash == hash && slot.block != 0).then_some(slot.block)
    }

    /// Remembers a block, in the place of another.
    pub(super) fn insert(&mut self, hash: u32, block: u32) {
        if let (1.., Some(slot)) = (hash, self.0.get_mut(hash as usize % SLOTS)) {
            *slot = Slot { hash, block };
        }
    }

    /// Forgets a block, which is freed or gets other contents.
    pub(super) fn remove(&mut self, block: u32) {
        for slot in self.0.iter_mut().filter(|slot| slot.block == block) {
            slot.block = 0;
        }
    }
}
