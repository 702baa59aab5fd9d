// SPDX-License-Identifier: GPL-2.0

//! The operations of a workload, and how a mark in the log tells of one.

use anyhow::{Context, Result};
use std::fmt;

/// Bytes of a mark: a sector.
pub const MARK: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"crashmrk");

/// Directories that are always there.
pub const TOPS: u8 = 4;
/// Names of directories that come and go, in each of those.
pub const SUBS: u8 = 2;
/// Names of files in each directory.
pub const NAMES: u8 = 16;
/// From here on a name is that of a directory.
const FIRST_SUB: u8 = 100;

/// A directory: one that is always there, or one in it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Folder {
    /// The directory that is always there.
    pub top: u8,
    /// The name in it.
    pub sub: Option<u8>,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The directory.
    pub folder: Folder,
    /// The name, as a number.
    pub name: u8,
}

/// What makes a name long.
const LONG: &str = "-long";

/// The number of the name of a directory.
pub fn sub(number: u8) -> u8 {
    FIRST_SUB + number
}

/// Whether a name is that of a directory.
pub fn is_sub(name: u8) -> bool {
    name >= FIRST_SUB
}

/// A name as a text. Those of files are long, so that directories have several blocks.
pub fn text(name: u8) -> String {
    match is_sub(name) {
        true => format!("s{}", name - FIRST_SUB),
        false => format!("n{name:02}{}", LONG.repeat(20)),
    }
}

impl Folder {
    /// Its path.
    pub fn path(&self) -> String {
        let sub = self.sub.map(|name| format!("/{}", text(name)));
        format!("top{}{}", self.top, sub.unwrap_or_default())
    }
}

impl Place {
    /// Its path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.folder.path(), text(self.name))
    }
}

/// A name without what makes it long.
pub fn short(name: u8) -> String {
    text(name).replace(LONG, "")
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.folder, short(self.name))
    }
}

macro_rules! kinds {
    ($($kind:ident $doc:literal)*) => {
        /// What is done.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            const ALL: &[Kind] = &[$(Kind::$kind),*];
        }
    };
}

kinds! {
    Begin "A workload begins: the device is filled next"
    Top "A directory that is always there was made"
    Ready "All of that was synced: the operations begin"
    End "The file system is unmounted"
    Create "open(2) of a new file"
    Write "pwrite(2)"
    WriteUncached "pwritev2(2) with RWF_UNCACHED"
    WriteDirect "pwrite(2) with O_DIRECT"
    WriteMapped "Stores to a mapping; msync(2) if it is to be synchronous"
    Truncate "ftruncate(2)"
    Punch "fallocate(2) that makes a hole"
    Xattr "fsetxattr(2)"
    Fsync "fsync(2) of a file"
    Fdatasync "fdatasync(2) of a file"
    FsyncDir "fsync(2) of a directory"
    Syncfs "syncfs(2)"
    Sync "sync(2)"
    StartWriting "sync_file_range(2), which promises nothing"
    Forget "All that is clean leaves memory"
    Mkdir "mkdir(2)"
    Rmdir "rmdir(2)"
    Unlink "unlink(2)"
    Link "link(2)"
    Symlink "symlink(2)"
    Rename "rename(2)"
    Exchange "renameat2(2) with RENAME_EXCHANGE"
    Tmpfile "O_TMPFILE, pwrite(2), fsync(2), linkat(2)"
}

/// An operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Op {
    /// What is done.
    pub kind: Kind,
    /// With what; of a directory, the name does not count.
    pub at: Place,
    /// Where it goes.
    pub to: Place,
    /// From which byte on; the size of a truncation.
    pub pos: u64,
    /// How many bytes.
    pub len: u64,
    /// Whether a write is synchronous.
    pub sync: bool,
    /// What is written.
    pub id: u16,
}

impl Op {
    /// An operation that needs no more than a place.
    pub fn new(kind: Kind, at: Place) -> Op {
        Op {
            kind,
            at,
            to: at,
            pos: 0,
            len: 0,
            sync: false,
            id: 0,
        }
    }

    /// The same, with somewhere to go.
    pub fn to(self, to: Place) -> Op {
        Op { to, ..self }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Kind::*;
        write!(f, "{:?} ", self.kind)?;
        match self.kind {
            FsyncDir => write!(f, "{}", self.at.folder)?,
            Begin | Top | Ready | End | Sync | Syncfs | Forget => {}
            Link | Rename | Exchange => write!(f, "{} {}", self.at, self.to)?,
            _ => write!(f, "{}", self.at)?,
        }
        match self.kind {
            Write | WriteUncached | WriteDirect | WriteMapped | Punch | Tmpfile => {
                write!(f, " {}+{}", self.pos, self.len)?;
            }
            Truncate => write!(f, " {}", self.pos)?,
            _ => {}
        }
        f.write_str(if self.sync { " synchronous" } else { "" })
    }
}

/// A mark: what has been done when it was written. It lies on the device that is
/// recorded, and so has a place among the other writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    /// The workload.
    pub group: u64,
    /// How many there were before in this workload.
    pub number: u64,
    /// What has been done.
    pub op: Op,
    /// The inode that was made.
    pub ino: u64,
}

impl Mark {
    /// As a sector.
    pub fn encode(&self) -> [u8; MARK] {
        let op = &self.op;
        let place = |place: Place| {
            let bytes = [
                place.folder.top,
                place.folder.sub.unwrap_or(0),
                place.name,
                0,
            ];
            u64::from(u32::from_le_bytes(bytes))
        };
        let words = [
            MAGIC,
            self.group,
            self.number,
            op.kind as u64,
            place(op.at),
            place(op.to),
            op.pos,
            op.len,
            op.sync.into(),
            op.id.into(),
            self.ino,
        ];
        let mut sector = [0; MARK];
        for (bytes, word) in sector.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        sector
    }

    /// From what was written.
    pub fn decode(bytes: &[u8]) -> Result<Mark> {
        let mut words = bytes.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("chunks have this size");
            u64::from_le_bytes(bytes)
        });
        let mut next = || words.next().context("a short mark");
        let magic = next()?;
        anyhow::ensure!(magic == MAGIC, "this is no mark");
        let place = |word: u64| {
            let [top, sub, name, ..] = word.to_le_bytes();
            let sub = (sub != 0).then_some(sub);
            let folder = Folder { top, sub };
            Place { folder, name }
        };
        let (group, number, kind) = (next()?, next()?, next()?);
        let kind = Kind::ALL.get(kind as usize);
        let op = Op {
            kind: *kind.context("a mark of an unknown kind")?,
            at: place(next()?),
            to: place(next()?),
            pos: next()?,
            len: next()?,
            sync: next()? != 0,
            id: next()? as u16,
        };
        let ino = next()?;
        Ok(Mark {
            group,
            number,
            op,
            ino,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let folder = |top, sub| Folder { top, sub };
        let place = |folder, name| Place { folder, name };
        let at = place(folder(3, Some(sub(1))), 7);
        let to = place(folder(0, None), sub(0));
        let mut op = Op::new(Kind::Tmpfile, at).to(to);
        (op.pos, op.len, op.sync, op.id) = (1 << 40, 77, true, 9);
        let mark = Mark {
            group: 2,
            number: 1000,
            op,
            ino: 12,
        };
        assert_eq!(Mark::decode(&mark.encode()).unwrap(), mark);
        assert!(Mark::decode(&[0; MARK]).is_err());
    }
}
