// SPDX-License-Identifier: GPL-2.0

//! Chooses operations: single ones, and the sequences by which programs make
//! their data durable or file systems lose it.

use super::model::Model;
use super::op::{Folder, Kind, NAMES, Op, Place, SUBS, TOPS, is_sub, sub};
use anyhow::{Result, ensure};
use fastrand::Rng;
use std::collections::VecDeque;

/// The most that a file has: with blocks of 1 KiB, some of the doubly indirect ones.
const SIZE: u64 = 400 << 10;
/// Direct IO of every block size is aligned to this.
const ALIGN: u64 = 4096;
/// How often one of several names is taken that lead to files.
const TRIES: usize = 8;

macro_rules! acts {
    ($($name:literal $function:ident $weight:literal)*) => {
        /// What may be done next, how it is called, and how often it is done.
        const ACTS: &[(&str, fn(&mut Chooser, &Model), usize)] =
            &[$(($name, Chooser::$function, $weight)),*];
    };
}

acts! {
    "create" create 10
    "write" write 26
    "truncate" truncate 5
    "punch" punch 2
    "xattr" xattr 3
    "fsync" fsync 8
    "fdatasync" fdatasync 4
    "fsync-dir" fsync_dir 4
    "syncfs" syncfs 1
    "sync" sync 1
    "start-writing" start_writing 2
    "forget" forget 1
    "mkdir" make_folder 3
    "rmdir" remove_folder 2
    "unlink" remove 5
    "link" link 3
    "symlink" symlink 2
    "rename" rename 3
    "rename-folder" move_folder 1
    "rename-over" rename_over 2
    "exchange" exchange 1
    "replace" replace 3
    "tmpfile" tmpfile 3
    "reuse-inode" reuse_inode 3
    "reuse-blocks" reuse_blocks 3
    "write-again" write_again 4
}

/// A source of operations.
pub struct Chooser {
    random: Rng,
    /// As many entries for what is done as its weight says.
    acts: Vec<fn(&mut Chooser, &Model)>,
    queue: VecDeque<Op>,
    id: u16,
    /// Blocks that all files may take: e2fsck needs some to repair.
    blocks: u64,
}

impl Chooser {
    /// The operations of a seed, without those that `off` names.
    pub fn new(seed: u64, blocks: u64, off: &str) -> Result<Chooser> {
        let off: Vec<_> = off.split(',').filter(|name| !name.is_empty()).collect();
        for name in &off {
            let known = ACTS.iter().any(|(act, ..)| act == name);
            ensure!(known, "no operation {name:?}; known: {}", names());
        }
        let on = ACTS.iter().filter(|(name, ..)| !off.contains(name));
        let acts = on.flat_map(|(_, act, weight)| std::iter::repeat_n(*act, *weight));
        let acts: Vec<fn(&mut Chooser, &Model)> = acts.collect();
        ensure!(!acts.is_empty(), "every operation is switched off");
        Ok(Chooser {
            random: Rng::with_seed(seed),
            acts,
            queue: VecDeque::new(),
            id: 0,
            blocks,
        })
    }

    /// The next operation on a file system in this state.
    pub fn next(&mut self, model: &Model) -> Op {
        loop {
            if let Some(op) = self.queue.pop_front() {
                return op;
            }
            self.fill(model);
        }
    }

    fn push(&mut self, ops: impl IntoIterator<Item = Op>) {
        self.queue.extend(ops);
    }

    /// Queues one operation, several, or none if what was chosen is not possible.
    fn fill(&mut self, model: &Model) {
        if model.blocks() > self.blocks {
            return self.remove(model);
        }
        let act = self.acts[self.random.usize(0..self.acts.len())];
        act(self, model);
    }

    fn next_id(&mut self) -> u16 {
        self.id = self.id % 60_000 + 1;
        self.id
    }

    fn folder(&mut self, model: &Model) -> Folder {
        let folders = model.folders();
        folders[self.random.usize(0..folders.len())]
    }

    fn file(&mut self, model: &Model) -> Option<(Place, u64)> {
        let files = model.files();
        (!files.is_empty()).then(|| files[self.random.usize(0..files.len())])
    }

