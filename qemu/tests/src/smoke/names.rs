// SPDX-License-Identifier: GPL-2.0

//! Names and what stat, readlink and open say of them, against the known tree.

use super::with;
use crate::job::Job;
use crate::tree::{self, Entry, Kind, Layout};
use crate::walk::{self, Found};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FileType, Mode, OFlags, open};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Readdir lists the tree's names and no others; lookup and stat agree with it.
pub fn names(job: &Job, layout: &Layout) -> Result<()> {
    let entries = tree::entries(layout);
    with(job, layout, |mount| {
        let mut found = walk::tree(mount.path())?;
        let mut faults = Vec::new();
        for entry in &entries {
            match found.remove(OsStr::new(&entry.path)) {
                None => faults.push(format!("{}: not listed", entry.path)),
                Some(found) => {
                    let wanted = wanted(job, layout, entry, &entries);
                    let got = got(&found, &mount.join(&entry.path))?;
                    if wanted != got {
                        faults.push(format!("{}: {got}\n  wanted {wanted}", entry.path));
                    }
                }
            }
        }
        let known = ["", "lost+found"].map(OsStr::new);
        let strange = found
            .keys()
            .filter(|path| !known.contains(&path.as_os_str()));
        faults.extend(strange.map(|path| format!("{}: not in the tree", path.display())));
        judge(faults)
    })
}

fn judge(mut faults: Vec<String>) -> Result<()> {
    let number = faults.len();
    faults.truncate(10);
    ensure!(number == 0, "{number} faults\n{}", faults.join("\n"));
    Ok(())
}

fn file_type(entry: &Entry, entries: &[Entry]) -> FileType {
    match &entry.kind {
        Kind::Directory => FileType::Directory,
        Kind::File(_) => FileType::RegularFile,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Char(..) => FileType::CharacterDevice,
        Kind::Block(..) => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Hard(to) => file_type(target(to, entries), entries),
    }
}

fn target<'a>(path: &str, entries: &'a [Entry]) -> &'a Entry {
    let found = entries.iter().find(|entry| entry.path == path);
    found.expect("a hard link leads to an entry of the tree")
}

/// A line that describes an entry as it has to be.
fn wanted(job: &Job, layout: &Layout, entry: &Entry, entries: &[Entry]) -> String {
    let kind = file_type(entry, entries);
    // Revision 0 has no types in its directories.
    let listed = match layout.revision {
        0 => FileType::Unknown,
        _ => kind,
    };
    let inode = match &entry.kind {
        Kind::Hard(to) => target(to, entries),
        _ => entry,
    };
    let names = |path: &str| {
        let hard = |other: &&Entry| other.kind == Kind::Hard(path.into());
        1 + entries.iter().filter(hard).count()
    };
    let (links, size, rdev, target) = match &inode.kind {
        Kind::File(content) => (names(&inode.path), content.size, (0, 0), ""),
        Kind::Symlink(target) => (1, target.len() as u64, (0, 0), target.as_str()),
        Kind::Char(major, minor) | Kind::Block(major, minor) => (1, 0, (*major, *minor), ""),
        // The size is the driver's affair.
        Kind::Directory => (2 + folders_in(&inode.path, entries), 0, (0, 0), ""),
        _ => (1, 0, (0, 0), ""),
    };
    // The C driver knows whole seconds only.
    let nanos = match layout.inode_size {
        256 if job.is_rext2() => inode.nanos,
        _ => 0,
    };
    line(
        listed,
        kind,
        inode.mode,
        links as u64,
        (inode.uid, inode.gid),
        size,
        rdev,
        (inode.mtime, i64::from(nanos)),
        target,
    )
}

fn folders_in(path: &str, entries: &[Entry]) -> usize {
    let inside = |entry: &&Entry| {
        entry.kind == Kind::Directory
            && entry
                .path
                .rsplit_once('/')
                .is_some_and(|(folder, _)| folder == path)
    };
    entries.iter().filter(inside).count()
}

/// The same line for what is there.
fn got(found: &Found, path: &Path) -> Result<String> {
    let meta = &found.meta;
    let kind = FileType::from_raw_mode(meta.mode());
    let target = match kind {
        FileType::Symlink => {
            fs::read_link(path).context(format!("cannot read link {}", path.display()))?
        }
        _ => PathBuf::new(),
    };
    let size = match kind {
        FileType::Directory => 0,
        _ => meta.size(),
    };
    Ok(line(
        found.listed,
        kind,
        meta.mode() & 0o7777,
        meta.nlink(),
        (meta.uid(), meta.gid()),
        size,
        (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        ),
        (meta.mtime(), meta.mtime_nsec()),
        &target.to_string_lossy(),
    ))
}

#[expect(
    clippy::too_many_arguments,
    reason = "one for each thing that stat tells"
)]
fn line(
    listed: FileType,
    kind: FileType,
    mode: u32,
    links: u64,
    owner: (u32, u32),
    size: u64,
    rdev: (u32, u32),
    mtime: (i64, i64),
    target: &str,
) -> String {
    format!(
        "listed {} type {} mode {mode:o} links {links} owner {}:{} size {size} device {}:{} \
         time {}.{:09} target {target:?}",
        walk::letter(listed),
        walk::letter(kind),
        owner.0,
        owner.1,
        rdev.0,
        rdev.1,
        mtime.0,
        mtime.1,
    )
}

/// Lookups that fail, and paths that lead the long way round.
pub fn lookups(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        let long = "n".repeat(256);
        for (path, wanted) in [
            ("missing", Errno::NOENT),
            ("size-", Errno::NOENT),
            ("size-10240", Errno::NOENT),
            ("many/name_of_an_entry_", Errno::NOENT),
            ("many/name_of_an_entry_99999", Errno::NOENT),
            ("size-1/inside", Errno::NOTDIR),
            ("empty/inside", Errno::NOENT),
            (long.as_str(), Errno::NAMETOOLONG),
            ("link-58", Errno::NOENT),
        ] {
            let got = open(mount.join(path), OFlags::RDONLY, Mode::empty()).err();
            ensure!(
                got == Some(wanted),
                "open {path}: {got:?} instead of {wanted:?}"
            );
        }
        for path in [
            "link-dir/file",
            "folder/../folder/./file",
            "deep/0/../../link-dir/file",
        ] {
            same(&mount.join(path), &mount.join("folder/file"))?;
        }
        same(&mount.join("hard-1"), &mount.join("hard-2"))?;
        same(&mount.join("deep/0/.."), &mount.join("deep"))?;
        // `..` of the root leads out of the mount.
        same(&mount.join(".."), Path::new(crate::mount::ROOT))?;

        let folder = mount.join("folder");
        let read = fs::read(&folder).map_err(|error| error.raw_os_error());
        ensure!(
            read == Err(Some(Errno::ISDIR.raw_os_error())),
            "reading a folder: {read:?}"
        );
        let null = fs::read(mount.join("null")).context("cannot use a device node")?;
        ensure!(null.is_empty(), "the null device held {} bytes", null.len());
        Ok(())
    })
}

fn same(one: &Path, other: &Path) -> Result<()> {
    let ids = |path: &Path| -> Result<(u64, u64)> {
        let meta = fs::metadata(path).context(format!("cannot stat {}", path.display()))?;
        Ok((meta.dev(), meta.ino()))
    };
    if ids(one)? != ids(other)? {
        bail!("{} is not {}", one.display(), other.display());
    }
    Ok(())
}
