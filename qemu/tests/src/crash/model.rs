// SPDX-License-Identifier: GPL-2.0

//! What has been promised, and whether what a crash has left keeps it.
//!
//! - `fsync`, `fdatasync`: the contents and the size of the file. A synchronous write, `O_DSYNC` or
//!   by the mount: the range, and the size.
//!   Of a file that has no name yet: with the next flush after it got one.
//! - `fsync` of a directory: its names, as far as the inodes were promised that they lead to.
//! - `sync`, `syncfs`, unmounting: everything.
//! - A change of names under `dirsync`: the names, and that there are inodes behind them; at once on
//!   a device without a cache, on others by the next flush.
//!
//! A name is not promised with its file: such a file may be in `lost+found`, where one without
//! contents is not put. What was not promised may have any state since the last promise, and a name
//! that leads to an inode without promise may be gone.

use super::data::Data;
use super::op::{Folder, Kind, Op, Place, TOPS, is_sub, short, text};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The target of a symbolic link with this number: in the inode, or in a block.
pub fn target(id: u16) -> String {
    match id % 2 {
        0 => format!("target-{id}"),
        _ => format!("target-{id}{}", "-long".repeat(20)),
    }
}

/// The value of an attribute with this number. There are few, so that files share them.
pub fn value(id: u16) -> Vec<u8> {
    vec![b'a' + (id % 3) as u8; 80]
}

/// What an inode is.
#[derive(Clone, Debug)]
enum Content {
    File(Rc<Data>),
    Dir,
    Link(u16),
}

/// An inode.
#[derive(Clone, Debug)]
struct Node {
    ino: u64,
    content: Content,
    links: u32,
    /// Whether it has to be there.
    promised: bool,
    /// Whether the next flush promises it.
    written: bool,
    /// The attributes since the last promise, the last one as it is now.
    xattrs: Vec<Option<u16>>,
    /// The operations that had to do with it.
    history: Vec<usize>,
}

type Id = usize;

/// What a name has led to since the last promise.
#[derive(Clone, Debug, Default)]
struct Slot {
    now: Option<Id>,
    may: BTreeSet<Option<Id>>,
    /// Whether the next flush promises it.
    written: bool,
}

impl Slot {
    fn settle(&mut self) {
        self.may = BTreeSet::from([self.now]);
        self.written = false;
    }
}

/// How the file system is mounted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Names are written at once.
    pub dirsync: bool,
    /// So are contents.
    pub sync: bool,
}

/// The state of a file system, and of the promises about it.
#[derive(Clone, Debug)]
pub struct Model {
    options: Options,
    block: u64,
    nodes: Vec<Node>,
    tops: Vec<Id>,
    slots: BTreeMap<(Id, u8), Slot>,
    /// How many operations there were.
    count: usize,
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which, and what was found.
    pub text: String,
    /// Whether the file was changed after its last promise.
    pub touched: bool,
    /// The operations that had to do with the inode.
    pub history: Vec<usize>,
}

/// An inode that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// A file, its contents, and its attribute.
    File(Vec<u8>, Option<Vec<u8>>),
    /// A directory and its names.
    Dir(BTreeMap<String, u64>),
    /// A symbolic link and its target.
    Link(String),
}

/// What was found after a crash, by inode.
pub type Seen = BTreeMap<u64, Found>;

impl Model {
    /// An empty file system.
    pub fn new(options: Options, block: u64) -> Model {
        Model {
            options,
            block,
            nodes: Vec::new(),
            tops: Vec::new(),
            slots: BTreeMap::new(),
            count: 0,
        }
    }

    fn dir(&self, folder: Folder) -> Option<Id> {
        let top = *self.tops.get(usize::from(folder.top))?;
        match folder.sub {
            None => Some(top),
            Some(name) => self.slots.get(&(top, name))?.now,
        }
    }

    fn find(&self, place: Place) -> Option<Id> {
        let dir = self.dir(place.folder)?;
        self.slots.get(&(dir, place.name))?.now
    }

    /// Whether there is such a name.
    pub fn exists(&self, place: Place) -> bool {
        self.find(place).is_some()
    }

