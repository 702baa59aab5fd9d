// SPDX-License-Identifier: GPL-2.0

//! The system around the job: pseudo file systems, mounts, log and power.

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags};
use nix::sys::reboot::{RebootMode, reboot};
use rext2_init::Mount;
use std::fs;
use std::io::Write;

/// Mounted before anything else: source, target, type.
const PSEUDO: &[(&str, &str, &str)] = &[
    ("proc", "/proc", "proc"),
    ("sysfs", "/sys", "sysfs"),
    ("devtmpfs", "/dev", "devtmpfs"),
    ("devpts", "/dev/pts", "devpts"),
    ("tmpfs", "/dev/shm", "tmpfs"),
    ("tmpfs", "/tmp", "tmpfs"),
];

/// Mounted where the kernel has them.
const OPTIONAL: &[(&str, &str, &str)] = &[
    ("debugfs", "/sys/kernel/debug", "debugfs"),
    ("configfs", "/sys/kernel/config", "configfs"),
];

/// Mounts the pseudo file systems and sets what programs expect to be set.
pub fn prepare() -> Result<()> {
    for (source, target, fstype) in PSEUDO {
        fs::create_dir_all(target).context(format!("cannot make {target}"))?;
        mount_at(source, target, fstype, MsFlags::empty(), "")?;
    }
    for (source, target, fstype) in OPTIONAL {
        if fs::metadata(target).is_ok() {
            mount_at(source, target, fstype, MsFlags::empty(), "")?;
        }
    }
    fs::create_dir_all("/mnt").context("cannot make /mnt")?;
    // The boot was quiet; from here on the console has every message, except
    // for the one that each dropping of caches would leave.
    for (file, value) in [
        ("/proc/sys/kernel/printk", "8"),
        ("/proc/sys/vm/drop_caches", "4"),
    ] {
        fs::write(file, value).context(format!("cannot write {file}"))?;
    }
    nix::unistd::sethostname("rext2").context("cannot set the host name")
}

/// Mounts what the job asks for.
pub fn mount(mount: &Mount) -> Result<()> {
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, mount.read_only);
    fs::create_dir_all(&mount.target).context(format!("cannot make {}", mount.target))?;
    mount_at(
        &mount.source,
        &mount.target,
        &mount.fstype,
        flags,
        &mount.data,
    )
}

fn mount_at(source: &str, target: &str, fstype: &str, flags: MsFlags, data: &str) -> Result<()> {
    let data = (!data.is_empty()).then_some(data);
    nix::mount::mount(Some(source), target, Some(fstype), flags, data)
        .context(format!("cannot mount {source} on {target} as {fstype}"))
}

/// Unmounts it; what the job itself has unmounted already is fine.
pub fn unmount(mount: &Mount) -> Result<()> {
    match nix::mount::umount2(mount.target.as_str(), MntFlags::empty()) {
        Ok(()) | Err(nix::errno::Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno).context(format!("cannot unmount {}", mount.target)),
    }
}

/// `uname -r`.
pub fn release() -> Result<String> {
    let name = nix::sys::utsname::uname().context("cannot read the kernel's release")?;
    Ok(name.release().to_string_lossy().into_owned())
}

/// Makes the system call of [`rext2_init::DEBUGGER_STOP`]; it only asks.
pub fn let_debugger_stop() -> Result<()> {
    nix::sys::personality::get()
        .map(drop)
        .context("cannot call the debugger")
}

/// The kernel's uptime.
pub fn uptime_ms() -> Result<u64> {
    let text = fs::read_to_string("/proc/uptime").context("cannot read /proc/uptime")?;
    let seconds = text.split_whitespace().next().unwrap_or_default();
    let seconds: f64 = seconds.parse().context("cannot parse /proc/uptime")?;
    Ok((seconds * 1000.0) as u64)
}

/// One line into the kernel's log, which the host keeps: the last resort of
/// an error that found no port.
pub fn kernel_log(line: &str) {
    let sent = fs::OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .and_then(|mut log| log.write_all(format!("<3>{line}\n").as_bytes()));
    if sent.is_err() {
        eprintln!("{line}");
    }
}

/// Ends the machine. If the kernel refuses, it panics when init returns, and
/// that is a report too.
pub fn power_off() {
    nix::unistd::sync();
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    kernel_log(&format!("rext2-init: error: cannot power off: {errno}"));
}
