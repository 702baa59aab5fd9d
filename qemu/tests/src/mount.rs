// SPDX-License-Identifier: GPL-2.0

//! Mounts that end with their scope.

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

/// Every mount point of the suites is below this folder.
pub const ROOT: &str = "/mnt";

/// A mounted file system. Dropping it unmounts as well as can be; a test that
/// is about unmounting uses [`Mount::unmount`].
#[must_use = "dropping a mount unmounts it"]
pub struct Mount {
    target: PathBuf,
    mounted: bool,
}

impl Mount {
    /// Mounts `device` read-only on `/mnt/NAME`.
    pub fn read_only(device: &Path, fs: &str, name: &str) -> Result<Mount> {
        Mount::with(device, fs, name, MountFlags::RDONLY, "").context(format!(
            "cannot mount {} read-only as {fs}",
            device.display()
        ))
    }

    /// Mounts with flags and options; the error is the errno itself.
    pub fn with(
        device: &Path,
        fs: &str,
        name: &str,
        flags: MountFlags,
        options: &str,
    ) -> Result<Mount, Errno> {
        let target = Path::new(ROOT).join(name);
        fs::create_dir_all(&target).map_err(|_| Errno::NOENT)?;
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        mount(device, &target, fs, flags, Some(options.as_c_str()))?;
        Ok(Mount {
            target,
            mounted: true,
        })
    }

    /// What is mounted on `/mnt/NAME` already, and its device.
    pub fn found(name: &str) -> Result<Option<(Mount, PathBuf)>> {
        let target = Path::new(ROOT).join(name);
        let mounts = mounts()?.into_iter();
        let found = mounts.rev().find(|mount| mount.target == target);
        Ok(found.map(|found| {
            let mount = Mount {
                target,
                mounted: true,
            };
            (mount, found.device)
        }))
    }

    /// Leaves it mounted, for another test to find.
    pub fn keep(mut self) {
        self.mounted = false;
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// A path below the mount point.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.target.join(path)
    }

    /// Unmounts; a file system that is busy stays mounted until the drop.
    pub fn unmount(&mut self) -> Result<(), Errno> {
        unmount(&self.target, UnmountFlags::empty())?;
        self.mounted = false;
        Ok(())
    }

    /// Unmounts and fails if that fails.
    pub fn close(mut self) -> Result<()> {
        self.unmount()
            .context(format!("cannot unmount {}", self.target.display()))
    }

    /// The options that the kernel shows for this mount.
    pub fn options(&self) -> Result<String> {
        mounts()?
            .into_iter()
            .find(|mount| mount.target == self.target)
            .map(|mount| mount.options)
            .context(format!("{} is not mounted", self.target.display()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            // The case has failed already; the next one needs the device.
            let _ = unmount(&self.target, UnmountFlags::DETACH);
        }
    }
}

/// Detaches whatever a case that died has left mounted.
pub fn detach_all() -> Result<()> {
    detach_below(Path::new(ROOT), &[])
}

/// Detaches what is mounted below a folder, but for these mounts.
pub fn detach_below(folder: &Path, but: &[&Path]) -> Result<()> {
    for Mounted { target, .. } in mounts()?.into_iter().rev() {
        if target.starts_with(folder) && target != folder && !but.contains(&target.as_path()) {
            unmount(&target, UnmountFlags::DETACH)
                .context(format!("cannot detach {}", target.display()))?;
        }
    }
    Ok(())
}

/// A line of the kernel's table.
struct Mounted {
    device: PathBuf,
    target: PathBuf,
    options: String,
}

/// All mounts, oldest first.
fn mounts() -> Result<Vec<Mounted>> {
    let path = "/proc/self/mounts";
    let text = fs::read_to_string(path).context(format!("cannot read {path}"))?;
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    Ok(fields
        .filter(|fields| fields.len() >= 4)
        .map(|fields| Mounted {
            device: PathBuf::from(fields[0]),
            target: PathBuf::from(fields[1]),
            options: fields[3].to_owned(),
        })
        .collect())
}