    /// Whether two names lead to the same inode.
    pub fn are_same(&self, one: Place, other: Place) -> bool {
        self.find(one) == self.find(other)
    }

    /// The directories there are.
    pub fn folders(&self) -> Vec<Folder> {
        let mut folders = Vec::new();
        for top in 0..TOPS {
            let of_top = Folder { top, sub: None };
            folders.push(of_top);
            let names = self.names(of_top).into_iter();
            let subs = names.filter(|name| is_sub(*name));
            folders.extend(subs.map(|name| Folder {
                top,
                sub: Some(name),
            }));
        }
        folders
    }

    /// The names in a directory.
    pub fn names(&self, folder: Folder) -> Vec<u8> {
        let Some(dir) = self.dir(folder) else {
            return Vec::new();
        };
        let slots = self.slots.range((dir, 0)..=(dir, u8::MAX));
        slots
            .filter(|(_, slot)| slot.now.is_some())
            .map(|((_, name), _)| *name)
            .collect()
    }

    /// The names of regular files, and their sizes.
    pub fn files(&self) -> Vec<(Place, u64)> {
        let mut files = Vec::new();
        for folder in self.folders() {
            for name in self.names(folder) {
                let place = Place { folder, name };
                if let Some(Content::File(data)) =
                    self.find(place).map(|id| &self.nodes[id].content)
                {
                    files.push((place, data.size()));
                }
            }
        }
        files
    }

    /// About how many blocks the files take.
    pub fn blocks(&self) -> u64 {
        let alive = self.nodes.iter().filter(|node| node.links > 0);
        let blocks = alive.map(|node| match &node.content {
            Content::File(data) => data.blocks(),
            _ => 1,
        });
        blocks.sum()
    }

