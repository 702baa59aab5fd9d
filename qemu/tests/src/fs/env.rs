// SPDX-License-Identifier: GPL-2.0

//! What a case has: a fresh file system, mounted; and what must hold when it is
//! done: nothing in use, no complaint, e2fsck content, C ext2 of the same mind.

use super::manifest::Manifest;
use crate::disk::{self, Partition};
use crate::job::Job;
use crate::kernel;
use crate::kmsg::Kmsg;
use crate::mount::Mount;
use crate::walk::Aligned;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread};
use rustix::mount::MountFlags;
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Serial of the disk with the partition where file systems are made.
const SERIAL: &str = "fs";
const PARTITION: &str = "work";
/// Where the guest finds the tools.
const TOOLS: &str = "/tools";

/// Block and inode size of a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// Bytes in a block.
    pub block: u64,
    /// Bytes in an inode.
    pub inode: u64,
}

/// How the file system of a case is made and mounted.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// More arguments for mke2fs.
    pub make: &'static [&'static str],
    /// Size in MiB.
    pub mib: u64,
    /// Mount options.
    pub options: &'static str,
}

/// The usual file system: small, so that bitmaps and tables fill up quickly.
pub const USUAL: Recipe = Recipe {
    make: &["-N", "1024", "-m", "0"],
    mib: 16,
    options: "",
};

/// A fresh file system.
pub struct Env<'a> {
    /// The request.
    pub job: &'a Job,
    /// Its shape.
    pub layout: &'static Layout,
    /// Where it is.
    pub device: Partition,
    mount: Option<Mount>,
    options: String,
    log: Kmsg,
}

