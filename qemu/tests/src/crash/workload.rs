// SPDX-License-Identifier: GPL-2.0

//! Runs a workload on the device that is recorded. After each operation a mark
//! is written to the same device, around every cache and without a flush.

use super::choose::Chooser;
use super::model::{Model, target, value};
use super::op::{Folder, Kind, MARK, Mark, Op, Place, TOPS, text};
use super::{Fault, MARKS, SERIAL, Setup, WORK};
use crate::disk;
use crate::fs::env::tool;
use crate::job::Job;
use crate::kernel;
use crate::mapping::{Mapping, Sharing};
use crate::mount::Mount;
use crate::pattern;
use crate::uncached::env::UNCACHED;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags, fallocate, fdatasync,
    fsetxattr, fsync, ftruncate, linkat, open, renameat_with, sync, syncfs,
};
use rustix::io::{ReadWriteFlags, pwrite, pwritev2};
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of the attribute that files get.
pub const XATTR: &str = "user.crash";
/// The tree that the workload leaves alone, and how many files it has.
pub const STILL: &str = "still";
const STILL_FILES: u16 = 24;
/// Writeback that is this eager, in hundredths of a second, has much on its way
/// whenever the power may fail.
const EAGER: [(&str, &str); 2] = [
    ("/proc/sys/vm/dirty_writeback_centisecs", "7"),
    ("/proc/sys/vm/dirty_expire_centisecs", "15"),
];

/// Where marks are written.
struct Marks {
    file: File,
    group: u64,
    number: u64,
}

impl Marks {
    fn new(group: u64) -> Result<Marks> {
        let device = disk::partition(SERIAL, MARKS)?.device;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = open(&device, flags, Mode::empty())
            .context(format!("cannot open {}", device.display()))?;
        Ok(Marks {
            file: file.into(),
            group,
            number: 0,
        })
    }

    fn put(&mut self, op: Op, ino: u64) -> Result<()> {
        let mark = Mark {
            group: self.group,
            number: self.number,
            op,
            ino,
        };
        let mut sector = Aligned::new(MARK);
        sector.bytes().copy_from_slice(&mark.encode());
        let done = pwrite(&self.file, sector.bytes(), 0).context("cannot write a mark")?;
        ensure!(done == MARK, "short write of a mark");
        self.number += 1;
        Ok(())
    }
}

/// Makes a file system, and does random things to it.
pub fn run(job: &Job, group: u64, setup: &'static Setup) -> Result<()> {
    if !kernel::is_registered(&job.fs)? {
        kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
    }
    let count: usize = job.get_or("ops", 800)?;
    let seed: u64 = job.get_or("seed", 1)?;
    let device = disk::partition(SERIAL, WORK)?.device;
    let cache = set_cache(setup.through)?;
    let mut marks = Marks::new(group)?;
    marks.put(Op::new(Kind::Begin, Place::default()), 0)?;
    fill(&device)?;
    make(setup, &device)?;
    let mount = Mount::with(&device, &job.fs, "crash", setup.flags, "")
        .context(format!("cannot mount it with {:?}", setup.flags))?;
    let mut model = Model::new(setup.promises(), setup.block);
    for top in 0..TOPS {
        let folder = Folder { top, sub: None };
        let path = mount.join(folder.path());
        fs::create_dir(&path).context("cannot make a directory")?;
        let ino = fs::metadata(&path)?.ino();
        let op = Op::new(Kind::Top, Place { folder, name: 0 });
        model.apply(&op, ino, true)?;
        marks.put(op, ino)?;
    }
    make_still(&mount.join(STILL))?;
    let root = File::open(mount.path()).context("cannot open the root")?;
    syncfs(&root).context("syncfs")?;
    let ready = Op::new(Kind::Ready, Place::default());
    model.apply(&ready, 0, true)?;
    marks.put(ready, 0)?;

    let usual = be_eager()?;
    let off = job.get("off").unwrap_or_default();
    let mut chooser = Chooser::new(seed.wrapping_mul(100) + group, setup.blocks() / 3, off)?;
    let hands = Hands {
        root: mount.path().to_owned(),
        lies: setup.fault == Some(Fault::NoSync),
        uncached: job.is_rext2(),
    };
    for number in 0..count {
        let op = chooser.next(&model);
        let ino = hands
            .act(&op)
            .context(format!("operation {number}: {op}"))?;
        model.apply(&op, ino, true)?;
        marks.put(op, ino)?;
    }
    drop(root);
    mount.close()?;
    marks.put(Op::new(Kind::End, Place::default()), 0)?;
    for (path, value) in usual {
        fs::write(path, value).context(format!("cannot write {path}"))?;
    }
    let (path, usual) = cache;
    fs::write(&path, usual.trim()).context("cannot set a cache back")?;
    // QEMU keeps the count of a log's entries up to date at each flush.
    fsync(&marks.file).context("cannot flush the device")?;
    println!("seed={seed}, {count} operations");
    Ok(())
}

