// SPDX-License-Identifier: GPL-2.0

//! The disk images of the VM: made by e2fsprogs, kept in the cache under a hash
//! of everything they are made from.

mod main_tree;
pub mod pack;
mod smoke;

use crate::hash::Hasher;
use crate::lock;
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;
use anyhow::{Context as _, ensure};
use fs_err as fs;
use rext2_tests::uncached::fs::Fs;
use rext2_tests::{crash, images::table, pattern, tree};
use std::path::{Path, PathBuf};

/// A disk for the guest, which finds it by its serial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The raw image; shared and never changed: the guest writes to a snapshot.
    pub path: PathBuf,
    /// The serial.
    pub serial: String,
}

/// Room for the largest file system of suite `fs`.
const WORK_SIZE: usize = 64 << 20;
/// Room for the files of 32 writers in suite `dio`.
const LARGE_SIZE: u64 = 168 << 20;
/// Room for the images of suite `fuzz`.
const FUZZ_SIZE: u64 = 4 << 20;

impl Disk {
    fn at(path: PathBuf, serial: &str) -> Self {
        Disk {
            path,
            serial: serial.to_owned(),
        }
    }
}

/// The corner-case and broken images of suite `images`, a partition each.
pub fn suite_images(project: &Project) -> anyhow::Result<Disk> {
    let recipes = project.qemu().join("images");
    let mut key = key("images")?;
    for name in files(&recipes)? {
        // What the images should answer does not change them.
        if !name.ends_with(".tsv") {
            key.part(name.as_bytes())
                .part(&fs::read(recipes.join(&name))?);
        }
    }
    disk(project, "images", key, |folder, log| {
        let made = folder.join("made");
        Cmd::new("bash")
            .arg(recipes.join("make.sh"))
            .arg(&made)
            .run(log)?;
        let mut parts = Vec::new();
        for file in files(&made)? {
            parts.push((file.trim_end_matches(".img").to_owned(), made.join(file)));
        }
        let mut listed: Vec<_> = table::rows()?.into_iter().map(|row| row.image).collect();
        listed.sort();
        ensure!(
            parts.iter().map(|(label, _)| label).eq(&listed),
            "the images that make.sh makes and those of expected.tsv differ"
        );
        pack::pack(&folder.join("disk"), &parts)
    })
}

/// The images of suite `smoke`, a partition each, with the tree the guest expects.
pub fn smoke_images(project: &Project) -> anyhow::Result<Disk> {
    let config = project.qemu().join("images/mke2fs.conf");
    let mut key = key("smoke")?;
    key.part(&fs::read(&config)?)
        .part(include_bytes!("images/smoke.rs"))
        .part(format!("{:?}", tree::LAYOUTS).as_bytes());
    for layout in &tree::LAYOUTS {
        key.part(format!("{:?}", tree::entries(layout)).as_bytes());
    }
    disk(project, "smoke", key, |folder, log| {
        let parts = smoke::make(folder, &config, log)?;
        pack::pack(&folder.join("disk"), &parts)
    })
}

/// The image that `build-and-boot` reads: a real tree, as mke2fs copies it.
pub fn main_image(project: &Project) -> anyhow::Result<Disk> {
    let config = project.qemu().join("images/mke2fs.conf");
    let sources = main_tree::sources(&project.root)?;
    let mut key = key("main")?;
    key.part(&fs::read(&config)?)
        .part(include_bytes!("images/main_tree.rs"))
        .part(sources.as_bytes());
    disk(project, "main", key, |folder, log| {
        let tree = main_tree::make(folder, &project.root, &sources, log)?;
        Cmd::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2", "-b", "4096", "-d"])
            .arg(&tree)
            .arg(folder.join("disk"))
            .arg("256M")
            .env("MKE2FS_CONFIG", &config)
            .run(log)?;
        Cmd::new("e2fsck")
            .arg("-fn")
            .arg(folder.join("disk"))
            .run(log)
    })
}

/// The disk on which suite `fs` makes its file systems. It is full of a pattern,
/// so that a block that shows what the device held before is noticed.
pub fn work_disk(project: &Project) -> anyhow::Result<Disk> {
    let mut key = key("fs")?;
    key.part(format!("{:?} {}", pattern::STALE, WORK_SIZE).as_bytes());
    disk(project, "fs", key, |folder, _| {
        let work = folder.join("work");
        fs::write(
            &work,
            pattern::STALE.repeat(WORK_SIZE / pattern::STALE.len()),
        )?;
        pack::pack(&folder.join("disk"), &[("work".to_owned(), work)])
    })
}

