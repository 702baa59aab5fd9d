// SPDX-License-Identifier: GPL-2.0

//! The contents of a file, and which of them a crash may change.

use crate::pattern;
use anyhow::{Result, bail, ensure};
use std::ops::Range;

const PAGE: u64 = 4096;

/// A regular file. What is not loose was promised as it is.
#[derive(Clone, Debug, Default)]
pub struct Data {
    bytes: Vec<u8>,
    /// Blocks that surely have their place on the device; others may be holes.
    placed: Vec<bool>,
    /// What was changed since the last promise: it may hold anything.
    loose: Vec<Range<u64>>,
    /// The sizes since the last promise.
    least: u64,
    most: u64,
    block: u64,
}

impl Data {
    /// An empty file on a file system with blocks of this size.
    pub fn new(block: u64) -> Data {
        Data {
            block,
            ..Data::default()
        }
    }

    /// Its size.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it may be empty after a crash.
    pub fn may_be_empty(&self) -> bool {
        self.least == 0
    }

    /// Blocks that it takes, about.
    pub fn blocks(&self) -> u64 {
        self.placed.iter().filter(|placed| **placed).count() as u64
    }

    /// Whether all of it is promised.
    pub fn is_settled(&self) -> bool {
        self.loose.is_empty() && self.least == self.most
    }

    fn around(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block * self.block..range.end.next_multiple_of(self.block)
    }

    fn numbers(&self, range: &Range<u64>) -> Range<usize> {
        let around = self.around(range);
        (around.start / self.block) as usize..(around.end / self.block) as usize
    }

    fn sized(&mut self) {
        self.least = self.least.min(self.size());
        self.most = self.most.max(self.size());
    }

    /// Writes the data of number `id` to a range.
    pub fn write(&mut self, id: u16, range: Range<u64>) {
        let old = self.size();
        if range.end > old {
            self.loose.push(old..range.end);
            self.bytes.resize(range.end as usize, 0);
        }
        self.place(&range);
        let bytes = &mut self.bytes[range.start as usize..range.end as usize];
        pattern::fill(id, range.start, bytes);
        self.loose.push(range);
        self.sized();
    }

    /// The same through a mapping: the pages get all their blocks.
    pub fn write_mapped(&mut self, id: u16, range: Range<u64>) {
        let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
        self.place(&(pages.start..pages.end.min(self.size())));
        self.write(id, range);
    }

    /// Gives blocks their place on the device. Those that had none may be part of
    /// the file before they hold anything.
    fn place(&mut self, range: &Range<u64>) {
        let numbers = self.numbers(range);
        if self.placed.len() < numbers.end {
            self.placed.resize(numbers.end, false);
        }
        for number in numbers {
            if !std::mem::replace(&mut self.placed[number], true) {
                let start = number as u64 * self.block;
                self.loose.push(start..start + self.block);
            }
        }
    }

    /// Cuts it, or lets it grow.
    pub fn truncate(&mut self, size: u64) {
        let old = self.size();
        self.bytes.resize(size as usize, 0);
        let blocks = size.div_ceil(self.block) as usize;
        self.placed.truncate(blocks);
        if size != old {
            self.loose.push(size.min(old)..size.max(old));
        }
        self.sized();
    }

    /// Makes a hole.
    pub fn punch(&mut self, range: Range<u64>) {
        let range = range.start.min(self.size())..range.end.min(self.size());
        self.bytes[range.start as usize..range.end as usize].fill(0);
        for number in self.numbers(&range) {
            if let Some(placed) = self.placed.get_mut(number) {
                *placed = false;
            }
        }
        self.loose.push(range);
    }

    /// All of it is promised.
    pub fn settle(&mut self) {
        self.loose.clear();
        (self.least, self.most) = (self.size(), self.size());
    }

    /// A range is promised, and the size.
    pub fn settle_range(&mut self, range: Range<u64>) {
        let kept = self.around(&range);
        let loose = std::mem::take(&mut self.loose).into_iter();
        let parts = loose.flat_map(|loose| {
            [
                loose.start..loose.end.min(kept.start),
                loose.start.max(kept.end)..loose.end,
            ]
        });
        self.loose = parts.filter(|part| part.start < part.end).collect();
        (self.least, self.most) = (self.size(), self.size());
    }

    /// Fails unless these bytes may be what a crash has left.
    pub fn check(&self, found: &[u8]) -> Result<()> {
        let size = found.len() as u64;
        ensure!(
            size >= self.least,
            "its size is {size}, and {} is promised",
            self.least
        );
        // e2fsck makes a file as big as the blocks that it has.
        let most = match self.is_settled() {
            true => self.most,
            false => self.most.next_multiple_of(self.block),
        };
        ensure!(
            size <= most,
            "its size is {size}, and was never over {most}"
        );
        let mut loose = self.loose.clone();
        loose.sort_by_key(|range| range.start);
        loose.push(self.least..self.least);
        let mut pos = 0;
        for range in loose {
            let (start, end) = (pos, range.start.min(self.least));
            if start < end {
                self.compare(found, start as usize..end as usize)?;
            }
            pos = pos.max(range.end);
        }
        Ok(())
    }

