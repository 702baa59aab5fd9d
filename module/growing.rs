// SPDX-License-Identifier: GPL-2.0

//! Direct writes behind the end of a file: where they are, and in which order the file grows.

#![forbid(unsafe_code)]

use crate::Rext2;
use core::mem;
use kernel::{
    fs::{
        file::{Fill, Filled, Landed, WriteReq},
        nofs, INode, Offset,
    },
    prelude::*,
};

/// Direct writes that make a file grow.
#[derive(Default)]
pub(crate) struct Growing {
    writes: KVec<Place>,
    /// Where the last of those that are done ends.
    done: Offset,
    /// How many there are without an answer, those included that are done and wait for the file to
    /// grow.
    writers: usize,
}

/// A place in the list of writes.
enum Place {
    Free,
    /// A write is under way: where it starts and ends.
    Flying(Offset, Offset),
    /// A write in the background is done, and waits for the file to grow to its end.
    Landed(Offset, Landed<Rext2>),
}

/// A write behind the end of a file that is under way: where it starts and ends. It is to be given to
/// one of the functions below.
#[derive(Clone, Copy)]
pub(crate) struct Reserved {
    start: Offset,
    end: Offset,
}

/// A write that has found its place; or its request, without the lock, if it has to go another way.
type Reservation<'k> = core::result::Result<(Fill<'k, Rext2>, Reserved), WriteReq<'k, Rext2>>;

/// Finds the place of a write behind the end of the file, and says that it is under way.
pub(crate) fn reserve<'k>(mut fill: Fill<'k, Rext2>) -> Result<Reservation<'k>> {
    let file = fill.inode();
    let mut map = file.data().map();
    let growing = &mut map.growing;
    if fill.is_append() {
        let start = growing.end().max(file.size());
        fill = match fill.append_at(start) {
            Ok(fill) => fill,
            Err(req) => return Ok(Err(req)),
        };
    }
    let start = fill.start();
    let range = Reserved {
        start,
        end: start.saturating_add_unsigned(fill.byte_count() as u64),
    };
    nofs(|| growing.add(range))?;
    Ok(Ok((fill, range)))
}

/// Says that a write has failed.
pub(crate) fn retire(file: &INode<Rext2>, range: Reserved) {
    {
        let mut map = file.data().map();
        map.growing.land(range);
        map.growing.leave();
    }
    settle(file);
}

/// Makes the file grow to the end of a write, once all writes that began in front of that are done.
/// What was written ends at `end`.
pub(crate) fn grow(filled: &Filled<'_, Rext2>, range: Reserved, end: Offset) {
    let file = filled.inode();
    file.data().map().growing.finish(range, end);
    // Once, and not in the loop: those who wait would keep waking each other.
    settle(file);
    let mut map = file.data().map();
    while let Some(first) = map.growing.first_below(end) {
        filled.grow_size(first.min(map.growing.done));
        file.sb().data().grown.wait(&mut map);
    }
    filled.grow_size(end);
    map.growing.leave();
}

/// Does what [`grow`] does for a write that was done in the background. It gets its answer from the one
/// that it has waited for.
pub(crate) fn grow_later(file: &INode<Rext2>, write: Landed<Rext2>, range: Reserved, end: Offset) {
    file.data().map().growing.wait(range, end, write);
    settle(file);
}

/// Sees to those who have waited for a write that is done.
fn settle(file: &INode<Rext2>) {
    file.sb().data().grown.notify_all();
    loop {
        // Not with the lock: the answer may end in anything.
        let ready = file.data().map().growing.take_ready();
        match ready {
            Some(write) => {
                file.data().end_fill();
                write.answer();
            }
            None => break,
        }
    }
}

impl Growing {
    /// Where the last of the writes ends.
    fn end(&self) -> Offset {
        self.flying()
            .fold(self.done, |last, (_, end)| last.max(end))
    }

    /// The writes that are under way.
    fn flying(&self) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        self.writes.iter().filter_map(|place| match place {
            Place::Flying(start, end) => Some((*start, *end)),
            _ => None,
        })
    }

    /// Where the first write starts that is under way, if that is in front of `end`.
    fn first_below(&self, end: Offset) -> Option<Offset> {
        let starts = self.flying().map(|(start, _)| start);
        starts.filter(|&start| start < end).min()
    }

    /// Puts a write on the list.
    fn add(&mut self, range: Reserved) -> Result {
        let new = Place::Flying(range.start, range.end);
        match self.writes.iter_mut().find(|p| matches!(p, Place::Free)) {
            Some(place) => *place = new,
            None => self.writes.push(new, GFP_KERNEL)?,
        }
        self.writers += 1;
        Ok(())
    }

    /// The place of a write that is under way.
    fn place(&mut self, range: Reserved) -> Option<&mut Place> {
        let is_it = |place: &&mut Place| matches!(**place, Place::Flying(start, end) if (start, end) == (range.start, range.end));
        self.writes.iter_mut().find(is_it)
    }

    /// A write is not under way any more.
    fn land(&mut self, range: Reserved) {
        if let Some(place) = self.place(range) {
            *place = Place::Free;
        }
    }

    /// A write is done, up to `end`.
    fn finish(&mut self, range: Reserved, end: Offset) {
        self.done = self.done.max(end);
        self.land(range);
    }

    /// A write is done, up to `end`, and waits for the file to grow.
    fn wait(&mut self, range: Reserved, end: Offset, write: Landed<Rext2>) {
        self.done = self.done.max(end);
        if let Some(place) = self.place(range) {
            *place = Place::Landed(end, write);
        }
    }

    /// Takes a write that has waited long enough off the list. The file has grown to its end.
    fn take_ready(&mut self) -> Option<Landed<Rext2>> {
        let first = self.first_below(Offset::MAX).unwrap_or(Offset::MAX);
        let is_ready =
            |place: &&mut Place| matches!(**place, Place::Landed(end, _) if end <= first);
        let place = self.writes.iter_mut().find(is_ready)?;
        let Place::Landed(end, write) = mem::replace(place, Place::Free) else {
            return None;
        };
        write.grow_size(end);
        self.leave();
        Some(write)
    }

    /// Nothing is under way: the file is locked exclusively, and direct IO was waited for. Who has
    /// failed, and has not said so yet, does not matter for where the file ends any more.
    pub(crate) fn forget(&mut self) {
        for place in &mut self.writes {
            if let Place::Flying(..) = place {
                *place = Place::Free;
            }
        }
        self.done = 0;
    }

    /// A writer has its answer. As long as one waits, the size may be less than what is done, and
    /// the next append goes behind that.
    fn leave(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        if self.writers == 0 {
            self.done = 0;
        }
    }
}
