// SPDX-License-Identifier: GPL-2.0

//! The file under test beside its model in memory.

use super::op::{Kind, Step};
use crate::uncached::env::{Env, PLAIN, Sample, UNCACHED, read_at, write_at};
use crate::uncached::map::{self, Mapping};
use crate::uncached::raw::{Request, Ring};
use crate::walk::Aligned;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fdatasync, ftruncate};
use rustix::io::ReadWriteFlags;
use std::fs::File;

/// Requests of O_DIRECT are multiples of this: any device takes them.
const DIRECT: usize = 4096;
/// What moves data around in a file works on whole blocks, of 4 KiB at most.
const BLOCK: usize = 4096;

/// A file, and what it must hold.
pub struct Subject {
    buffered: Sample,
    direct: Option<File>,
    ring: Option<Ring>,
    right: Vec<u8>,
    size: usize,
}

impl Subject {
    /// A new, empty file of at most `size` bytes.
    pub fn new(env: &Env, size: usize) -> Result<Subject> {
        let buffered = env.create("file")?;
        let direct = env.open("file", OFlags::RDWR | OFlags::DIRECT);
        Ok(Subject {
            buffered,
            direct: direct.ok().map(|sample| sample.file),
            ring: Ring::new().ok(),
            right: Vec::new(),
            size,
        })
    }

    /// Whether the file system can do this: tried on a file with data.
    pub fn supports(env: &Env, kind: Kind) -> bool {
        let try_it = || -> Result<()> {
            let mut subject = Subject::new(env, 16 * BLOCK)?;
            let step = |kind, pos| Step {
                number: 1,
                kind,
                pos,
                length: BLOCK,
            };
            (0..8).try_for_each(|n| subject.apply(&step(Kind::Write, n * BLOCK)))?;
            subject.buffered.sync()?;
            subject.apply(&step(kind, BLOCK))
        };
        try_it().is_ok()
    }

