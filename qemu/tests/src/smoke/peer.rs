// SPDX-License-Identifier: GPL-2.0

//! The same image mounted with the C driver: every answer has to be the same.

use super::{image, with};
use crate::case::skip;
use crate::job::Job;
use crate::mount::Mount;
use crate::tree::Layout;
use crate::walk;
use anyhow::{Context, Result, ensure};
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;

/// Names, inodes, all of stat, the order and the types of lists, statfs.
pub fn same_as_c(job: &Job, layout: &Layout) -> Result<()> {
    if !job.is_rext2() {
        return skip("the C driver is under test itself");
    }
    let mut ours = None;
    with(job, layout, |mount| {
        ours = Some(snapshot(mount)?);
        Ok(())
    })?;
    let ours = ours.context("no snapshot")?;
    let mount = Mount::read_only(&image(layout)?.device, "ext2", "peer")?;
    let theirs = snapshot(&mount)?;
    mount.close()?;
    let mut faults: Vec<String> = Vec::new();
    for (path, line) in &ours {
        match theirs.get(path) {
            Some(other) if other == line => {}
            Some(other) => faults.push(format!("{}: {line}\n  C says {other}", path.display())),
            None => faults.push(format!("{}: not with C", path.display())),
        }
    }
    let missing = theirs.keys().filter(|path| !ours.contains_key(*path));
    faults.extend(missing.map(|path| format!("{}: only with C", path.display())));
    let number = faults.len();
    faults.truncate(10);
    ensure!(number == 0, "{number} differences\n{}", faults.join("\n"));
    Ok(())
}

/// One line for each name; the file system's own line has no name.
fn snapshot(mount: &Mount) -> Result<BTreeMap<OsString, String>> {
    let mut lines = BTreeMap::new();
    for (path, found) in walk::tree(mount.path())? {
        let meta = &found.meta;
        lines.insert(
            path,
            format!(
                "listed {} inode {} mode {:o} links {} owner {}:{} device {:#x} size {} \
                 sectors {} block {} times {} {} {}",
                walk::letter(found.listed),
                meta.ino(),
                meta.mode(),
                meta.nlink(),
                meta.uid(),
                meta.gid(),
                meta.rdev(),
                meta.size(),
                meta.blocks(),
                meta.blksize(),
                meta.atime(),
                meta.mtime(),
                meta.ctime(),
            ),
        );
    }
    let fs = statfs(mount.path()).context("cannot statfs")?;
    lines.insert(
        "(statfs)".into(),
        format!(
            "type {:#x} block {} {} blocks {} {} {} files {} {} name {}",
            fs.f_type,
            fs.f_bsize,
            fs.f_frsize,
            fs.f_blocks,
            fs.f_bfree,
            fs.f_bavail,
            fs.f_files,
            fs.f_ffree,
            fs.f_namelen
        ),
    );
    Ok(lines)
}
