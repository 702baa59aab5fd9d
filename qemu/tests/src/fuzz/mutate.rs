// SPDX-License-Identifier: GPL-2.0

//! Damage: one to six places of the metadata get another value.

use super::image::{Image, Inode, Kind};

const SUPERBLOCK: usize = 1024;

/// Fields of the superblock that a driver looks at: offset and size.
const FIELDS: &[(usize, usize)] = &[
    (0, 4),   // inodes
    (4, 4),   // blocks
    (8, 4),   // reserved blocks
    (12, 4),  // free blocks
    (16, 4),  // free inodes
    (20, 4),  // first data block
    (24, 4),  // block size
    (28, 4),  // fragment size
    (32, 4),  // blocks in a group
    (36, 4),  // fragments in a group
    (40, 4),  // inodes in a group
    (52, 2),  // mounts
    (54, 2),  // most mounts
    (56, 2),  // magic
    (58, 2),  // state
    (60, 2),  // errors
    (72, 4),  // creator
    (76, 4),  // revision
    (80, 2),  // user of the reserve
    (84, 4),  // first inode
    (88, 2),  // inode size
    (92, 4),  // compatible features
    (96, 4),  // incompatible features
    (100, 4), // features for writing
    (205, 1), // preallocation
    (206, 2), // reserved descriptor blocks
    (256, 4), // mount options
    (260, 4), // first meta block group
];

/// Fields of an inode.
const INODE: &[(usize, usize)] = &[
    (0, 2),   // mode
    (2, 2),   // owner
    (4, 4),   // size
    (20, 4),  // time of deletion
    (26, 2),  // links
    (28, 4),  // sectors
    (32, 4),  // flags
    (40, 4),  // first block
    (44, 4),  // second block
    (72, 4),  // block 8
    (88, 4),  // indirect
    (92, 4),  // double indirect
    (96, 4),  // triple indirect
    (100, 4), // generation
    (104, 4), // attributes
    (108, 4), // upper half of the size
    (128, 2), // extra size
    (132, 4), // extra ctime
];

/// Changes the image; what was changed, for the log.
pub fn mutate(image: &mut Image, random: &mut fastrand::Rng) -> Vec<String> {
    let count = 1 + random.usize(0..6).min(random.usize(0..6));
    (0..count).map(|_| one(image, random)).collect()
}

fn one(image: &mut Image, random: &mut fastrand::Rng) -> String {
    match random.u8(0..100) {
        0..15 => {
            let (field, size) = FIELDS[random.usize(0..FIELDS.len())];
            let text = change(image, random, SUPERBLOCK + field, size);
            format!("superblock+{field} {text}")
        }
        15..45 => inode(image, random),
        45..52 => block(image, random, Kind::Descriptors, 64),
        52..60 => block(image, random, Kind::Bitmap, 32),
        60..80 => block(image, random, Kind::Directory, 0),
        80..90 => block(image, random, Kind::Pointers, 0),
        _ => block(image, random, Kind::Attributes, 200),
    }
}

fn inode(image: &mut Image, random: &mut fastrand::Rng) -> String {
    let all = image.inodes();
    let Inode { at, number } = match random.u8(0..5) {
        // The root more often: everything hangs on it.
        0 => all[0],
        _ => all[random.usize(0..all.len())],
    };
    let (field, size) = INODE[random.usize(0..INODE.len())];
    let text = change(image, random, at + field, size);
    format!("inode {number}+{field} {text}")
}

/// Somewhere in a block of this kind; in its first `head` bytes mostly, if those
/// matter most.
fn block(image: &mut Image, random: &mut fastrand::Rng, kind: Kind, head: usize) -> String {
    let blocks = image.of_kind(kind);
    if blocks.is_empty() {
        return format!("no {kind:?}");
    }
    let at = blocks[random.usize(0..blocks.len())].at;
    let length = match random.u8(0..4) {
        0..3 if head > 0 => head,
        _ => image.block(),
    };
    let offset = match kind {
        Kind::Directory => entry(image, random, at),
        _ => random.usize(0..length - 4),
    };
    let size = [1, 2, 4][random.usize(0..3)];
    let number = at / image.block();
    if kind != Kind::Descriptors && random.u8(0..40) == 0 {
        // All of it.
        let value = [0, 0xff, random.u8(..)][random.usize(0..3)];
        image.set(at, &vec![value; image.block()]);
        return format!("{kind:?} block {number} all {value:#x}");
    }
    let text = change(image, random, at + offset, size);
    format!("{kind:?} block {number}+{offset} {text}")
}

/// A field of a random entry of a directory block: number, length, length of
/// the name, type or a byte of the name.
fn entry(image: &Image, random: &mut fastrand::Rng, at: usize) -> usize {
    let mut starts = vec![0];
    let mut pos = 0;
    loop {
        let length = (image.get32(at + pos + 4) & 0xffff) as usize;
        pos += length;
        if length < 8 || pos + 12 > image.block() {
            break;
        }
        starts.push(pos);
    }
    let start = starts[random.usize(0..starts.len())];
    start + [0, 4, 6, 7, 8 + random.usize(0..4)][random.usize(0..5)]
}

/// Another value of `size` bytes at a place.
fn change(image: &mut Image, random: &mut fastrand::Rng, at: usize, size: usize) -> String {
    let old = image.get32(at);
    let blocks = (image.bytes().len() / image.block()) as u32;
    let value = match random.u8(0..12) {
        0 => 0,
        1 => u32::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ (1 << random.u32(0..32)),
        5 => 0x7fff_ffff,
        6 => 0x8000_0000,
        // Numbers of blocks that are there, the first of them most of all.
        7 => random.u32(0..12),
        8 => random.u32(0..blocks),
        9 => blocks + random.u32(0..3),
        10 => u32::from(image.byte(at)) ^ (1 << random.u32(0..8)),
        _ => random.u32(..),
    };
    image.set(at, &value.to_le_bytes()[..size]);
    format!("{old:#x}->{value:#x}/{size}")
}
