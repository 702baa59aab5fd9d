// SPDX-License-Identifier: GPL-2.0

//! What was recorded of a workload, and the points of it where the power fails.

use super::log::{self, Event};
use super::op::{Kind, MARK, Mark};
use super::{LOG, MARKS, MARKS_SIZE, SERIAL, SIZE, WORK};
use crate::disk;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where the power fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Points {
    /// When the cache has just been flushed.
    Flushes,
    /// After any write.
    Anywhere,
}

/// A recorded event of a workload, or a mark.
pub enum Recorded {
    /// What the device was told.
    Event(Event),
    /// What had been done by then.
    Mark(Mark),
}

impl Recorded {
    /// The mark that it is.
    pub fn mark(&self) -> Option<&Mark> {
        match self {
            Recorded::Mark(mark) => Some(mark),
            Recorded::Event(_) => None,
        }
    }
}

/// Reads the disk with the recording, some of it at a time.
struct Recording {
    fd: OwnedFd,
    window: Aligned,
    start: u64,
    length: usize,
}

impl Recording {
    const WINDOW: usize = 256 << 10;

    fn open() -> Result<Recording> {
        let path = Path::new("/dev").join(disk::find(LOG)?);
        // The cache may have pages from before they were recorded.
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = open(&path, flags, Mode::empty());
        Ok(Recording {
            fd: fd.context(format!("cannot open {}", path.display()))?,
            window: Aligned::new(Self::WINDOW),
            start: 0,
            length: 0,
        })
    }
}

impl log::Source for Recording {
    fn read(&mut self, mut pos: u64, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            let skip = pos.wrapping_sub(self.start);
            if skip >= self.length as u64 {
                self.start = pos / 4096 * 4096;
                self.length = pread(&self.fd, self.window.bytes(), self.start)
                    .context("cannot read the recording")?;
                ensure!(
                    pos - self.start < self.length as u64,
                    "the recording is over"
                );
                continue;
            }
            let skip = skip as usize;
            let length = bytes.len().min(self.length - skip);
            let window = &self.window.bytes()[skip..skip + length];
            bytes[..length].copy_from_slice(window);
            bytes = &mut bytes[length..];
            pos += length as u64;
        }
        Ok(())
    }
}

/// What was recorded of a workload.
pub fn recorded(group: u64) -> Result<Vec<Recorded>> {
    let place = |label| -> Result<_> { Ok(disk::partition(SERIAL, label)?.place()?.1) };
    let (work, marks) = (place(WORK)?, place(MARKS)?);
    let work = work..work + SIZE;
    let marks = marks..marks + MARKS_SIZE;
    let (mut all, mut open) = (Vec::new(), false);
    let mut ended = false;
    log::read(
        &mut Recording::open()?,
        |pos, _| work.contains(&pos) || marks.contains(&pos),
        |event| {
            match event {
                Event::Write { pos, bytes, .. } if marks.contains(&pos) => {
                    let mark = Mark::decode(&bytes[..MARK.min(bytes.len())])?;
                    if mark.group == group {
                        open |= mark.op.kind == Kind::Begin;
                        ended |= mark.op.kind == Kind::End;
                        all.push(Recorded::Mark(mark));
                    }
                }
                Event::Write {
                    pos,
                    bytes,
                    durable,
                } if open => all.push(Recorded::Event(Event::Write {
                    pos: pos - work.start,
                    bytes,
                    durable,
                })),
                Event::Flush if open => all.push(Recorded::Event(event)),
                _ => {}
            }
            Ok(!ended)
        },
    )?;
    ensure!(ended, "the workload was not recorded to its end");
    Ok(all)
}

/// The numbers of the chosen points: the power fails after this many records.
pub fn choose(
    all: &[Recorded],
    points: Points,
    count: usize,
    random: &mut fastrand::Rng,
) -> Result<BTreeSet<usize>> {
    let ready = all
        .iter()
        .position(|record| matches!(record, Recorded::Mark(mark) if mark.op.kind == Kind::Ready));
    let ready = ready.context("the workload never began")?;
    let fits = |record: &Recorded| match (points, record) {
        (Points::Flushes, record) => matches!(record, Recorded::Event(Event::Flush)),
        (Points::Anywhere, record) => !matches!(record, Recorded::Event(Event::Flush)),
    };
    let numbers = ready + 1..all.len();
    let mut numbers: Vec<_> = numbers.filter(|number| fits(&all[*number])).collect();
    ensure!(!numbers.is_empty(), "nothing was recorded");
    random.shuffle(&mut numbers);
    Ok(numbers
        .into_iter()
        .take(count)
        .map(|number| number + 1)
        .collect())
}
