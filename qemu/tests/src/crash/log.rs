// SPDX-License-Identifier: GPL-2.0

//! The log of a device, in the format of dm-log-writes, as QEMU's driver
//! `blklogwrites` writes it; and what a device may hold when its power fails.

use anyhow::{Context, Result, bail, ensure};
use std::fmt;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// Bytes of an entry's head, before it is filled up to a sector.
const HEAD: usize = 32;
/// Addresses are in sectors, whatever the size of a sector of the log.
const SECTOR: u64 = 512;

/// Where the log comes from.
pub trait Source {
    /// Reads bytes at a position.
    fn read(&mut self, pos: u64, bytes: &mut [u8]) -> Result<()>;
}

/// What a device was told, in the order in which it was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// All that was written before must outlive a loss of power.
    Flush,
    /// Bytes were written.
    Write {
        /// Where.
        pos: u64,
        /// Which.
        bytes: Vec<u8>,
        /// Whether they outlive a loss of power at once.
        durable: bool,
    },
}

/// Reads a log; `wants` says from the place and length of a write whether it
/// matters. The events go to `tell`, which ends the reading with false.
pub fn read(
    source: &mut impl Source,
    wants: impl Fn(u64, u64) -> bool,
    mut tell: impl FnMut(Event) -> Result<bool>,
) -> Result<()> {
    let mut head = [0; HEAD];
    source.read(0, &mut head)?;
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("these are 8 bytes");
        u64::from_le_bytes(bytes)
    };
    ensure!(word(&head, 0) == MAGIC, "this is no log of a device");
    ensure!(word(&head, 8) == 1, "a log of version {}", word(&head, 8));
    let count = word(&head, 16);
    let sector = word(&head, 24) & u64::from(u32::MAX);
    ensure!(sector >= SECTOR, "sectors of {sector} bytes");
    let mut pos = sector;
    for number in 0..count {
        source
            .read(pos, &mut head)
            .context(format!("cannot read entry {number}"))?;
        pos += sector;
        // QEMU counts both in sectors of the log.
        let (start, length) = (word(&head, 0) * sector, word(&head, 8) * sector);
        let flags = word(&head, 16);
        ensure!(flags & DISCARD == 0, "entry {number} discards");
        if flags & FLUSH != 0 && !tell(Event::Flush)? {
            return Ok(());
        }
        if length == 0 {
            continue;
        }
        if wants(start, length) {
            let mut bytes = vec![0; length as usize];
            source
                .read(pos, &mut bytes)
                .context(format!("cannot read the data of entry {number}"))?;
            let durable = flags & FUA != 0;
            let write = Event::Write {
                pos: start,
                bytes,
                durable,
            };
            if !tell(write)? {
                return Ok(());
            }
        }
        pos += length;
    }
    Ok(())
}

/// How much of what was not flushed a device has when its power fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// All that it was told.
    Nothing,
    /// Only what was flushed.
    Everything,
    /// Each block arrives with this probability in percent.
    Some(u8),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Nothing => f.write_str("everything"),
            Loss::Everything => f.write_str("nothing"),
            Loss::Some(percent) => write!(f, "{percent} % of the blocks"),
        }
    }
}

/// A device with a cache that is lost with the power.
pub struct Medium {
    durable: Vec<u8>,
    cached: Vec<(usize, Vec<u8>)>,
}

impl Medium {
    /// One of this size, full of zeros.
    pub fn new(size: usize) -> Medium {
        Medium {
            durable: vec![0; size],
            cached: Vec::new(),
        }
    }

