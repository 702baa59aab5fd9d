// SPDX-License-Identifier: GPL-2.0

//! Everything a tree says of itself: names, metadata, attributes, checksums of
//! contents; compared line by line between two drivers.

use crate::walk;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, lgetxattr, llistxattr, open};
use rustix::io::{Errno, pread};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Of larger files, this much at both ends and in the middle is read.
const WHOLE: u64 = 48 << 20;
const SAMPLE: u64 = 1 << 20;
const STEP: usize = 256 << 10;
/// More than the attributes of an inode can take.
const ATTRIBUTES: usize = 64 << 10;

/// A line for each name.
pub struct Manifest(BTreeMap<OsString, String>);

impl Manifest {
    /// Of everything below a folder.
    pub fn of(root: &Path) -> Result<Manifest> {
        let mut lines = BTreeMap::new();
        for (path, found) in walk::tree(root)? {
            let full = root.join(&path);
            let mut line = metadata(&found.meta);
            write!(line, " listed {}", walk::letter(found.listed))?;
            if found.meta.is_symlink() {
                let target = fs::read_link(&full).context(format!("no target of {path:?}"))?;
                write!(line, " to {target:?}")?;
            }
            if found.meta.is_file() {
                let sum = checksum(&full, found.meta.size())
                    .context(format!("cannot read {}", path.display()))?;
                write!(line, " content {sum:08x}")?;
            }
            for (name, value) in attributes(&full)? {
                write!(line, " {name}={value:02x?}")?;
            }
            lines.insert(path, line);
        }
        Ok(Manifest(lines))
    }

    /// Fails with the differences.
    pub fn same_as(&self, other: &Manifest) -> Result<()> {
        let mut differences = Vec::new();
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        for name in names {
            let (one, two) = (self.0.get(name), other.0.get(name));
            if one != two {
                let none = String::from("(no such name)");
                differences.push(format!(
                    "/{}: {}\n  C ext2: {}",
                    name.display(),
                    one.unwrap_or(&none),
                    two.unwrap_or(&none)
                ));
            }
        }
        ensure!(
            differences.is_empty(),
            "C ext2 sees something else:\n{}",
            differences[..differences.len().min(10)].join("\n")
        );
        Ok(())
    }
}

/// C ext2 knows seconds only, and reading may have changed the access time.
fn metadata(meta: &Metadata) -> String {
    format!(
        "inode {} mode {:o} links {} owner {}:{} device {:#x} size {} sectors {} times {} {} {}",
        meta.ino(),
        meta.mode(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.rdev(),
        meta.size(),
        meta.blocks(),
        meta.atime(),
        meta.mtime(),
        meta.ctime(),
    )
}

fn checksum(path: &Path, size: u64) -> Result<u32> {
    let fd = open(path, OFlags::RDONLY | OFlags::NOATIME, Mode::empty())?;
    let ranges = match size {
        0..=WHOLE => std::iter::once(0..size).collect(),
        _ => vec![0..SAMPLE, size / 2..size / 2 + SAMPLE, size - SAMPLE..size],
    };
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; STEP];
    for range in ranges {
        let mut pos = range.start;
        while pos < range.end {
            let length = (range.end - pos).min(STEP as u64) as usize;
            let done = pread(&fd, &mut buffer[..length], pos)?;
            ensure!(done > 0, "it ends at {pos} and not at {}", range.end);
            sum.update(&buffer[..done]);
            pos += done as u64;
        }
    }
    Ok(sum.finalize())
}

/// The extended attributes, sorted by name.
pub fn attributes(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut list = vec![0; ATTRIBUTES];
    let length = match llistxattr(path, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        length => length.context(format!("cannot list attributes of {}", path.display()))?,
    };
    let names = list[..length].split(|byte| *byte == 0);
    let mut found = BTreeMap::new();
    for name in names.filter(|name| !name.is_empty()) {
        let mut value = vec![0; ATTRIBUTES];
        let length = lgetxattr(path, name, &mut value[..]).context(format!(
            "cannot get listed attribute {:?} of {}",
            String::from_utf8_lossy(name),
            path.display()
        ))?;
        value.truncate(length);
        found.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(found)
}
