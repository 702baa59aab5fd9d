// SPDX-License-Identifier: GPL-2.0

//! Files that do not know the flag (row P2), and block devices, which do.

use super::device::{self, Class};
use super::env::{PAGE, PART, PLAIN, Sample, UNCACHED, read_at, same, write_at};
use super::interface::{refused_by, refused_by_aio, refused_by_uring};
use super::{fs, fuse};
use crate::case::Case;
use crate::job::Job;
use crate::mount::{Mount, ROOT};
use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::pipe::pipe;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// P2, one case for each kind of file.
pub fn cases(supported: bool) -> Vec<Case> {
    let mut cases = vec![
        Case::new("P2-tmpfs", |_: &Job| {
            let memory = memory()?;
            refused_by(&memory, true)?;
            memory.check(1, 0..2 * PAGE, PAGE as usize, PLAIN)
        }),
        Case::new("P2-overlayfs", |_: &Job| overlay()),
        Case::new("P2-fuse", |_: &Job| fuse::refused()),
        Case::new("P2-procfs", |_: &Job| {
            by_path("/proc/sys/vm/swappiness", OFlags::RDWR)
        }),
        Case::new("P2-zero", |_: &Job| by_path("/dev/zero", OFlags::RDWR)),
        Case::new("P2-pipe", |_: &Job| {
            let (output, input) = pipe().context("cannot make a pipe")?;
            refused_ends(output, input)
        }),
        Case::new("P2-socket", |_: &Job| {
            let (one, other) = UnixStream::pair().context("cannot make sockets")?;
            refused_ends(one.into(), other.into())
        }),
        Case::new("P14-io_uring", |_: &Job| refused_by_uring()),
        Case::new("P14-aio", |_: &Job| refused_by_aio()),
    ];
    if !supported {
        cases.push(Case::new("P3-block-device", |_: &Job| {
            let device = device::ready(Class::Hardirq, first())?;
            let file = File::options().read(true).write(true).open(device);
            refused_by(&sample(file.context("cannot open a device")?.into()), true)
        }));
        return cases;
    }
    for class in [Class::Hardirq, Class::Inline] {
        let name = format!("P1-block-device-{}", class.name());
        cases.push(Case::new(name, move |_: &Job| block_device(class)));
    }
    cases
}

/// A file of tmpfs with a page of data.
pub fn memory() -> Result<Sample> {
    let fd = memfd_create("memory", MemfdFlags::CLOEXEC).context("cannot make a memfd")?;
    let sample = sample(fd);
    sample.put(1, 0..2 * PAGE, PAGE as usize, PLAIN)?;
    Ok(sample)
}

fn sample(fd: OwnedFd) -> Sample {
    Sample {
        file: File::from(fd),
    }
}

fn first() -> &'static fs::Fs {
    &fs::ALL[0]
}

fn by_path(path: &str, flags: OFlags) -> Result<()> {
    let fd = open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .context(format!("cannot open {path}"))?;
    let sample = sample(fd);
    let mut bytes = [0; 100];
    let got = read_at(&sample.file, 0, &mut bytes, UNCACHED);
    same("a read", got, Err(Errno::OPNOTSUPP))?;
    let got = write_at(&sample.file, 0, &bytes, UNCACHED);
    same("a write", got, Err(Errno::OPNOTSUPP))
}

/// The ends of a stream: nothing goes in, and what is in stays.
fn refused_ends(output: OwnedFd, input: OwnedFd) -> Result<()> {
    let (output, input) = (sample(output), sample(input));
    // Streams have no offset: -1 means the position.
    let own = u64::MAX;
    let got = write_at(&input.file, own, b"first", UNCACHED);
    same("a write", got, Err(Errno::OPNOTSUPP))?;
    same(
        "a plain write",
        write_at(&input.file, own, b"word", PLAIN),
        Ok(4),
    )?;
    let mut bytes = [0; 100];
    let got = read_at(&output.file, own, &mut bytes, UNCACHED);
    same("a read", got, Err(Errno::OPNOTSUPP))?;
    same(
        "a plain read",
        read_at(&output.file, own, &mut bytes, PLAIN),
        Ok(4),
    )
}

/// A file of overlayfs, whatever is below it.
fn overlay() -> Result<()> {
    let folder = |name: &str| -> Result<_> {
        let path = Path::new(ROOT).join(name);
        std::fs::create_dir_all(&path).context("cannot make a folder")?;
        Ok(path)
    };
    let (low, lower) = (folder("lower")?, folder("lowest")?);
    std::fs::write(low.join("file"), [1; 8192]).context("cannot write a file")?;
    let options = format!("lowerdir={}:{}", low.display(), lower.display());
    let mount = Mount::with(
        Path::new("none"),
        "overlay",
        "over",
        MountFlags::RDONLY,
        &options,
    )
    .context("cannot mount an overlay")?;
    let fd = open(mount.join("file"), OFlags::RDONLY, Mode::empty()).context("cannot open")?;
    let got = sample(fd).read(0, 100, UNCACHED);
    same("a read", got, Err(Errno::OPNOTSUPP))?;
    mount.close()
}

/// P1 on a block device: uncached like a file of a file system.
fn block_device(class: Class) -> Result<()> {
    let path = device::ready(class, first())?;
    let fd = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .context(format!("cannot open {}", path.display()))?;
    let device = sample(fd);
    // Where a file system may well have nothing, and what was there goes back.
    let (start, length) = (40 << 20, 16 * PART);
    device.chill()?;
    let before = device
        .read(start, length, UNCACHED)
        .context("cannot read")?;
    ensure!(before.len() == length, "{} bytes read", before.len());
    let range = start..start + length as u64;
    device.put(1, range.clone(), PART, UNCACHED)?;
    device.sync()?;
    let cached = device.settle(0)?;
    same(
        "pages in the cache",
        device.cached_in(start, length as u64)?.pages,
        0,
    )?;
    same("dirty pages", cached.dirty, 0)?;
    device.check(1, range, PART, UNCACHED)?;
    same(
        "pages in the cache",
        device.cached_in(start, length as u64)?.pages,
        0,
    )?;
    same(
        "the length written",
        write_at(&device.file, start, &before, UNCACHED),
        Ok(length),
    )?;
    device.sync()
}