    fn unused(&mut self, model: &Model) -> Option<Place> {
        for _ in 0..TRIES {
            let folder = self.folder(model);
            let name = self.random.u8(0..NAMES);
            let place = Place { folder, name };
            if !model.exists(place) {
                return Some(place);
            }
        }
        None
    }

    fn unused_folder(&mut self, model: &Model) -> Option<Place> {
        let top = self.random.u8(0..TOPS);
        let name = sub(self.random.u8(0..SUBS));
        let folder = Folder { top, sub: None };
        let place = Place { folder, name };
        (!model.exists(place)).then_some(place)
    }

    /// A write of some kind at a place with a file of this size.
    fn some_write(&mut self, at: Place, size: u64) -> Op {
        let kinds = [
            Kind::Write,
            Kind::Write,
            Kind::WriteUncached,
            Kind::WriteUncached,
            Kind::WriteDirect,
            Kind::WriteDirect,
            Kind::WriteMapped,
        ];
        let mut op = Op::new(kinds[self.random.usize(0..kinds.len())], at);
        op.id = self.next_id();
        op.sync = self.random.u8(0..5) == 0;
        // Mostly appends and overwrites, sometimes holes.
        op.pos = match self.random.u8(0..10) {
            0..5 => size,
            5..9 => self.random.u64(0..=size),
            _ => self.random.u64(0..SIZE),
        };
        let most = 1 << self.random.u32(4..17);
        op.len = self.random.u64(1..=most);
        if op.kind == Kind::WriteDirect {
            op.pos = op.pos.next_multiple_of(ALIGN);
            op.len = op.len.next_multiple_of(ALIGN);
        }
        if op.kind == Kind::WriteMapped {
            if size == 0 {
                op.kind = Kind::Write;
            } else {
                op.pos = op.pos.min(size - 1);
                op.len = op.len.min(size - op.pos);
            }
        }
        op.pos = op.pos.min(SIZE);
        op
    }

    fn create(&mut self, model: &Model) {
        let Some(at) = self.unused(model) else { return };
        let write = self.some_write(at, 0);
        self.push([Op::new(Kind::Create, at), write]);
        match self.random.u8(0..4) {
            0 => self.push([Op::new(Kind::Fsync, at), Op::new(Kind::FsyncDir, at)]),
            1 => self.push([Op::new(Kind::Fsync, at)]),
            _ => {}
        }
    }

    fn write(&mut self, model: &Model) {
        if let Some((at, size)) = self.file(model) {
            let op = self.some_write(at, size);
            self.push([op]);
        }
    }

    fn truncate(&mut self, model: &Model) {
        if let Some((at, size)) = self.file(model) {
            let mut op = Op::new(Kind::Truncate, at);
            op.pos = match self.random.u8(0..4) {
                0 => (size + self.random.u64(0..ALIGN * 4)).min(SIZE),
                1 => 0,
                _ => self.random.u64(0..=size),
            };
            self.push([op]);
        }
    }

    fn punch(&mut self, model: &Model) {
        if let Some((at, size @ 1..)) = self.file(model) {
            let mut op = Op::new(Kind::Punch, at);
            op.pos = self.random.u64(0..size);
            op.len = self.random.u64(1..=size - op.pos);
            self.push([op]);
        }
    }

    fn on_file(&mut self, model: &Model, kind: Kind) {
        if let Some((at, _)) = self.file(model) {
            let mut op = Op::new(kind, at);
            op.id = self.next_id();
            self.push([op]);
        }
    }

    fn xattr(&mut self, model: &Model) {
        self.on_file(model, Kind::Xattr);
    }

    fn fsync(&mut self, model: &Model) {
        self.on_file(model, Kind::Fsync);
    }

    fn fdatasync(&mut self, model: &Model) {
        self.on_file(model, Kind::Fdatasync);
    }

    fn start_writing(&mut self, model: &Model) {
        self.on_file(model, Kind::StartWriting);
    }

    fn syncfs(&mut self, _: &Model) {
        self.push([Op::new(Kind::Syncfs, Place::default())]);
    }

    fn sync(&mut self, _: &Model) {
        self.push([Op::new(Kind::Sync, Place::default())]);
    }

    fn forget(&mut self, _: &Model) {
        self.push([Op::new(Kind::Forget, Place::default())]);
    }

