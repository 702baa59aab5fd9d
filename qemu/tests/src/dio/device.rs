// SPDX-License-Identifier: GPL-2.0

//! The device: a partition behind device-mapper, which answers at once, late, or
//! with errors in a range.

use crate::disk::{self, Partition};
use crate::fs::env::tool;
use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

const SERIAL: &str = "dio";
const NAME: &str = "slow";
const SECTOR: u64 = 512;

/// A device-mapper device over the whole partition.
pub struct Device {
    name: String,
    below: PathBuf,
    sectors: u64,
}

impl Device {
    /// Makes it, answering at once.
    pub fn make() -> Result<Device> {
        // A case that died may have left it.
        let _ = tool(
            "dmsetup",
            &["remove", "--noudevsync", "--noudevrules", NAME],
        );
        let below = disk::partition(SERIAL, "work")?.device;
        let fd = open(&below, OFlags::RDONLY, Mode::empty()).context("cannot open the disk")?;
        let sectors = seek(&fd, SeekFrom::End(0)).context("cannot seek the disk")? / SECTOR;
        let table = format!("0 {sectors} linear {} 0", below.display());
        let make = [
            "create",
            "--noudevsync",
            "--noudevrules",
            NAME,
            "--table",
            &table,
        ];
        tool("dmsetup", &make)?;
        let listed = tool(
            "dmsetup",
            &["info", "-c", "--noheadings", "-o", "minor", NAME],
        )?;
        Ok(Device {
            name: format!("dm-{}", listed.trim()),
            below,
            sectors,
        })
    }

    /// As the place of a file system.
    pub fn partition(&self) -> Partition {
        Partition {
            device: PathBuf::from("/dev").join(&self.name),
            name: self.name.clone(),
        }
    }

    /// From now on it answers at once.
    pub fn quick(&self) -> Result<()> {
        self.load(&format!(
            "0 {} linear {} 0",
            self.sectors,
            self.below.display()
        ))
    }

    /// From now on each write takes so long.
    pub fn slow(&self, ms: u64) -> Result<()> {
        if ms == 0 {
            return self.quick();
        }
        let below = self.below.display();
        self.load(&format!(
            "0 {} delay {below} 0 0 {below} 0 {ms}",
            self.sectors
        ))
    }

    /// From now on writes to these bytes fail; the others take so long.
    pub fn failing(&self, bytes: Range<u64>, ms: u64) -> Result<()> {
        let below = self.below.display();
        let (first, last) = (bytes.start / SECTOR, bytes.end.div_ceil(SECTOR));
        let delayed = |from: u64, to: u64| {
            format!(
                "{from} {} delay {below} {from} 0 {below} {from} {ms}\n",
                to - from
            )
        };
        let mut table = String::new();
        if first > 0 {
            table.push_str(&delayed(0, first));
        }
        table.push_str(&format!(
            "{first} {} flakey {below} {first} 0 1 1 error_writes\n",
            last - first
        ));
        if last < self.sectors {
            table.push_str(&delayed(last, self.sectors));
        }
        self.load(&table)
    }

    fn load(&self, table: &str) -> Result<()> {
        let path = "/tmp/dm-table";
        fs::write(path, table).context(format!("cannot write {path}"))?;
        let quiet = ["--noudevsync", "--noudevrules"];
        // Nothing is lost: what is on its way is waited for.
        tool(
            "dmsetup",
            &[&["suspend", "--nolockfs"], &quiet[..], &[NAME]].concat(),
        )?;
        let loaded = tool("dmsetup", &[&["load"], &quiet[..], &[NAME, path]].concat());
        tool("dmsetup", &[&["resume"], &quiet[..], &[NAME]].concat())?;
        loaded.map(|_| ())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Still mounted if the case has failed; the next one tries again.
        let _ = tool(
            "dmsetup",
            &["remove", "--noudevsync", "--noudevrules", NAME],
        );
    }
}
