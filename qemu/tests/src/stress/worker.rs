// SPDX-License-Identifier: GPL-2.0

//! One process of suite `stress`.

use crate::job::Job;
use crate::uncached::env::{PLAIN, UNCACHED, read_at, write_at};
use crate::uncached::map::{self, Mapping};
use crate::uncached::raw::{Request, Ring};
use crate::walk::Aligned;
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, XattrFlags, chmodat,
    fadvise, fallocate, fdatasync, fsync, ftruncate, link, mkdir, open, readlink, rename,
    renameat_with, rmdir, setxattr, stat, symlink, unlink, utimensat,
};
use rustix::io::Errno;
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The most that a file has.
const SIZE: u64 = 512 << 10;

macro_rules! acts {
    ($($name:literal $function:ident $weight:literal)*) => {
        /// What a process does, how it is called, and how often it is done.
        const ACTS: &[(&str, fn(&mut Worker) -> Result<(), Errno>, usize)] =
            &[$(($name, Worker::$function, $weight)),*];
    };
}

acts! {
    "create" create 6
    "mkdir" mkdir 2
    "unlink" unlink 4
    "rmdir" rmdir 1
    "rename" rename 3
    "exchange" exchange 1
    "link" link 2
    "symlink" symlink 1
    "readlink" readlink 1
    "stat" stat 3
    "list" list 2
    "chmod" chmod 1
    "times" times 1
    "xattr" xattr 1
    "read" read 4
    "uncached-read" uncached_read 6
    "direct-read" direct_read 2
    "ring-read" ring_read 2
    "write" write 4
    "uncached-write" uncached_write 8
    "direct-write" direct_write 2
    "ring-write" ring_write 2
    "mapped-read" mapped_read 2
    "mapped-write" mapped_write 2
    "truncate" truncate 3
    "allocate" allocate 1
    "punch" punch 2
    "zero" zero 1
    "sync" sync 2
    "data-sync" data_sync 1
    "forget" forget 1
}

/// What a worker is told.
pub struct Settings {
    root: PathBuf,
    number: u64,
    seed: u64,
    count: u64,
    time: Duration,
    acts: Vec<usize>,
}

impl Settings {
    /// From the request.
    pub fn of(job: &Job, number: u64) -> Result<Settings> {
        let mut acts: Vec<usize> = (0..ACTS.len()).collect();
        let off = job.get("off").unwrap_or_default();
        for name in off.split(',').filter(|name| !name.is_empty()) {
            let known = ACTS.iter().position(|(act, ..)| *act == name);
            let known = known.context(format!("no operation {name:?}"))?;
            acts.retain(|act| *act != known);
        }
        Ok(Settings {
            root: job.get("root").unwrap_or_default().into(),
            number,
            seed: job.get_or("seed", 1)?,
            count: job.get_or("ops", u64::MAX)?,
            time: Duration::from_secs_f64(job.get_or("seconds", 10.0)?),
            acts,
        })
    }
}

struct Worker {
    root: PathBuf,
    random: fastrand::Rng,
    /// A file that no other process touches: a mapping of a shared one may lose
    /// its pages to a truncation.
    own: PathBuf,
    ring: Ring,
    stamp: u8,
}

/// Does random things until time or count is over.
pub fn run(job: &Job) -> Result<()> {
    let settings = Settings::of(job, job.get_or("number", 0)?)?;
    let number = settings.number;
    let mut worker = Worker {
        own: settings.root.join(format!("own-{number}")),
        root: settings.root,
        random: fastrand::Rng::with_seed(settings.seed.wrapping_mul(1000) + number),
        ring: Ring::new().context("no io_uring")?,
        stamp: number as u8,
    };
    let end = Instant::now() + settings.time;
    let mut done = vec![(0u64, 0u64); ACTS.len()];
    let tickets: Vec<usize> = (settings.acts.iter())
        .flat_map(|act| std::iter::repeat_n(*act, ACTS[*act].2))
        .collect();
    if tickets.is_empty() {
        bail!("every operation is switched off");
    }
    let mut count = 0;
    while count < settings.count && Instant::now() < end {
        let act = tickets[worker.random.usize(0..tickets.len())];
        let (name, function, _) = ACTS[act];
        match function(&mut worker) {
            Ok(()) => done[act].0 += 1,
            Err(error) if is_race(error) => done[act].1 += 1,
            Err(error) => {
                return Err(anyhow!(
                    "process {number}, operation {count}, {name}: {error}"
                ));
            }
        }
        count += 1;
    }
    let told = ACTS
        .iter()
        .zip(&done)
        .map(|((name, ..), (good, bad))| format!("{name} {good}/{bad}"));
    let told: Vec<_> = told.collect();
    println!(
        "process {number}: {count} operations, done/refused: {}",
        told.join(" ")
    );
    Ok(())
}