/// Says whether the device has a cache, as the kernel sees it; where, and what it was.
fn set_cache(through: bool) -> Result<(PathBuf, String)> {
    let name = disk::find(SERIAL)?;
    let path = Path::new("/sys/class/block")
        .join(name)
        .join("queue/write_cache");
    let usual = fs::read_to_string(&path).context("cannot see a cache")?;
    if through {
        fs::write(&path, "write through").context("cannot set a cache")?;
    }
    Ok((path, usual))
}

/// Makes writeback eager; what the settings were.
fn be_eager() -> Result<Vec<(&'static str, String)>> {
    let set = |(path, value): (&'static str, &str)| {
        let old = fs::read_to_string(path).context(format!("cannot read {path}"))?;
        fs::write(path, value).context(format!("cannot write {path}"))?;
        Ok((path, old))
    };
    EAGER.into_iter().map(set).collect()
}

/// Fills the device: what a file shows of this was there before.
fn fill(device: &Path) -> Result<()> {
    let file = open(device, OFlags::WRONLY | OFlags::DIRECT, Mode::empty())
        .context(format!("cannot open {}", device.display()))?;
    let file = File::from(file);
    let mut chunk = Aligned::new(1 << 20);
    for word in chunk.bytes().chunks_mut(pattern::STALE.len()) {
        word.copy_from_slice(pattern::STALE);
    }
    for number in 0..super::SIZE >> 20 {
        file.write_all_at(chunk.bytes(), number << 20)
            .context("cannot fill the device")?;
    }
    Ok(())
}

fn make(setup: &Setup, device: &Path) -> Result<()> {
    let (block, inode) = (setup.block.to_string(), setup.inode.to_string());
    let blocks = setup.blocks().to_string();
    let device = device.to_string_lossy();
    let args = [
        "-q",
        "-F",
        "-t",
        "ext2",
        "-E",
        "nodiscard",
        "-N",
        "512",
        "-m",
        "0",
        "-b",
        &block,
        "-I",
        &inode,
        &device,
        &blocks,
    ];
    tool("mke2fs", &args).map(drop)
}

/// The tree that nobody touches afterwards.
fn make_still(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    for number in 0..STILL_FILES {
        let folder = root.join(format!("d{}", number % 4));
        if number < 4 {
            fs::create_dir(&folder)?;
        }
        let mut bytes = vec![0; usize::from(number) * 1777];
        pattern::fill(u16::MAX - number, 0, &mut bytes);
        let path = folder.join(text(number as u8));
        let file = File::create(&path)?;
        file.write_all_at(&bytes, 0)?;
        if number % 3 == 0 {
            fsetxattr(&file, XATTR, &value(number), XattrFlags::CREATE)?;
        }
        std::os::unix::fs::symlink(target(number), folder.join(format!("link{number}")))?;
    }
    Ok(())
}

/// What does the operations.
struct Hands {
    root: PathBuf,
    /// Whether promises are made that are not kept.
    lies: bool,
    /// Whether the file system knows uncached writes: the control does not.
    uncached: bool,
}

impl Hands {
    fn path(&self, place: Place) -> PathBuf {
        self.root.join(place.path())
    }

