// SPDX-License-Identifier: GPL-2.0

//! Suite `smoke`: everything that a user of a sound file system does, on images
//! of every layout, against the known tree and against the C driver.

mod data;
mod lists;
mod module;
mod mounts;
mod names;
mod peer;
mod stress;

use crate::case::{Case, Group};
use crate::disk::{self, Partition};
use crate::job::Job;
use crate::kmsg::Kmsg;
use crate::mount::Mount;
use crate::tree::{LAYOUTS, Layout};
use crate::{kernel, walk};
use anyhow::{Context, Result, ensure};

/// Serial of the disk whose partitions are the images.
pub const SERIAL: &str = "smoke";

type Test = fn(&Job, &Layout) -> Result<()>;

/// What is done on each layout.
const TESTS: &[(&str, Test)] = &[
    ("names", names::names),
    ("lookups", names::lookups),
    ("same-as-c", peer::same_as_c),
    ("listing", lists::listing),
    ("seeking-in-lists", lists::seeking),
    ("content", data::content),
    ("odd-reads", data::odd_reads),
    ("sequential", data::sequential),
    ("direct", data::direct),
    ("mapped", data::mapped),
    ("seek-data-hole", data::seek_data_hole),
    ("extents", data::extents),
    ("copies", data::copies),
    ("ends", data::ends),
    ("parallel", stress::parallel),
    ("drop-caches", stress::drop_caches),
];

/// Module, mounts, then all tests on each layout.
pub fn groups(_: &Job) -> Result<Vec<Group>> {
    let mut groups = vec![
        Group {
            name: "module".into(),
            cases: module::cases(),
        },
        Group {
            name: "mounts".into(),
            cases: mounts::cases(),
        },
    ];
    for layout in &LAYOUTS {
        let cases = TESTS.iter().map(|(name, test)| {
            Case::new(*name, move |job| {
                prepare(job)?;
                test(job, layout)
            })
        });
        groups.push(Group {
            name: layout.name.into(),
            cases: cases.collect(),
        });
    }
    Ok(groups)
}

/// The layout that tests use which need no particular one.
fn usual() -> &'static Layout {
    &LAYOUTS[8]
}

/// Inserts the module if a test before has left it out.
fn prepare(job: &Job) -> Result<()> {
    if !kernel::is_registered(&job.fs)? {
        kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
    }
    ensure!(
        kernel::is_registered(&job.fs)?,
        "the kernel does not know file system {}",
        job.fs
    );
    Ok(())
}

fn image(layout: &Layout) -> Result<Partition> {
    disk::partition(SERIAL, layout.name)
}

/// Mounts the layout's image for the length of `test`, which must leave the
/// file system unused and the kernel log without complaints of the driver.
fn with(job: &Job, layout: &Layout, test: impl FnOnce(&Mount) -> Result<()>) -> Result<()> {
    let image = image(layout)?;
    let mut log = Kmsg::now()?;
    let mount = Mount::read_only(&image.device, &job.fs, "fs")?;
    log.lines()?;
    test(&mount)?;
    mount.close()?;
    let said = log.lines()?;
    let complaints = said
        .iter()
        .filter(|line| line.contains(&format!("({})", image.name)));
    let complaints: Vec<_> = complaints.map(String::as_str).collect();
    ensure!(
        complaints.is_empty(),
        "on a sound image the kernel said:\n{}",
        complaints.join("\n")
    );
    Ok(())
}

/// Walks the whole tree; the number of names.
fn count(mount: &Mount) -> Result<usize> {
    Ok(walk::tree(mount.path())?.len())
}
