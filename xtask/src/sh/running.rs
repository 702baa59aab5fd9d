// SPDX-License-Identifier: GPL-2.0

//! Children that run: each in a process group of its own, all of them known, so
//! that they and what they started end with us.

use super::tail;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Process groups of the children that run now.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// Makes SIGINT, SIGTERM and SIGHUP end the children first and then us.
pub fn end_children_on_signals() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // nohup and shells in the background ignore some of them for us: leave it so.
    let wanted = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| !is_ignored(*signal));
    let mut signals =
        signal_hook::iterator::Signals::new(wanted).context("cannot install signal handlers")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held until the process ends: no child starts from now on.
            let groups = groups();
            end_groups(&groups);
            eprintln!("interrupted; the next run takes up from here");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Ends every child; none starts from now on.
pub fn end_children() {
    // Kept until the process ends; who holds it already is about to end us.
    if let Ok(groups) = GROUPS.try_lock() {
        end_groups(&groups);
        std::mem::forget(groups);
    }
}

/// Whether whoever started us made us ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

pub(super) fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    GROUPS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Asks every group to end, waits at most two seconds for the leaders, and
/// kills what is left.
fn end_groups(groups: &BTreeSet<u32>) {
    use rustix::process::Signal;
    for &group in groups {
        signal_group(group, Signal::TERM);
    }
    for _ in 0..200 {
        if !groups.iter().any(|&group| runs(group)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for &group in groups {
        signal_group(group, Signal::KILL);
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
pub(super) fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name before the state may itself contain blanks and brackets.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn pid(raw: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(raw).ok()?)
}

fn signal_group(group: u32, signal: rustix::process::Signal) {
    if let Some(group) = pid(group) {
        // A group that has gone meanwhile is what we want.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
pub(super) fn own_group(command: &mut std::process::Command) -> std::io::Result<()> {
    command.process_group(0);
    Ok(())
}
/// Keeps process groups in the list of those to end with us.
pub(super) struct Registered(Vec<u32>);

impl Registered {
    pub(super) fn new(mut groups: MutexGuard<'_, BTreeSet<u32>>, pids: Vec<u32>) -> Self {
        groups.extend(&pids);
        Registered(pids)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut groups = groups();
        for pid in &self.0 {
            groups.remove(pid);
        }
    }
}

/// A child that runs; it is ended when this value goes away.
pub struct Running {
    handle: duct::Handle,
    guard: Registered,
}

impl Running {
    pub(super) fn new(handle: duct::Handle, guard: Registered) -> Self {
        Running { handle, guard }
    }

    /// The process number, also of its process group.
    pub fn pid(&self) -> Option<u32> {
        self.guard.0.first().copied()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self
            .handle
            .wait()
            .context("cannot wait for a child")?
            .status)
    }

    /// Waits at most so long; `None` if it still runs.
    pub fn wait_timeout(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let output = self
            .handle
            .wait_timeout(limit)
            .context("cannot wait for a child")?;
        Ok(output.map(|output| output.status))
    }

    /// The status if it has ended.
    pub fn try_wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let output = self.handle.try_wait().context("cannot wait for a child")?;
        Ok(output.map(|output| output.status))
    }

    /// Ends it and everything it started: asks first, kills after two seconds.
    pub fn end(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            end_groups(&self.guard.0.iter().copied().collect());
        }
    }

    /// Kills it and everything it started, at once.
    pub fn kill(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            for &group in &self.guard.0 {
                signal_group(group, rustix::process::Signal::KILL);
            }
        }
    }

    pub(super) fn output(self) -> anyhow::Result<std::process::Output> {
        let output = self.handle.wait().context("cannot wait for a child")?;
        Ok(output.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The standard output of a child as a stream.
pub struct Reader {
    handle: duct::ReaderHandle,
    guard: Registered,
    name: String,
}

impl std::io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&self.handle).read(buffer)
    }
}

impl Reader {
    pub(super) fn new(handle: duct::ReaderHandle, guard: Registered, name: String) -> Self {
        Reader {
            handle,
            guard,
            name,
        }
    }

    /// After the end of the stream: an error if the child failed.
    pub fn finish(self) -> anyhow::Result<()> {
        match self
            .handle
            .try_wait()
            .with_context(|| format!("cannot wait for {}", self.name))?
        {
            Some(output) if output.status.success() => Ok(()),
            Some(output) => bail!(
                "{} ended with {}{}",
                self.name,
                output.status,
                tail(&String::from_utf8_lossy(&output.stderr), 6)
            ),
            None => bail!("{} was left before its end", self.name),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !matches!(self.handle.try_wait(), Ok(Some(_))) {
            end_groups(&self.guard.0.iter().copied().collect());
        }
    }
}
pub(super) fn status_is_our_kill(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal().is_some_and(|signal| {
        signal == signal_hook::consts::SIGTERM || signal == signal_hook::consts::SIGKILL
    })
}
