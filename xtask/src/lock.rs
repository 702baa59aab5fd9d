// SPDX-License-Identifier: GPL-2.0

//! The lock on the cache: one run changes it at a time, the others wait and say for whom.

use crate::project::Project;
use crate::step;
use anyhow::Context as _;
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use std::io::Write as _;
use std::sync::Mutex;

/// How often this process holds the lock, and the locked file.
static HELD: Mutex<(usize, Option<std::fs::File>)> = Mutex::new((0, None));

/// The lock is held as long as this value lives. A step may take it again
/// inside another one that holds it.
#[must_use = "the lock is released at once"]
pub struct Lock(());

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        held.0 -= 1;
        if held.0 == 0
            && let Some(file) = held.1.take()
        {
            // Explicit: a child that still ends has the file open, too.
            let _ = flock(&file, FlockOperation::Unlock);
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
    let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if held.0 == 0 {
        let path = project.lock_file();
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
        held.1 = Some(file);
        // What an interrupted run left half-made.
        let tmp = project.tmp();
        if tmp.exists() {
            fs::remove_dir_all(&tmp)?;
        }
        fs::create_dir_all(&tmp)?;
    }
    held.0 += 1;
    Ok(Some(Lock(())))
}
