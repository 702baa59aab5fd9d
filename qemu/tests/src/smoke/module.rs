// SPDX-License-Identifier: GPL-2.0

//! The module: in, out, in use, and nothing left behind.

use super::{count, image, prepare, stress, usual};
use crate::case::{Case, skip};
use crate::disk::Partition;
use crate::job::Job;
use crate::kernel;
use crate::mount::Mount;
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("registered", registered),
        Case::new("in-and-out", in_and_out),
        Case::new("in-use", in_use),
        Case::new("detached", detached),
        Case::new("cycles", cycles).limit(900),
    ]
}

fn registered(job: &Job) -> Result<()> {
    prepare(job)
}

/// Leaves out what a driver built into the kernel cannot do.
fn module(job: &Job) -> Result<()> {
    prepare(job)?;
    match kernel::is_inserted(&job.fs) {
        true => Ok(()),
        false => skip(format!("{} is no module here", job.fs)),
    }
}

fn insert(job: &Job) -> Result<()> {
    kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))
}

fn remove(job: &Job) -> Result<()> {
    let users = kernel::references(&job.fs)?;
    ensure!(users == 0, "the module has {users} users and no mount");
    kernel::remove(&job.fs).context(format!("cannot remove module {}", job.fs))?;
    ensure!(!kernel::is_registered(&job.fs)?, "still registered");
    let left = kernel::slabs(&job.fs).unwrap_or_default();
    ensure!(left.is_empty(), "slab caches are left: {left:?}");
    Ok(())
}

fn in_and_out(job: &Job) -> Result<()> {
    module(job)?;
    let again = kernel::insert(&job.fs);
    ensure!(again == Err(Errno::EXIST), "inserting twice gave {again:?}");
    for _ in 0..3 {
        remove(job)?;
        let gone = kernel::remove(&job.fs);
        ensure!(gone == Err(Errno::NOENT), "removing twice gave {gone:?}");
        insert(job)?;
        ensure!(kernel::is_registered(&job.fs)?, "not registered");
    }
    Ok(())
}

/// A mounted file system keeps its module.
fn in_use(job: &Job) -> Result<()> {
    module(job)?;
    let mount = Mount::read_only(&image(usual())?.device, &job.fs, "fs")?;
    let users = kernel::references(&job.fs)?;
    ensure!(users == 1, "one mount is {users} users of the module");
    let busy = kernel::remove(&job.fs);
    // What delete_module says with O_NONBLOCK, and without.
    ensure!(
        matches!(busy, Err(Errno::AGAIN | Errno::BUSY)),
        "removing the module of a mounted file system gave {busy:?}"
    );
    count(&mount)?;
    mount.close()?;
    remove(job)?;
    insert(job)
}

/// An open file outlives its mount point, and keeps the module until it is closed.
fn detached(job: &Job) -> Result<()> {
    module(job)?;
    let mount = Mount::read_only(&image(usual())?.device, &job.fs, "fs")?;
    let mut file = File::open(mount.join("dense")).context("cannot open a file")?;
    unmount(mount.path(), UnmountFlags::DETACH).context("cannot detach")?;
    let busy = kernel::remove(&job.fs);
    ensure!(
        matches!(busy, Err(Errno::AGAIN | Errno::BUSY)),
        "removing the module of an open file gave {busy:?}"
    );
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .context("cannot read a detached file")?;
    crate::pattern::check(number("dense")?, 0, &bytes)?;
    drop(file);
    wait_unused(job)?;
    // There is no mount left for the value to end.
    std::mem::forget(mount);
    remove(job)?;
    insert(job)
}

fn number(path: &str) -> Result<u16> {
    let entries = crate::tree::entries(usual());
    let entry = entries.iter().find(|entry| entry.path == path);
    let content = entry.and_then(|entry| entry.content());
    Ok(content.context(format!("the tree has no {path}"))?.number)
}

/// The last user of a detached file system goes by a work queue.
fn wait_unused(job: &Job) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while kernel::references(&job.fs)? > 0 {
        ensure!(Instant::now() < end, "the module is in use without a user");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Mounts, uses, unmounts, removes and inserts over and over; open files,
/// lookups and reads are under way each time the unmount is tried.
fn cycles(job: &Job) -> Result<()> {
    prepare(job)?;
    let is_module = kernel::is_inserted(&job.fs);
    let image = image(&crate::tree::LAYOUTS[0])?;
    // A kernel that watches itself is there to find what takes many tries.
    let usual = if kernel::slowness() > 1 { 200 } else { 20 };
    let number: u64 = job.get_or("cycles", usual)?;
    for cycle in 0..number {
        one_cycle(job, &image, cycle).context(format!("cycle {cycle}"))?;
        if is_module {
            remove(job).context(format!("cycle {cycle}"))?;
            insert(job)?;
        }
    }
    println!("{number} cycles");
    Ok(())
}

fn one_cycle(job: &Job, image: &Partition, cycle: u64) -> Result<()> {
    let layout = &crate::tree::LAYOUTS[0];
    let mut mount = Mount::read_only(&image.device, &job.fs, "fs")?;
    let held = File::open(mount.join("levels")).context("cannot open a file")?;
    thread::scope(|scope| {
        let walker = scope.spawn(|| stress::look(&mount, layout, cycle));
        let reader = scope.spawn(|| stress::read(&mount, layout, cycle, 50));
        // Refused as long as anybody is in there.
        let busy = unmount(mount.path(), UnmountFlags::empty());
        walker.join().expect("a walker reports by its result")?;
        reader.join().expect("a reader reports by its result")?;
        ensure!(
            busy == Err(Errno::BUSY),
            "unmounting a used file system gave {busy:?}"
        );
        Ok(())
    })?;
    let busy = mount.unmount();
    ensure!(
        busy == Err(Errno::BUSY),
        "unmounting with an open file gave {busy:?}"
    );
    drop(held);
    mount.close()
}