/// An empty file system for suite `uncached`, alone on its disk so that its
/// checker can look at it afterwards.
pub fn empty_image(project: &Project, fs: &Fs) -> anyhow::Result<Disk> {
    let config = project.qemu().join("images/mke2fs.conf");
    let mut key = key("empty")?;
    key.part(&fs::read(&config)?)
        .part(Cmd::new(fs.make[0]).arg("-V").read()?.as_bytes())
        .part(format!("{:?} {}", fs.make, fs.mib).as_bytes());
    disk(project, fs.name, key, |folder, log| {
        let image = folder.join("disk");
        fs::File::create(&image)?.set_len(fs.mib << 20)?;
        Cmd::new(fs.make[0])
            .args(&fs.make[1..])
            .arg(&image)
            .env("MKE2FS_CONFIG", &config)
            .run(log)
    })
}

/// The disk of suite `dio`: one large partition of nothing.
pub fn large_disk(project: &Project) -> anyhow::Result<Disk> {
    let mut key = key("dio")?;
    key.part(&LARGE_SIZE.to_le_bytes());
    disk(project, "dio", key, |folder, _| {
        let work = folder.join("work");
        fs::File::create(&work)?.set_len(LARGE_SIZE)?;
        pack::pack(&folder.join("disk"), &[("work".to_owned(), work)])
    })
}

/// The disk of suite `fuzz`: a partition to mount, and one that keeps the image
/// that is mounted as it was before.
pub fn fuzz_disk(project: &Project) -> anyhow::Result<Disk> {
    let mut key = key("fuzz")?;
    key.part(&FUZZ_SIZE.to_le_bytes());
    disk(project, "fuzz", key, |folder, _| {
        let work = folder.join("work");
        fs::File::create(&work)?.set_len(FUZZ_SIZE)?;
        let parts = ["work", "kept"].map(|name| (name.to_owned(), &work));
        pack::pack(&folder.join("disk"), &parts)
    })
}

/// The disk of suite `crash`: a partition for a file system, and one for marks.
pub fn crash_disk(project: &Project) -> anyhow::Result<Disk> {
    empty_parts(
        project,
        "crash",
        &[("work", crash::SIZE), ("marks", crash::MARKS_SIZE)],
    )
}

/// The disk on which suite `crash` makes what a crash has left, and keeps some.
pub fn crash_work_disk(project: &Project) -> anyhow::Result<Disk> {
    empty_parts(
        project,
        "crash-work",
        &[("work", crash::SIZE), ("kept", crash::SIZE)],
    )
}

/// A disk with partitions full of zeros.
fn empty_parts(project: &Project, name: &str, parts: &[(&str, u64)]) -> anyhow::Result<Disk> {
    let mut key = key(name)?;
    key.part(format!("{parts:?}").as_bytes());
    disk(project, name, key, |folder, _| {
        let mut files = Vec::new();
        for (label, size) in parts {
            let path = folder.join(label);
            fs::File::create(&path)?.set_len(*size)?;
            files.push((label.to_string(), path));
        }
        pack::pack(&folder.join("disk"), &files)
    })
}

/// A key to which everything an image depends on is added.
pub fn key(kind: &str) -> anyhow::Result<Hasher> {
    let tools = Cmd::new("mke2fs").arg("-V").output()?;
    let mut key = Hasher::default();
    // The packer's layout is part of a disk, too.
    key.part(kind.as_bytes())
        .part(&tools.stderr)
        .part(include_bytes!("images/pack.rs"));
    Ok(key)
}

/// The cached disk of this key, or a new one: `make` leaves the file `disk` in
/// the folder that it gets.
pub fn disk(
    project: &Project,
    serial: &str,
    key: Hasher,
    make: impl FnOnce(&Path, &Path) -> anyhow::Result<()>,
) -> anyhow::Result<Disk> {
    let path = project.image(&format!("{serial}-{}.img", key.short()));
    if path.exists() {
        return Ok(Disk::at(path, serial));
    }
    let _lock = lock::hold(project)?;
    // Another run may have made it while we waited.
    if !path.exists() {
        let log = project.new_log(&format!("images-{serial}"))?;
        let step = Step::new("images", format!("disk {serial}")).log(&log);
        let folder = tempfile::tempdir_in(project.tmp())
            .context("cannot make a scratch folder for images")?;
        make(folder.path(), &log).with_context(|| format!("cannot make disk {serial}"))?;
        fs::create_dir_all(project.image(""))?;
        fs::rename(folder.path().join("disk"), &path)?;
        prune(project, serial)?;
        step.ok();
    }
    Ok(Disk::at(path, serial))
}

/// Removes all but the newest disks of this serial: each edit of a source makes
/// a new one.
fn prune(project: &Project, serial: &str) -> anyhow::Result<()> {
    const KEPT: usize = 3;
    let folder = project.image("");
    let mut disks = Vec::new();
    for name in files(&folder)? {
        if name.starts_with(&format!("{serial}-")) {
            let path = folder.join(name);
            disks.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    disks.sort();
    for (_, path) in disks.iter().rev().skip(KEPT) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The names of the files in a folder, sorted.
fn files(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