    fn fsync_dir(&mut self, model: &Model) {
        let folder = self.folder(model);
        self.push([Op::new(Kind::FsyncDir, Place { folder, name: 0 })]);
    }

    fn make_folder(&mut self, model: &Model) {
        let Some(at) = self.unused_folder(model) else {
            return;
        };
        self.push([Op::new(Kind::Mkdir, at)]);
        if self.random.bool() {
            self.push(durable_folder(at));
        }
    }

    fn remove_folder(&mut self, model: &Model) {
        let folder = self.folder(model);
        let Some(name) = folder.sub else { return };
        let at = Place {
            folder: Folder {
                top: folder.top,
                sub: None,
            },
            name,
        };
        for name in model.names(folder) {
            self.push([Op::new(Kind::Unlink, Place { folder, name })]);
        }
        self.push([Op::new(Kind::Rmdir, at)]);
        if self.random.bool() {
            self.push([Op::new(Kind::FsyncDir, at)]);
        }
    }

    fn remove(&mut self, model: &Model) {
        let folder = self.folder(model);
        let names = model.names(folder).into_iter();
        let names: Vec<_> = names.filter(|name| !is_sub(*name)).collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.random.usize(0..names.len())];
        let at = Place { folder, name };
        self.push([Op::new(Kind::Unlink, at)]);
        if self.random.u8(0..3) == 0 {
            self.push([Op::new(Kind::FsyncDir, at)]);
        }
    }

    fn link(&mut self, model: &Model) {
        self.give_name(model, Kind::Link);
    }

    fn rename(&mut self, model: &Model) {
        self.give_name(model, Kind::Rename);
    }

    fn give_name(&mut self, model: &Model, kind: Kind) {
        let file = self.file(model);
        let (Some((at, _)), Some(to)) = (file, self.unused(model)) else {
            return;
        };
        self.push([Op::new(kind, at).to(to)]);
        if self.random.u8(0..3) == 0 {
            self.push([Op::new(Kind::FsyncDir, to), Op::new(Kind::FsyncDir, at)]);
        }
    }

    /// A directory gets another parent.
    fn move_folder(&mut self, model: &Model) {
        let (folder, to) = (self.folder(model), self.unused_folder(model));
        if let (Some(name), Some(to)) = (folder.sub, to) {
            let parent = Folder {
                top: folder.top,
                sub: None,
            };
            let at = Place {
                folder: parent,
                name,
            };
            self.push([Op::new(Kind::Rename, at).to(to)]);
        }
    }

    fn symlink(&mut self, model: &Model) {
        if let Some(at) = self.unused(model) {
            let mut op = Op::new(Kind::Symlink, at);
            op.id = self.next_id();
            self.push([op]);
        }
    }

    fn two_files(&mut self, model: &Model) -> Option<(Place, Place)> {
        let (one, _) = self.file(model)?;
        let (other, _) = self.file(model)?;
        // Of two names of a file, rename(2) removes none.
        (!model.are_same(one, other)).then_some((one, other))
    }

    fn rename_over(&mut self, model: &Model) {
        if let Some((at, to)) = self.two_files(model) {
            self.push([Op::new(Kind::Rename, at).to(to)]);
        }
    }

    fn exchange(&mut self, model: &Model) {
        if let Some((at, to)) = self.two_files(model) {
            self.push([Op::new(Kind::Exchange, at).to(to)]);
            self.push([Op::new(Kind::FsyncDir, at), Op::new(Kind::FsyncDir, to)]);
        }
    }

    /// As an editor saves a file: a new one, synced, takes the name.
    fn replace(&mut self, model: &Model) {
        let (old, new) = (self.file(model), self.unused(model));
        let (Some((old, _)), Some(new)) = (old, new) else {
            return;
        };
        let new = Place {
            folder: old.folder,
            ..new
        };
        if model.exists(new) {
            return;
        }
        let write = self.some_write(new, 0);
        self.push([
            Op::new(Kind::Create, new),
            write,
            Op::new(Kind::Fsync, new),
            Op::new(Kind::Rename, new).to(old),
            Op::new(Kind::FsyncDir, old),
        ]);
    }

    fn tmpfile(&mut self, model: &Model) {
        if let Some(at) = self.unused(model) {
            let mut op = Op::new(Kind::Tmpfile, at);
            op.len = self.random.u64(1..40_000);
            op.id = self.next_id();
            self.push([op, Op::new(Kind::FsyncDir, at)]);
        }
    }

    /// A directory takes the inode of a file whose name is still on the disk.
    fn reuse_inode(&mut self, model: &Model) {
        let (file, at) = (self.file(model), self.unused_folder(model));
        if let (Some((file, _)), Some(at)) = (file, at) {
            self.push([Op::new(Kind::Unlink, file), Op::new(Kind::Mkdir, at)]);
            self.push(durable_folder(at));
        }
    }

    /// A file takes blocks, indirect ones as well, of one that loses its end and
    /// keeps its promised start.
    fn reuse_blocks(&mut self, model: &Model) {
        let (file, at) = (self.file(model), self.unused(model));
        let (Some((file, size)), Some(at)) = (file, at) else {
            return;
        };
        let mut truncate = Op::new(Kind::Truncate, file);
        truncate.pos = size / 2;
        let mut write = Op::new(Kind::Write, at);
        write.len = size.clamp(1, 100 << 10);
        write.id = self.next_id();
        self.push([
            Op::new(Kind::Fsync, file),
            truncate,
            Op::new(Kind::Create, at),
            write,
            Op::new(Kind::Fsync, at),
        ]);
    }

    /// A synchronous write finds all blocks there, of which the disk does not know yet.
    fn write_again(&mut self, model: &Model) {
        if let Some((at, size)) = self.file(model) {
            let mut first = Op::new(Kind::WriteDirect, at);
            first.pos = size.next_multiple_of(ALIGN).min(SIZE);
            first.len = ALIGN * self.random.u64(1..=4);
            first.id = self.next_id();
            let mut second = first;
            second.id = self.next_id();
            second.sync = true;
            self.push([
                Op::new(Kind::Fsync, at),
                Op::new(Kind::FsyncDir, at),
                first,
                second,
            ]);
        }
    }
}