/// Errors that other processes, a full disk or a file system without the
/// operation explain.
fn is_race(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT
            | Errno::EXIST
            | Errno::NOTEMPTY
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NOSPC
            | Errno::INVAL
            | Errno::LOOP
            | Errno::MLINK
            | Errno::BUSY
            | Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::XDEV
            | Errno::NXIO
            | Errno::TXTBSY
            | Errno::RANGE
            | Errno::AGAIN
    )
}

impl Worker {
    /// One of a few names, in the root or up to two folders below.
    fn path(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..self.random.u8(0..3) {
            path.push(format!("d{}", self.random.u8(0..4)));
        }
        path.push(format!("f{}", self.random.u8(0..16)));
        path
    }

    fn folder(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..self.random.u8(1..=3) {
            path.push(format!("d{}", self.random.u8(0..4)));
        }
        path
    }

    fn open(&mut self, flags: OFlags) -> Result<File, Errno> {
        let path = self.path();
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(File::from(open(path, flags, Mode::from(0o644))?))
    }

    fn range(&mut self) -> (u64, usize) {
        let most = 1 << self.random.u32(0..=17);
        let length = self.random.usize(1..=most);
        (self.random.u64(0..SIZE - length as u64), length)
    }

    fn create(&mut self) -> Result<(), Errno> {
        self.open(OFlags::RDWR | OFlags::CREATE).map(drop)
    }

    fn mkdir(&mut self) -> Result<(), Errno> {
        mkdir(self.folder(), Mode::from(0o755))
    }

    fn unlink(&mut self) -> Result<(), Errno> {
        unlink(self.path())
    }

    fn rmdir(&mut self) -> Result<(), Errno> {
        rmdir(self.folder())
    }

    fn pair(&mut self) -> (PathBuf, PathBuf) {
        match self.random.u8(0..4) {
            0 => (self.folder(), self.folder()),
            _ => (self.path(), self.path()),
        }
    }

    fn rename(&mut self) -> Result<(), Errno> {
        let (from, to) = self.pair();
        rename(from, to)
    }

