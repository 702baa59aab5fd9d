// SPDX-License-Identifier: GPL-2.0

//! `timeline`: how fast a large file is read and written while the page cache
//! fills memory, plainly and with `RWF_UNCACHED`, interval by interval.
//!
//! Each file system of `on=` is made anew on a device of null_blk, which lies in
//! the guest's own memory and completes in softirq. The file is read twice, and
//! then written twice, the second time over the same blocks; for the page cache
//! there is room for a part of it only. A line for each interval goes to standard
//! output, with tabs between: file system, operation, mode, bytes, nanoseconds,
//! nanoseconds of kswapd, pages that reclaim has looked at and has taken, bytes
//! that came from the device, pages of the file that are cached now.
//!
//! Other values: `only=` takes the series whose names, such as `read-uncached`,
//! contain the text; `room=` is what is left to the page cache, in MiB.

use crate::cost::device::{fill, make};
use crate::job::Job;
use crate::mount::Mount;
use crate::uncached::device::{make_null, remove_null};
use crate::uncached::env::{Sample, counter, read_bytes};
use crate::uncached::{PLAIN, UNCACHED, read_at, write_at};
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is measured unless `on=` says otherwise.
const ON: &str = "ext4,xfs,rext2";
/// The device, and its size in MiB: the file, a log of xfs, and what is between.
const NAME: &str = "timeline";
const DEVICE: u64 = 576;
/// The file in MiB.
const FILE: u64 = 450;
/// Memory in MiB that is left to the page cache: so little that the second pass
/// finds nothing that the first one has left.
const ROOM: u64 = 256;
/// One interval in MiB.
const INTERVAL: u64 = 64;
/// One call.
const PART: usize = 64 << 10;
/// How often the file is read or written.
const PASSES: u64 = 2;

/// What has been used up to a moment.
#[derive(Clone, Copy)]
struct Used {
    kswapd: Duration,
    scanned: u64,
    taken: u64,
    device: u64,
}

/// One operation, in one of its two modes.
struct Series<'a> {
    fs: &'a str,
    write: bool,
    uncached: bool,
}

/// Measures and prints.
pub fn run(job: &Job) -> Result<()> {
    // Otherwise kswapd goes on to take pages when it has enough of them.
    set("/proc/sys/vm/watermark_boost_factor", "0")?;
    let kswapd = kswapd()?;
    for fs in job.get("on").unwrap_or(ON).split(',') {
        one(job, fs, kswapd).context(fs.to_owned())?;
    }
    Ok(())
}

fn one(job: &Job, fs: &str, kswapd: ClockId) -> Result<()> {
    let only = job.get("only").unwrap_or_default();
    let room = job.get_or("room", ROOM)?;
    let attributes = [("size", DEVICE), ("irqmode", 1), ("blocksize", 4096)];
    make_null(NAME, &attributes)?;
    let node = Path::new("/dev").join(NAME);
    let path = node.display().to_string();
    fill(&path, DEVICE).context("cannot fill the device")?;
    make(fs, &path)?;
    let mount = Mount::with(&node, fs, NAME, MountFlags::NOATIME, "").context("cannot mount")?;
    let path = mount.join("file");
    let mut buffer = Aligned::new(PART);
    buffer.bytes().fill(1);

    for write in [false, true] {
        for uncached in [false, true] {
            let series = Series {
                fs,
                write,
                uncached,
            };
            if !format!("{}-{}", series.operation(), series.mode()).contains(only) {
                continue;
            }
            // Reads find a file that is there, writes make it.
            if write || !path.exists() {
                remove(&path)?;
            }
            let sample = open_file(&path)?;
            if !write {
                series.prepare(&sample, buffer.bytes())?;
            }
            let hog = hog(room)?;
            series.measure(&sample, kswapd, buffer.bytes())?;
            black_box(&hog);
            drop(hog);
            sample.chill()?;
        }
    }
    remove(&path)?;
    mount.close()?;
    remove_null(NAME)
}

