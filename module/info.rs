// SPDX-License-Identifier: GPL-2.0

//! What is kept in memory for an inode, besides what the VFS keeps.

#![forbid(unsafe_code)]

use crate::{balloc::Window, growing::Growing, ondisk};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kernel::{
    new_mutex,
    ondisk::Le32,
    prelude::*,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Mutex,
    },
};

/// What we keep for an inode.
#[pin_data]
pub(crate) struct Info {
    /// `i_block`: the block pointers of a file or a directory, the target of a short link, or the
    /// numbers of a device. Pointers change with the map lock held and are read without.
    blocks: [AtomicU32; ondisk::BLOCK_POINTERS],
    /// `i_file_acl`: the block with the attributes, or 0. Changes with the xattr lock held.
    file_acl: AtomicU32,
    /// `i_flags`.
    flags: AtomicU32,
    /// `i_dtime`: when it was deleted.
    dtime: AtomicU32,
    /// The group in which its blocks are looked for.
    block_group: AtomicU32,
    /// The block of a directory in which a name was found last.
    last_found: AtomicU32,
    /// The block of a directory in which there was room last.
    last_room: AtomicU32,
    /// What was allocated in holes and is not filled yet: see [`Info::pending`].
    pending: AtomicU64,
    /// What was allocated for shared mappings and may not be on the disk yet.
    faulted: AtomicU64,
    /// How many writes to new blocks go on in the background.
    fills: AtomicU32,
    /// It was never written: what lies in its place is from another inode.
    fresh: AtomicBool,
    #[pin]
    map: Mutex<Map>,
    #[pin]
    xattr: Mutex<()>,
    #[pin]
    place: Mutex<()>,
}

/// What changes with the block map.
pub(crate) struct Map {
    /// The range of blocks that the file grows into.
    pub(crate) window: Window,
    /// The block of the file behind the one that was allocated last, and that of the disk.
    pub(crate) next: (u64, u32),
    /// Direct writes that make the file grow.
    pub(crate) growing: Growing,
}

