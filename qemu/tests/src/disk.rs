// SPDX-License-Identifier: GPL-2.0

//! Disks, found by the serial the job gave them, and their partitions, found
//! by label.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const BLOCK: &str = "/sys/block";

/// A partition.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The device node.
    pub device: PathBuf,
    /// The kernel's name for it, as in log lines.
    pub name: String,
}

impl Partition {
    /// The disk that it is part of, and its first byte there; of a whole disk,
    /// itself.
    pub fn place(&self) -> Result<(PathBuf, u64)> {
        let path = Path::new("/sys/class/block").join(&self.name);
        if !path.join("partition").exists() {
            return Ok((self.device.clone(), 0));
        }
        let number = fs::read_to_string(path.join("start")).context("it is no partition")?;
        let start: u64 = number.trim().parse().context("bad start of a partition")?;
        let folder = fs::canonicalize(&path).context("cannot find its disk")?;
        let disk = folder.parent().and_then(Path::file_name);
        let disk = disk.context("a partition without a disk")?;
        Ok((Path::new("/dev").join(disk), start * 512))
    }
}

/// The kernel's name of the disk with this serial.
pub fn find(serial: &str) -> Result<String> {
    for entry in fs::read_dir(BLOCK).context(format!("cannot list {BLOCK}"))? {
        let entry = entry.context(format!("cannot list {BLOCK}"))?;
        // Only some kinds of disks have a serial.
        let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
        if found.trim() == serial {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("no disk has the serial {serial:?}");
}

/// The partition with this label on the disk with this serial.
pub fn partition(serial: &str, label: &str) -> Result<Partition> {
    let disk = find(serial)?;
    let folder = Path::new(BLOCK).join(&disk);
    for entry in fs::read_dir(&folder).context(format!("cannot list {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&disk) {
            continue;
        }
        let path = folder.join(&name).join("uevent");
        let text = fs::read_to_string(&path).context(format!("cannot read {}", path.display()))?;
        if text
            .lines()
            .any(|line| line.strip_prefix("PARTNAME=") == Some(label))
        {
            return Ok(Partition {
                device: Path::new("/dev").join(&name),
                name,
            });
        }
    }
    bail!("disk {disk} (serial {serial:?}) has no partition {label:?}");
}
