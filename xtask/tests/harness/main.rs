// SPDX-License-Identifier: GPL-2.0

//! The harness against guests that misbehave: boot sectors of 512 bytes in a
//! real QEMU, and shell scripts in QEMU's place.

mod fake;
mod leash;
mod sector;

use rext2_init::end_token;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::console::Lists;
use xtask::exit::Exit;
use xtask::rundir::{Folder, Record};
use xtask::sh::Cmd;
use xtask::verdict::{self, Verdict};
use xtask::vm::Limits;
use xtask::watch::{self, End, Files};

/// The token of every run here.
pub const TOKEN: &str = "0123456789abcdef";

/// Far above what a loaded machine needs, so that only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Limits of a run that is not about limits.
pub fn patient() -> Limits {
    Limits {
        boot: Some(PATIENCE),
        run: Some(PATIENCE),
        power_off: PATIENCE,
    }
}

/// The console's lists of the checkout.
pub fn lists() -> Lists {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
    Lists::read(&file).unwrap()
}

/// The line that ends a stream.
pub fn token_line() -> String {
    end_token(TOKEN)
}

/// Runs a machine in a folder of its own and judges it as a suite.
pub struct Bench {
    scratch: tempfile::TempDir,
}

impl Bench {
    /// An empty folder.
    pub fn empty() -> Self {
        Bench {
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    /// A file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs the command to its end; it writes the folder's files.
    pub fn run(&self, cmd: &Cmd, limits: &Limits) -> (End, Verdict) {
        let folder = Folder::open(self.scratch.path());
        let files = Files {
            console: folder.console(),
            qemu_log: folder.qemu_log(),
            control: Some(folder.port(rext2_init::PORT_CTL)),
            ktap: Some(folder.port(rext2_init::PORT_KTAP)),
        };
        let lists = lists();
        let mut machine = cmd.spawn(&folder.qemu_log()).unwrap();
        let end = watch::watch(&mut machine, &files, &lists, limits, |_| {
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
        let record = Record {
            name: "harness".to_owned(),
            repeat: "cargo test".to_owned(),
            suite: true,
            token: TOKEN.to_owned(),
            may_skip: Vec::new(),
            kernel: None,
            accel: None,
            end: end.clone(),
            seconds: 0.0,
            disks: Vec::new(),
        };
        let verdict = verdict::of_folder(&folder, &record, &lists);
        (end, verdict)
    }
}

/// Fails with everything that is known when the verdict is another one.
pub fn expect(name: &str, got: &(End, Verdict), exit: Exit, reason: &str) {
    let (end, verdict) = got;
    assert!(
        verdict.exit == exit && verdict.reason.contains(reason),
        "{name}: wanted {exit:?} ({reason}), got {:?} ({}), end {end:?}, {verdict:#?}",
        verdict.exit,
        verdict.reason
    );
}
