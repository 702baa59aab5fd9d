// SPDX-License-Identifier: GPL-2.0

//! What host and guest have agreed on: the job the guest finds in its
//! initramfs, the events it reports and the names of the ports it reports on.

use serde::{Deserialize, Serialize};

/// Where the guest finds its job.
pub const JOB_PATH: &str = "/job.json";
/// Where the guest finds the kernel modules, `NAME.ko` each.
pub const MODULE_DIR: &str = "/lib/modules";
/// The directory with one link per virtio-serial port, by the port's name.
pub const PORT_DIR: &str = "/dev/virtio-ports";

/// The port that takes a suite's KTAP. A suite opens it by itself; init opens
/// it only after the suite, to write the end token.
pub const PORT_KTAP: &str = "rext2.ktap";
/// The port that takes the standard output of the job's program.
pub const PORT_OUT: &str = "rext2.out";
/// The port that takes the standard error of the job's program.
pub const PORT_ERR: &str = "rext2.err";
/// The port that gives the job's program its standard input. One byte comes
/// before it: who reads the port too early finds an end, not the beginning.
pub const PORT_IN: &str = "rext2.in";
/// The port that takes the events, one JSON object a line.
pub const PORT_CTL: &str = "rext2.ctl";
/// The kernel's function in which a debugger stops once the modules are in: a
/// system call that init makes for it, and nobody else.
pub const DEBUGGER_STOP: &str = "__x64_sys_personality";
/// The terminal of an interactive shell.
pub const SHELL_TTY: &str = "/dev/hvc0";

/// The line that ends a KTAP stream: `token` is the job's, so that no other
/// run's output, and nothing printed by a test, can pass for it.
pub fn end_token(token: &str) -> String {
    format!("# rext2-end {token}")
}

/// What the guest does between its boot and its power-off.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Job {
    /// Random text that the end token repeats.
    pub token: String,
    /// Modules inserted first, in this order.
    #[serde(default)]
    pub modules: Vec<Module>,
    /// File systems mounted then, in this order.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// What runs after that.
    pub action: Action,
    /// Scan for leaked memory at the end, where the kernel can.
    #[serde(default)]
    pub kmemleak: bool,
    /// Tell where the modules lie, and let a debugger stop once they are in.
    #[serde(default)]
    pub debugger: bool,
}

/// A kernel module to insert.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Module {
    /// Its name: the file is `NAME.ko` in [`MODULE_DIR`].
    pub name: String,
    /// Its parameters, as for `insmod`.
    #[serde(default)]
    pub params: String,
}

/// A file system to mount.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Mount {
    /// The block device.
    pub source: String,
    /// The mount point, made when it is missing.
    pub target: String,
    /// The file system type.
    pub fstype: String,
    /// Whether it is mounted read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Mount options of the file system.
    #[serde(default)]
    pub data: String,
}

/// What the guest runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing: boot, report, power off.
    Halt,
    /// One program; output and error on their ports.
    Exec {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Whether [`PORT_IN`] has its standard input; else that is empty.
        #[serde(default)]
        stdin: bool,
    },
    /// A test program that writes KTAP to [`PORT_KTAP`].
    Suite {
        /// The program and its arguments.
        argv: Vec<String>,
    },
    /// A shell with job control on [`SHELL_TTY`].
    Shell {
        /// Height of the user's terminal.
        rows: u16,
        /// Width of the user's terminal.
        cols: u16,
        /// What the shell shows first.
        greeting: String,
    },
}

/// What the guest reports on [`PORT_CTL`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Init runs. Its absence is a boot timeout.
    Started {
        /// `uname -r`.
        release: String,
        /// Milliseconds since the kernel started to count.
        uptime_ms: u64,
    },
    /// A module was inserted.
    Inserted {
        /// Its name.
        module: String,
        /// The address of its `.text`.
        text: Option<String>,
        /// All its sections and their addresses, for a debugger.
        #[serde(default)]
        sections: Vec<(String, String)>,
    },
    /// A file system was mounted.
    Mounted {
        /// The block device.
        source: String,
        /// The mount point.
        target: String,
        /// The file system type.
        fstype: String,
    },
    /// The job's program ended, as a shell would put it: 128 + n for signal n.
    Exit {
        /// The exit status.
        status: i32,
    },
    /// A step of init failed; the rest of the job was left out.
    Failed {
        /// What, and why.
        what: String,
    },
    /// kmemleak found something.
    Leaks {
        /// How many objects.
        count: u64,
        /// The head of the kernel's report.
        report: String,
    },
    /// Everything is unmounted and written back; the power goes off next.
    End {
        /// `/proc/sys/kernel/tainted`.
        tainted: u64,
        /// Whether kmemleak was asked.
        kmemleak: bool,
        /// Milliseconds since the kernel started to count.
        uptime_ms: u64,
    },
}
