// SPDX-License-Identifier: GPL-2.0

//! Program `compare`: mounts one device with rext2 and then with the C driver,
//! and compares names, metadata and content.
//!
//! Content is compared by checksums of the data that SEEK_DATA shows with the
//! driver under test. Holes are not read whole, which would take minutes for
//! gigabytes: both ends and the middle of each are, and blocks that count as
//! allocated but are neither data nor pointers to it are a difference.

#![expect(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may have one"
)]

use crate::disk;
use crate::job::Job;
use crate::kernel;
use crate::mount::Mount;
use crate::number::grouped;
use crate::walk::{self, Found};
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, pread};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How many differences are printed.
const SHOWN: usize = 20;
/// This much of each end and of the middle of a hole is read.
const SAMPLE: u64 = 64 << 10;
/// Threads that read: most of the time goes into waiting for the disk.
const READERS: usize = 8;
/// Files up to this size are read whole, without asking for their holes.
const SMALL: u64 = 64 << 10;
const STEP: usize = 256 << 10;

/// What one driver says of one name.
struct Record {
    line: String,
    nanos: i64,
    /// What was read of a regular file, and its checksum.
    ranges: Vec<Range<u64>>,
    data: u64,
    checksum: u32,
}

type Records = BTreeMap<OsString, Record>;

/// Compares the drivers on the disk with serial `disk` or the device `device`;
/// whether they agree.
pub fn run(job: &Job) -> Result<bool> {
    let device = match (job.get("device"), job.get("disk")) {
        (Some(device), _) => PathBuf::from(device),
        (None, Some(serial)) => Path::new("/dev").join(disk::find(serial)?),
        (None, None) => anyhow::bail!("no device=PATH or disk=SERIAL is named"),
    };
    if !kernel::is_registered(&job.fs)? {
        kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
    }
    let (ours, our_time) = records(&device, &job.fs, None)?;
    let (theirs, their_time) = records(&device, "ext2", Some(&ours))?;

    let differences = differences(&ours, &theirs);
    for line in differences.iter().take(SHOWN) {
        println!("{line}");
    }
    if differences.len() > SHOWN {
        println!("and {} more", differences.len() - SHOWN);
    }
    let is_dir = |record: &&Record| record.line.starts_with('d');
    println!(
        "{} names, {} directories, {} MiB of data: {}",
        grouped(ours.len() as u64),
        grouped(ours.values().filter(is_dir).count() as u64),
        grouped(ours.values().map(|record| record.data).sum::<u64>() >> 20),
        match differences.len() {
            0 => "equal".into(),
            n => format!("{} differences", grouped(n as u64)),
        }
    );
    println!(
        "{} {:.1} s, ext2 {:.1} s",
        job.fs,
        our_time.as_secs_f64(),
        their_time.as_secs_f64()
    );
    let finer = ours.values().filter(|record| record.nanos != 0).count();
    if finer > 0 {
        println!(
            "{} times with nanoseconds, which C ext2 does not read",
            grouped(finer as u64)
        );
    }
    Ok(differences.is_empty())
}

/// Mounts, walks, reads, unmounts. Files are read where `like` has read them.
fn records(device: &Path, fs: &str, like: Option<&Records>) -> Result<(Records, Duration)> {
    let start = Instant::now();
    let mount = Mount::read_only(device, fs, fs)?;
    let block = rustix::fs::statfs(mount.path())
        .context("cannot statfs")?
        .f_bsize as u64;
    let found: Vec<_> = walk::tree(mount.path())?.into_iter().collect();
    let one = |(path, found): &(OsString, Found), buffer: &mut [u8]| -> Result<Record> {
        let full = mount.join(path);
        let mut record = describe(&full, found)?;
        if found.meta.is_file() {
            let known = like.and_then(|like| like.get(path));
            read(&full, found, block, known, &mut record, buffer)
                .with_context(|| format!("{fs}: {}", path.display()))?;
        }
        Ok(record)
    };
    let records = thread::scope(|scope| -> Result<Records> {
        let jobs: Vec<_> = found
            .chunks(found.len().div_ceil(READERS))
            .map(|part| {
                scope.spawn(|| -> Result<Vec<(OsString, Record)>> {
                    let mut buffer = vec![0; STEP];
                    let all = part.iter();
                    all.map(|found| Ok((found.0.clone(), one(found, &mut buffer)?)))
                        .collect()
                })
            })
            .collect();
        let mut records = Records::new();
        for job in jobs {
            records.extend(job.join().expect("a reader reports by its result")?);
        }
        Ok(records)
    })?;
    mount.close()?;
    Ok((records, start.elapsed()))
}

fn describe(path: &Path, found: &Found) -> Result<Record> {
    let meta = &found.meta;
    let target = match meta.is_symlink() {
        true => fs::read_link(path).context(format!("cannot read link {}", path.display()))?,
        false => PathBuf::new(),
    };
    let line = format!(
        "{} listed {} inode {} mode {:o} links {} owner {}:{} device {:#x} size {} sectors {} \
         times {} {} {} target {:?}",
        walk::letter(FileType::from_raw_mode(meta.mode())),
        walk::letter(found.listed),
        meta.ino(),
        meta.mode() & 0o7777,
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.rdev(),
        meta.size(),
        meta.blocks(),
        meta.atime(),
        meta.mtime(),
        meta.ctime(),
        target,
    );
    Ok(Record {
        line,
        nanos: meta.mtime_nsec(),
        ranges: Vec::new(),
        data: 0,
        checksum: 0,
    })
}

