// SPDX-License-Identifier: GPL-2.0

//! Row E2: a device that fails all writes every other second, below writers that
//! do not care. Nothing hangs, no data of others shows, and the file system's own
//! checker makes it whole again.

use super::device::{self, Class};
use super::env::{Env, PART, SMALL, Sample, UNCACHED};
use super::fs::Fs;
use crate::case::{Case, Group};
use crate::fs::env::tool;
use crate::job::Job;
use crate::mount::Mount;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, SeekFrom, fsync, ftruncate, open, seek};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Who is put to this: journals of two kinds and none, on buffer heads and iomap.
/// Not the C ext2, which warns of link counts and buffers, also without uncached IO.
const ON: &[&str] = &["ext4-4k", "ext4-nojournal", "xfs", "rext2-4k"];
/// The device's name.
const NAME: &str = "flakey";
/// How long each mount is used at least: the device fails after one second.
const ROUND: Duration = Duration::from_secs(2);
/// How often it is mounted.
const ROUNDS: u32 = 2;
/// What all writers write.
const BYTE: u8 = 0xa5;
/// Without udev, which the guest does not have.
const ALONE: [&str; 2] = ["--noudevsync", "--noudevrules"];

/// A group with the row of each of the file systems.
pub fn groups() -> Vec<Group> {
    let chosen = super::fs::ALL.iter().filter(|fs| ON.contains(&fs.name));
    let group = |fs: &'static Fs| Group {
        name: format!("flakey/{}", fs.name),
        cases: vec![
            Case::new("E2-failing-writes", move |job: &Job| row(job, fs))
                .limit(super::races::LIMIT),
        ],
    };
    chosen.map(group).collect()
}

/// A device-mapper device that writes through for a second and fails for one.
struct Flakey(PathBuf);

impl Flakey {
    fn make(below: &Path) -> Result<Flakey> {
        // A case that died may have left it.
        let _ = tool("dmsetup", &[&["remove"], &ALONE[..], &[NAME]].concat());
        let fd = open(below, OFlags::RDONLY, Mode::empty()).context("cannot open a device")?;
        let sectors = seek(&fd, SeekFrom::End(0)).context("cannot seek a device")? / 512;
        let table = format!(
            "0 {sectors} flakey {} 0 1 1 1 error_writes",
            below.display()
        );
        let create = [&["create"], &ALONE[..], &[NAME, "--table", &table]].concat();
        tool("dmsetup", &create)?;
        let minor = ["info", "-c", "--noheadings", "-o", "minor", NAME];
        let minor = tool("dmsetup", &minor)?;
        Ok(Flakey(format!("/dev/dm-{}", minor.trim()).into()))
    }

    /// Mounts what is on it as soon as it lets that happen.
    fn mount(&self, fs: &Fs) -> Result<Mount> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match Mount::with(&self.0, fs.kind, NAME, MountFlags::NOATIME, fs.options) {
                Ok(mount) => return Ok(mount),
                Err(error) if Instant::now() > end => {
                    return Err(error).context("cannot be mounted again");
                }
                Err(_) => sleep(Duration::from_millis(100)),
            }
        }
    }

    fn remove(self) -> Result<()> {
        tool("dmsetup", &[&["remove"], &ALONE[..], &[NAME]].concat()).map(|_| ())
    }
}

/// How the calls of one writer ended.
#[derive(Default)]
struct Ends {
    good: u32,
    failed: u32,
}

