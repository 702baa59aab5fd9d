// SPDX-License-Identifier: GPL-2.0

//! Reading directories by getdents and whole trees by walking them.

use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags, RawDir, open};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// One directory entry as the kernel hands it out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// `d_type`.
    pub kind: FileType,
    /// `d_ino`.
    pub ino: u64,
    /// `d_off`: where reading goes on after this entry.
    pub cookie: u64,
}

/// All entries of a directory, `.` and `..` included, in the order of the
/// disk, read with a buffer of `size` bytes.
pub fn entries(path: &Path, size: usize) -> Result<Vec<Entry>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    entries_from(open(path, flags, Mode::empty())?, size)
}

/// The entries from the descriptor's position on.
pub fn entries_from(fd: impl std::os::fd::AsFd, size: usize) -> Result<Vec<Entry>, Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); size];
    let mut dir = RawDir::new(fd, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = dir.next() {
        let entry = entry?;
        found.push(Entry {
            name: entry.file_name().to_bytes().to_owned(),
            kind: entry.file_type(),
            ino: entry.ino(),
            cookie: entry.next_entry_cookie(),
        });
    }
    Ok(found)
}

/// A letter for a file type, as `ls -l` and the tables here have it.
pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::RegularFile => 'r',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    }
}

/// What a name in a tree leads to.
pub struct Found {
    /// The directory's word for the type.
    pub listed: FileType,
    /// What lstat says.
    pub meta: Metadata,
}

/// What is below a folder by its path, which is a string because paths are compared part by part: for
/// thousands of them that takes most of the time here.
pub type Tree = BTreeMap<OsString, Found>;

/// Everything below `root`, `root` itself as the empty path.
pub fn tree(root: &Path) -> Result<Tree> {
    let mut found = Tree::new();
    let meta = fs::symlink_metadata(root).context(format!("cannot stat {}", root.display()))?;
    let listed = FileType::Directory;
    found.insert(OsString::new(), Found { listed, meta });
    let mut open = vec![OsString::new()];
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        let list = entries(&path, 32 << 10).context(format!("cannot list {}", path.display()))?;
        for entry in list {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = path.join(OsStr::from_bytes(&entry.name));
            let meta = fs::symlink_metadata(&path)
                .with_context(|| format!("cannot stat {}, a listed name", path.display()))?;
            let inner = joined(&folder, entry.name);
            if meta.is_dir() {
                open.push(inner.clone());
            }
            let listed = entry.kind;
            found.insert(inner, Found { listed, meta });
        }
    }
    Ok(found)
}

/// The path of a name in a folder, which has none if it is the root.
fn joined(folder: &OsStr, name: Vec<u8>) -> OsString {
    if folder.is_empty() {
        return OsString::from_vec(name);
    }
    OsString::from_vec([folder.as_bytes(), b"/", &name].concat())
}

/// A buffer whose start is aligned for direct reads.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Aligned {
    const ALIGN: usize = 4096;

    /// A buffer of `size` bytes.
    pub fn new(size: usize) -> Aligned {
        let memory = vec![0; size + Self::ALIGN];
        let start = memory.as_ptr().align_offset(Self::ALIGN);
        Aligned {
            memory,
            start,
            size,
        }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_read_the_same_entries() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let large = entries(&folder, 32 << 10).unwrap();
        assert!(large.iter().any(|entry| entry.name == b"walk.rs"));
        assert_eq!(large, entries(&folder, 300).unwrap());
        assert!(
            tree(&folder)
                .unwrap()
                .contains_key(OsStr::new("images/probe.rs"))
        );
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Aligned::new(512);
        assert_eq!(buffer.bytes().as_ptr().addr() % Aligned::ALIGN, 0);
        assert_eq!(buffer.bytes().len(), 512);
    }
}
