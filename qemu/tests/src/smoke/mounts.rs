// SPDX-License-Identifier: GPL-2.0

//! Mounting and unmounting: what is accepted, what is refused, and how.

use super::{SERIAL, count, image, prepare, usual};
use crate::case::Case;
use crate::disk;
use crate::job::Job;
use crate::kmsg::Kmsg;
use crate::mount::Mount;
use crate::pattern;
use crate::tree::LAYOUTS;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmod, chown, link,
    mkdir, mkfifoat, open, rename, rmdir, setxattr, symlink, sync, syncfs, unlink, utimensat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, test: fn(&Job) -> Result<()>| {
        Case::new(name, move |job| {
            prepare(job)?;
            test(job)
        })
    };
    vec![
        case("read-only", read_only),
        case("read-write", read_write),
        case("remount", remount),
        case("options", options),
        case("not-ext2", not_ext2),
        case("busy", busy),
        case("two-at-once", two_at_once),
        case("same-device", same_device),
        case("write-calls", write_calls),
        case("syncs", syncs),
    ]
}

fn usual_mount(job: &Job) -> Result<Mount> {
    Mount::read_only(&image(usual())?.device, &job.fs, "fs")
}

fn has_option(mount: &Mount, wanted: &str) -> Result<bool> {
    Ok(mount.options()?.split(',').any(|option| option == wanted))
}

fn read_only(job: &Job) -> Result<()> {
    let mount = usual_mount(job)?;
    ensure!(
        has_option(&mount, "ro")?,
        "the kernel shows the options {}",
        mount.options()?
    );
    count(&mount)?;
    mount.close()
}

/// A file that is written is there after the next mount.
fn read_write(job: &Job) -> Result<()> {
    let image = image(usual())?;
    let mount = Mount::with(&image.device, &job.fs, "fs", MountFlags::empty(), "")
        .context("mounting read-write")?;
    ensure!(has_option(&mount, "rw")?, "not read-write");
    let bytes = pattern::STALE.repeat(100);
    std::fs::write(mount.join("written"), &bytes).context("cannot write a file")?;
    mount.close()?;
    let mount = usual_mount(job)?;
    let read = std::fs::read(mount.join("written")).context("cannot read it")?;
    ensure!(read == bytes, "what was written is not what is read");
    mount.close()?;
    let mount = Mount::with(&image.device, &job.fs, "fs", MountFlags::empty(), "")?;
    std::fs::remove_file(mount.join("written")).context("cannot remove it")?;
    mount.close()
}

fn remount(job: &Job) -> Result<()> {
    let mount = usual_mount(job)?;
    mount_remount(mount.path(), MountFlags::RDONLY, "").context("remounting read-only")?;
    ensure!(has_option(&mount, "ro")?, "not read-only any more");
    let got = mount_remount(mount.path(), MountFlags::RDONLY, "bogus");
    ensure!(
        got == Err(Errno::INVAL),
        "remounting with an unknown option gave {got:?}"
    );
    mount_remount(mount.path(), MountFlags::empty(), "").context("remounting read-write")?;
    ensure!(has_option(&mount, "rw")?, "not read-write");
    std::fs::write(mount.join("written"), b"x").context("cannot write")?;
    std::fs::remove_file(mount.join("written")).context("cannot remove")?;
    mount_remount(mount.path(), MountFlags::RDONLY, "").context("remounting read-only")?;
    let got = std::fs::write(mount.join("written"), b"x");
    ensure!(got.is_err(), "it can still be written to");
    count(&mount)?;
    mount.close()
}

fn options(job: &Job) -> Result<()> {
    let image = image(usual())?;
    for options in ["bogus", "data=ordered", "discard", "errors=bogus", "sb=x"] {
        let got = Mount::with(&image.device, &job.fs, "fs", MountFlags::RDONLY, options);
        let got = got.map(|_| "a mount");
        ensure!(got == Err(Errno::INVAL), "option {options} gave {got:?}");
    }
    // Options of the VFS are none of the driver's business.
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    let mount = Mount::with(&image.device, &job.fs, "fs", flags, "").context("noexec,noatime")?;
    for option in ["nosuid", "noexec", "noatime"] {
        ensure!(
            has_option(&mount, option)?,
            "option {option} is not in force"
        );
    }
    mount.close()
}

/// Devices without an ext2 file system, and no devices.
fn not_ext2(job: &Job) -> Result<()> {
    let disk = disk::find(SERIAL)?;
    let mut log = Kmsg::now()?;
    for (device, wanted) in [
        // The partition table, not a file system.
        (format!("/dev/{disk}"), Errno::INVAL),
        ("/dev/null".into(), Errno::NOTBLK),
        ("/dev/missing".into(), Errno::NOENT),
    ] {
        let got = Mount::with(Path::new(&device), &job.fs, "fs", MountFlags::RDONLY, "");
        let got = got.map(|_| "a mount");
        ensure!(got == Err(wanted), "mounting {device:?} gave {got:?}");
    }
    let prefix = format!("{} ({disk}): ", job.fs);
    let lines = log.lines()?;
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with(&prefix))
        .collect();
    ensure!(
        !job.is_rext2() || (lines.len() == 1 && lines[0].contains("s_magic")),
        "a partition table was refused with {lines:?}, not with a line on s_magic"
    );
    Ok(())
}

