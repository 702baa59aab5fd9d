// SPDX-License-Identifier: GPL-2.0

//! Several users at once, and memory taken away under them.

use super::with;
use crate::job::Job;
use crate::kernel;
use crate::mount::Mount;
use crate::pattern;
use crate::tree::{self, Layout};
use crate::walk;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Four threads walk and read the same tree, from a cold start.
pub fn parallel(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        thread::scope(|scope| {
            let walkers = [0, 1].map(|seed| scope.spawn(move || look(mount, layout, seed)));
            let readers = [2, 3].map(|seed| scope.spawn(move || read(mount, layout, seed, 200)));
            for thread in walkers.into_iter().chain(readers) {
                thread.join().expect("a thread reports by its result")?;
            }
            Ok(())
        })
    })
}

/// Reads and walks go on while caches are dropped.
pub fn drop_caches(job: &Job, layout: &Layout) -> Result<()> {
    let time = Duration::from_millis(job.get_or("drop_ms", 300)?);
    with(job, layout, |mount| {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let dropper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    kernel::drop_caches()?;
                }
                Ok(())
            });
            let reader = scope.spawn(|| until(time, |round| read(mount, layout, round, 20)));
            let looked = until(time, |round| look(mount, layout, round));
            let read = reader.join().expect("a reader reports by its result");
            done.store(true, Ordering::Relaxed);
            let dropped: Result<()> = dropper.join().expect("the dropper reports by its result");
            looked.and(read).and(dropped)
        })
    })
}

fn until(time: Duration, mut work: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let end = Instant::now() + time;
    let mut round = 0;
    loop {
        work(round)?;
        round += 1;
        if Instant::now() > end {
            return Ok(());
        }
    }
}

/// Walks the small folders and looks up random names in the large one.
pub fn look(mount: &Mount, layout: &Layout, seed: u64) -> Result<()> {
    for (folder, names) in [("deep", 32), ("names", 17)] {
        let found = walk::tree(&mount.join(folder))?.len();
        ensure!(found == names, "{folder}: {found} of {names} names");
    }
    let mut random = fastrand::Rng::with_seed(seed);
    // A lookup reads half of the folder.
    for _ in 0..(4000 / layout.many).clamp(2, 10) {
        let number = random.usize(0..layout.many);
        let path = mount.join(format!("many/name_of_an_entry_{number:05}"));
        let target = std::fs::read_link(&path).context(format!("no {}", path.display()))?;
        ensure!(
            target.as_os_str() == number.to_string().as_str(),
            "{} leads to {}",
            path.display(),
            target.display()
        );
    }
    Ok(())
}

/// Random reads from the densest file.
pub fn read(mount: &Mount, layout: &Layout, seed: u64, times: usize) -> Result<()> {
    let entries = tree::entries(layout);
    let entry = entries.iter().find(|entry| entry.path == "dense");
    let content = entry
        .and_then(|entry| entry.content())
        .context("the tree has no dense file")?;
    let file = File::open(mount.join("dense")).context("cannot open a file")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut buffer = [0; 8192];
    for _ in 0..times {
        let pos = random.u64(0..content.size - 8192);
        file.read_exact_at(&mut buffer, pos)
            .context(format!("cannot read at {pos}"))?;
        pattern::check(content.number, pos, &buffer)?;
    }
    Ok(())
}
