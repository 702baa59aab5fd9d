// SPDX-License-Identifier: GPL-2.0

//! Watches a running machine through the files it writes: its first sign of
//! life, its output, its death, and the clock.

use fs_err as fs;
use rext2_init::Event;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::console::{Kind, Lists};
use crate::sh::Running;
use crate::vm::Limits;

/// How often the files are looked at; QEMU's own end is noticed at once.
const PERIOD: Duration = Duration::from_millis(10);
/// What a dying kernel may take to print its trace and to reset the machine.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How a machine ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// QEMU ended by itself; its status proves nothing, but is told.
    Down {
        /// For people.
        status: String,
        /// Whether it was 0.
        success: bool,
    },
    /// The console or QEMU reported a death, and the machine was ended.
    Dead,
    /// No sign of life within so many seconds.
    BootTimeout(u64),
    /// Not down within so many seconds of its first sign of life.
    RunTimeout(u64),
    /// Everything was done, but the power did not go off.
    StayedUp,
    /// The user ended it.
    Left,
}

/// The files that a machine writes.
#[derive(Clone, Debug)]
pub struct Files {
    /// The kernel's console.
    pub console: PathBuf,
    /// QEMU's own output.
    pub qemu_log: PathBuf,
    /// The events of init.
    pub control: Option<PathBuf>,
    /// The KTAP stream.
    pub ktap: Option<PathBuf>,
}

/// Waits for the machine's end. `tick` sees every event as it comes, and is
/// called often; it may end the machine.
pub fn watch(
    machine: &mut Running,
    files: &Files,
    lists: &Lists,
    limits: &Limits,
    mut tick: impl FnMut(&[Event]) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<End> {
    let begin = Instant::now();
    let mut console = Tail::new(&files.console);
    let mut log = Tail::new(&files.qemu_log);
    let mut control = files.control.as_deref().map(Tail::new);
    let mut ktap = files.ktap.as_deref().map(Tail::new);
    let mut alive: Option<Instant> = None;
    let mut done: Option<Instant> = None;
    let mut dead: Option<Instant> = None;
    loop {
        let ended = machine.wait_timeout(PERIOD)?;

        let mut events = Vec::new();
        for line in control.iter_mut().flat_map(Tail::lines) {
            if let Ok(event) = serde_json::from_str::<Event>(&line) {
                if matches!(event, Event::End { .. } | Event::Failed { .. }) {
                    done = Some(Instant::now());
                }
                events.push(event);
            }
        }
        let mut lines = ktap.iter_mut().flat_map(Tail::lines);
        let spoke = lines.any(|line| line.contains("TAP version "));
        if spoke || !events.is_empty() {
            alive.get_or_insert_with(Instant::now);
        }
        let left = tick(&events)?.is_break();
        let fatal = |line: &String| matches!(lists.line(line), Some(Kind::Panic | Kind::Qemu));
        if console.lines().iter().chain(&log.lines()).any(fatal) {
            dead.get_or_insert_with(Instant::now);
        }

        if let Some(status) = ended {
            return Ok(match dead {
                Some(_) => End::Dead,
                None => End::Down {
                    status: status.to_string(),
                    success: status.success(),
                },
            });
        }
        let end = match (dead, done, alive) {
            _ if left => Some(End::Left),
            (Some(since), _, _) => (since.elapsed() > LAST_WORDS).then_some(End::Dead),
            (_, Some(since), _) => (since.elapsed() > limits.power_off).then_some(End::StayedUp),
            (_, _, Some(since)) => (limits.run)
                .filter(|limit| since.elapsed() > *limit)
                .map(|limit| End::RunTimeout(limit.as_secs())),
            (None, None, None) => (limits.boot)
                .filter(|limit| begin.elapsed() > *limit)
                .map(|limit| End::BootTimeout(limit.as_secs())),
        };
        if let Some(end) = end {
            machine.end();
            return Ok(end);
        }
    }
}

/// The lines that a growing file gains.
pub struct Tail {
    path: PathBuf,
    file: Option<fs::File>,
    partial: Vec<u8>,
}

impl Tail {
    /// Of a file that need not exist yet.
    pub fn new(path: &Path) -> Self {
        Tail {
            path: path.to_owned(),
            file: None,
            partial: Vec::new(),
        }
    }

    /// The bytes since the last call.
    pub fn bytes(&mut self) -> Vec<u8> {
        if self.file.is_none() {
            self.file = fs::File::open(&self.path).ok();
        }
        let mut new = Vec::new();
        if let Some(file) = &mut self.file {
            // What cannot be read now may be readable next time.
            let _ = file.read_to_end(&mut new);
        }
        new
    }

    /// The whole lines since the last call.
    pub fn lines(&mut self) -> Vec<String> {
        let new = self.bytes();
        self.partial.extend(new);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.partial.drain(..=end).collect();
        String::from_utf8_lossy(&whole)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}
