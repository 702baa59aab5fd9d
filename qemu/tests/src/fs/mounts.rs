// SPDX-License-Identifier: GPL-2.0

//! Mounting, remounting, freezing, and what the superblock says of it.

use super::Test;
use super::check::{errno, fails, holds, put, same};
use super::env::{Env, Field};
use crate::mount::Mount;
use crate::sys;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, fsync, ftruncate, mkdir, syncfs, unlink};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::ffi::CString;
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

pub const TESTS: &[Test] = &[
    Test::new("state-while-mounted", state_while_mounted),
    Test::new("mount-time-is-set", mount_time_is_set),
    Test::new("state-of-a-dirty-file-system", state_of_a_dirty_file_system),
    Test::new(
        "state-with-a-deleted-open-file",
        state_with_a_deleted_open_file,
    ),
    Test::new(
        "read-only-mount-writes-nothing",
        read_only_mount_writes_nothing,
    ),
    Test::new(
        "read-only-mount-refuses-writes",
        read_only_mount_refuses_writes,
    ),
    Test::new("remount-read-only", remount_read_only),
    Test::new("remount-with-open-files", remount_with_open_files),
    Test::new("remount-changes-options", remount_changes_options),
    Test::new("freeze-and-thaw", freeze_and_thaw),
    Test::new("freeze-stops-writers", freeze_stops_writers),
    Test::new("options-are-shown", options_are_shown),
    Test::new("options-that-are-unknown", options_that_are_unknown),
    Test::new("alternate-superblock", alternate_superblock),
    Test::new("large-file-on-demand", large_file_on_demand).make(&[
        "-N",
        "1024",
        "-m",
        "0",
        "-O",
        "^large_file,^resize_inode",
    ]),
    Test::new("old-revision-is-raised", old_revision_is_raised),
    Test::new("errors-remount-read-only", errors_remount_read_only),
    Test::new("errors-continue", errors_continue),
    Test::new("unmount-flushes-the-device", unmount_flushes_the_device),
    Test::new("sync-flushes-the-device", sync_flushes_the_device),
    Test::new("fsync-flushes-the-device", fsync_flushes_the_device),
    Test::new("busy-cannot-be-unmounted", busy_cannot_be_unmounted),
];

const STATE: Field = Field::new(58, 2);
const MOUNT_COUNT: Field = Field::new(52, 2);
const MOUNT_TIME: Field = Field::new(44, 4);
const RO_COMPAT: Field = Field::new(100, 4);
const REVISION: Field = Field::new(76, 4);
const FIRST_INODE: Field = Field::new(84, 4);
const CLEAN: u64 = 1;
const ERROR: u64 = 2;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

fn remount(env: &Env, flags: MountFlags, options: &str) -> Result<(), Errno> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    mount_remount(env.root(), flags | MountFlags::NOATIME, options.as_c_str())
}

fn root(env: &Env) -> Result<File> {
    env.open(".", OFlags::RDONLY)
}

/// Not clean as soon as it can be written to, and counted; clean again when that
/// is over.
fn state_while_mounted(env: &mut Env) -> Result<()> {
    same("mounted", env.superblock(STATE)? & CLEAN, 0)?;
    let count = env.superblock(MOUNT_COUNT)?;
    env.stop()?;
    same("unmounted", env.superblock(STATE)?, CLEAN)?;
    env.start("")?;
    same(
        "mounted, before any write",
        env.superblock(STATE)? & CLEAN,
        0,
    )?;
    syncfs(root(env)?).context("syncfs")?;
    same("count", env.superblock(MOUNT_COUNT)?, count + 1)?;
    remount(env, MountFlags::RDONLY, "").context("remount ro")?;
    same("read-only", env.superblock(STATE)?, CLEAN)?;
    remount(env, MountFlags::empty(), "").context("remount rw")?;
    same("read-write", env.superblock(STATE)? & CLEAN, 0)?;
    syncfs(root(env)?).context("syncfs")?;
    same("count", env.superblock(MOUNT_COUNT)?, count + 2)
}

fn mount_time_is_set(env: &mut Env) -> Result<()> {
    env.stop()?;
    let before = now();
    env.start("")?;
    syncfs(root(env)?).context("syncfs")?;
    let time = env.superblock(MOUNT_TIME)?;
    ensure!(
        time + 2 >= before && time <= now() + 2,
        "mounted at {time}, not {before}"
    );
    Ok(())
}

/// Only e2fsck makes clean what was not.
fn state_of_a_dirty_file_system(env: &mut Env) -> Result<()> {
    for state in [0, ERROR | CLEAN] {
        env.stop()?;
        env.set_superblock("state", state)?;
        env.start("")?;
        env.write("file", b"x")?;
        unlink(env.at("file")).context("unlink")?;
        env.stop()?;
        same("state", env.superblock(STATE)?, state)?;
        let said = env.said()?;
        ensure!(!said.is_empty(), "no warning of state {state}");
        env.set_superblock("state", CLEAN)?;
        env.start("")?;
    }
    Ok(())
}