fn row(job: &Job, fs: &'static Fs) -> Result<()> {
    // What another case has left mounted would be below ours.
    Env::new(job, fs, Class::Softirq)?.finish()?;
    let below = device::ready(Class::Softirq, fs)?;
    // From now on it is no copy of the disk any more.
    device::spoil(&below)?;
    let flakey = Flakey::make(&below)?;
    let time = Duration::from_secs_f64(job.get_or("seconds", 1.0)?).max(ROUND);
    for round in 0..ROUNDS {
        let mount = flakey.mount(fs).context(format!("mount {round}"))?;
        let seed = job.get_or("seed", 1)? + u64::from(round);
        let ends = writers(fs, mount.path(), time, seed)?;
        let (good, failed) = ends.iter().fold((0, 0), |(good, failed), ends| {
            (good + ends.good, failed + ends.failed)
        });
        println!("mount {round}: {good} calls succeeded, {failed} failed");
        ensure!(good > 0, "nothing could be written");
        ensure!(failed > 0, "no write failed, so the row shows nothing");
        mount.close()?;
    }
    flakey.remove()?;
    check(fs, &below)
}

/// Writers and readers of a file each, until the time is up.
fn writers(fs: &Fs, folder: &Path, time: Duration, seed: u64) -> Result<Vec<Ends>> {
    let end = Instant::now() + time;
    scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let path = folder.join(format!("file{number}"));
                let mut random = fastrand::Rng::with_seed(seed * 100 + number);
                scope.spawn(move || {
                    let mut ends = Ends::default();
                    while Instant::now() < end {
                        match turn(fs, &path, &mut random)? {
                            Ok(()) => ends.good += 1,
                            Err(_) => ends.failed += 1,
                        }
                    }
                    anyhow::Ok(ends)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let joined = thread.join();
            joined.map_err(|_| anyhow::anyhow!("a writer panicked"))?
        });
        joined.collect()
    })
}

/// One of many things that end in writes. That it fails is expected; that a read
/// shows what nobody wrote is not.
fn turn(fs: &Fs, path: &Path, random: &mut fastrand::Rng) -> Result<Result<(), Errno>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::from(0o644)) {
        Ok(fd) => Sample {
            file: File::from(fd),
        },
        Err(error) => return Ok(Err(error)),
    };
    let pos = random.u64(0..SMALL);
    let bytes = vec![BYTE; random.usize(1..PART)];
    Ok(match random.u32(0..10) {
        0..=4 => super::write_at(&file.file, pos, &bytes, UNCACHED).map(|_| ()),
        5 | 6 => match file.read(pos, bytes.len(), UNCACHED) {
            Err(error) => Err(error),
            Ok(bytes) => {
                let strange = bytes.iter().any(|byte| ![0, BYTE].contains(byte));
                ensure!(!(hides(fs) && strange), "a read shows what nobody wrote");
                Ok(())
            }
        },
        7 => ftruncate(&file.file, pos),
        8 => fsync(&file.file),
        _ => {
            let other = path.with_extension("renamed");
            fs::rename(path, &other)
                .and_then(|()| fs::remove_file(&other))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    })
}

/// Whether a file system promises after failed writes that a file shows nothing that was not written
/// to it. Without unwritten blocks, those of a write that has failed show what they held before.
/// Without a journal, metadata that failed to be written is read again as it was before: a block that
/// was freed meanwhile has two owners then, until it is checked. Neither is about uncached IO.
fn hides(fs: &Fs) -> bool {
    matches!(fs.fallocate, super::fs::Fallocate::All) && !fs.make.contains(&"^has_journal")
}

/// A mount of the device when it is well again does what journals are for; then
/// the checker finds nothing more, or nothing after it has repaired what it can.
fn check(fs: &Fs, device: &Path) -> Result<()> {
    let mount = Mount::with(device, fs.kind, NAME, MountFlags::NOATIME, fs.options);
    mount
        .context("cannot be mounted when writes succeed again")?
        .close()?;
    let device = device.display().to_string();
    if fs.kind == "xfs" {
        return tool("xfs_repair", &["-n", &device]).map(|_| ());
    }
    // Its exit status tells of repairs, too.
    let repaired = tool("e2fsck", &["-fy", &device]);
    let found = tool("e2fsck", &["-fn", &device]);
    found.map(|_| ()).with_context(|| match repaired {
        Ok(_) => "e2fsck found nothing, then something".to_owned(),
        Err(error) => format!("e2fsck repaired {error:#}"),
    })
}
