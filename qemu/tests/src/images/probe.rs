// SPDX-License-Identifier: GPL-2.0

//! The calls made on every image, and what they answered.

use crate::disk::Partition;
use crate::kmsg::Kmsg;
use crate::mount::Mount;
use crate::walk::{self, Aligned};
use anyhow::Result;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, lgetxattr, llistxattr, open, readlink,
    statfs, statx,
};
use rustix::io::{Errno, pread};
use rustix::mount::MountFlags;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// As much of a file as is read: more than any image's file holds in blocks.
const READ_LIMIT: u64 = 1 << 20;

/// The answer of a driver without extended attributes.
const UNSUPPORTED: &str = "unsupported";

/// One call's name, its answer and the file system's log lines about it.
#[derive(Debug)]
pub struct Answer {
    /// What was called, e.g. `read.big`.
    pub call: String,
    /// The answer in the notation of the table.
    pub value: String,
    /// What the driver under test logged meanwhile.
    pub log: Vec<String>,
}

struct Probe<'a> {
    mount: &'a Mount,
    log: &'a mut Log,
    answers: Vec<Answer>,
}

/// The driver's own lines for the device under test.
struct Log {
    kmsg: Kmsg,
    prefix: String,
}

impl Log {
    fn take(&mut self) -> Result<Vec<String>> {
        let mut lines = self.kmsg.lines()?;
        lines.retain(|line| line.starts_with(&self.prefix));
        Ok(lines)
    }
}

/// Mounts the image, makes all calls, unmounts it.
pub fn probe(image: &Partition, fs: &str) -> Result<Vec<Answer>> {
    let driver = if fs == "ext2" { "EXT2-fs" } else { fs };
    let mut log = Log {
        kmsg: Kmsg::now()?,
        prefix: format!("{driver} ({}): ", image.name),
    };
    let mounted = Mount::with(&image.device, fs, "image", MountFlags::RDONLY, "");
    let mut first = Answer {
        call: "mount".into(),
        value: "ok".into(),
        log: log.take()?,
    };
    let mut mount = match mounted {
        Ok(mount) => mount,
        Err(error) => {
            first.value = name(error);
            return Ok(vec![first]);
        }
    };
    let mut probe = Probe {
        mount: &mount,
        log: &mut log,
        answers: vec![first],
    };
    probe.all()?;
    let mut answers = probe.answers;
    answers.push(Answer {
        call: "umount".into(),
        value: mount.unmount().map_or_else(name, |()| "ok".into()),
        log: log.take()?,
    });
    Ok(answers)
}

impl Probe<'_> {
    fn all(&mut self) -> Result<()> {
        self.ask("ls", ".", list)?;
        self.ask("ls.d", "d", list)?;
        self.ask("ls.h", "h", count)?;
        self.ask("read.big", "big", |path| read(path, OFlags::empty(), 1024))?;
        self.ask("direct.big", "big", |path| {
            read(path, OFlags::DIRECT, 32 << 10)
        })?;
        self.ask("stat.big", "big", stat)?;
        self.ask("mtime.big", "big", mtime)?;
        self.ask("attr.big", "big", attributes)?;
        self.ask("attr.f", "d/f", attributes)?;
        self.ask("mtime.f", "d/f", mtime)?;
        self.ask("read.f", "d/f", |path| read(path, OFlags::empty(), 1024))?;
        self.ask("link.fast", "fast", link)?;
        self.ask("link.slow", "slow", link)?;
        self.ask("rdev.nul", "nul", rdev)?;
        self.ask("rdev.bigdev", "bigdev", rdev)?;
        self.ask("stat.jrnl", "jrnl", stat)?;
        self.ask("stat.loop", "d/sub/loop", |path| {
            stat(path).map(|_| "ok".into())
        })?;
        self.ask("xattr.big", "big", xattrs)?;
        self.ask("xattr.fast", "fast", xattrs)?;
        self.ask("statfs", ".", sizes)
    }

    fn ask(
        &mut self,
        call: &str,
        path: &str,
        make: impl Fn(&Path) -> Result<String, Errno>,
    ) -> Result<()> {
        let value = make(&self.mount.join(path)).unwrap_or_else(name);
        self.answers.push(Answer {
            call: call.into(),
            value,
            log: self.log.take()?,
        });
        Ok(())
    }
}

