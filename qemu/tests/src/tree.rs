// SPDX-License-Identifier: GPL-2.0

//! The tree that the images of suite `smoke` hold: the host makes it, the guest
//! expects it. Nothing in it is learnt from a file system.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may have one"
)]

use std::ops::Range;

/// Shape of one image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Its name: the label of its partition.
    pub name: &'static str,
    /// Bytes in a block.
    pub block_size: u64,
    /// Bytes in an inode.
    pub inode_size: u64,
    /// `s_rev_level`.
    pub revision: u32,
    /// How many names the directory `many` has.
    pub many: usize,
}

const fn layout(
    name: &'static str,
    block_size: u64,
    inode_size: u64,
    revision: u32,
    many: usize,
) -> Layout {
    Layout {
        name,
        block_size,
        inode_size,
        revision,
        many,
    }
}

/// Every block size with every inode size and revision. `many` needs three
/// levels of index at 1 KiB and two at 4 KiB, where it is largest.
pub const LAYOUTS: [Layout; 9] = [
    layout("1k", 1024, 128, 1, 5000),
    layout("2k", 2048, 256, 1, 300),
    layout("4k", 4096, 256, 1, 20_000),
    layout("1k-rev0", 1024, 128, 0, 300),
    layout("2k-rev0", 2048, 128, 0, 300),
    layout("4k-rev0", 4096, 128, 0, 300),
    layout("1k-256", 1024, 256, 1, 300),
    layout("2k-128", 2048, 128, 1, 300),
    layout("4k-128", 4096, 128, 1, 300),
];

/// Seconds of every time that is not set to something else.
pub const TIME: i64 = 1_700_000_000;

/// What a name leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// Another name of the file at this path.
    Hard(String),
    /// A symbolic link with this target.
    Symlink(String),
    /// A character device.
    Char(u32, u32),
    /// A block device.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// What a regular file holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Content {
    /// Its number in [`crate::pattern`].
    pub number: u16,
    /// Its size in bytes.
    pub size: u64,
    /// Where it has data, in order; it is a hole everywhere else.
    pub data: Vec<Range<u64>>,
}

/// One name of the tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The path below the root, without a leading slash.
    pub path: String,
    /// What it leads to.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time.
    pub mtime: i64,
    /// Nanoseconds of it, where inodes have room for them.
    pub nanos: u32,
}

impl Entry {
    /// The content of a regular file.
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }
}

impl Content {
    /// The parts of the file that overlap `range`, data or hole, in order.
    pub fn parts(&self, range: Range<u64>) -> Vec<(bool, Range<u64>)> {
        let end = range.end.min(self.size);
        let mut parts = Vec::new();
        let mut pos = range.start;
        let mut add = |is_data, until: u64| {
            let until = until.min(end);
            if until > pos {
                parts.push((is_data, pos..until));
                pos = until;
            }
        };
        for data in &self.data {
            add(false, data.start);
            add(true, data.end);
        }
        add(false, end);
        parts
    }
}

/// The largest file of the driver at this block size, `s_maxbytes`, in whole
/// blocks: what the block map reaches, or what `i_blocks` can count.
pub fn reach(block_size: u64) -> u64 {
    let per = block_size / 4;
    (12 + per + per * per + per * per * per) * block_size
}

/// First byte that needs an indirect, a double and a triple indirect block.
pub fn levels(block_size: u64) -> [u64; 3] {
    let per = block_size / 4;
    [12, 12 + per, 12 + per + per * per].map(|block| block * block_size)
}

/// All names of the tree, each folder before what is in it.
pub fn entries(layout: &Layout) -> Vec<Entry> {
    let mut tree = Tree::default();
    regular(&mut tree, layout.block_size);
    special(&mut tree);
    owners(&mut tree);
    folders(&mut tree, layout);
    if layout.revision == 0 {
        // A file of 2 GiB would be a feature, which makes it revision 1.
        let small = |entry: &Entry| entry.content().is_none_or(|file| file.size < 1 << 31);
        tree.0.retain(small);
    }
    tree.0
}

#[derive(Default)]
struct Tree(Vec<Entry>);