fn busy(job: &Job) -> Result<()> {
    let mut mount = usual_mount(job)?;
    let file = File::open(mount.join("dense")).context("cannot open a file")?;
    let got = mount.unmount();
    ensure!(
        got == Err(Errno::BUSY),
        "unmounting with an open file gave {got:?}"
    );
    drop(file);
    let folder = File::open(mount.join("deep/0/1")).context("cannot open a folder")?;
    let got = mount.unmount();
    ensure!(
        got == Err(Errno::BUSY),
        "unmounting with an open folder gave {got:?}"
    );
    drop(folder);
    mount.close()
}

fn two_at_once(job: &Job) -> Result<()> {
    let mut mounts = Vec::new();
    for layout in LAYOUTS.iter().filter(|layout| layout.many < 1000) {
        let device = image(layout)?.device;
        mounts.push((layout, Mount::read_only(&device, &job.fs, layout.name)?));
    }
    for (layout, mount) in &mounts {
        let entries = crate::tree::entries(layout).len();
        // The root and lost+found besides.
        let found = count(mount)?;
        ensure!(found == entries + 2, "{}: {found} names", layout.name);
    }
    mounts.into_iter().try_for_each(|(_, mount)| mount.close())
}

/// A second mount of a device shows the same file system.
fn same_device(job: &Job) -> Result<()> {
    let device = image(usual())?.device;
    let one = Mount::read_only(&device, &job.fs, "one")?;
    let two = Mount::read_only(&device, &job.fs, "two")?;
    let id = |mount: &Mount| -> Result<(u64, u64)> {
        let meta = std::fs::metadata(mount.join("dense")).context("cannot stat")?;
        Ok((meta.dev(), meta.ino()))
    };
    ensure!(id(&one)? == id(&two)?, "two mounts of a device differ");
    one.close()?;
    count(&two)?;
    two.close()
}

/// Every call that would change a read-only file system is refused.
fn write_calls(job: &Job) -> Result<()> {
    let mount = usual_mount(job)?;
    let at = |name: &str| mount.join(name);
    let file = at("size-4096");
    let before = std::fs::metadata(&file).context("cannot stat")?;
    let open = |name: &str, flags| open(at(name), flags, Mode::RUSR).map(drop);
    let now = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let truncate = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&file);
    let truncate = truncate
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    let results = [
        ("open for writing", open("size-4096", OFlags::WRONLY)),
        ("open for both", open("size-4096", OFlags::RDWR)),
        (
            "open a new file",
            open("new", OFlags::WRONLY | OFlags::CREATE),
        ),
        (
            "open a temporary file",
            open(".", OFlags::WRONLY | OFlags::TMPFILE),
        ),
        ("truncate", truncate),
        ("mkdir", mkdir(at("new"), Mode::RWXU)),
        ("mknod", mkfifoat(CWD, at("new"), Mode::RWXU)),
        ("symlink", symlink("target", at("new"))),
        ("link", link(&file, at("new"))),
        ("unlink", unlink(&file)),
        ("rmdir", rmdir(at("empty"))),
        ("rename", rename(&file, at("new"))),
        ("chmod", chmod(&file, Mode::RWXU)),
        (
            "chown",
            chown(&file, Some(Uid::from_raw(1)), Some(Gid::from_raw(1))),
        ),
        ("utimens", utimensat(CWD, &file, &times, AtFlags::empty())),
        (
            "setxattr",
            setxattr(&file, "user.a", b"b", XattrFlags::empty()),
        ),
    ];
    for (call, got) in results {
        ensure!(got == Err(Errno::ROFS), "{call} gave {got:?}");
    }
    std::fs::read(&file).context("cannot read")?;
    let after = std::fs::metadata(&file).context("cannot stat")?;
    ensure!(
        (before.atime(), before.mtime(), before.ctime())
            == (after.atime(), after.mtime(), after.ctime()),
        "reading changed a time"
    );
    mount.close()
}

/// There is nothing to write, and that is no error.
fn syncs(job: &Job) -> Result<()> {
    let mount = usual_mount(job)?;
    let file = File::open(mount.join("dense")).context("cannot open a file")?;
    file.sync_all().context("fsync")?;
    file.sync_data().context("fdatasync")?;
    let folder = File::open(mount.path()).context("cannot open the root")?;
    folder.sync_all().context("fsync of a folder")?;
    syncfs(&folder).context("syncfs")?;
    sync();
    drop((file, folder));
    mount.close()
}
