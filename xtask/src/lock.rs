// SPDX-License-Identifier: GPL-2.0

//! The lock on the cache: one run changes it at a time, the others wait and say for whom.

use crate::project::Project;
use crate::step;
use anyhow::Context as _;
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

/// The locks that this process holds: how often, and the locked file.
static HELD: Mutex<BTreeMap<PathBuf, (usize, std::fs::File)>> = Mutex::new(BTreeMap::new());

/// The lock is held as long as this value lives. A step may take it again
/// inside another one that holds it.
#[must_use = "the lock is released at once"]
pub struct Lock(PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((count, file)) = held.get_mut(&self.0) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            // Explicit: a child that still ends has the file open, too.
            let _ = flock(&*file, FlockOperation::Unlock);
            held.remove(&self.0);
        }
    }
}

/// Takes the lock; waits if another run has it, and says which.
pub fn hold(project: &Project) -> anyhow::Result<Lock> {
    Ok(take(project, true)?.expect("waiting ends with the lock"))
}

/// Takes the lock if it is free.
pub fn try_hold(project: &Project) -> anyhow::Result<Option<Lock>> {
    take(project, false)
}

fn take(project: &Project, wait: bool) -> anyhow::Result<Option<Lock>> {
    if project.opts.dry_run {
        // Nothing will be changed, so there is nothing to guard.
        return Ok(Some(Lock(PathBuf::new())));
    }
    let path = project.lock_file();
    let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((count, _)) = held.get_mut(&path) {
        *count += 1;
        return Ok(Some(Lock(path)));
    }
    fs::create_dir_all(&project.cache)?;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if !wait {
            return Ok(None);
        }
        let holder = fs::read_to_string(&path).unwrap_or_default();
        step::note(&format!(
            "waiting for {}, which works in {}",
            holder.trim(),
            project.cache.display()
        ));
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    // Children inherit the lock: if we are killed, a make that outlives us
    // still keeps the next run out of its build folder.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())
        .context("cannot hand on the lock")?;
    file.set_len(0)?;
    let line: Vec<String> = std::env::args().skip(1).collect();
    writeln!(
        file,
        "process {} (xtask {})",
        std::process::id(),
        line.join(" ")
    )?;
    // What an interrupted run left half-made.
    let tmp = project.tmp();
    if tmp.exists() {
        fs::remove_dir_all(&tmp)?;
    }
    fs::create_dir_all(&tmp)?;
    held.insert(path.clone(), (1, file));
    Ok(Some(Lock(path)))
}
