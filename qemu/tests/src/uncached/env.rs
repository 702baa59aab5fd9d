// SPDX-License-Identifier: GPL-2.0

//! What a test has: a mounted file system on a device, files on it, and the
//! numbers of the page cache.

use super::device::{self, Class};
use super::fs::{Data, Fs};
use super::raw::{self, Cached};
use crate::job::Job;
use crate::mount::Mount;
use crate::{kernel, pattern};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, Mode, OFlags, fadvise, fsync, open, syncfs};
use rustix::io::{Errno, IoSlice, IoSliceMut, ReadWriteFlags, preadv2, pwritev2};
use rustix::mount::MountFlags;
use std::fmt::Debug;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `RWF_UNCACHED`, which libraries do not know.
pub const UNCACHED: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// No flag.
pub const PLAIN: ReadWriteFlags = ReadWriteFlags::empty();
/// The size of a page.
pub const PAGE: u64 = 4096;
/// The usual part of a request.
pub const PART: usize = 64 << 10;
/// The usual file for reads.
pub const LARGE: u64 = 4 << 20;
/// The usual file for writes.
pub const SMALL: u64 = 1 << 20;
/// The drop follows the end of writeback, for which fsync waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// A mounted file system on a device.
pub struct Env<'a> {
    /// The request.
    pub job: &'a Job,
    /// The file system.
    pub fs: &'static Fs,
    class: Class,
    /// The device.
    pub device: PathBuf,
    mount: Mount,
}

impl<'a> Env<'a> {
    /// Mounts the file system, empty.
    pub fn new(job: &'a Job, fs: &'static Fs, class: Class) -> Result<Env<'a>> {
        let name = class.name();
        let (mount, device) = match (class, Mount::found(name)?) {
            // Mounting it takes seconds: the test before has left it.
            (Class::Slow, Some((mount, device))) if device == device::path(class, fs)? => {
                (mount, device)
            }
            (_, found) => {
                if let Some((mount, _)) = found {
                    mount.close()?;
                }
                let device = device::ready(class, fs)?;
                (attach(&device, fs, name, fs.options)?, device)
            }
        };
        let env = Env {
            job,
            fs,
            class,
            device,
            mount,
        };
        // A test that failed may have left some.
        env.clean()?;
        Ok(env)
    }

    /// Removes all files and unmounts, which must not find anything in use.
    pub fn finish(self) -> Result<()> {
        self.clean()?;
        match self.class {
            Class::Slow => self.mount.keep(),
            _ => self.mount.close()?,
        }
        Ok(())
    }

    /// Unmounts and mounts again with these options; no file may be open.
    pub fn remount(&mut self, options: &str) -> Result<()> {
        self.mount.unmount().context("cannot unmount")?;
        self.mount = attach(&self.device, self.fs, self.class.name(), options)?;
        Ok(())
    }

    fn clean(&self) -> Result<()> {
        for entry in fs::read_dir(self.mount.path()).context("cannot list the mount")? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::remove_file(entry.path()).context(format!("cannot remove {entry:?}"))?;
            }
        }
        Ok(())
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Whether uncached writes must leave nothing behind. With data=journal,
    /// jbd2 keeps the buffers until the journal is checkpointed: what stays is
    /// told, not judged.
    pub fn drops_writes(&self) -> bool {
        self.fs.data == Data::Place
    }

    /// How long a test with a clock runs.
    pub fn seconds(&self) -> Result<Duration> {
        Ok(Duration::from_secs_f64(self.job.get_or("seconds", 1.0)?))
    }

    /// A source of random numbers, the same in every run with the same `seed=`.
    pub fn random(&self) -> Result<fastrand::Rng> {
        Ok(fastrand::Rng::with_seed(self.job.get_or("seed", 1)?))
    }

    /// A new, empty file.
    pub fn create(&self, name: &str) -> Result<Sample> {
        self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    /// A file, opened.
    pub fn open(&self, name: &str, flags: OFlags) -> Result<Sample> {
        let path = self.mount.join(name);
        let fd = open(&path, flags | OFlags::CLOEXEC, Mode::from(0o644))
            .context(format!("cannot open {}", path.display()))?;
        Ok(Sample {
            file: File::from(fd),
        })
    }

    /// A file with data of number 1, on disk and not in the cache.
    pub fn cold(&self, size: u64) -> Result<Sample> {
        let sample = self.create("file")?;
        sample.put(1, 0..size, 1 << 20, PLAIN)?;
        sample.chill()?;
        Ok(sample)
    }
}

fn attach(device: &Path, fs: &Fs, name: &str, options: &str) -> Result<Mount> {
    Mount::with(device, fs.kind, name, MountFlags::NOATIME, options).context(format!(
        "cannot mount {} as {} with \"{options}\"",
        device.display(),
        fs.kind
    ))
}

/// An open file.
#[derive(Debug)]
pub struct Sample {
    /// The descriptor.
    pub file: File,
}