/// Blocks of a file, in one number: the first, and the one behind the last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Blocks {
    fn pack(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }

    fn unpack(packed: u64) -> Self {
        Self {
            start: (packed >> 32) as u32,
            end: packed as u32,
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether some of `start..end` are among them.
    pub(crate) fn overlap(self, start: u64, end: u64) -> bool {
        !self.is_empty() && u64::from(self.start) < end && start < u64::from(self.end)
    }
}

impl Info {
    /// An inode without blocks.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            blocks: [const { AtomicU32::new(0) }; ondisk::BLOCK_POINTERS],
            file_acl: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            dtime: AtomicU32::new(0),
            block_group: AtomicU32::new(0),
            last_found: AtomicU32::new(0),
            last_room: AtomicU32::new(0),
            pending: AtomicU64::new(0),
            faulted: AtomicU64::new(0),
            fills: AtomicU32::new(0),
            fresh: AtomicBool::new(false),
            map <- new_mutex!(
                Map {
                    window: Window::default(),
                    next: (0, 0),
                    growing: Growing::default(),
                },
                "rext2_map"
            ),
            xattr <- new_mutex!((), "rext2_xattr"),
            place <- new_mutex!((), "rext2_place"),
        }? Error)
    }

    /// Keeps others from changing the block map.
    pub(crate) fn map(&self) -> Guard<'_, Map, MutexBackend> {
        self.map.lock()
    }

    /// Keeps others from changing the attributes.
    pub(crate) fn xattr_lock(&self) -> Guard<'_, (), MutexBackend> {
        self.xattr.lock()
    }

    /// Keeps others from writing the inode to its place.
    pub(crate) fn place_lock(&self) -> Guard<'_, (), MutexBackend> {
        self.place.lock()
    }

    /// The block of a directory in which a name was found last: a hint, nothing more.
    pub(crate) fn last_found(&self) -> u64 {
        self.last_found.load(Ordering::Relaxed).into()
    }

    /// Sets the block of a directory in which a name was found last.
    pub(crate) fn set_last_found(&self, block: u64) {
        self.last_found.store(block as u32, Ordering::Relaxed);
    }

    /// The block of a directory in which there was room for an entry last: a hint, nothing more.
    pub(crate) fn last_room(&self) -> u64 {
        self.last_room.load(Ordering::Relaxed).into()
    }

    /// Sets the block of a directory in which there was room last.
    pub(crate) fn set_last_room(&self, block: u64) {
        self.last_room.store(block as u32, Ordering::Relaxed);
    }

    /// The block with the attributes, or 0.
    pub(crate) fn file_acl(&self) -> u32 {
        self.file_acl.load(Ordering::Acquire)
    }

    /// Sets the block with the attributes.
    pub(crate) fn set_file_acl(&self, block: u32) {
        self.file_acl.store(block, Ordering::Release);
    }

    /// The flags that are on the disk.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags that are on the disk.
    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// When it was deleted, or 0.
    pub(crate) fn dtime(&self) -> u32 {
        self.dtime.load(Ordering::Relaxed)
    }

    /// Says when it was deleted.
    pub(crate) fn set_dtime(&self, time: u32) {
        self.dtime.store(time, Ordering::Relaxed);
    }

    /// The group in which blocks for it are looked for.
    pub(crate) fn block_group(&self) -> u32 {
        self.block_group.load(Ordering::Relaxed)
    }

    /// Sets the group in which blocks for it are looked for.
    pub(crate) fn set_block_group(&self, group: u32) {
        self.block_group.store(group, Ordering::Relaxed);
    }

    /// Says that the inode was never written.
    pub(crate) fn set_fresh(&self) {
        self.fresh.store(true, Ordering::Relaxed);
    }

    /// Whether the inode was never written; from now on it was.
    pub(crate) fn take_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed) && self.fresh.swap(false, Ordering::Relaxed)
    }

    /// The block pointer at an index, 0 for a hole. A pointer is stored once what it points to is
    /// valid.
    pub(crate) fn block(&self, index: usize) -> u32 {
        self.blocks
            .get(index)
            .map_or(0, |b| b.load(Ordering::Acquire))
    }

    /// Sets the block pointer at an index.
    pub(crate) fn set_block(&self, index: usize, block: u32) {
        if let Some(pointer) = self.blocks.get(index) {
            pointer.store(block, Ordering::Release);
        }
    }

    /// Sets `i_block`.
    pub(crate) fn set_blocks(&self, blocks: &[Le32; ondisk::BLOCK_POINTERS]) {
        for (to, from) in self.blocks.iter().zip(blocks) {
            to.store(from.get(), Ordering::Release);
        }
    }

    /// `i_block`.
    pub(crate) fn blocks(&self) -> [Le32; ondisk::BLOCK_POINTERS] {
        let mut blocks = [Le32::default(); ondisk::BLOCK_POINTERS];
        for (to, from) in blocks.iter_mut().zip(&self.blocks) {
            *to = Le32::new(from.load(Ordering::Relaxed));
        }
        blocks
    }

    /// Makes `i_block` the target of a link: at most 59 bytes.
    pub(crate) fn set_link_bytes(&self, target: &[u8]) {
        let mut bytes = [0; ondisk::FAST_LINK_SIZE];
        for (to, from) in bytes.iter_mut().zip(target) {
            *to = *from;
        }
        for (to, word) in self.blocks.iter().zip(bytes.chunks_exact(4)) {
            let value = word
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | u32::from(byte));
            to.store(value, Ordering::Relaxed);
        }
    }

    /// Makes `i_block` the number of a device: 8 bits of each in the first pointer, or, if that is
    /// not enough, 12 and 20 bits in the second.
    pub(crate) fn set_device(&self, major: u32, minor: u32) {
        if major < 256 && minor < 256 {
            self.set_block(0, major << 8 | minor);
            self.set_block(1, 0);
        } else {
            self.set_block(0, 0);
            self.set_block(1, minor & 0xff | major << 8 | (minor & !0xff) << 12);
        }
    }

    /// Whether writes to new blocks go on in the background. None begins while the inode is locked
    /// exclusively.
    pub(crate) fn has_fills(&self) -> bool {
        self.fills.load(Ordering::Acquire) > 0
    }

    /// A write to new blocks may go on in the background from now on.
    pub(crate) fn begin_fill(&self) {
        self.fills.fetch_add(1, Ordering::Relaxed);
    }

    /// A write to new blocks is done: who sees that sees its blocks and the size as well.
    pub(crate) fn end_fill(&self) {
        self.fills.fetch_sub(1, Ordering::Release);
    }

    /// What was allocated in holes and is not filled yet.
    ///
    /// A buffered write allocates before it has locked the folio. Who reads in between must not see
    /// what the disk holds there: for them these blocks are empty. It is stored before the pointers,
    /// and cleared when the data is in the page cache.
    pub(crate) fn pending(&self) -> Blocks {
        Blocks::unpack(self.pending.load(Ordering::Acquire))
    }

    /// Sets what was allocated in holes and is not filled yet. There is one buffered writer.
    pub(crate) fn set_pending(&self, blocks: Blocks) {
        self.pending.store(blocks.pack(), Ordering::Release);
    }

    /// What was allocated for shared mappings and may not be on the disk yet: direct reads look in
    /// the page cache.
    pub(crate) fn faulted(&self) -> Blocks {
        Blocks::unpack(self.faulted.load(Ordering::Acquire))
    }

    /// Adds to what was allocated for shared mappings. The map lock is held.
    pub(crate) fn add_faulted(&self, _map: &Map, start: u32, end: u32) {
        let old = self.faulted();
        let new = if old.is_empty() {
            Blocks { start, end }
        } else {
            Blocks {
                start: old.start.min(start),
                end: old.end.max(end),
            }
        };
        self.faulted.store(new.pack(), Ordering::Release);
    }
}
