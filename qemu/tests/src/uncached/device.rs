// SPDX-License-Identifier: GPL-2.0

//! Devices by the context in which they complete a write, each with a file
//! system on it: dropping folios must work from all of them.

use super::fs::Fs;
use crate::walk::Aligned;
use crate::{disk, kernel, mount};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{pread, pwrite};
use std::fs;
use std::path::{Path, PathBuf};

/// Where null_blk's devices are made.
const NULL_BLK: &str = "/sys/kernel/config/nullb";
/// The ram disk.
const RAM: &str = "ram0";
/// How long the slow device takes for any request, in milliseconds.
pub const SLOW_MS: u64 = 200;

/// The context in which a device completes requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// brd: in the task that submits, before submit_bio() returns.
    Inline,
    /// null_blk, irqmode=1, one queue: in a softirq.
    Softirq,
    /// virtio-blk with a queue for each processor: in a hardirq.
    Hardirq,
    /// null_blk, irqmode=2: in a timer's hardirq, [`SLOW_MS`] later.
    Slow,
}

impl Class {
    /// Its name in tests.
    pub fn name(self) -> &'static str {
        match self {
            Class::Inline => "inline",
            Class::Softirq => "softirq",
            Class::Hardirq => "hardirq",
            Class::Slow => "slow",
        }
    }
}

/// The node of the device of this class for a file system like `fs`.
pub fn path(class: Class, fs: &Fs) -> Result<PathBuf> {
    let name = match class {
        Class::Hardirq => disk::find(fs.name)?,
        Class::Inline => RAM.to_owned(),
        Class::Softirq | Class::Slow => format!("{}-{}", class.name(), fs.name),
    };
    Ok(Path::new("/dev").join(name))
}

/// The device of this class that holds a file system like `fs`: the virtio
/// disk itself, or a copy of it in memory, made when it is not there yet.
pub fn ready(class: Class, fs: &Fs) -> Result<PathBuf> {
    let device = path(class, fs)?;
    if class == Class::Hardirq {
        return Ok(device);
    }
    let disk = path(Class::Hardirq, fs)?;
    let name = device.file_name().context("a device without name")?;
    let name = name.to_string_lossy().into_owned();
    if fs::read_to_string(note(&name)).is_ok_and(|holds| holds == fs.name) {
        return Ok(device);
    }
    forget(class)?;
    match class {
        Class::Inline => {
            let params = format!("rd_nr=1 rd_size={}", fs.mib << 10);
            kernel::insert_with("brd", &params).context("cannot insert brd")?;
            copy(&disk, &device)?;
        }
        _ => {
            // The copy need not wait for interrupts.
            make_null(&name, &[("size", fs.mib), ("irqmode", 0)])?;
            copy(&disk, &device)?;
            set(&name, "power", 0)?;
            if class == Class::Slow {
                set(&name, "irqmode", 2)?;
                set(&name, "completion_nsec", SLOW_MS * 1_000_000)?;
            } else {
                set(&name, "irqmode", 1)?;
            }
            set(&name, "power", 1)?;
        }
    }
    fs::write(note(&name), fs.name).context("cannot note what a device holds")?;
    Ok(device)
}

/// Makes a device of null_blk, in memory and with one queue, that has these
/// attributes, too.
pub fn make_null(name: &str, attributes: &[(&str, u64)]) -> Result<()> {
    if !kernel::is_inserted("null_blk") {
        let inserted = kernel::insert_with("null_blk", "nr_devices=0");
        inserted.context("cannot insert null_blk")?;
    }
    let folder = Path::new(NULL_BLK).join(name);
    fs::create_dir(&folder).context(format!("cannot make {}", folder.display()))?;
    set(name, "memory_backed", 1)?;
    set(name, "submit_queues", 1)?;
    for (attribute, value) in attributes {
        set(name, attribute, *value)?;
    }
    set(name, "power", 1)
}

/// Removes a device of null_blk and gives its memory back.
pub fn remove_null(name: &str) -> Result<()> {
    set(name, "power", 0)?;
    let folder = Path::new(NULL_BLK).join(name);
    fs::remove_dir(folder).context(format!("cannot remove {name}"))
}

/// Makes null_blk's device fail requests that touch these sectors, or no more.
pub fn set_bad(device: &Path, bad: bool, first: u64, last: u64) -> Result<()> {
    let name = device.file_name().context("a device without name")?;
    let sign = if bad { '+' } else { '-' };
    let text = format!("{sign}{first}-{last}");
    fs::write(Path::new(NULL_BLK).join(name).join("badblocks"), text)
        .context("cannot set bad sectors")
}

/// The writes and the flushes that a disk has done since it is there.
pub fn writes(device: &Path) -> Result<(u64, u64)> {
    let name = device.file_name().context("a device without name")?;
    let path = Path::new("/sys/class/block").join(name).join("stat");
    let text = fs::read_to_string(&path).context(format!("cannot read {}", path.display()))?;
    let fields: Vec<_> = text.split_whitespace().map(str::parse).collect();
    match (fields.get(4), fields.get(15)) {
        (Some(Ok(writes)), Some(Ok(flushes))) => Ok((*writes, *flushes)),
        _ => bail!("cannot parse {}", path.display()),
    }
}

/// Forgets that a device holds a copy of a disk; the next test makes a new one.
pub fn spoil(device: &Path) -> Result<()> {
    let name = device.file_name().context("a device without name")?;
    let note = note(&name.to_string_lossy());
    fs::remove_file(&note).context(format!("cannot remove {}", note.display()))
}

/// The file that says what a device holds.
fn note(device: &str) -> PathBuf {
    Path::new(mount::ROOT).join(format!(".{device}"))
}

/// Gives back the memory of the devices of this class.
fn forget(class: Class) -> Result<()> {
    if class == Class::Inline {
        if kernel::is_inserted("brd") {
            kernel::remove("brd").context("cannot remove brd")?;
        }
        return Ok(());
    }
    // Not there before the module is.
    for entry in fs::read_dir(NULL_BLK).into_iter().flatten() {
        let entry = entry.context(format!("cannot list {NULL_BLK}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(class.name()) {
            // Without a note it is not taken for a good copy.
            let _ = fs::remove_file(note(&name));
            remove_null(&name)?;
        }
    }
    Ok(())
}

fn set(name: &str, attribute: &str, value: u64) -> Result<()> {
    let path = Path::new(NULL_BLK).join(name).join(attribute);
    fs::write(&path, value.to_string()).context(format!("cannot set {}", path.display()))
}

/// Copies all that is not zero.
fn copy(from: &Path, to: &Path) -> Result<()> {
    const PART: usize = 64 << 10;
    let open = |path: &Path, flags| {
        // Exclusive: a file system that is mounted is no good source.
        let flags = flags | OFlags::DIRECT | OFlags::EXCL;
        open(path, flags, Mode::empty()).context(format!("cannot open {}", path.display()))
    };
    let (source, target) = (open(from, OFlags::RDONLY)?, open(to, OFlags::RDWR)?);
    let zeros = vec![0; PART];
    let mut buffer = Aligned::new(1 << 20);
    let mut pos = 0;
    loop {
        let length = pread(&source, buffer.bytes(), pos).context("cannot read a disk")?;
        if length == 0 {
            return Ok(());
        }
        for (part, at) in buffer.bytes()[..length]
            .chunks(PART)
            .zip((pos..).step_by(PART))
        {
            if part != &zeros[..part.len()] {
                let done = pwrite(&target, part, at).context("cannot write a disk")?;
                ensure!(done == part.len(), "{} is too small", to.display());
            }
        }
        pos += length as u64;
    }
}