    fn compare(&self, found: &[u8], range: Range<usize>) -> Result<()> {
        let (right, got) = (&self.bytes[range.clone()], &found[range.clone()]);
        if right == got {
            return Ok(());
        }
        let wrong = |at: &usize| right[*at] != got[*at];
        let first = (0..right.len()).find(wrong).unwrap_or(0);
        let count = (0..right.len()).filter(wrong).count();
        let pos = range.start + first;
        // The next whole word tells whose bytes these are.
        let word = pos.next_multiple_of(8);
        let show = |bytes: &[u8]| {
            let bytes = bytes.get(word..word + 8).or(bytes.get(pos..));
            pattern::describe(word as u64, bytes.unwrap_or_default())
        };
        bail!(
            "byte {pos} and {} more of {}..{} that were promised: {}, not {}",
            count - 1,
            range.start,
            range.end,
            show(found),
            show(&self.bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(id: u16, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        pattern::fill(id, range.start, &mut bytes);
        bytes
    }

    fn promised() -> Data {
        let mut data = Data::new(1024);
        data.write(1, 0..4096);
        data.settle();
        data
    }

    #[test]
    fn what_is_promised_has_to_be_there() {
        let data = promised();
        let mut found = bytes(1, 0..4096);
        data.check(&found).unwrap();
        found[4095] ^= 1;
        assert!(data.check(&found).is_err(), "a byte differs");
        assert!(data.check(&bytes(1, 0..4095)).is_err(), "it is shorter");
        assert!(data.check(&bytes(1, 0..4097)).is_err(), "it is longer");
        assert!(data.check(&pattern::STALE.repeat(512)).is_err(), "stale");
    }

    #[test]
    fn what_is_not_promised_may_be_anything() {
        let mut data = promised();
        data.write(2, 1000..2000);
        data.write(3, 5000..6000);
        let mut found = bytes(1, 0..4096);
        data.check(&found).unwrap();
        found[1000..2000].fill(7);
        data.check(&found).unwrap();
        found.resize(6144, 8);
        data.check(&found).unwrap();
        assert!(data.check(&[&found[..], &[1]].concat()).is_err());
        found[2000] ^= 1;
        assert!(data.check(&found).is_err(), "the write ended before");
    }

    #[test]
    fn a_range_may_be_promised_without_the_rest() {
        let mut data = promised();
        data.write(2, 0..512);
        data.write(3, 8192..9216);
        data.settle_range(8192..9216);
        let mut found = bytes(1, 0..4096);
        assert!(data.check(&found).is_err(), "the size was promised");
        found.resize(9216, 0);
        assert!(data.check(&found).is_err(), "the range was promised");
        found[8192..].copy_from_slice(&bytes(3, 8192..9216));
        data.check(&found).unwrap();
        found[..512].fill(9);
        found[4096..8192].fill(9);
        data.check(&found).unwrap();
    }

    #[test]
    fn a_hole_may_show_its_new_block_before_that_is_promised() {
        let mut data = promised();
        data.punch(1024..3072);
        data.settle();
        data.write(2, 1100..1200);
        let mut found = bytes(1, 0..4096);
        found[1024..3072].fill(0);
        data.check(&found).unwrap();
        found[1024..2048].fill(3);
        data.check(&found).unwrap();
        found[2048] = 3;
        assert!(data.check(&found).is_err(), "no block of the write");
    }

    #[test]
    fn a_store_to_a_mapping_fills_the_holes_of_its_page() {
        let mut data = promised();
        data.punch(0..4096);
        data.settle();
        data.write_mapped(2, 1100..1200);
        data.check(&pattern::STALE.repeat(512)).unwrap();
        data.settle_range(1100..1200);
        assert!(data.check(&pattern::STALE.repeat(512)).is_err());
    }

    #[test]
    fn truncation_lets_go_of_what_was_behind_it() {
        let mut data = promised();
        data.truncate(1500);
        data.check(&bytes(1, 0..4096)).unwrap();
        data.check(&bytes(1, 0..1500)).unwrap();
        assert!(data.check(&bytes(1, 0..1499)).is_err());
        data.settle();
        assert!(data.check(&bytes(1, 0..4096)).is_err());
        data.truncate(3000);
        data.settle();
        let mut found = bytes(1, 0..1500);
        found.resize(3000, 0);
        data.check(&found).unwrap();
        found[1500] = 1;
        assert!(data.check(&found).is_err(), "not zero behind the old end");
    }
}
