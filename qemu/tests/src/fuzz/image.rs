// SPDX-License-Identifier: GPL-2.0

//! As much of ext2's layout as it takes to find all metadata of a sound image.

use anyhow::{Context, Result, ensure};

const SUPERBLOCK: usize = 1024;
const MAGIC: u32 = 0xef53;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// Where it lies.
    pub at: usize,
    /// Its number.
    pub number: u32,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Entries of a directory.
    Directory,
    /// Pointers to blocks.
    Pointers,
    /// Extended attributes.
    Attributes,
    /// The group descriptors.
    Descriptors,
    /// Free and used blocks or inodes.
    Bitmap,
}

/// A block of metadata.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Where it lies.
    pub at: usize,
    /// What it holds.
    pub kind: Kind,
}

/// An image, and where its metadata lies.
pub struct Image {
    bytes: Vec<u8>,
    block: usize,
    inode_size: usize,
    inodes: Vec<Inode>,
    blocks: Vec<Block>,
}

impl Image {
    /// Finds the metadata of a sound image.
    pub fn parse(bytes: Vec<u8>) -> Result<Image> {
        let mut image = Image {
            bytes,
            block: 0,
            inode_size: 128,
            inodes: Vec::new(),
            blocks: Vec::new(),
        };
        ensure!(
            image.get32(SUPERBLOCK + 56) & 0xffff == MAGIC,
            "no superblock"
        );
        image.block = 1024 << image.get32(SUPERBLOCK + 24);
        if image.get32(SUPERBLOCK + 76) > 0 {
            image.inode_size = (image.get32(SUPERBLOCK + 88) & 0xffff) as usize;
        }
        let per_group = image.get32(SUPERBLOCK + 40);
        let groups = image
            .get32(SUPERBLOCK)
            .checked_div(per_group)
            .context("no inodes")?;
        let table = (image.get32(SUPERBLOCK + 20) as usize + 1) * image.block;
        image.add(table, Kind::Descriptors);
        for group in 0..groups as usize {
            let at = table + 32 * group;
            for field in [0, 4] {
                let bitmap = image.get32(at + field) as usize * image.block;
                image.add(bitmap, Kind::Bitmap);
            }
            let first = image.get32(at + 8) as usize * image.block;
            for index in 0..per_group {
                let inode = Inode {
                    at: first + index as usize * image.inode_size,
                    number: group as u32 * per_group + index + 1,
                };
                // The reserved inodes are mostly empty and never looked at.
                let is_used = image.get32(inode.at + 26) & 0xffff != 0;
                if is_used && (inode.number == 2 || inode.number > 10) {
                    image.inodes.push(inode);
                    image.of_inode(inode);
                }
            }
        }
        Ok(image)
    }

    /// Notes the blocks of metadata that an inode leads to.
    fn of_inode(&mut self, inode: Inode) {
        let format = self.get32(inode.at) & 0o170_000;
        let attributes = self.get32(inode.at + 104) as usize;
        self.add(attributes * self.block, Kind::Attributes);
        let is_fast = self.get32(inode.at + 28) == 0 || self.get32(inode.at + 4) < 60;
        let has_blocks = matches!(format, DIRECTORY | REGULAR) || format == SYMLINK && !is_fast;
        if !has_blocks {
            return;
        }
        for index in 0..15 {
            let block = self.get32(inode.at + 40 + 4 * index) as usize;
            self.of_pointer(block, index.saturating_sub(11), format == DIRECTORY);
        }
    }

    fn of_pointer(&mut self, block: usize, depth: usize, is_directory: bool) {
        if block == 0 {
            return;
        }
        let at = block * self.block;
        match depth {
            0 if is_directory => self.add(at, Kind::Directory),
            0 => {}
            _ => {
                self.add(at, Kind::Pointers);
                for index in 0..self.block / 4 {
                    let next = self.get32(at + 4 * index) as usize;
                    self.of_pointer(next, depth - 1, is_directory);
                }
            }
        }
    }

    fn add(&mut self, at: usize, kind: Kind) {
        let known = self.blocks.iter().any(|block| block.at == at);
        if at > 0 && at + self.block <= self.bytes.len() && !known {
            self.blocks.push(Block { at, kind });
        }
    }

    /// The image itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The size of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The inodes in use.
    pub fn inodes(&self) -> &[Inode] {
        &self.inodes
    }

    /// The blocks of this kind.
    pub fn of_kind(&self, kind: Kind) -> Vec<Block> {
        let blocks = self.blocks.iter().filter(|block| block.kind == kind);
        blocks.copied().collect()
    }

    /// A number; 0 where the image ends.
    pub fn get32(&self, at: usize) -> u32 {
        match self.bytes.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        }
    }

    /// Changes a number.
    pub fn set32(&mut self, at: usize, value: u32) {
        self.set(at, &value.to_le_bytes());
    }

    /// Changes bytes.
    pub fn set(&mut self, at: usize, value: &[u8]) {
        if let Some(bytes) = self.bytes.get_mut(at..at + value.len()) {
            bytes.copy_from_slice(value);
        }
    }

    /// A byte; 0 where the image ends.
    pub fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }
}