fn state_with_a_deleted_open_file(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..10_000)?;
    unlink(env.at("file")).context("unlink")?;
    let root = root(env)?;
    sys::freeze(&root).context("freeze")?;
    let state = env.superblock(STATE);
    sys::thaw(&root).context("thaw")?;
    same("an image of it would need e2fsck", state? & CLEAN, 0)?;
    fails(
        "remount read-only",
        remount(env, MountFlags::RDONLY, ""),
        Errno::BUSY,
    )?;
    drop(file);
    remount(env, MountFlags::RDONLY, "").context("remount read-only")?;
    same("state", env.superblock(STATE)?, CLEAN)?;
    remount(env, MountFlags::empty(), "").context("remount read-write")
}

fn read_only_mount_writes_nothing(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.stop()?;
    let length = 256 << 10;
    let before = env.on_medium(0, length)?;
    let mount = env.try_mount(MountFlags::RDONLY, "").context("mount")?;
    fs::read(mount.join("file"))?;
    fs::read_dir(mount.path())?.count();
    mount.close()?;
    let after = env.on_medium(0, length)?;
    let changed = before
        .iter()
        .zip(&after)
        .position(|(before, after)| before != after);
    same("first changed byte", changed, None)?;
    env.start("")
}

fn read_only_mount_refuses_writes(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    env.stop()?;
    let mount = env.try_mount(MountFlags::RDONLY, "").context("mount")?;
    let at = |name| mount.join(name);
    fails(
        "open",
        errno(File::options().write(true).open(at("file"))),
        Errno::ROFS,
    )?;
    fails("create", errno(File::create(at("new"))), Errno::ROFS)?;
    fails("mkdir", mkdir(at("new"), Mode::from(0o755)), Errno::ROFS)?;
    fails("unlink", unlink(at("file")), Errno::ROFS)?;
    fails("rmdir", rustix::fs::rmdir(at("dir")), Errno::ROFS)?;
    fails(
        "rename",
        rustix::fs::rename(at("file"), at("new")),
        Errno::ROFS,
    )?;
    fails("link", rustix::fs::link(at("file"), at("new")), Errno::ROFS)?;
    fails("symlink", rustix::fs::symlink("x", at("new")), Errno::ROFS)?;
    fails(
        "chmod",
        rustix::fs::chmod(at("file"), Mode::from(0o600)),
        Errno::ROFS,
    )?;
    let flags = rustix::fs::XattrFlags::empty();
    fails(
        "setxattr",
        rustix::fs::setxattr(at("file"), "user.a", b"", flags),
        Errno::ROFS,
    )?;
    let file = File::open(at("file"))?;
    let set = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::NODUMP);
    fails("chattr", set, Errno::ROFS)?;
    drop(file);
    ensure!(
        mount.options()?.starts_with("ro"),
        "options {}",
        mount.options()?
    );
    mount.close()?;
    env.start("")
}

fn remount_read_only(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..50_000)?;
    remount(env, MountFlags::RDONLY, "").context("remount")?;
    env.fsck().context("as it lies on the disk")?;
    fails("write", env.try_open("file", OFlags::WRONLY), Errno::ROFS)?;
    holds(&env.open("file", OFlags::RDONLY)?, 1, 0..50_000)?;
    remount(env, MountFlags::empty(), "").context("remount")?;
    put(&env.open("file", OFlags::RDWR)?, 2, 0..100)
}

fn remount_with_open_files(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..5000)?;
    let writer = env.open("file", OFlags::WRONLY)?;
    fails(
        "with a writer",
        remount(env, MountFlags::RDONLY, ""),
        Errno::BUSY,
    )?;
    put(&writer, 2, 0..100).context("it is still read-write")?;
    drop(writer);
    let reader = env.open("file", OFlags::RDONLY)?;
    remount(env, MountFlags::RDONLY, "").context("with a reader")?;
    holds(&reader, 2, 0..100)?;
    remount(env, MountFlags::empty(), "").context("remount")
}

fn remount_changes_options(env: &mut Env) -> Result<()> {
    let shown = |env: &Env| env.mount().options();
    remount(env, MountFlags::empty(), "errors=remount-ro").context("remount")?;
    ensure!(
        shown(env)?.contains("errors=remount-ro"),
        "options {}",
        shown(env)?
    );
    remount(env, MountFlags::empty(), "errors=continue,grpid").context("remount")?;
    ensure!(shown(env)?.contains("grpid"), "options {}", shown(env)?);
    fails(
        "unknown",
        remount(env, MountFlags::empty(), "bogus"),
        Errno::INVAL,
    )?;
    ensure!(
        shown(env)?.contains("grpid"),
        "a refused remount has changed {}",
        shown(env)?
    );
    Ok(())
}