impl Series<'_> {
    fn operation(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }

    fn mode(&self) -> &'static str {
        if self.uncached { "uncached" } else { "plain" }
    }

    /// Writes the file that is to be read, if it is not there, and forgets it.
    fn prepare(&self, sample: &Sample, buffer: &[u8]) -> Result<()> {
        if sample.file.metadata().context("cannot stat")?.len() == 0 {
            for pos in positions(1) {
                let done = write_at(&sample.file, pos, buffer, UNCACHED);
                whole(done).context("cannot write the file")?;
            }
        }
        sample.chill()
    }

    fn measure(&self, sample: &Sample, kswapd: ClockId, buffer: &mut [u8]) -> Result<()> {
        let flags = match self.uncached {
            true => UNCACHED,
            false => PLAIN,
        };
        let calls = (INTERVAL << 20) as usize / PART;
        let all: Vec<_> = positions(PASSES).collect();
        // The rest at the end is no interval.
        for interval in all.chunks_exact(calls) {
            let before = Used::now(kswapd)?;
            let begin = Instant::now();
            for pos in interval {
                self.call(sample, *pos, buffer, flags)
                    .context(format!("at {pos}"))?;
            }
            let took = begin.elapsed();
            let after = Used::now(kswapd)?;
            self.print(took, before, after, sample.cached()?.pages);
        }
        Ok(())
    }

    fn call(
        &self,
        sample: &Sample,
        pos: u64,
        buffer: &mut [u8],
        flags: ReadWriteFlags,
    ) -> Result<(), Errno> {
        whole(match self.write {
            true => write_at(&sample.file, pos, buffer, flags),
            false => read_at(&sample.file, pos, buffer, flags),
        })
    }

    fn print(&self, took: Duration, before: Used, after: Used, cached: u64) {
        println!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{cached}",
            self.fs,
            self.operation(),
            self.mode(),
            INTERVAL << 20,
            took.as_nanos(),
            (after.kswapd - before.kswapd).as_nanos(),
            after.scanned - before.scanned,
            after.taken - before.taken,
            after.device - before.device,
        );
    }
}

impl Used {
    fn now(kswapd: ClockId) -> Result<Used> {
        let sum = |what: &str| -> Result<u64> {
            let of = |who: &str| counter("/proc/vmstat", &format!("pg{what}_{who} "));
            Ok(of("kswapd")? + of("direct")?)
        };
        let (scanned, taken, device) = (sum("scan")?, sum("steal")?, read_bytes()?);
        let kswapd = kswapd.now().context("cannot read kswapd's clock")?.into();
        Ok(Used {
            kswapd,
            scanned,
            taken,
            device,
        })
    }
}

/// Where the calls of so many passes over the file begin.
fn positions(passes: u64) -> impl Iterator<Item = u64> {
    (0..passes).flat_map(|_| (0..FILE << 20).step_by(PART))
}

/// The clock that counts what kswapd has run.
fn kswapd() -> Result<ClockId> {
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let path = entry.context("cannot list /proc")?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() == "kswapd0" {
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            let pid = Pid::from_raw(pid.context("a process without number")?);
            return clock_getcpuclockid(pid).context("kswapd has no clock");
        }
    }
    anyhow::bail!("there is no kswapd")
}

/// All memory but the room for the page cache; without swap it stays taken.
fn hog(room: u64) -> Result<Vec<u8>> {
    crate::kernel::drop_caches()?;
    let available = counter("/proc/meminfo", "MemAvailable:")? >> 10;
    ensure!(
        available > room,
        "{available} MiB of memory are available, and {room} are needed"
    );
    let mut hog = vec![0u8; ((available - room) << 20) as usize];
    hog.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    Ok(hog)
}

fn open_file(path: &Path) -> Result<Sample> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd =
        open(path, flags, Mode::from(0o644)).context(format!("cannot open {}", path.display()))?;
    Ok(Sample {
        file: File::from(fd),
    })
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_file(path).context("cannot remove the file")?;
    }
    Ok(())
}

/// All of it was read or written.
fn whole(done: Result<usize, Errno>) -> Result<(), Errno> {
    match done? {
        PART => Ok(()),
        _ => Err(Errno::IO),
    }
}

fn set(file: &str, value: &str) -> Result<()> {
    fs::write(file, value).context(format!("cannot write {file}"))
}