    /// Does what the device was told.
    pub fn tell(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Flush => {
                for (pos, bytes) in std::mem::take(&mut self.cached) {
                    self.durable[pos..pos + bytes.len()].copy_from_slice(&bytes);
                }
            }
            Event::Write {
                pos,
                bytes,
                durable,
            } => {
                let pos = usize::try_from(*pos)?;
                if pos + bytes.len() > self.durable.len() {
                    bail!("a write of {} bytes at {pos}, behind the end", bytes.len());
                }
                if *durable {
                    self.durable[pos..pos + bytes.len()].copy_from_slice(bytes);
                    // What the cache has of these blocks is older.
                    let (start, end) = (pos, pos + bytes.len());
                    for (at, old) in &mut self.cached {
                        let (from, to) = (start.max(*at), end.min(*at + old.len()));
                        if from < to {
                            let part = &bytes[from - start..to - start];
                            old[from - *at..to - *at].copy_from_slice(part);
                        }
                    }
                } else {
                    self.cached.push((pos, bytes.clone()));
                }
            }
        }
        Ok(())
    }

    /// What is left when the power fails. Writes reach the medium block by block,
    /// in any order; of two to the same block the later one counts, if it did.
    pub fn crash(&self, loss: Loss, block: usize, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut left = self.durable.clone();
        for (pos, bytes) in &self.cached {
            for (number, part) in bytes.chunks(block).enumerate() {
                let arrives = match loss {
                    Loss::Nothing => true,
                    Loss::Everything => false,
                    Loss::Some(percent) => random.u8(0..100) < percent,
                };
                if arrives {
                    let at = pos + number * block;
                    left[at..at + part.len()].copy_from_slice(part);
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log made by hand.
    struct Made(Vec<u8>);

    impl Made {
        fn new(sector: usize, entries: &[(u64, u64, &[u8])]) -> Made {
            let mut bytes = Vec::new();
            let count = entries.len() as u64;
            let words = [MAGIC, 1, count, sector as u64];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            bytes.resize(sector, 0);
            for (start, flags, data) in entries {
                let size = (data.len() / sector) as u64;
                let words = [*start, size, *flags, 0];
                bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                bytes.resize(bytes.len().next_multiple_of(sector), 0);
                bytes.extend_from_slice(data);
            }
            Made(bytes)
        }

        fn events(&mut self) -> Result<Vec<Event>> {
            let mut events = Vec::new();
            read(
                self,
                |_, _| true,
                |event| {
                    events.push(event);
                    Ok(true)
                },
            )?;
            Ok(events)
        }
    }

    impl Source for Made {
        fn read(&mut self, pos: u64, bytes: &mut [u8]) -> Result<()> {
            let pos = pos as usize;
            let found = self.0.get(pos..pos + bytes.len()).context("it is over")?;
            bytes.copy_from_slice(found);
            Ok(())
        }
    }

    fn write(pos: u64, byte: u8, length: usize) -> Event {
        Event::Write {
            pos,
            bytes: vec![byte; length],
            durable: false,
        }
    }

    #[test]
    fn a_log_is_read_entry_by_entry() {
        let mut log = Made::new(
            512,
            &[(2, 0, &[1; 1024]), (0, FLUSH, &[]), (5, FUA, &[2; 512])],
        );
        let fua = Event::Write {
            pos: 5 * 512,
            bytes: vec![2; 512],
            durable: true,
        };
        assert_eq!(
            log.events().unwrap(),
            [write(1024, 1, 1024), Event::Flush, fua]
        );
    }

    #[test]
    fn what_is_no_whole_log_is_refused() {
        assert!(Made(vec![0; 4096]).events().is_err());
        let mut log = Made::new(512, &[(2, 0, &[1; 1024])]);
        log.0.truncate(1100);
        assert!(log.events().is_err());
        assert!(Made::new(512, &[(0, DISCARD, &[])]).events().is_err());
    }

    #[test]
    fn what_was_flushed_is_there_and_the_rest_may_be() {
        let mut medium = Medium::new(4096);
        for event in [write(0, 1, 1024), Event::Flush, write(512, 2, 1024)] {
            medium.tell(&event).unwrap();
        }
        let mut random = fastrand::Rng::with_seed(1);
        let all = medium.crash(Loss::Nothing, 512, &mut random);
        assert_eq!((all[511], all[512], all[1535]), (1, 2, 2));
        let none = medium.crash(Loss::Everything, 512, &mut random);
        assert_eq!((none[1023], none[1024]), (1, 0));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let some = medium.crash(Loss::Some(50), 512, &mut random);
            assert_eq!(some[0], 1);
            assert_eq!(some[512], some[1023], "half of a block arrived");
            seen.insert((some[512], some[1024]));
        }
        assert_eq!(seen.len(), 4, "each subset comes");
    }

    #[test]
    fn a_durable_write_is_not_undone_by_an_older_one() {
        let mut medium = Medium::new(1024);
        medium.tell(&write(0, 1, 1024)).unwrap();
        medium
            .tell(&Event::Write {
                pos: 0,
                bytes: vec![2; 512],
                durable: true,
            })
            .unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(50)] {
            assert_eq!(medium.crash(loss, 512, &mut random)[0], 2);
        }
        assert!(medium.tell(&write(1024, 3, 512)).is_err());
    }
}
