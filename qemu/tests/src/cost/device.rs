// SPDX-License-Identifier: GPL-2.0

//! The ramdisk: in the guest's own memory, so that its IO is instructions, too.

use crate::kernel;
use crate::mount::Mount;
use crate::walk::Aligned;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;
use rustix::mount::MountFlags;
use std::path::Path;
use std::process::Command;

/// Its node, and its size in MiB: mkfs.xfs makes nothing below 300.
const NODE: &str = "/dev/ram0";
const MIB: u64 = 320;
/// Where the host's programs are.
const TOOLS: &str = "/tools";

/// A ramdisk with a file system.
pub struct Device;

impl Device {
    /// A new one.
    pub fn new(fs: &str) -> Result<Device> {
        let params = format!("rd_nr=1 rd_size={} max_part=0", MIB << 10);
        kernel::insert_with("brd", &params).context("cannot insert brd")?;
        let device = Device;
        fill(NODE, MIB).context(format!("cannot fill {NODE}"))?;
        make(fs, NODE)?;
        Ok(device)
    }

    /// Mounts it.
    pub fn mount(&self, fs: &str) -> Result<Mount> {
        Mount::with(Path::new(NODE), fs, "cost", MountFlags::NOATIME, "")
            .context(format!("cannot mount {NODE} as {fs}"))
    }

    /// Gives its memory back.
    pub fn remove(self) -> Result<()> {
        kernel::remove("brd").context("cannot remove brd")
    }
}

/// Writes all of a device: a page that is written for the first time is allocated,
/// which is no part of what a file system takes.
pub fn fill(node: &str, mib: u64) -> Result<()> {
    let mut zeros = Aligned::new(1 << 20);
    let device = open(node, OFlags::WRONLY | OFlags::DIRECT, Mode::empty())?;
    for _ in 0..mib {
        ensure!(write(&device, zeros.bytes())? == 1 << 20, "short write");
    }
    Ok(())
}

/// Makes the file system, with 4 KiB blocks and nothing left to do later.
pub fn make(fs: &str, node: &str) -> Result<()> {
    let (tool, args): (_, &[&str]) = match fs {
        "rext2" | "ext2" => ("mke2fs", &["-q", "-F", "-t", "ext2"]),
        "ext4" => ("mke2fs", &["-q", "-F", "-t", "ext4"]),
        "xfs" => ("mkfs.xfs", &["-q", "-f", "-K", node]),
        other => bail!("unknown file system {other:?}; on= takes rext2, ext2, ext4 and xfs"),
    };
    let ext: &[&str] = &[
        "-b",
        "4096",
        "-I",
        "256",
        "-E",
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        node,
    ];
    let mut command = Command::new(format!("{TOOLS}/{tool}"));
    command.args(args);
    if tool == "mke2fs" {
        // Without the host's own defaults.
        let config = "/tmp/mke2fs.conf";
        std::fs::write(config, include_str!("../../../images/mke2fs.conf"))
            .context(format!("cannot write {config}"))?;
        command.args(ext).env("MKE2FS_CONFIG", config);
    }
    let output = command.output().context(format!("cannot run {tool}"))?;
    ensure!(
        output.status.success(),
        "{tool} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