/// What is on the disk then is whole.
fn freeze_and_thaw(env: &mut Env) -> Result<()> {
    for number in 0..20 {
        env.write(&format!("file-{number}"), &[1; 20_000])?;
    }
    let root = root(env)?;
    sys::freeze(&root).context("freeze")?;
    let judged = env.fsck().and_then(|()| env.superblock(STATE));
    let again = sys::freeze(&root);
    sys::thaw(&root).context("thaw")?;
    same("state", judged?, CLEAN)?;
    fails("frozen twice", again, Errno::BUSY)?;
    fails("thawed twice", sys::thaw(&root), Errno::INVAL)?;
    same("state", env.superblock(STATE)? & CLEAN, 0)?;
    env.write("after", b"x")
}

fn freeze_stops_writers(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    let root = root(env)?;
    let written = AtomicBool::new(false);
    sys::freeze(&root).context("freeze")?;
    thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            put(&file, 1, 0..5000)?;
            written.store(true, Ordering::Relaxed);
            Ok(())
        });
        thread::sleep(Duration::from_millis(200));
        let early = written.load(Ordering::Relaxed);
        sys::thaw(&root).context("thaw")?;
        writer.join().expect("it reports by its result")?;
        same("written while frozen", early, false)
    })?;
    holds(&file, 1, 0..5000)
}

fn options_are_shown(env: &mut Env) -> Result<()> {
    env.stop()?;
    for (given, shown) in [
        ("errors=continue", "errors=continue"),
        ("errors=remount-ro", "errors=remount-ro"),
        ("errors=panic", "errors=panic"),
        ("grpid", "grpid"),
        ("bsdgroups", "grpid"),
        ("resuid=5,resgid=6", "resuid=5,resgid=6"),
        ("minixdf", "minixdf"),
        ("nouser_xattr", "nouser_xattr"),
        ("noacl", "noacl"),
    ] {
        env.start(given)?;
        let options = env.mount().options()?;
        let found: Vec<_> = options.split(',').collect();
        for word in shown.split(',') {
            // What the superblock says anyway need not be repeated.
            let by_default = word == "errors=continue";
            ensure!(
                by_default || found.contains(&word),
                "{given} shows {options}"
            );
        }
        env.stop()?;
    }
    for accepted in ["nogrpid", "sysvgroups", "bsddf", "acl", "user_xattr"] {
        env.start(accepted)?;
        env.stop()?;
    }
    env.start("")
}

fn options_that_are_unknown(env: &mut Env) -> Result<()> {
    env.stop()?;
    for options in [
        "bogus",
        "errors=bogus",
        "resuid=x",
        "data=ordered",
        "barrier=1",
        "sb=x",
    ] {
        let result = env
            .try_mount(MountFlags::empty(), options)
            .map(Mount::close);
        fails(options, result, Errno::INVAL)?;
    }
    env.said()?;
    env.start("")
}

/// A copy of the superblock, in units of 1 KiB whatever the blocks are.
fn alternate_superblock(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.stop()?;
    let (first, per_group) = (u64::from(env.layout.block == 1024), env.layout.block * 8);
    let at = (first + per_group) * env.layout.block / 1024;
    let missing = env.try_mount(MountFlags::empty(), "sb=5").map(Mount::close);
    fails("where none is", missing, Errno::INVAL)?;
    if at < 16 << 10 {
        let mount = env.try_mount(MountFlags::RDONLY, &format!("sb={at}"));
        let mount = mount.context("with the copy")?;
        same("content", fs::read(mount.join("file"))?, b"x".to_vec())?;
        mount.close()?;
    }
    env.said()?;
    env.start("")
}

fn large_file_on_demand(env: &mut Env) -> Result<()> {
    const LARGE_FILE: u64 = 2;
    let has = |env: &Env| -> Result<bool> {
        syncfs(root(env)?).context("syncfs")?;
        Ok(env.superblock(RO_COMPAT)? & LARGE_FILE != 0)
    };
    let file = env.create("file")?;
    ftruncate(&file, (1 << 31) - 1).context("truncate")?;
    same("2 GiB - 1", has(env)?, false)?;
    ftruncate(&file, 1 << 31).context("truncate")?;
    same("2 GiB", has(env)?, true)?;
    ftruncate(&file, 0).context("truncate")?;
    same("kept", has(env)?, true)
}