impl Tree {
    fn add(&mut self, path: impl Into<String>, kind: Kind) -> &mut Entry {
        let mode = match kind {
            Kind::Directory => 0o755,
            Kind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        let at = self.0.len();
        self.0.push(Entry {
            path: path.into(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime: TIME,
            nanos: 0,
        });
        &mut self.0[at]
    }

    fn file(&mut self, path: &str, size: u64, data: Vec<Range<u64>>) -> &mut Entry {
        let number = self.0.len() as u16;
        self.add(path, Kind::File(Content { number, size, data }))
    }
}

fn regular(tree: &mut Tree, block: u64) {
    for size in [0, 1, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097] {
        let data = if size == 0 { vec![] } else { vec![0..size] };
        tree.file(&format!("size-{size}"), size, data);
    }
    let [indirect, double, triple] = levels(block);
    for (name, edge) in [("direct", indirect), ("indirect", double)] {
        // Data up to the last block of a level, and one byte more.
        let end = edge.min(1 << 20);
        tree.file(&format!("{name}-full"), end, vec![0..end]);
        tree.file(&format!("{name}-over"), edge + 1, vec![edge..edge + 1]);
    }
    // Into the double indirect blocks at 1 KiB; long enough for readahead.
    tree.file("dense", 3 << 20, vec![0..3 << 20]);

    // One block on each side of every edge of the block map.
    let mut data = vec![0..block];
    for edge in [indirect, double, triple] {
        data.push(edge - block..edge + block);
    }
    let second = double + (block / 4) * block;
    data.insert(3, second - block..second + block);
    tree.file("levels", triple + 2 * block, data);

    // 5 GiB with data at both ends and over the edges of 31 and 32 bits.
    let giant = 5 << 30;
    let data = vec![
        0..block,
        (1 << 31) - block..(1 << 31) + block,
        (1 << 32) - 2 * block..(1 << 32) + 2 * block,
        giant - block..giant - 1,
    ];
    tree.file("sparse", giant - 1, data);

    tree.file("hole", 1 << 20, vec![]);
    tree.file("hole-head", 5 * block, vec![4 * block..5 * block]);
    tree.file("hole-tail", 9 * block + 17, vec![0..2 * block]);
    let stripes = (0..64).map(|n| 2 * n * block..(2 * n + 1) * block);
    tree.file("stripes", 128 * block, stripes.collect());
}

fn special(tree: &mut Tree) {
    for length in [1, 58, 59, 60, 61, 255, 1000] {
        let target = (0..length).map(|n| char::from(b'a' + (n % 26) as u8));
        tree.add(format!("link-{length}"), Kind::Symlink(target.collect()));
    }
    tree.add("link-dir", Kind::Symlink("folder".into()));
    tree.add("null", Kind::Char(1, 3));
    tree.add("wide-char", Kind::Char(259, 3));
    tree.add("disk", Kind::Block(8, 255));
    tree.add("wide-disk", Kind::Block(259, 0xff00));
    tree.add("fifo", Kind::Fifo);
    tree.add("socket", Kind::Socket);
    tree.add("hard-1", Kind::Hard("dense".into()));
    tree.add("hard-2", Kind::Hard("dense".into()));
}

fn owners(tree: &mut Tree) {
    let mut one = |name: &str, mode, uid, gid, mtime, nanos| {
        let entry = tree.file(name, 5, vec![0..5]);
        (entry.mode, entry.uid, entry.gid) = (mode, uid, gid);
        (entry.mtime, entry.nanos) = (mtime, nanos);
    };
    one("setuid", 0o4755, 0, 0, TIME, 0);
    one("setgid", 0o2750, 1, 2, TIME, 0);
    one("private", 0o600, 1000, 1000, TIME, 0);
    one("no-mode", 0, 65534, 65534, TIME, 0);
    // 32 bits of owner, in two halves on the disk.
    one("wide-owner", 0o644, 100_000, 4_000_000_000, TIME, 0);
    // Times on both sides of 1970, and the last one of 32 bits.
    one("old", 0o644, 0, 0, -86_400, 0);
    one("epoch", 0o644, 0, 0, 0, 0);
    one("late", 0o644, 0, 0, i64::from(i32::MAX), 0);
    one("nanos", 0o644, 0, 0, TIME, 123_456_789);
}

fn folders(tree: &mut Tree, layout: &Layout) {
    tree.add("folder", Kind::Directory);
    tree.file("folder/file", 100, vec![0..100]);
    tree.add("empty", Kind::Directory);
    tree.add("sticky", Kind::Directory).mode = 0o1777;

    let mut deep = String::from("deep");
    tree.add(deep.clone(), Kind::Directory);
    for level in 0..30 {
        deep.push_str(&format!("/{level}"));
        tree.add(deep.clone(), Kind::Directory);
    }
    tree.file(&format!("{deep}/bottom"), 8, vec![0..8]);

    // Names: the longest, all lengths that change a record's length, odd bytes.
    tree.add("names", Kind::Directory);
    for length in [1, 2, 3, 4, 5, 8, 9, 127, 128, 254, 255] {
        tree.add(format!("names/{}", "n".repeat(length)), Kind::Fifo);
    }
    for name in ["...", "-", "ä ö", "tab\there", "日本語"] {
        tree.add(format!("names/{name}"), Kind::Fifo);
    }

    // Directories with an index, which ext2 reads as if there were none.
    tree.add("many", Kind::Directory);
    for number in 0..layout.many {
        let target = Kind::Symlink(format!("{number}"));
        tree.add(format!("many/name_of_an_entry_{number:05}"), target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn paths_are_unique_and_folders_come_first() {
        for layout in &LAYOUTS {
            let mut seen = BTreeSet::new();
            for entry in entries(layout) {
                if let Some((folder, _)) = entry.path.rsplit_once('/') {
                    assert!(seen.contains(folder), "{}", entry.path);
                }
                assert!(seen.insert(entry.path.clone()), "{}", entry.path);
            }
        }
    }

    #[test]
    fn data_is_in_order_and_inside_the_file() {
        for layout in &LAYOUTS {
            for entry in entries(layout) {
                let Some(content) = entry.content() else {
                    continue;
                };
                let mut end = 0;
                for data in &content.data {
                    assert!(data.start >= end && data.end > data.start, "{entry:?}");
                    end = data.end;
                }
                assert!(end <= content.size && content.size <= reach(layout.block_size));
            }
        }
    }

    #[test]
    fn parts_cover_a_range_once() {
        let content = Content {
            number: 1,
            size: 100,
            data: vec![10..20, 30..40],
        };
        let parts = content.parts(15..200);
        let right = [
            (true, 15..20),
            (false, 20..30),
            (true, 30..40),
            (false, 40..100),
        ];
        assert_eq!(parts, right);
        assert!(content.parts(100..200).is_empty());
    }
}