fn read(
    path: &Path,
    found: &Found,
    block: u64,
    known: Option<&Record>,
    record: &mut Record,
    buffer: &mut [u8],
) -> Result<()> {
    let fd = open(path, OFlags::RDONLY, Mode::empty()).context("cannot open it")?;
    let size = found.meta.size();
    if let Some(known) = known {
        record.ranges = known.ranges.clone();
    } else if size <= SMALL {
        record.ranges = vec![0..size];
        record.data = size.min(found.meta.blocks() * 512);
    } else {
        let data = data_ranges(&fd)?;
        record.data = data.iter().map(|range| range.end - range.start).sum();
        let odd = unexplained(&data, found.meta.blocks() * 512, block);
        if odd > 0 {
            record
                .line
                .push_str(&format!(" ({odd} bytes allocated without data)"));
        }
        record.ranges = with_samples(&data, size);
    }
    let mut checksum = crc32fast::Hasher::new();
    for range in &record.ranges {
        let mut pos = range.start;
        while pos < range.end {
            let length = (range.end - pos).min(buffer.len() as u64) as usize;
            let done =
                pread(&fd, &mut buffer[..length], pos).context(format!("cannot read at {pos}"))?;
            if done == 0 {
                break;
            }
            checksum.update(&buffer[..done]);
            pos += done as u64;
        }
    }
    record.checksum = checksum.finalize();
    Ok(())
}

/// Where SEEK_DATA and SEEK_HOLE see data.
fn data_ranges(fd: &OwnedFd) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut pos = 0;
    loop {
        let start = match seek(fd, SeekFrom::Data(pos)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(ranges),
            Err(error) => return Err(error).context("SEEK_DATA"),
        };
        pos = seek(fd, SeekFrom::Hole(start)).context("SEEK_HOLE")?;
        ranges.push(start..pos);
    }
}

/// The data, and of each hole the ends and the middle.
fn with_samples(data: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    let mut pos = 0;
    for range in data.iter().cloned().chain([size..size]) {
        let hole = pos..range.start.max(pos);
        let length = hole.end - hole.start;
        if length <= 3 * SAMPLE {
            all.push(hole);
        } else {
            let middle = hole.start + length / 2;
            all.push(hole.start..hole.start + SAMPLE);
            all.push(middle..middle + SAMPLE);
            all.push(hole.end - SAMPLE..hole.end);
        }
        pos = range.end;
        all.push(range);
    }
    all.retain(|range| !range.is_empty());
    all
}

/// Allocated bytes that are more than the data, the indirect blocks it can need
/// and one block of extended attributes.
fn unexplained(data: &[Range<u64>], allocated: u64, block: u64) -> u64 {
    let per = block / 4;
    let mut blocks = 1;
    for range in data {
        let count = range.end.div_ceil(block) - range.start / block;
        // At each of three levels: full blocks of pointers, and one at each end.
        blocks += count + 3 * (count / per + 2);
    }
    allocated.saturating_sub(blocks * block)
}

fn differences(ours: &Records, theirs: &Records) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, our) in ours {
        let their = theirs.get(path);
        let path = path.display();
        match their {
            None => lines.push(format!("/{path}: C ext2 does not have it")),
            Some(their) if their.line != our.line => {
                lines.push(format!("/{path}: {}\n  C ext2: {}", our.line, their.line));
            }
            Some(their) if their.checksum != our.checksum => lines.push(format!(
                "/{path}: content {:08x}, with C ext2 {:08x}",
                our.checksum, their.checksum
            )),
            Some(_) => {}
        }
    }
    let missing = theirs.keys().filter(|path| !ours.contains_key(*path));
    lines.extend(missing.map(|path| format!("/{}: only C ext2 has it", path.display())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_sampled_and_data_is_whole() {
        let giant = 5 << 30;
        let ranges = with_samples(&[0..4096, giant - 10..giant], giant);
        assert_eq!(ranges.len(), 5);
        assert_eq!(ranges.first(), Some(&(0..4096)));
        assert_eq!(ranges.last(), Some(&(giant - 10..giant)));
        let read: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!(read, 4096 + 10 + 3 * SAMPLE);
        // A short hole is read whole.
        assert_eq!(with_samples(&[0..10, 20..30], 30), [0..10, 10..20, 20..30]);
    }

    #[test]
    fn hidden_data_is_noticed_and_pointers_are_not() {
        let data = [0..1 << 20];
        assert_eq!(unexplained(&data, (1 << 20) + 4096 * 2, 4096), 0);
        assert!(unexplained(&data, 2 << 20, 4096) > 0);
        assert!(unexplained(&[], 8192, 4096) > 0);
    }

    #[test]
    fn differences_name_the_path() {
        let record = |line: &str, checksum| Record {
            line: line.into(),
            nanos: 0,
            ranges: vec![],
            data: 0,
            checksum,
        };
        let ours = Records::from([
            ("a".into(), record("r", 1)),
            ("b".into(), record("r", 1)),
            ("c".into(), record("r size 1", 1)),
            ("e".into(), record("r", 1)),
        ]);
        let theirs = Records::from([
            ("a".into(), record("r", 1)),
            ("b".into(), record("r", 2)),
            ("c".into(), record("r size 2", 1)),
            ("d".into(), record("r", 1)),
        ]);
        assert_eq!(
            differences(&ours, &theirs),
            [
                "/b: content 00000001, with C ext2 00000002",
                "/c: r size 1\n  C ext2: r size 2",
                "/e: C ext2 does not have it",
                "/d: only C ext2 has it",
            ]
        );
    }
}