/// The answers that are not what a missing file gives, for reading.
pub fn summary(answers: &[Answer]) -> String {
    let shown = answers.iter().filter(|answer| answer.value != "ENOENT");
    shown
        .map(|answer| format!("{}={}", answer.call, answer.value))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Names with a letter for the type that the directory tells.
fn list(path: &Path) -> Result<String, Errno> {
    let mut names = Vec::new();
    for entry in walk::entries(path, 4096)? {
        if entry.name != b"." && entry.name != b".." {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            names.push(format!("{name}:{}", walk::letter(entry.kind)));
        }
    }
    names.sort();
    Ok(names.join(","))
}

fn count(path: &Path) -> Result<String, Errno> {
    Ok((walk::entries(path, 4096)?.len().saturating_sub(2)).to_string())
}

/// `BYTES/CRC` of what can be read from the start on, `+ERRNO` if it ends early.
fn read(path: &Path, flags: OFlags, step: usize) -> Result<String, Errno> {
    let file = open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | flags,
        Mode::empty(),
    )?;
    let mut buffer = Aligned::new(step);
    let mut crc = crc32fast::Hasher::new();
    let mut done = 0;
    while done < READ_LIMIT {
        match pread(&file, buffer.bytes(), done) {
            Ok(0) => break,
            Ok(length) => {
                crc.update(&buffer.bytes()[..length]);
                done += length as u64;
            }
            Err(error) if done == 0 => return Err(error),
            Err(error) => return Ok(format!("{done}/{:08x}+{}", crc.finalize(), name(error))),
        }
    }
    Ok(format!("{done}/{:08x}", crc.finalize()))
}

/// `MODE/LINKS/SIZE/SECTORS/UID/GID`.
fn stat(path: &Path) -> Result<String, Errno> {
    let meta = path.symlink_metadata().map_err(errno)?;
    Ok(format!(
        "{:o}/{}/{}/{}/{}/{}",
        meta.mode(),
        meta.nlink(),
        meta.size(),
        meta.blocks(),
        meta.uid(),
        meta.gid()
    ))
}

fn mtime(path: &Path) -> Result<String, Errno> {
    let meta = path.symlink_metadata().map_err(errno)?;
    Ok(format!("{}.{}", meta.mtime(), meta.mtime_nsec()))
}

/// The letters of chattr(1) for the flags that statx tells.
fn attributes(path: &Path) -> Result<String, Errno> {
    let attributes = statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::BASIC_STATS,
    )?
    .stx_attributes;
    let letters = [
        (StatxAttributes::IMMUTABLE, 'i'),
        (StatxAttributes::APPEND, 'a'),
        (StatxAttributes::NODUMP, 'd'),
    ];
    Ok(letters
        .iter()
        .filter(|(flag, _)| attributes.contains(*flag))
        .map(|(_, letter)| letter)
        .collect())
}

/// The target, shortened in the middle.
fn link(path: &Path) -> Result<String, Errno> {
    let target = readlink(path, Vec::new())?.into_bytes();
    Ok(match target.len() {
        0..20 => String::from_utf8_lossy(&target).into_owned(),
        length => format!("{}*{length}", String::from_utf8_lossy(&target[..1])),
    })
}

fn rdev(path: &Path) -> Result<String, Errno> {
    let device = path.symlink_metadata().map_err(errno)?.rdev();
    Ok(format!(
        "{}.{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    ))
}

/// `NAME=VALUE` of each extended attribute, or that the driver has none to offer.
fn xattrs(path: &Path) -> Result<String, Errno> {
    let mut names = [0; 1024];
    let mut value = [0; 1024];
    match lgetxattr(path, "trusted.rext2-none", &mut value[..]) {
        Ok(_) | Err(Errno::NODATA) => {}
        Err(Errno::OPNOTSUPP) => return Ok(UNSUPPORTED.into()),
        Err(error) => return Err(error),
    }
    let length = llistxattr(path, &mut names[..])?;
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        if !name.is_empty() {
            let length = lgetxattr(path, name, &mut value[..])?;
            found.push(format!(
                "{}={}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(&value[..length])
            ));
        }
    }
    found.sort();
    Ok(found.join(","))
}

/// `BLOCKSIZE/BLOCKS/FREE/AVAILABLE/FILES/FREE-FILES/NAME-LENGTH`.
fn sizes(path: &Path) -> Result<String, Errno> {
    let fs = statfs(path)?;
    Ok(format!(
        "{}/{}/{}/{}/{}/{}/{}",
        fs.f_bsize, fs.f_blocks, fs.f_bfree, fs.f_bavail, fs.f_files, fs.f_ffree, fs.f_namelen
    ))
}

/// The name of an error number, as in the manual pages.
pub fn name(error: Errno) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(error.raw_os_error()))
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}
