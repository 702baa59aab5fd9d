// SPDX-License-Identifier: GPL-2.0

//! Times: what sets which, what can be stored.

use super::Test;
use super::check::{as_user, fails, put, same};
use super::env::Env;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmod, ftruncate,
    link, mkdir, rename, rmdir, unlink, utimensat,
};
use rustix::io::Errno;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, symlink};
use std::thread::sleep;
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test::new("times-are-stored", times_are_stored).inodes(),
    Test::new("times-shown-are-times-stored", times_shown_are_times_stored).inodes(),
    Test::new("times-with-nanoseconds", times_with_nanoseconds)
        .make(&["-N", "1024", "-m", "0", "-I", "256"]),
    Test::new("times-out-of-range", times_out_of_range).inodes(),
    Test::new("utimensat-now-and-omit", utimensat_now_and_omit),
    Test::new("utimensat-permissions", utimensat_permissions),
    Test::new("times-of-changed-files", times_of_changed_files),
    Test::new("times-of-changed-directories", times_of_changed_directories),
    Test::new("times-of-unchanged-files", times_of_unchanged_files),
    Test::new("access-times", access_times),
];

/// A time before every test: what is newer has been changed.
pub const PAST: i64 = 1_000_000_000;

fn times(seconds: i64, nanos: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos as _,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Sets the times of a name to [`PAST`].
pub fn set_past(env: &Env, name: &str) -> Result<()> {
    try_past(env, name).context(format!("utimensat of {name}"))
}

/// Tries to.
pub fn try_past(env: &Env, name: &str) -> Result<(), Errno> {
    utimensat(
        CWD,
        env.at(name),
        &times(PAST, 0),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

fn times_are_stored(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    for seconds in [i64::from(i32::MIN), -1, 0, 1, PAST, i64::from(i32::MAX)] {
        utimensat(CWD, env.at("file"), &times(seconds, 0), AtFlags::empty())
            .context("utimensat")?;
        same("at once", env.stat("file")?.mtime(), seconds)?;
        env.again()?;
        let meta = env.stat("file")?;
        same("on disk", (meta.atime(), meta.mtime()), (seconds, seconds))?;
    }
    Ok(())
}

/// What was stored is what was shown before.
fn times_shown_are_times_stored(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let wanted = times(PAST, 123_456_789);
    utimensat(CWD, env.at("file"), &wanted, AtFlags::empty()).context("utimensat")?;
    let shown = nanoseconds(env)?;
    env.again()?;
    same("on disk", nanoseconds(env)?, shown)
}

/// Inodes of 256 bytes have room for them.
fn times_with_nanoseconds(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let wanted = times(PAST, 123_456_789);
    utimensat(CWD, env.at("file"), &wanted, AtFlags::empty()).context("utimensat")?;
    env.again()?;
    same("on disk", nanoseconds(env)?, (123_456_789, 123_456_789))
}

fn nanoseconds(env: &Env) -> Result<(i64, i64)> {
    let meta = env.stat("file")?;
    Ok((meta.atime_nsec(), meta.mtime_nsec()))
}

/// What cannot be stored becomes the nearest that can; it does not wrap.
fn times_out_of_range(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    for (seconds, most) in [
        (1i64 << 31, 1i64 << 34),
        (1 << 33, 1 << 34),
        (1 << 40, 1 << 34),
    ] {
        utimensat(CWD, env.at("file"), &times(seconds, 0), AtFlags::empty())
            .context("utimensat")?;
        let shown = env.stat("file")?.mtime();
        ensure!(
            shown >= i64::from(i32::MAX) && shown <= seconds.min(most),
            "{seconds} became {shown}"
        );
        env.again()?;
        same("on disk and before", env.stat("file")?.mtime(), shown)?;
        // C ext2, which judges the disk, knows no later times.
        set_past(env, "file")?;
    }
    let early = times(-(1 << 31) - 1, 0);
    utimensat(CWD, env.at("file"), &early, AtFlags::empty()).context("utimensat")?;
    same(
        "before 1901",
        env.stat("file")?.mtime(),
        i64::from(i32::MIN),
    )
}

fn utimensat_now_and_omit(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    set_past(env, "file")?;
    let special = |access, modification| {
        let time = |nanos| Timespec {
            tv_sec: 5,
            tv_nsec: nanos,
        };
        let both = Timestamps {
            last_access: time(access),
            last_modification: time(modification),
        };
        utimensat(CWD, env.at("file"), &both, AtFlags::empty())
    };
    special(UTIME_NOW, UTIME_OMIT).context("now and omit")?;
    let meta = env.stat("file")?;
    ensure!(meta.atime() > PAST, "UTIME_NOW did nothing");
    same("UTIME_OMIT", meta.mtime(), PAST)?;
    special(UTIME_OMIT, UTIME_NOW).context("omit and now")?;
    ensure!(env.stat("file")?.mtime() > PAST, "UTIME_NOW did nothing");
    fails(
        "too many nanoseconds",
        special(1_000_000_000, 0),
        Errno::INVAL,
    )?;
    let missing = utimensat(CWD, env.at("none"), &times(1, 0), AtFlags::empty());
    fails("of nothing", missing, Errno::NOENT)
}

fn utimensat_permissions(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    chmod(env.at("file"), Mode::from(0o666)).context("chmod")?;
    let path = env.at("file");
    as_user(1000, 1000, &[], || {
        let set = utimensat(CWD, &path, &times(1, 0), AtFlags::empty());
        fails("a time of a stranger's choice", set, Errno::PERM)?;
        // Who may write may touch.
        utimensat(CWD, &path, &times(0, UTIME_NOW), AtFlags::empty()).context("now")
    })?;
    chmod(env.at("file"), Mode::from(0o644)).context("chmod")?;
    as_user(1000, 1000, &[], || {
        let set = utimensat(CWD, &path, &times(0, UTIME_NOW), AtFlags::empty());
        fails("now, without the right to write", set, Errno::ACCESS)
    })
}

/// Which of both times an operation has set: modification, change.
fn changed(before: &Metadata, after: &Metadata) -> (bool, bool) {
    let time = |meta: &Metadata| (meta.ctime(), meta.ctime_nsec());
    (after.mtime() != PAST, time(before) != time(after))
}

/// Longer than a second, which may be all that a time can tell apart.
fn wait() {
    sleep(Duration::from_millis(1100));
}

type Change = fn(&Env, &str) -> Result<()>;

fn times_of_changed_files(env: &mut Env) -> Result<()> {
    let (both, inode) = ((true, true), (false, true));
    let changes: [(&str, Change, (bool, bool)); 9] = [
        (
            "write",
            |env, name| put(&env.open(name, OFlags::WRONLY)?, 1, 0..10),
            both,
        ),
        (
            "extend",
            |env, name| put(&env.open(name, OFlags::WRONLY)?, 1, 9000..9010),
            both,
        ),
        (
            "truncate",
            |env, name| Ok(ftruncate(env.open(name, OFlags::WRONLY)?, 5)?),
            both,
        ),
        (
            "open-trunc",
            |env, name| env.open(name, OFlags::WRONLY | OFlags::TRUNC).map(|_| ()),
            both,
        ),
        (
            "chmod",
            |env, name| Ok(chmod(env.at(name), Mode::from(0o600))?),
            inode,
        ),
        (
            "chown",
            |env, name| Ok(std::os::unix::fs::chown(env.at(name), Some(5), None)?),
            inode,
        ),
        (
            "link",
            |env, name| Ok(link(env.at(name), env.at(format!("{name}-2")))?),
            inode,
        ),
        (
            "setxattr",
            |env, name| {
                let flags = rustix::fs::XattrFlags::empty();
                Ok(rustix::fs::setxattr(env.at(name), "user.a", b"b", flags)?)
            },
            inode,
        ),
        (
            "rename",
            |env, name| Ok(rename(env.at(name), env.at(format!("{name}-3")))?),
            inode,
        ),
    ];
    let mut before = Vec::new();
    for (name, _, _) in &changes {
        env.write(name, &[1; 100])?;
        set_past(env, name)?;
        before.push(env.open(name, OFlags::RDONLY)?);
    }
    let old: Vec<_> = before
        .iter()
        .map(|file| file.metadata())
        .collect::<Result<_, _>>()?;
    wait();
    for (name, change, _) in &changes {
        change(env, name).context(*name)?;
    }
    for (((name, _, right), file), old) in changes.iter().zip(&before).zip(&old) {
        same(name, changed(old, &file.metadata()?), *right)?;
    }
    // The last name but one goes.
    let file = &before[6];
    let old = file.metadata()?;
    wait();
    unlink(env.at("link-2")).context("unlink")?;
    same("unlink", changed(&old, &file.metadata()?).1, true)
}

fn times_of_changed_directories(env: &mut Env) -> Result<()> {
    let changes: [(&str, Change); 7] = [
        ("create", |env, dir| env.write(&format!("{dir}/new"), b"")),
        ("unlink", |env, dir| {
            Ok(unlink(env.at(format!("{dir}/file")))?)
        }),
        ("mkdir", |env, dir| {
            Ok(mkdir(env.at(format!("{dir}/new")), Mode::from(0o755))?)
        }),
        ("rmdir", |env, dir| Ok(rmdir(env.at(format!("{dir}/dir")))?)),
        ("symlink", |env, dir| {
            Ok(symlink("x", env.at(format!("{dir}/new")))?)
        }),
        ("rename", |env, dir| {
            Ok(rename(
                env.at(format!("{dir}/file")),
                env.at(format!("{dir}/new")),
            )?)
        }),
        ("link", |env, dir| {
            Ok(link(
                env.at(format!("{dir}/file")),
                env.at(format!("{dir}/new")),
            )?)
        }),
    ];
    let mut old = Vec::new();
    for (name, _) in &changes {
        env.mkdir(name)?;
        env.mkdir(&format!("{name}/dir"))?;
        env.write(&format!("{name}/file"), b"")?;
        set_past(env, name)?;
        old.push(env.stat(name)?);
    }
    env.mkdir("from")?;
    env.write("from/file", b"")?;
    env.mkdir("to")?;
    set_past(env, "from")?;
    set_past(env, "to")?;
    wait();
    for ((name, change), old) in changes.iter().zip(&old) {
        change(env, name).context(*name)?;
        same(name, changed(old, &env.stat(name)?), (true, true))?;
    }
    rename(env.at("from/file"), env.at("to/file")).context("rename")?;
    same("from", env.stat("from")?.mtime() != PAST, true)?;
    same("to", env.stat("to")?.mtime() != PAST, true)
}

/// Nothing happened, so nothing is new.
fn times_of_unchanged_files(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    env.write("dir/file", &[1; 100])?;
    symlink("file", env.at("dir/link"))?;
    for name in ["dir/file", "dir/link", "dir"] {
        set_past(env, name)?;
    }
    let old = [env.stat("dir/file")?, env.stat("dir")?];
    wait();
    fs::read(env.at("dir/link"))?;
    fs::read_dir(env.at("dir"))?.count();
    env.open("dir/file", OFlags::RDWR | OFlags::CREATE)?;
    let writer = env.open("dir/file", OFlags::WRONLY)?;
    same("nothing", rustix::io::pwrite(&writer, &[], 5), Ok(0))?;
    fails(
        "mkdir",
        mkdir(env.at("dir/file"), Mode::from(0o755)),
        Errno::EXIST,
    )?;
    fails("unlink", unlink(env.at("dir/none")), Errno::NOENT)?;
    fails("rmdir", rmdir(env.at("dir")), Errno::NOTEMPTY)?;
    for (name, old) in ["dir/file", "dir"].iter().zip(&old) {
        same(name, changed(old, &env.stat(name)?), (false, false))?;
    }
    Ok(())
}

/// As the mount asks for them.
fn access_times(env: &mut Env) -> Result<()> {
    use rustix::mount::MountFlags;
    env.write("file", &[1; 100])?;
    env.mkdir("dir")?;
    symlink("file", env.at("link"))?;
    env.stop()?;
    for (flags, set) in [
        (MountFlags::STRICTATIME, true),
        (MountFlags::NOATIME, false),
        (MountFlags::RELATIME, true),
        (MountFlags::STRICTATIME | MountFlags::NODIRATIME, true),
    ] {
        let mount = env.try_mount(flags, "").context("mount")?;
        for name in ["file", "dir", "link"] {
            let path = mount.join(name);
            utimensat(CWD, &path, &times(PAST, 0), AtFlags::SYMLINK_NOFOLLOW)
                .context("utimensat")?;
        }
        fs::read(mount.join("link"))?;
        fs::read_dir(mount.join("dir"))?.count();
        let is_set =
            |name| -> Result<bool> { Ok(fs::symlink_metadata(mount.join(name))?.atime() > PAST) };
        same(&format!("file, {flags:?}"), is_set("file")?, set)?;
        same(&format!("link, {flags:?}"), is_set("link")?, set)?;
        let of_dirs = set && !flags.contains(MountFlags::NODIRATIME);
        same(&format!("dir, {flags:?}"), is_set("dir")?, of_dirs)?;
        mount.close()?;
    }
    env.start("")
}