/// Revision 0 knows no features: the first that is needed makes it 1.
fn old_revision_is_raised(env: &mut Env) -> Result<()> {
    env.stop()?;
    let device = env.device.device.to_string_lossy().into_owned();
    let block = env.layout.block.to_string();
    let make = |words: &[&str]| {
        let usual = ["-q", "-F", "-t", "ext2", "-b", &block];
        super::env::tool("mke2fs", &[&usual, words, &[&device, "16M"]].concat())
    };
    // The argument has changed with mke2fs 1.47.1.
    make(&["-r", "0"]).or_else(|_| make(&["-E", "revision=0"]))?;
    env.start("")?;
    same("revision", env.superblock(REVISION)?, 0)?;
    put(&env.create("small")?, 1, 0..5000)?;
    let file = env.create("file")?;
    ftruncate(&file, 1 << 31).context("truncate")?;
    syncfs(&file).context("syncfs")?;
    same("revision", env.superblock(REVISION)?, 1)?;
    same("first inode", env.superblock(FIRST_INODE)?, 11)?;
    ftruncate(&file, 0).context("truncate")?;
    drop(file);
    env.again()?;
    // A warning of it is in order.
    env.said()?;
    holds(&env.open("small", OFlags::RDONLY)?, 1, 0..5000)
}

/// A directory whose first entry has no length, found while mounted like this.
fn damaged(env: &mut Env, options: &str) -> Result<()> {
    env.mkdir("bad")?;
    env.write("good", b"content")?;
    env.stop()?;
    env.debugfs("zap_block -f bad -o 4 -l 2 -p 0 0")?;
    env.start(options)?;
    let listed = fs::read_dir(env.at("bad")).and_then(|list| list.collect::<Result<Vec<_>, _>>());
    let error = listed.err().context("a damaged directory was listed")?;
    let error = Errno::from_io_error(&error).context("no error number")?;
    ensure!(
        matches!(error, Errno::IO | Errno::UCLEAN),
        "a damaged directory: {error}"
    );
    let looked = errno(fs::metadata(env.at("bad/file")).map(|_| ()));
    ensure!(
        matches!(looked, Err(Errno::IO | Errno::UCLEAN | Errno::NOENT)),
        "a name in it: {looked:?}"
    );
    // What is not damaged can be read.
    same("content", fs::read(env.at("good"))?, b"content".to_vec())?;
    same("state", env.superblock(STATE)? & ERROR, ERROR)
}

/// Lets e2fsck repair it, for the judgement at the end.
fn repaired(env: &mut Env) -> Result<()> {
    env.stop()?;
    same("state", env.superblock(STATE)? & ERROR, ERROR)?;
    let said = env.said()?;
    ensure!(!said.is_empty(), "the damage was not reported");
    env.index_directories()?;
    env.start("")
}

fn errors_remount_read_only(env: &mut Env) -> Result<()> {
    damaged(env, "errors=remount-ro")?;
    fails("create", errno(File::create(env.at("new"))), Errno::ROFS)?;
    let options = env.mount().options()?;
    ensure!(options.starts_with("ro"), "options {options}");
    repaired(env)
}

fn errors_continue(env: &mut Env) -> Result<()> {
    damaged(env, "errors=continue")?;
    env.write("new", b"x").context("it goes on")?;
    repaired(env)
}

/// How many flushes the disk has had.
fn flushes(env: &Env) -> Result<u64> {
    let (disk, _) = env.device.place()?;
    let name = disk.file_name().context("a disk without a name")?;
    let path = std::path::Path::new("/sys/block").join(name).join("stat");
    let text = fs::read_to_string(&path).context(format!("cannot read {}", path.display()))?;
    let number = text
        .split_whitespace()
        .nth(15)
        .context("no count of flushes")?;
    number.parse().context("bad count of flushes")
}

fn flushed_by(env: &mut Env, action: impl FnOnce(&mut Env) -> Result<()>) -> Result<()> {
    let before = flushes(env)?;
    action(env)?;
    ensure!(flushes(env)? > before, "the device's cache was not flushed");
    Ok(())
}

fn unmount_flushes_the_device(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    flushed_by(env, |env| env.stop())?;
    env.start("")
}

fn sync_flushes_the_device(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    flushed_by(env, |env| syncfs(root(env)?).context("syncfs"))
}

fn fsync_flushes_the_device(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..5000)?;
    flushed_by(env, |_| fsync(&file).context("fsync"))?;
    // Nothing is dirty, but what was written lies in the device's cache.
    put(&file, 2, 0..5000)?;
    flushed_by(env, |_| rustix::fs::fdatasync(&file).context("fdatasync"))?;
    env.mkdir("dir")?;
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY)?;
    env.write("dir/file", b"x")?;
    flushed_by(env, |_| fsync(&dir).context("fsync of a directory"))
}

fn busy_cannot_be_unmounted(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    let unmounted = rustix::mount::unmount(env.root(), rustix::mount::UnmountFlags::empty());
    fails("with an open file", unmounted, Errno::BUSY)?;
    put(&file, 1, 0..100)
}