    /// Does it to the file and to the model, and compares what it reads.
    pub fn apply(&mut self, step: &Step) -> Result<()> {
        let (pos, end) = (step.pos, step.pos + step.length);
        let (block, blocks) = (pos / BLOCK * BLOCK, step.length.next_multiple_of(BLOCK));
        match step.kind {
            Kind::Read => self.read(pos, step.length, PLAIN),
            Kind::UncachedRead => self.read(pos, step.length, UNCACHED),
            Kind::RingRead => self.ring_read(pos, step.length, PLAIN),
            Kind::RingUncachedRead => self.ring_read(pos, step.length, UNCACHED),
            Kind::MappedRead => self.mapped_read(pos, end),
            Kind::DirectRead => self.direct_read(pos, step.length),
            Kind::Write => self.write(step, PLAIN),
            Kind::UncachedWrite => self.write(step, UNCACHED),
            Kind::RingWrite => self.ring_write(step, PLAIN),
            Kind::RingUncachedWrite => self.ring_write(step, UNCACHED),
            Kind::MappedWrite => self.mapped_write(step),
            Kind::DirectWrite => self.direct_write(step),
            Kind::Truncate => {
                ftruncate(&self.buffered.file, pos as u64).context("ftruncate")?;
                self.right.resize(pos, 0);
                Ok(())
            }
            Kind::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.fallocate(flags, pos, end)?;
                let end = end.min(self.right.len());
                self.right[pos.min(end)..end].fill(0);
                Ok(())
            }
            Kind::Zero => {
                self.fallocate(FallocateFlags::ZERO_RANGE, pos, end)?;
                self.grow(end);
                self.right[pos..end].fill(0);
                Ok(())
            }
            Kind::Allocate => {
                self.fallocate(FallocateFlags::empty(), pos, end)?;
                self.grow(end);
                Ok(())
            }
            Kind::Collapse => self.collapse(block, blocks),
            Kind::Insert => self.insert(block, blocks),
            Kind::Sync => self.buffered.sync(),
            Kind::DataSync => fdatasync(&self.buffered.file).context("fdatasync"),
            Kind::Forget => {
                fadvise(&self.buffered.file, 0, None, Advice::DontNeed).context("cannot advise")
            }
        }
    }

    /// Compares the whole file as the cache has it, and as the disk has it.
    pub fn look(&mut self) -> Result<()> {
        self.whole().context("in the cache")?;
        self.buffered.sync()?;
        fadvise(&self.buffered.file, 0, None, Advice::DontNeed).context("cannot advise")?;
        self.whole().context("on disk")
    }

    fn whole(&self) -> Result<()> {
        let length = self.buffered.file.metadata().context("cannot stat")?.len();
        ensure!(
            length == self.right.len() as u64,
            "the file has {length} bytes, not {}",
            self.right.len()
        );
        let got = self.buffered.read(0, self.right.len() + 1, PLAIN);
        self.compare(0, self.right.len(), &got.context("cannot read")?)
    }

    fn grow(&mut self, end: usize) {
        self.right.resize(self.right.len().max(end), 0);
    }

    /// Compares what was read from `pos` up to `end` or the end of the file.
    fn compare(&self, pos: usize, end: usize, got: &[u8]) -> Result<()> {
        let end = end.min(self.right.len());
        let right = &self.right[pos.min(end)..end];
        ensure!(
            got.len() == right.len(),
            "{} bytes read at {pos}, not {}",
            got.len(),
            right.len()
        );
        if got == right {
            return Ok(());
        }
        let differs = |(got, right): (&u8, &u8)| got != right;
        match got.iter().zip(right).position(differs) {
            None => Ok(()),
            Some(at) => bail!("byte {} is {}, not {}", pos + at, got[at], right[at]),
        }
    }

    fn read(&self, pos: usize, length: usize, flags: ReadWriteFlags) -> Result<()> {
        let got = self.buffered.read(pos as u64, length, flags);
        self.compare(pos, pos + length, &got.context("cannot read")?)
    }

    fn ring_read(&mut self, pos: usize, length: usize, flags: ReadWriteFlags) -> Result<()> {
        let ring = self.ring.as_mut().context("no io_uring")?;
        let mut bytes = vec![0; length];
        let done = ring.run(
            &self.buffered.file,
            Request::Read,
            &mut bytes,
            pos as u64,
            flags,
            false,
        )?;
        bytes.truncate(done.context("cannot read")?);
        self.compare(pos, pos + length, &bytes)
    }

    fn mapped_read(&self, pos: usize, end: usize) -> Result<()> {
        let end = end.min(self.right.len());
        if pos >= end {
            return Ok(());
        }
        let mapping = self.map()?;
        self.compare(pos, end, &mapping.load(pos as u64..end as u64)?)
    }

    fn map(&self) -> Result<Mapping> {
        let length = self.right.len() as u64;
        Mapping::new(&self.buffered.file, length, map::Kind::Shared)
    }

    fn direct_read(&self, pos: usize, length: usize) -> Result<()> {
        let file = self.direct.as_ref().context("no O_DIRECT")?;
        let (pos, length) = (pos / DIRECT * DIRECT, length.next_multiple_of(DIRECT));
        let mut buffer = Aligned::new(length);
        let done = read_at(file, pos as u64, buffer.bytes(), PLAIN).context("cannot read")?;
        self.compare(pos, pos + length, &buffer.bytes()[..done])
    }

    fn write(&mut self, step: &Step, flags: ReadWriteFlags) -> Result<()> {
        let bytes = step.bytes();
        let done = write_at(&self.buffered.file, step.pos as u64, &bytes, flags);
        self.written(step.pos, &bytes, done.context("cannot write")?)
    }

    fn ring_write(&mut self, step: &Step, flags: ReadWriteFlags) -> Result<()> {
        let mut bytes = step.bytes();
        let ring = self.ring.as_mut().context("no io_uring")?;
        let pos = step.pos as u64;
        let done = ring.run(
            &self.buffered.file,
            Request::Write,
            &mut bytes,
            pos,
            flags,
            false,
        )?;
        self.written(step.pos, &bytes, done.context("cannot write")?)
    }

    fn mapped_write(&mut self, step: &Step) -> Result<()> {
        let (pos, end) = (step.pos, step.pos + step.length);
        if end > self.right.len() {
            ftruncate(&self.buffered.file, end as u64).context("ftruncate")?;
            self.grow(end);
        }
        let bytes = step.bytes();
        self.map()?.fill(pos as u64, &bytes)?;
        self.right[pos..end].copy_from_slice(&bytes);
        Ok(())
    }

    fn direct_write(&mut self, step: &Step) -> Result<()> {
        let file = self.direct.as_ref().context("no O_DIRECT")?;
        let pos = step.pos / DIRECT * DIRECT;
        let room = self.size.next_multiple_of(DIRECT) - pos;
        let length = step.length.next_multiple_of(DIRECT).min(room);
        let bytes = Step {
            pos,
            length,
            ..*step
        }
        .bytes();
        let mut buffer = Aligned::new(length);
        buffer.bytes().copy_from_slice(&bytes);
        let done = write_at(file, pos as u64, buffer.bytes(), PLAIN);
        self.written(pos, &bytes, done.context("cannot write")?)
    }

    fn written(&mut self, pos: usize, bytes: &[u8], done: usize) -> Result<()> {
        ensure!(
            done == bytes.len(),
            "{done} bytes written, not {}",
            bytes.len()
        );
        self.grow(pos + done);
        self.right[pos..pos + done].copy_from_slice(bytes);
        Ok(())
    }

    fn fallocate(&self, flags: FallocateFlags, from: usize, to: usize) -> Result<()> {
        let (from, length) = (from as u64, (to - from) as u64);
        fallocate(&self.buffered.file, flags, from, length).context("fallocate")
    }

    /// Takes whole blocks out; the file must go on behind them.
    fn collapse(&mut self, from: usize, length: usize) -> Result<()> {
        if from + length >= self.right.len() {
            return Ok(());
        }
        self.fallocate(FallocateFlags::COLLAPSE_RANGE, from, from + length)?;
        self.right.drain(from..from + length);
        Ok(())
    }

    /// Puts a hole in front of data, if there is room.
    fn insert(&mut self, from: usize, length: usize) -> Result<()> {
        if from >= self.right.len() || self.right.len() + length > self.size {
            return Ok(());
        }
        self.fallocate(FallocateFlags::INSERT_RANGE, from, from + length)?;
        self.right
            .splice(from..from, std::iter::repeat_n(0, length));
        Ok(())
    }
}