    fn exchange(&mut self) -> Result<(), Errno> {
        let (from, to) = self.pair();
        renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)
    }

    fn link(&mut self) -> Result<(), Errno> {
        let (from, to) = (self.path(), self.path());
        link(from, to)
    }

    fn symlink(&mut self) -> Result<(), Errno> {
        let length = 1 << self.random.u32(0..8);
        symlink("x".repeat(length), self.path())
    }

    fn readlink(&mut self) -> Result<(), Errno> {
        readlink(self.path(), Vec::new()).map(drop)
    }

    fn stat(&mut self) -> Result<(), Errno> {
        stat(self.path()).map(drop)
    }

    fn list(&mut self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(self.folder(), flags, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(entry) = entries.next() {
            entry?;
        }
        Ok(())
    }

    fn chmod(&mut self) -> Result<(), Errno> {
        let mode = 0o600 | self.random.u32(0..0o200);
        chmodat(CWD, self.path(), Mode::from(mode), AtFlags::empty())
    }

    fn times(&mut self) -> Result<(), Errno> {
        let now = rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        };
        let times = rustix::fs::Timestamps {
            last_access: now,
            last_modification: now,
        };
        utimensat(CWD, self.path(), &times, AtFlags::empty())
    }

    fn xattr(&mut self) -> Result<(), Errno> {
        let value = vec![self.stamp; 1 << self.random.u32(0..10)];
        setxattr(self.path(), "user.stress", &value, XattrFlags::empty())
    }

    fn read_with(&mut self, flags: rustix::io::ReadWriteFlags) -> Result<(), Errno> {
        let file = self.open(OFlags::RDONLY)?;
        let (pos, length) = self.range();
        read_at(&file, pos, &mut vec![0; length], flags).map(drop)
    }

    fn read(&mut self) -> Result<(), Errno> {
        self.read_with(PLAIN)
    }

    fn uncached_read(&mut self) -> Result<(), Errno> {
        self.read_with(UNCACHED)
    }

    fn direct_read(&mut self) -> Result<(), Errno> {
        let file = self.open(OFlags::RDONLY | OFlags::DIRECT)?;
        let (pos, length) = self.range();
        let mut buffer = Aligned::new(length.next_multiple_of(4096));
        read_at(&file, pos & !4095, buffer.bytes(), PLAIN).map(drop)
    }

    fn ring(&mut self, request: Request, access: OFlags) -> Result<(), Errno> {
        let file = self.open(access)?;
        let (pos, length) = self.range();
        let flags = if self.random.bool() { PLAIN } else { UNCACHED };
        let in_worker = self.random.u8(0..4) == 0;
        let mut bytes = vec![self.stamp; length];
        let done = self
            .ring
            .run(&file, request, &mut bytes, pos, flags, in_worker);
        done.map_err(|_| Errno::IO)?.map(drop)
    }

    fn ring_read(&mut self) -> Result<(), Errno> {
        self.ring(Request::Read, OFlags::RDONLY)
    }

    fn ring_write(&mut self) -> Result<(), Errno> {
        self.ring(Request::Write, OFlags::RDWR)
    }

    fn write_with(&mut self, flags: rustix::io::ReadWriteFlags) -> Result<(), Errno> {
        let file = self.open(OFlags::RDWR | OFlags::CREATE)?;
        let (pos, length) = self.range();
        write_at(&file, pos, &vec![self.stamp; length], flags).map(drop)
    }

    fn write(&mut self) -> Result<(), Errno> {
        self.write_with(PLAIN)
    }

    fn uncached_write(&mut self) -> Result<(), Errno> {
        self.write_with(UNCACHED)
    }

    fn direct_write(&mut self) -> Result<(), Errno> {
        let file = self.open(OFlags::RDWR | OFlags::DIRECT)?;
        let (pos, length) = self.range();
        let mut buffer = Aligned::new(length.next_multiple_of(4096));
        buffer.bytes().fill(self.stamp);
        write_at(&file, pos & !4095, buffer.bytes(), PLAIN).map(drop)
    }

    /// The worker's own file with `length` bytes, for a mapping.
    fn mapping(&mut self, length: u64) -> Result<Mapping, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(open(&self.own, flags, Mode::from(0o644))?);
        ftruncate(&file, length)?;
        Mapping::new(&file, length, map::Kind::Shared).map_err(|_| Errno::IO)
    }

    fn mapped_read(&mut self) -> Result<(), Errno> {
        let (pos, length) = self.range();
        let end = pos + length as u64;
        let mapping = self.mapping(end)?;
        mapping.load(pos..end).map(drop).map_err(|_| Errno::IO)
    }

    fn mapped_write(&mut self) -> Result<(), Errno> {
        let (pos, length) = self.range();
        let end = pos + length as u64;
        // Blocks first: a store into a hole of a full disk is a SIGBUS.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(open(&self.own, flags, Mode::from(0o644))?);
        let done = write_at(&file, pos, &vec![self.stamp; length], UNCACHED)
            .or_else(|_| write_at(&file, pos, &vec![self.stamp; length], PLAIN))?;
        fsync(&file)?;
        if done < length {
            return Err(Errno::NOSPC);
        }
        let mapping = self.mapping(end)?;
        mapping
            .fill(pos, &vec![self.stamp; length])
            .map_err(|_| Errno::IO)
    }

    fn truncate(&mut self) -> Result<(), Errno> {
        let file = self.open(OFlags::RDWR)?;
        ftruncate(&file, self.random.u64(0..SIZE))
    }

    fn fallocate(&mut self, flags: FallocateFlags) -> Result<(), Errno> {
        let file = self.open(OFlags::RDWR)?;
        let (pos, length) = self.range();
        fallocate(&file, flags, pos, length as u64)
    }

    fn allocate(&mut self) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::empty())
    }

    fn punch(&mut self) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }

    fn zero(&mut self) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::ZERO_RANGE)
    }

    fn sync(&mut self) -> Result<(), Errno> {
        fsync(self.open(OFlags::RDWR)?)
    }

    fn data_sync(&mut self) -> Result<(), Errno> {
        fdatasync(self.open(OFlags::RDWR)?)
    }

    fn forget(&mut self) -> Result<(), Errno> {
        let file = self.open(OFlags::RDWR)?;
        fadvise(&file, 0, None, Advice::DontNeed)
    }
}