    fn open(&self, place: Place, flags: OFlags) -> Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(open(self.path(place), flags, Mode::from(0o644))?.into())
    }

    /// Does it; the inode that was made.
    fn act(&self, op: &Op) -> Result<u64> {
        match op.kind {
            Kind::Create => {
                let file = self.open(op.at, OFlags::CREATE | OFlags::EXCL)?;
                return Ok(file.metadata()?.ino());
            }
            Kind::Write | Kind::WriteUncached | Kind::WriteDirect => self.write(op)?,
            Kind::WriteMapped => self.store(op)?,
            Kind::Truncate => ftruncate(self.open(op.at, OFlags::empty())?, op.pos)?,
            Kind::Punch => fallocate(
                self.open(op.at, OFlags::empty())?,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                op.pos,
                op.len,
            )?,
            Kind::Xattr => {
                let file = self.open(op.at, OFlags::empty())?;
                fsetxattr(&file, XATTR, &value(op.id), XattrFlags::empty())?;
            }
            Kind::Fsync | Kind::Fdatasync | Kind::FsyncDir | Kind::Syncfs | Kind::Sync => {
                if !self.lies {
                    self.promise(op)?;
                }
            }
            Kind::StartWriting => crate::sys::start_writing(&self.open(op.at, OFlags::empty())?)?,
            Kind::Forget => kernel::drop_caches()?,
            Kind::Mkdir => {
                fs::create_dir(self.path(op.at))?;
                return Ok(fs::metadata(self.path(op.at))?.ino());
            }
            Kind::Rmdir => fs::remove_dir(self.path(op.at))?,
            Kind::Unlink => fs::remove_file(self.path(op.at))?,
            Kind::Link => fs::hard_link(self.path(op.at), self.path(op.to))?,
            Kind::Symlink => {
                std::os::unix::fs::symlink(target(op.id), self.path(op.at))?;
                return Ok(fs::symlink_metadata(self.path(op.at))?.ino());
            }
            Kind::Rename => fs::rename(self.path(op.at), self.path(op.to))?,
            Kind::Exchange => renameat_with(
                CWD,
                self.path(op.at),
                CWD,
                self.path(op.to),
                RenameFlags::EXCHANGE,
            )?,
            Kind::Tmpfile => return self.tmpfile(op),
            Kind::Begin | Kind::Top | Kind::Ready | Kind::End => {}
        }
        Ok(0)
    }

    fn promise(&self, op: &Op) -> Result<()> {
        let none = OFlags::empty();
        match op.kind {
            Kind::Fsync => fsync(self.open(op.at, none)?)?,
            Kind::Fdatasync => fdatasync(self.open(op.at, none)?)?,
            Kind::FsyncDir => fsync(File::open(self.root.join(op.at.folder.path()))?)?,
            Kind::Syncfs => syncfs(File::open(&self.root)?)?,
            _ => sync(),
        }
        Ok(())
    }

    fn write(&self, op: &Op) -> Result<()> {
        let (open, mut flags) = match op.kind {
            Kind::WriteDirect => (OFlags::DIRECT, ReadWriteFlags::empty()),
            Kind::WriteUncached if self.uncached => (OFlags::empty(), UNCACHED),
            _ => (OFlags::empty(), ReadWriteFlags::empty()),
        };
        if op.sync && !self.lies {
            flags |= ReadWriteFlags::DSYNC;
        }
        let file = self.open(op.at, open)?;
        let mut memory = Aligned::new(op.len as usize);
        pattern::fill(op.id, op.pos, memory.bytes());
        let mut done = 0;
        while done < op.len {
            let rest = &memory.bytes()[done as usize..];
            let length = pwritev2(&file, &[IoSlice::new(rest)], op.pos + done, flags)?;
            ensure!(length > 0, "nothing was written");
            done += length as u64;
        }
        Ok(())
    }

    fn store(&self, op: &Op) -> Result<()> {
        let file = self.open(op.at, OFlags::empty())?;
        let mapping = Mapping::new(&file, op.pos + op.len, Sharing::Shared)?;
        let mut bytes = vec![0; op.len as usize];
        pattern::fill(op.id, op.pos, &mut bytes);
        mapping.store(op.pos, &bytes)?;
        if op.sync && !self.lies {
            mapping.sync()?;
        }
        Ok(())
    }

    /// Makes a file that has no name until its contents are durable.
    fn tmpfile(&self, op: &Op) -> Result<u64> {
        let folder = self.root.join(op.at.folder.path());
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file: File = open(&folder, flags, Mode::from(0o644))?.into();
        let mut bytes = vec![0; op.len as usize];
        pattern::fill(op.id, op.pos, &mut bytes);
        file.write_all_at(&bytes, op.pos)?;
        if !self.lies {
            fsync(&file)?;
        }
        linkat(&file, "", CWD, self.path(op.at), AtFlags::EMPTY_PATH)?;
        Ok(file.metadata()?.ino())
    }
}
