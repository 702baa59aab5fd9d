// SPDX-License-Identifier: GPL-2.0

//! The file systems under test: how the host makes them, how the guest mounts
//! them, and in what they differ.

/// A file system.
#[derive(Debug)]
pub struct Fs {
    /// Its name in tests, and the serial of its disk.
    pub name: &'static str,
    /// The program that makes it, with its arguments but for the image.
    pub make: &'static [&'static str],
    /// The size of the image in MiB.
    pub mib: u64,
    /// The type for mount(2).
    pub kind: &'static str,
    /// The options for mount(2).
    pub options: &'static str,
    /// Whether folios may have more than a page.
    pub large_folios: bool,
    /// Where data goes when a file is written.
    pub data: Data,
    /// What fallocate(2) can do.
    pub fallocate: Fallocate,
    /// Whether files can share blocks.
    pub reflink: bool,
    /// Whether small files live in their inodes.
    pub inline: bool,
}

/// Where data goes when a file is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Data {
    /// To its place, by writeback of the page cache.
    Place,
    /// To the journal first: jbd2 holds the folio's buffers until much later.
    Journal,
}

/// What fallocate(2) can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fallocate {
    /// Nothing.
    Nothing,
    /// Punch and zero.
    Holes,
    /// Preallocate, punch and zero.
    Unwritten,
    /// Preallocate, punch, zero, collapse and insert.
    All,
}

/// A sound default from which the table differs.
const EXT4: Fs = Fs {
    name: "ext4-4k",
    make: &["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"],
    mib: 320,
    kind: "ext4",
    options: "",
    large_folios: false,
    data: Data::Place,
    fallocate: Fallocate::All,
    reflink: false,
    inline: false,
};

/// Every file system of the suite; one more is one more entry here and one more
/// disk in qemu/suites.toml.
pub const ALL: &[Fs] = &[
    EXT4,
    Fs {
        name: "ext4-1k",
        make: &["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0"],
        mib: SMALL,
        ..EXT4
    },
    Fs {
        name: "ext4-nojournal",
        make: &[
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-m",
            "0",
            "-O",
            "^has_journal",
        ],
        mib: SMALL,
        ..EXT4
    },
    Fs {
        name: "ext4-data-journal",
        mib: SMALL,
        options: "data=journal",
        data: Data::Journal,
        ..EXT4
    },
    Fs {
        name: "ext4-nodelalloc",
        mib: SMALL,
        options: "nodelalloc",
        ..EXT4
    },
    Fs {
        name: "ext4-inline",
        make: &[
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-m",
            "0",
            "-I",
            "256",
            "-O",
            "inline_data",
        ],
        mib: SMALL,
        inline: true,
        ..EXT4
    },
    Fs {
        name: "ext4-bigalloc",
        make: &[
            "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "bigalloc", "-C",
            "16384",
        ],
        mib: SMALL,
        // Only whole clusters can be collapsed and inserted.
        fallocate: Fallocate::Unwritten,
        ..EXT4
    },
    Fs {
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
        // mkfs.xfs makes none that are smaller than 300 MiB.
        mib: 320,
        kind: "xfs",
        large_folios: true,
        reflink: true,
        ..EXT4
    },
    Fs {
        name: "ext2-c",
        make: &["mke2fs", "-q", "-F", "-t", "ext2", "-b", "4096", "-m", "0"],
        mib: SMALL,
        kind: "ext2",
        fallocate: Fallocate::Nothing,
        ..EXT4
    },
    REXT2,
    Fs {
        name: "rext2-2k",
        make: &["mke2fs", "-q", "-F", "-t", "ext2", "-b", "2048", "-m", "0"],
        ..REXT2
    },
    Fs {
        name: "rext2-1k",
        make: &["mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-m", "0"],
        ..REXT2
    },
];

const REXT2: Fs = Fs {
    name: "rext2-4k",
    make: &["mke2fs", "-q", "-F", "-t", "ext2", "-b", "4096", "-m", "0"],
    mib: 200,
    kind: "rext2",
    large_folios: true,
    fallocate: Fallocate::Holes,
    ..EXT4
};

/// Room for the files of every test, and little to copy.
const SMALL: u64 = 48;

/// The file system of this name.
pub fn find(name: &str) -> Option<&'static Fs> {
    ALL.iter().find(|fs| fs.name == name)
}

impl Fs {
    /// Whether a file of this many bytes has no blocks.
    pub fn is_inline(&self, size: u64) -> bool {
        // The end of the inode and the room for its attributes.
        self.inline && size <= 150
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_serials() {
        let names: BTreeSet<_> = ALL.iter().map(|fs| fs.name).collect();
        assert_eq!(names.len(), ALL.len());
        // virtio-blk has no room for more.
        assert!(names.iter().all(|name| name.len() <= 20));
    }
}