/// The names of what may be done.
fn names() -> String {
    let names: Vec<_> = ACTS.iter().map(|(name, ..)| *name).collect();
    names.join(" ")
}

/// What makes a new directory durable.
fn durable_folder(at: Place) -> [Op; 2] {
    let inner = Folder {
        top: at.folder.top,
        sub: Some(at.name),
    };
    let inner = Place {
        folder: inner,
        name: 0,
    };
    [Op::new(Kind::FsyncDir, inner), Op::new(Kind::FsyncDir, at)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::model::Options;

    /// The operations of a workload of this length.
    fn ops(seed: u64, count: usize) -> Vec<Op> {
        let mut model = Model::new(Options::default(), 1024);
        for top in 0..u64::from(TOPS) {
            let op = Op::new(Kind::Top, Place::default());
            model.apply(&op, 12 + top, true).unwrap();
        }
        let mut chooser = Chooser::new(seed, 4000, "").unwrap();
        let mut ops = Vec::new();
        for number in 0..count {
            let op = chooser.next(&model);
            model
                .apply(&op, 100 + number as u64, true)
                .unwrap_or_else(|error| panic!("{op}: {error:#}"));
            ops.push(op);
        }
        ops
    }

    #[test]
    fn what_is_switched_off_is_not_done() {
        let random = |off| Chooser::new(1, 4000, off);
        let all: Vec<_> = names().split(' ').map(String::from).collect();
        assert!(random("tmpfile,replace").is_ok());
        assert!(random("tmp-file").is_err());
        assert!(random(&all.join(",")).is_err());
    }

    #[test]
    fn a_seed_says_what_is_done_and_everything_is() {
        assert_eq!(ops(1, 300), ops(1, 300));
        assert_ne!(ops(1, 300), ops(2, 300));
        let ops = ops(3, 3000);
        use Kind::*;
        for kind in [
            Create,
            Write,
            WriteUncached,
            WriteDirect,
            WriteMapped,
            Truncate,
            Punch,
            Xattr,
            Fsync,
            Fdatasync,
            FsyncDir,
            Syncfs,
            Sync,
            StartWriting,
            Forget,
            Mkdir,
            Rmdir,
            Unlink,
            Link,
            Symlink,
            Rename,
            Exchange,
            Tmpfile,
        ] {
            assert!(ops.iter().any(|op| op.kind == kind), "{kind:?}");
        }
    }
}