impl Sample {
    /// One read of at most `length` bytes.
    pub fn read(&self, pos: u64, length: usize, flags: ReadWriteFlags) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        let done = read_at(&self.file, pos, &mut bytes, flags)?;
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Reads `range` by `part` bytes; all of it must be data of this number.
    pub fn check(
        &self,
        id: u16,
        range: Range<u64>,
        part: usize,
        flags: ReadWriteFlags,
    ) -> Result<()> {
        for pos in range.clone().step_by(part) {
            let length = part.min((range.end - pos) as usize);
            let bytes = self
                .read(pos, length, flags)
                .context(format!("cannot read {length} bytes at {pos}"))?;
            same(&format!("the length read at {pos}"), bytes.len(), length)?;
            pattern::check(id, pos, &bytes)?;
        }
        Ok(())
    }

    /// One write of data of this number.
    pub fn write(
        &self,
        id: u16,
        pos: u64,
        length: usize,
        flags: ReadWriteFlags,
    ) -> Result<usize, Errno> {
        let mut bytes = vec![0; length];
        pattern::fill(id, pos, &mut bytes);
        write_at(&self.file, pos, &bytes, flags)
    }

    /// Writes data of this number to `range` by `part` bytes.
    pub fn put(
        &self,
        id: u16,
        range: Range<u64>,
        part: usize,
        flags: ReadWriteFlags,
    ) -> Result<()> {
        for pos in range.clone().step_by(part) {
            let length = part.min((range.end - pos) as usize);
            let done = self
                .write(id, pos, length, flags)
                .context(format!("cannot write {length} bytes at {pos}"))?;
            same(&format!("the length written at {pos}"), done, length)?;
        }
        Ok(())
    }

    /// Waits until everything is on disk.
    pub fn sync(&self) -> Result<()> {
        fsync(&self.file).context("fsync")
    }

    /// Exact residency: no readahead.
    pub fn random(&self) -> Result<()> {
        fadvise(&self.file, 0, None, Advice::Random).context("cannot advise")
    }

    /// Puts everything on disk and nothing in the cache.
    pub fn chill(&self) -> Result<()> {
        let end = Instant::now() + 10 * PATIENCE;
        loop {
            self.sync()?;
            fadvise(&self.file, 0, None, Advice::DontNeed).context("cannot advise")?;
            if self.cached()?.pages == 0 {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "the cache cannot be emptied: {:?}",
                self.cached()?
            );
            // A folio may still be on its way to the LRU, or in the journal.
            syncfs(&self.file).context("syncfs")?;
            kernel::drop_caches()?;
        }
    }

    /// What the cache holds of the file.
    pub fn cached(&self) -> Result<Cached> {
        self.cached_in(0, 0)
    }

    /// What the cache holds of a part of the file.
    pub fn cached_in(&self, pos: u64, length: u64) -> Result<Cached> {
        raw::cachestat(&self.file, pos, length).context("cachestat")
    }

    /// Waits until the cache is as wished, for up to a minute.
    pub fn wait_for(&self, wished: impl Fn(Cached) -> bool) -> Result<()> {
        let end = Instant::now() + 60 * PATIENCE;
        loop {
            let cached = self.cached()?;
            if wished(cached) {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "this goes on for a minute: {cached:?}"
            );
            sleep(Duration::from_millis(2));
        }
    }

    /// The pages that are left once writeback is over and dropping had its
    /// time; not more than `most` are waited for.
    pub fn settle(&self, most: u64) -> Result<Cached> {
        let end = Instant::now() + PATIENCE;
        loop {
            let cached = self.cached()?;
            let busy = cached.dirty + cached.writeback > 0;
            if !busy && cached.pages <= most {
                return Ok(cached);
            }
            if Instant::now() > end {
                return Ok(cached);
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Fails unless at most `most` pages are left, none dirty, and none was
    /// reclaimed instead of dropped.
    pub fn dropped(&self, env: &Env, most: u64) -> Result<()> {
        let cached = self.settle(most)?;
        println!("{} pages stay", cached.pages);
        if env.drops_writes() {
            same("dirty pages", cached.dirty, 0)?;
            ensure!(
                cached.pages <= most,
                "{} pages stay instead of {most}: {cached:?}",
                cached.pages
            );
        }
        same("reclaimed pages", cached.evicted, 0)
    }
}

/// One read with flags.
pub fn read_at(
    file: &File,
    pos: u64,
    bytes: &mut [u8],
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    preadv2(file, &mut [IoSliceMut::new(bytes)], pos, flags)
}

/// One write with flags.
pub fn write_at(
    file: &File,
    pos: u64,
    bytes: &[u8],
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    pwritev2(file, &[IoSlice::new(bytes)], pos, flags)
}

/// Fails unless a value is what it should be.
pub fn same<T: Debug + PartialEq>(what: &str, got: T, right: T) -> Result<()> {
    ensure!(got == right, "{what}: {got:?}, not {right:?}");
    Ok(())
}

/// The bytes that this process has had read from devices.
pub fn read_bytes() -> Result<u64> {
    counter("/proc/self/io", "read_bytes:")
}

/// A number behind its name in a file of /proc.
pub fn counter(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).context(format!("cannot read {path}"))?;
    for line in text.lines() {
        if let Some(value) = line.strip_prefix(name) {
            let value = value.trim().trim_end_matches(" kB");
            return value.parse().context(format!("cannot parse {path}"));
        }
    }
    bail!("{path} has no {name}")
}
