// SPDX-License-Identifier: GPL-2.0

//! Directory reading: buffers of every size, positions, several readers.

use super::with;
use crate::job::Job;
use crate::tree::Layout;
use crate::walk::{self, Entry};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Folders of one block, of several, and with an index.
const FOLDERS: [&str; 4] = [".", "empty", "names", "many"];

/// Small buffers give the same entries as large ones, each name once.
pub fn listing(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for folder in FOLDERS {
            let path = mount.join(folder);
            let whole = list(&path, 1 << 20)?;
            let names: BTreeSet<_> = whole.iter().map(|entry| &entry.name).collect();
            ensure!(
                names.len() == whole.len(),
                "{folder}: a name is listed twice"
            );
            ensure!(
                whole[0].name == b"." && whole[1].name == b"..",
                "{folder}: the list does not start with . and .."
            );
            // The smallest that holds an entry with the longest name.
            for size in [280, 512, 4096] {
                ensure!(
                    list(&path, size)? == whole,
                    "{folder}: another list with a buffer of {size} bytes"
                );
            }
            let small = walk::entries(&path, 20).err();
            ensure!(
                small == Some(Errno::INVAL),
                "{folder}: a buffer too small for an entry gave {small:?}"
            );
        }
        let many = list(&mount.join("many"), 32 << 10)?;
        let wanted = layout.many + 2;
        ensure!(
            many.len() == wanted,
            "many: {} names of {wanted}",
            many.len()
        );
        Ok(())
    })
}

/// A cookie leads to the entry after the one it came with; the start leads to
/// the start; the end stays the end.
pub fn seeking(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for folder in FOLDERS {
            let path = mount.join(folder);
            let whole = list(&path, 32 << 10)?;
            let fd = open_folder(&path)?;
            let step = (whole.len() / 40).max(1);
            // Backwards, so that no position is where the reader was anyway.
            for index in (0..whole.len()).rev().step_by(step) {
                let rest = read_at(&fd, whole[index].cookie)?;
                ensure!(
                    rest == whole[index + 1..],
                    "{folder}: after entry {index} of {} come {} entries",
                    whole.len(),
                    rest.len()
                );
            }
            ensure!(
                read_at(&fd, 0)? == whole,
                "{folder}: rewinding lost entries"
            );
            let names: BTreeSet<_> = whole.iter().map(|entry| &entry.name).collect();
            // Inside an entry: whatever comes, it must be entries of the folder.
            for entry in read_at(&fd, whole[0].cookie + 1)? {
                ensure!(
                    names.contains(&entry.name),
                    "{folder}: a position inside an entry gave the name {:?}",
                    String::from_utf8_lossy(&entry.name)
                );
            }
        }
        Ok(())
    })
}

fn list(path: &Path, size: usize) -> Result<Vec<Entry>> {
    walk::entries(path, size).context(format!("cannot list {}", path.display()))
}

fn open_folder(path: &Path) -> Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .context(format!("cannot open {}", path.display()))
}

fn read_at(fd: &OwnedFd, cookie: u64) -> Result<Vec<Entry>> {
    seek(fd, SeekFrom::Start(cookie)).context(format!("cannot seek to {cookie}"))?;
    walk::entries_from(fd, 32 << 10).context(format!("cannot list from {cookie} on"))
}
