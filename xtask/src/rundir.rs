// SPDX-License-Identifier: GPL-2.0

//! The folder of one run: what the guest said, and what is needed to judge it
//! again later without a guest.

use anyhow::Context as _;
use fs_err as fs;
use rext2_init::{Event, PORT_CTL, PORT_ERR, PORT_IN, PORT_KTAP, PORT_OUT};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

use crate::accel::Choice;
use crate::artifact::Identity;
use crate::fsck::Checked;
use crate::project::Project;
use crate::watch::End;

/// Finished runs that are kept; older ones go when a new one starts.
const KEPT: usize = 40;

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// What a run was and how it ended: `run.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// What ran: a suite's name, or `exec`, `boot`.
    pub name: String,
    /// The command that repeats it.
    pub repeat: String,
    /// Whether the verdict comes from KTAP.
    pub suite: bool,
    /// What ends the KTAP stream.
    pub token: String,
    /// Tests that may be skipped, by full name.
    pub may_skip: Vec<String>,
    /// The kernel; a run made by hand may have none.
    pub kernel: Option<Identity>,
    /// KVM or TCG.
    pub accel: Option<Choice>,
    /// How the machine ended.
    pub end: End,
    /// Seconds from QEMU's start to its end.
    pub seconds: f64,
    /// The disks that were checked after the run.
    pub disks: Vec<Checked>,
}

impl Folder {
    /// A new folder, beside those of earlier and of concurrent runs.
    pub fn create(project: &Project, name: &str) -> anyhow::Result<Self> {
        let runs = project.runs();
        fs::create_dir_all(&runs)?;
        prune(&runs)?;
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}."))
            .tempdir_in(&runs)
            .context("cannot make the run's folder")?;
        Ok(Folder(folder.keep()))
    }

    /// An existing folder.
    pub fn open(path: &Path) -> Self {
        Folder(path.to_owned())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The kernel's console.
    pub fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    /// QEMU's command line and its own messages.
    pub fn qemu_log(&self) -> PathBuf {
        self.0.join("qemu.log")
    }

    /// What a port has said.
    pub fn port(&self, name: &str) -> PathBuf {
        self.0.join(match name {
            PORT_KTAP => "ktap",
            PORT_OUT => "stdout",
            PORT_ERR => "stderr",
            PORT_CTL => "events",
            PORT_IN => "stdin",
            other => other,
        })
    }

    /// The initramfs.
    pub fn initramfs(&self) -> PathBuf {
        self.0.join("initramfs")
    }

    /// A private copy of a disk.
    pub fn disk(&self, index: usize) -> PathBuf {
        self.0.join(format!("disk{index}.img"))
    }

    /// What was written to a disk, in the order in which it was.
    pub fn recording(&self) -> PathBuf {
        self.0.join("recording")
    }

    /// Drops the recording, if there is one.
    pub fn drop_recording(&self) -> anyhow::Result<()> {
        let file = self.recording();
        if file.exists() {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    /// The socket of the guest's terminal, and of gdb.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The call trace with source lines.
    pub fn decoded(&self) -> PathBuf {
        self.0.join("console.decoded")
    }

    /// The record of the run.
    pub fn record(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Writes the record, and drops what only the machine needed.
    pub fn finish(&self, record: &Record, keep: bool) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(record).context("cannot encode the run's record")?;
        fs::write(self.record(), text)?;
        if !keep {
            let _ = fs::remove_file(self.initramfs());
            for index in 0..record.disks.len() {
                let _ = fs::remove_file(self.disk(index));
            }
        }
        Ok(())
    }

    /// Reads the record.
    pub fn load(&self) -> anyhow::Result<Record> {
        let file = self.record();
        serde_json::from_slice(&fs::read(&file)?)
            .with_context(|| format!("cannot parse {}", file.display()))
    }

    /// What a file of the run holds: guests may print anything, or nothing.
    pub fn text(&self, file: &Path) -> String {
        match fs::read(file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// The events that arrived whole.
    pub fn events(&self) -> Vec<Event> {
        let text = self.text(&self.port(PORT_CTL));
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Drops the oldest finished runs. A run without a record may still go on.
fn prune(runs: &Path) -> anyhow::Result<()> {
    let mut finished = Vec::new();
    for entry in fs::read_dir(runs)? {
        let folder = entry?.path();
        if let Ok(meta) = fs::metadata(folder.join("run.json")) {
            finished.push((meta.modified().ok(), folder));
        }
    }
    finished.sort();
    let excess = finished.len().saturating_sub(KEPT - 1);
    for (_, folder) in finished.into_iter().take(excess) {
        // Another xtask may be faster.
        let _ = fs::remove_dir_all(folder);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finished_runs_are_dropped_and_the_oldest_first() {
        let runs = tempfile::tempdir().unwrap();
        let folder = |name: &str| runs.path().join(name);
        fs::create_dir(folder("running")).unwrap();
        for index in 0..KEPT + 2 {
            let run = folder(&format!("run{index}"));
            fs::create_dir(&run).unwrap();
            let file = fs::File::create(run.join("run.json")).unwrap();
            let age = std::time::Duration::from_secs((1000 - index) as u64);
            let time = std::time::SystemTime::now() - age;
            file.file().set_modified(time).unwrap();
        }
        prune(runs.path()).unwrap();
        assert!(folder("running").is_dir());
        assert!(!folder("run2").exists());
        assert!(folder("run3").exists());
        let left = fs::read_dir(runs.path()).unwrap().count();
        assert_eq!(left, KEPT - 1 + 1);
    }

    #[test]
    fn half_an_event_is_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path());
        fs::write(
            folder.port(PORT_CTL),
            "{\"event\":\"exit\",\"status\":3}\nnoise\n{\"event\":\"exit\",\"sta",
        )
        .unwrap();
        assert_eq!(folder.events(), [Event::Exit { status: 3 }]);
    }
}