impl<'a> Env<'a> {
    /// Makes the file system and mounts it.
    pub fn new(job: &'a Job, layout: &'static Layout, recipe: &Recipe) -> Result<Env<'a>> {
        Env::on(job, layout, recipe, disk::partition(SERIAL, PARTITION)?)
    }

    /// The same, on this device.
    pub fn on(
        job: &'a Job,
        layout: &'static Layout,
        recipe: &Recipe,
        device: Partition,
    ) -> Result<Env<'a>> {
        if !kernel::is_registered(&job.fs)? {
            kernel::insert(&job.fs).context(format!("cannot insert module {}", job.fs))?;
        }
        let mut env = Env {
            job,
            layout,
            device,
            mount: None,
            options: String::new(),
            log: Kmsg::now()?,
        };
        let mut make = vec!["-q", "-F", "-t", "ext2", "-E", "nodiscard"];
        let (block, inode) = (layout.block.to_string(), layout.inode.to_string());
        let size = format!("{}M", recipe.mib);
        let device = env.device.device.to_string_lossy().into_owned();
        make.extend(["-b", &block, "-I", &inode]);
        make.extend(recipe.make);
        make.extend([device.as_str(), &size]);
        tool("mke2fs", &make)?;
        env.start(recipe.options)?;
        Ok(env)
    }

    /// Mounts it, with these options.
    pub fn start(&mut self, options: &str) -> Result<()> {
        let mount = self
            .try_mount(MountFlags::NOATIME, options)
            .context(format!("cannot mount it with \"{options}\""))?;
        self.mount = Some(mount);
        self.options = options.to_owned();
        Ok(())
    }

    /// Mounts it somewhere else for a moment.
    pub fn try_mount(&self, flags: MountFlags, options: &str) -> Result<Mount, Errno> {
        Mount::with(&self.device.device, &self.job.fs, "fs", flags, options)
    }

    /// Unmounts it.
    pub fn stop(&mut self) -> Result<()> {
        self.mount.take().context("it is not mounted")?.close()
    }

    /// Unmounts it and mounts it as it was: what is read now comes from disk.
    pub fn again(&mut self) -> Result<()> {
        self.stop()?;
        let options = self.options.clone();
        self.start(&options)
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        self.mount().path()
    }

    /// The mount.
    pub fn mount(&self) -> &Mount {
        self.mount
            .as_ref()
            .expect("a case runs while it is mounted")
    }

    /// A path on it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Opens a name.
    pub fn try_open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        open(self.at(name), flags, Mode::from(0o644)).map(File::from)
    }

    /// Opens a name that is there.
    pub fn open(&self, name: &str, flags: OFlags) -> Result<File> {
        self.try_open(name, flags)
            .context(format!("cannot open {name} with {flags:?}"))
    }

    /// A new file, empty, open for reading and writing.
    pub fn create(&self, name: &str) -> Result<File> {
        self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// A new file with these bytes.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        fs::write(self.at(name), bytes).context(format!("cannot write {name}"))
    }

    /// A new directory.
    pub fn mkdir(&self, name: &str) -> Result<()> {
        fs::create_dir(self.at(name)).context(format!("cannot make directory {name}"))
    }

    /// What lstat says of a name.
    pub fn stat(&self, name: &str) -> Result<Metadata> {
        fs::symlink_metadata(self.at(name)).context(format!("cannot stat {name}"))
    }

    /// Whether there is such a name.
    pub fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.at(name)).is_ok()
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> Result<u64> {
        Ok(rustix::fs::statvfs(self.root()).context("statvfs")?.f_bfree)
    }

    /// Free inodes.
    pub fn free_inodes(&self) -> Result<u64> {
        Ok(rustix::fs::statvfs(self.root()).context("statvfs")?.f_ffree)
    }

    /// The kernel's log lines about this device since the last call.
    pub fn said(&mut self) -> Result<Vec<String>> {
        let about = format!("({})", self.device.name);
        let lines = self.log.lines()?.into_iter();
        Ok(lines.filter(|line| line.contains(&about)).collect())
    }

    /// What debugfs says; the file system should not be mounted if it changes.
    pub fn debugfs(&self, request: &str) -> Result<String> {
        let device = self.device.device.to_string_lossy().into_owned();
        let mut args = vec!["-R", request, &device];
        if self.mount.is_none() {
            args.insert(0, "-w");
        }
        tool("debugfs", &args)
    }

    /// Runs e2fsck, which must find nothing.
    pub fn fsck(&self) -> Result<()> {
        let device = self.device.device.to_string_lossy().into_owned();
        tool("e2fsck", &["-f", "-n", &device]).map(|_| ())
    }

    /// Lets e2fsck repair and index directories.
    pub fn index_directories(&self) -> Result<()> {
        let device = self.device.device.to_string_lossy().into_owned();
        let status = Command::new(format!("{TOOLS}/e2fsck"))
            .args(["-f", "-y", "-D", &device])
            .output()
            .context("cannot run e2fsck")?
            .status;
        ensure!(matches!(status.code(), Some(0 | 1)), "e2fsck -D: {status}");
        Ok(())
    }

    /// Bytes of the medium itself, read around every cache of the partition.
    pub fn on_medium(&self, pos: u64, length: usize) -> Result<Vec<u8>> {
        let (disk, start) = self.device.place()?;
        let fd = open(&disk, OFlags::RDONLY | OFlags::DIRECT, Mode::empty())
            .context(format!("cannot open {}", disk.display()))?;
        let first = pos / 4096 * 4096;
        let mut buffer =
            Aligned::new((pos as usize + length).next_multiple_of(4096) - first as usize);
        let done = pread(&fd, buffer.bytes(), start + first).context("cannot read the disk")?;
        ensure!(
            done >= (pos - first) as usize + length,
            "short read of the disk"
        );
        let skip = (pos - first) as usize;
        Ok(buffer.bytes()[skip..skip + length].to_vec())
    }

    /// A field of the superblock on the medium.
    pub fn superblock(&self, field: Field) -> Result<u64> {
        let bytes = self.on_medium(1024 + field.at, field.size)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Changes a field of the superblock of an unmounted file system.
    pub fn set_superblock(&self, name: &str, value: u64) -> Result<()> {
        self.debugfs(&format!("ssv {name} {value}")).map(|_| ())
    }

    /// Ends the case: unmounts, and judges what is on the disk.
    pub fn finish(mut self) -> Result<()> {
        let mut ours = None;
        if self.mount.is_some() {
            ours = Some(Manifest::of(self.root()).context("cannot list what was written")?);
            self.stop()?;
        }
        let said = self.said()?;
        ensure!(said.is_empty(), "the kernel said:\n{}", said.join("\n"));
        self.fsck()?;
        let peer = Mount::read_only(&self.device.device, "ext2", "peer")?;
        let theirs = Manifest::of(peer.path()).context("cannot list it with C ext2")?;
        peer.close()?;
        match ours {
            Some(ours) => ours.same_as(&theirs),
            None => Ok(()),
        }
    }
}

/// A field of the superblock: offset and size.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    at: u64,
    size: usize,
}

impl Field {
    /// A field of `size` bytes at this offset.
    pub const fn new(at: u64, size: usize) -> Field {
        Field { at, size }
    }
}

/// The project's defaults for mke2fs, as a file.
fn config() -> Result<&'static str> {
    let path = "/tmp/mke2fs.conf";
    if !Path::new(path).exists() {
        let text = include_str!("../../../images/mke2fs.conf");
        fs::write(path, text).context(format!("cannot write {path}"))?;
    }
    Ok(path)
}

/// Runs a tool; what it has printed.
pub fn tool(name: &str, args: &[&str]) -> Result<String> {
    tool_with(name, args, &[])
}

/// The same, with more in its environment.
pub fn tool_with(name: &str, args: &[&str], environment: &[(&str, &str)]) -> Result<String> {
    let output = Command::new(format!("{TOOLS}/{name}"))
        .args(args)
        .env("MKE2FS_CONFIG", config()?)
        .envs(environment.iter().copied())
        .output()
        .context(format!("cannot run {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{name} {}: {}\n{text}{}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}