    fn add_node(&mut self, ino: u64, content: Content) -> Id {
        self.nodes.push(Node {
            ino,
            content,
            links: 0,
            promised: false,
            written: false,
            xattrs: vec![None],
            history: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Lets a name lead somewhere else.
    fn set(&mut self, place: Place, to: Option<Id>, done: bool) -> Result<()> {
        let dir = self.dir(place.folder).context("no such directory")?;
        let slot = self.slots.entry((dir, place.name)).or_insert_with(|| Slot {
            now: None,
            may: BTreeSet::from([None]),
            written: false,
        });
        let before = std::mem::replace(&mut slot.now, to);
        slot.may.insert(to);
        slot.written = done && self.options.dirsync;
        if let Some(id) = to {
            self.nodes[id].links += 1;
        }
        if let Some(id) = before {
            self.nodes[id].links -= 1;
        }
        Ok(())
    }

    fn data(&mut self, place: Place) -> Result<&mut Data> {
        let id = self.find(place).context(format!("no file {place}"))?;
        match &mut self.nodes[id].content {
            Content::File(data) => Ok(Rc::make_mut(data)),
            _ => anyhow::bail!("{place} is no file"),
        }
    }

    fn add(&mut self, op: &Op, ino: u64, content: Content, done: bool) -> Result<Id> {
        let id = self.add_node(ino, content);
        self.set(op.at, Some(id), done)?;
        self.nodes[id].written = done && self.options.dirsync;
        Ok(id)
    }

    /// An operation was done or, if not `done`, begun: then it promises nothing.
    pub fn apply(&mut self, op: &Op, ino: u64, done: bool) -> Result<()> {
        let before = self.concerned(op);
        self.carry_out(op, ino, done)?;
        let after = self.concerned(op);
        for id in before.union(&after) {
            self.nodes[*id].history.push(self.count);
        }
        self.count += 1;
        Ok(())
    }

    /// The inodes that an operation has to do with.
    fn concerned(&self, op: &Op) -> BTreeSet<Id> {
        let folder = |place: Place| self.dir(place.folder);
        let found = match op.kind {
            Kind::Top | Kind::Ready | Kind::End | Kind::Syncfs | Kind::Sync => [None; 4],
            Kind::FsyncDir => [folder(op.at), None, None, None],
            _ => [
                self.find(op.at),
                self.find(op.to),
                folder(op.at),
                folder(op.to),
            ],
        };
        found.into_iter().flatten().collect()
    }

    fn carry_out(&mut self, op: &Op, ino: u64, done: bool) -> Result<()> {
        let range = op.pos..op.pos + op.len;
        match op.kind {
            Kind::Top => {
                let id = self.add_node(ino, Content::Dir);
                self.nodes[id].links = 1;
                self.tops.push(id);
            }
            Kind::Create => {
                let data = Content::File(Rc::new(Data::new(self.block)));
                self.add(op, ino, data, done)?;
            }
            Kind::Mkdir => drop(self.add(op, ino, Content::Dir, done)?),
            Kind::Symlink => drop(self.add(op, ino, Content::Link(op.id), done)?),
            Kind::Tmpfile => {
                let mut data = Data::new(self.block);
                data.write(op.id, range);
                if done {
                    data.settle();
                }
                let id = self.add(op, ino, Content::File(Rc::new(data)), done)?;
                // It had no name when it was promised. It has one on the disk with the next
                // flush, which is that of the directory at the latest.
                self.nodes[id].promised = false;
                self.nodes[id].written = done;
            }
            Kind::Write | Kind::WriteUncached | Kind::WriteDirect | Kind::WriteMapped => {
                // Stores to a mapping are no write(2).
                let sync = op.sync || self.options.sync && op.kind != Kind::WriteMapped;
                let data = self.data(op.at)?;
                match op.kind {
                    Kind::WriteMapped => data.write_mapped(op.id, range.clone()),
                    _ => data.write(op.id, range.clone()),
                }
                if sync && done {
                    data.settle_range(range);
                    self.promise(op.at);
                }
            }
            Kind::Truncate => self.data(op.at)?.truncate(op.pos),
            Kind::Punch => self.data(op.at)?.punch(range),
            Kind::Xattr => {
                let id = self.find(op.at).context("no such file")?;
                self.nodes[id].xattrs.push(Some(op.id));
            }
            Kind::Fsync | Kind::Fdatasync if done => {
                self.data(op.at)?.settle();
                self.promise(op.at);
                if let (Kind::Fsync, Some(id)) = (op.kind, self.find(op.at)) {
                    let xattrs = &mut self.nodes[id].xattrs;
                    xattrs.drain(..xattrs.len() - 1);
                }
            }
            Kind::FsyncDir if done => {
                let dir = self.dir(op.at.folder).context("no such directory")?;
                self.nodes[dir].promised = true;
                let slots = self.slots.range_mut((dir, 0)..=(dir, u8::MAX));
                slots.for_each(|(_, slot)| slot.settle());
            }
            Kind::Syncfs | Kind::Sync | Kind::Ready | Kind::End if done => self.settle(),
            Kind::Unlink | Kind::Rmdir => self.set(op.at, None, done)?,
            Kind::Link => {
                let id = self.find(op.at);
                self.set(op.to, id, done)?;
            }
            Kind::Rename => {
                let id = self.find(op.at);
                self.set(op.to, id, done)?;
                self.set(op.at, None, done)?;
            }
            Kind::Exchange => {
                let (one, other) = (self.find(op.at), self.find(op.to));
                self.set(op.to, one, done)?;
                self.set(op.at, other, done)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn promise(&mut self, place: Place) {
        if let Some(id) = self.find(place) {
            self.nodes[id].promised = true;
        }
    }

    /// Everything is promised.
    fn settle(&mut self) {
        self.slots.values_mut().for_each(Slot::settle);
        for node in &mut self.nodes {
            node.promised = true;
            node.xattrs.drain(..node.xattrs.len() - 1);
            if let Content::File(data) = &mut node.content
                && !data.is_settled()
            {
                Rc::make_mut(data).settle();
            }
        }
    }

    /// The device has been flushed.
    pub fn flush(&mut self) {
        for slot in self.slots.values_mut().filter(|slot| slot.written) {
            slot.settle();
        }
        for node in &mut self.nodes {
            node.promised |= std::mem::take(&mut node.written);
        }
    }

    /// Whether an inode has to be there.
    fn is_sure(&self, id: Id) -> bool {
        self.nodes[id].promised && self.nodes[id].links > 0
    }

    /// The promises that what was found does not keep.
    pub fn broken(&self, seen: &Seen) -> Vec<Broken> {
        let mut broken = Vec::new();
        let sure = (0..self.nodes.len()).filter(|id| self.is_sure(*id));
        for id in sure {
            let ino = self.nodes[id].ino;
            if let Err(error) = self.check(id, seen) {
                broken.push(Broken {
                    text: format!("{} (inode {ino}): {error:#}", self.name(id)),
                    touched: self.is_touched(id),
                    history: self.nodes[id].history.clone(),
                });
            }
        }
        broken
    }

    /// Whether a file has been changed after its last promise.
    fn is_touched(&self, id: Id) -> bool {
        let node = &self.nodes[id];
        let data = match &node.content {
            Content::File(data) => !data.is_settled(),
            _ => false,
        };
        data || node.xattrs.len() > 1
    }

    fn check(&self, id: Id, seen: &Seen) -> Result<()> {
        let node = &self.nodes[id];
        match (&node.content, seen.get(&node.ino)) {
            (Content::File(data), None) if data.may_be_empty() && !self.has_sure_name(id) => Ok(()),
            (_, None) => anyhow::bail!("it is gone"),
            (Content::File(data), Some(Found::File(bytes, xattr))) => {
                data.check(bytes)?;
                let [right] = node.xattrs[..] else {
                    return Ok(());
                };
                let right = right.map(value);
                anyhow::ensure!(
                    *xattr == right,
                    "its attribute is {xattr:?}, and {right:?} is promised"
                );
                Ok(())
            }
            (Content::Dir, Some(Found::Dir(names))) => self.check_names(id, names, seen),
            (Content::Link(number), Some(Found::Link(found))) => {
                let right = target(*number);
                anyhow::ensure!(*found == right, "its target is {found}, not {right}");
                Ok(())
            }
            _ => anyhow::bail!("it is something else"),
        }
    }

    fn check_names(&self, dir: Id, names: &BTreeMap<String, u64>, seen: &Seen) -> Result<()> {
        let slots = self.slots.range((dir, 0)..=(dir, u8::MAX));
        let mut settled = true;
        let mut known = BTreeSet::new();
        for ((_, name), slot) in slots {
            let (shown, name) = (short(*name), text(*name));
            let ino = names.get(&name).copied();
            let allowed = slot.may.iter().any(|may| match (ino, may) {
                (None, None) => true,
                // An inode that is gone is told of by itself.
                (None, Some(id)) => !self.is_sure(*id) || !seen.contains_key(&self.nodes[*id].ino),
                (Some(ino), Some(id)) => self.nodes[*id].ino == ino,
                (Some(_), None) => false,
            });
            let right = |may: &Option<Id>| match may {
                None => String::from("nothing"),
                Some(id) => format!("inode {}", self.nodes[*id].ino),
            };
            let rights: Vec<_> = slot.may.iter().map(right).collect();
            anyhow::ensure!(
                allowed,
                "name {shown} leads to {}, and what is promised is: {}",
                ino.map_or("nothing".into(), |ino| format!("inode {ino}")),
                rights.join(" or ")
            );
            settled &= slot.may.len() == 1;
            known.insert(name);
        }
        // A new block of the directory may show what it held before.
        let more = names.keys().find(|name| !known.contains(*name));
        match more {
            Some(name) if settled => anyhow::bail!("name {name:?}, which nobody made"),
            _ => Ok(()),
        }
    }

    /// Whether a name is promised that leads to an inode.
    fn has_sure_name(&self, id: Id) -> bool {
        let only = BTreeSet::from([Some(id)]);
        let mut slots = self.slots.iter();
        slots.any(|((dir, _), slot)| slot.may == only && self.is_sure(*dir))
    }

    /// A path that leads to an inode.
    fn name(&self, id: Id) -> String {
        if let Some(top) = self.tops.iter().position(|top| *top == id) {
            return format!("top{top}");
        }
        let mut slots = self.slots.iter();
        match slots.find(|(_, slot)| slot.now == Some(id)) {
            Some(((dir, name), _)) => format!("{}/{}", self.name(*dir), short(*name)),
            None => String::from("a file without a name"),
        }
    }
}

#[cfg(test)]
mod tests;
