// SPDX-License-Identifier: GPL-2.0

//! The flags of an inode that chattr(1) sets and lsattr(1) shows.

use super::Test;
use super::check::{as_user, errno, fails, put, same, size};
use super::env::Env;
use crate::kernel;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, IFlags, Mode, OFlags, StatxAttributes, StatxFlags, chmod, ftruncate,
    ioctl_getflags, ioctl_setflags, link, rename, rmdir, statx, unlink,
};
use rustix::io::{Errno, pwrite, write};
use std::fs;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("flags-are-stored", flags_are_stored).inodes(),
    Test::new("flags-are-inherited", flags_are_inherited),
    Test::new("flags-in-statx", flags_in_statx),
    Test::new("flags-that-ext2-keeps", flags_that_ext2_keeps),
    Test::new("immutable-file", immutable_file),
    Test::new("immutable-directory", immutable_directory),
    Test::new("append-only-file", append_only_file),
    Test::new("append-only-directory", append_only_directory),
    Test::new("noatime-flag", noatime_flag),
    Test::new("sync-flag", sync_flag),
    Test::new("flags-need-rights", flags_need_rights),
    Test::new("inode-generation", inode_generation),
];

/// Sets the flags of a name.
fn set(env: &Env, name: &str, flags: IFlags) -> Result<()> {
    ioctl_setflags(env.open(name, OFlags::RDONLY)?, flags).context(format!("{flags:?} on {name}"))
}

fn flags(env: &Env, name: &str) -> Result<IFlags> {
    ioctl_getflags(env.open(name, OFlags::RDONLY)?).context(format!("flags of {name}"))
}

const EACH: [IFlags; 8] = [
    IFlags::IMMUTABLE,
    IFlags::APPEND,
    IFlags::SYNC,
    IFlags::NOATIME,
    IFlags::NODUMP,
    IFlags::SECURE_REMOVAL,
    IFlags::UNRM,
    IFlags::COMPRESSED,
];

fn flags_are_stored(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    same("at first", flags(env, "file")?, IFlags::empty())?;
    for name in ["file", "dir"] {
        let of_dirs = [IFlags::DIRSYNC, IFlags::TOPDIR];
        let more: &[IFlags] = if name == "dir" { &of_dirs } else { &[] };
        for flag in EACH.iter().chain(more) {
            set(env, name, *flag)?;
            same(name, flags(env, name)?, *flag)?;
            env.again()?;
            same("on disk", flags(env, name)?, *flag)?;
            set(env, name, IFlags::empty())?;
        }
    }
    set(env, "file", IFlags::NODUMP | IFlags::NOATIME)?;
    kernel::drop_caches()?;
    same("two", flags(env, "file")?, IFlags::NODUMP | IFlags::NOATIME)
}

/// Files take none of what is for directories, others only what fits them.
fn flags_are_inherited(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    let all = IFlags::NODUMP | IFlags::NOATIME | IFlags::SYNC | IFlags::DIRSYNC | IFlags::TOPDIR;
    set(env, "dir", all)?;
    env.write("dir/file", b"")?;
    env.mkdir("dir/sub")?;
    let plain = IFlags::NODUMP | IFlags::NOATIME | IFlags::SYNC;
    same("file", flags(env, "dir/file")?, plain)?;
    same("directory", flags(env, "dir/sub")?, plain | IFlags::DIRSYNC)?;
    set(env, "dir", IFlags::APPEND)?;
    env.write("dir/file-2", b"")?;
    same(
        "what is not inherited",
        flags(env, "dir/file-2")?,
        IFlags::empty(),
    )?;
    set(env, "dir", IFlags::empty())
}

fn flags_in_statx(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let shown = |env: &Env| {
        statx(
            CWD,
            env.at("file"),
            AtFlags::empty(),
            StatxFlags::BASIC_STATS,
        )
        .context("statx")
    };
    let pairs = [
        (IFlags::IMMUTABLE, StatxAttributes::IMMUTABLE),
        (IFlags::APPEND, StatxAttributes::APPEND),
        (IFlags::NODUMP, StatxAttributes::NODUMP),
    ];
    for (flag, attribute) in pairs {
        ensure!(
            shown(env)?.stx_attributes_mask.contains(attribute),
            "{attribute:?} is not in the mask"
        );
        ensure!(
            !shown(env)?.stx_attributes.contains(attribute),
            "{attribute:?} is set"
        );
        set(env, "file", flag)?;
        ensure!(
            shown(env)?.stx_attributes.contains(attribute),
            "{attribute:?} is not set"
        );
        set(env, "file", IFlags::empty())?;
    }
    Ok(())
}

/// The index flag is the file system's own: nobody can set or clear it.
fn flags_that_ext2_keeps(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    env.stop()?;
    env.debugfs("sif dir flags 0x1000")?;
    env.start("")?;
    const INDEX: IFlags = IFlags::from_bits_retain(0x1000);
    same("before", flags(env, "dir")?, INDEX)?;
    set(env, "dir", IFlags::NODUMP)?;
    same("after", flags(env, "dir")?, INDEX | IFlags::NODUMP)?;
    env.stop()?;
    env.debugfs("sif dir flags 0")?;
    env.start("")?;
    let _ = ioctl_setflags(env.open("dir", OFlags::RDONLY)?, INDEX);
    same("cannot be set", flags(env, "dir")? & INDEX, IFlags::empty())
}

fn immutable_file(env: &mut Env) -> Result<()> {
    env.write("file", b"content")?;
    let at = |name| env.at(name);
    set(env, "file", IFlags::IMMUTABLE)?;
    fails(
        "open to write",
        env.try_open("file", OFlags::WRONLY),
        Errno::PERM,
    )?;
    fails(
        "open to append",
        env.try_open("file", OFlags::WRONLY | OFlags::APPEND),
        Errno::PERM,
    )?;
    fails(
        "O_TRUNC",
        env.try_open("file", OFlags::RDWR | OFlags::TRUNC),
        Errno::PERM,
    )?;
    fails("unlink", unlink(at("file")), Errno::PERM)?;
    fails("rename", rename(at("file"), at("new")), Errno::PERM)?;
    fails("link", link(at("file"), at("new")), Errno::PERM)?;
    fails("chmod", chmod(at("file"), Mode::from(0o600)), Errno::PERM)?;
    fails(
        "chown",
        errno(std::os::unix::fs::chown(at("file"), Some(1), None)),
        Errno::PERM,
    )?;
    fails(
        "utimensat",
        super::times::try_past(env, "file"),
        Errno::PERM,
    )?;
    let xattr = rustix::fs::XattrFlags::empty();
    fails(
        "setxattr",
        rustix::fs::setxattr(at("file"), "user.a", b"b", xattr),
        Errno::PERM,
    )?;
    env.write("other", b"")?;
    fails(
        "rename over it",
        rename(at("other"), at("file")),
        Errno::PERM,
    )?;
    same("content", fs::read(at("file"))?, b"content".to_vec())?;
    set(env, "file", IFlags::empty())?;
    unlink(at("file")).context("unlink")
}

fn immutable_directory(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    env.write("dir/file", b"x")?;
    set(env, "dir", IFlags::IMMUTABLE)?;
    let create = OFlags::RDWR | OFlags::CREATE;
    fails("create", env.try_open("dir/new", create), Errno::PERM)?;
    fails("unlink", unlink(env.at("dir/file")), Errno::PERM)?;
    fails(
        "rename out",
        rename(env.at("dir/file"), env.at("new")),
        Errno::PERM,
    )?;
    fails("rmdir", rmdir(env.at("dir")), Errno::PERM)?;
    // The files in it are as free as ever.
    put(&env.open("dir/file", OFlags::RDWR)?, 1, 0..100)?;
    env.again()?;
    fails("create", env.try_open("dir/new", create), Errno::PERM)?;
    set(env, "dir", IFlags::empty())
}

fn append_only_file(env: &mut Env) -> Result<()> {
    env.write("file", b"one")?;
    set(env, "file", IFlags::APPEND)?;
    fails(
        "open to write",
        env.try_open("file", OFlags::WRONLY),
        Errno::PERM,
    )?;
    let truncating = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
    fails("O_TRUNC", env.try_open("file", truncating), Errno::PERM)?;
    let file = env.open("file", OFlags::WRONLY | OFlags::APPEND)?;
    same("append", write(&file, b"two"), Ok(3))?;
    fails("ftruncate", ftruncate(&file, 0), Errno::PERM)?;
    fails("unlink", unlink(env.at("file")), Errno::PERM)?;
    fails("rename", rename(env.at("file"), env.at("new")), Errno::PERM)?;
    fails("link", link(env.at("file"), env.at("new")), Errno::PERM)?;
    same(
        "O_APPEND cannot be dropped",
        rustix::fs::fcntl_setfl(&file, OFlags::empty()),
        Err(Errno::PERM),
    )?;
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(&file, punch, 0, 3);
    ensure!(punched.is_err(), "a hole was punched into it");
    drop(file);
    same("content", fs::read(env.at("file"))?, b"onetwo".to_vec())?;
    set(env, "file", IFlags::empty())
}

fn append_only_directory(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    env.write("dir/old", b"x")?;
    set(env, "dir", IFlags::APPEND)?;
    env.write("dir/new", b"x").context("names may come")?;
    fails("unlink", unlink(env.at("dir/old")), Errno::PERM)?;
    fails(
        "rename",
        rename(env.at("dir/new"), env.at("dir/newer")),
        Errno::PERM,
    )?;
    set(env, "dir", IFlags::empty())
}

fn noatime_flag(env: &mut Env) -> Result<()> {
    use rustix::mount::MountFlags;
    env.write("file", b"x")?;
    env.write("other", b"x")?;
    set(env, "file", IFlags::NOATIME)?;
    super::times::set_past(env, "file")?;
    super::times::set_past(env, "other")?;
    env.stop()?;
    let mount = env
        .try_mount(MountFlags::STRICTATIME, "")
        .context("mount")?;
    for name in ["file", "other"] {
        fs::read(mount.join(name))?;
    }
    let time = |name| -> Result<i64> { Ok(fs::metadata(mount.join(name))?.atime()) };
    same("with the flag", time("file")?, super::times::PAST)?;
    ensure!(
        time("other")? > super::times::PAST,
        "the other was not accessed"
    );
    mount.close()?;
    env.start("")
}

/// Every write is on the medium when it returns.
fn sync_flag(env: &mut Env) -> Result<()> {
    use std::os::fd::AsFd;
    let file = env.create("file")?;
    ioctl_setflags(&file, IFlags::SYNC).context("setflags")?;
    for number in 0..10 {
        put(&file, 1, number * 5000..(number + 1) * 5000)?;
        size(&file, (number + 1) * 5000)?;
    }
    for extent in fiemap::Fiemap::new(file.as_fd()) {
        let extent = extent.context("FIEMAP")?;
        let length = extent
            .fe_length
            .min(50_000u64.saturating_sub(extent.fe_logical));
        let bytes = env.on_medium(extent.fe_physical, length as usize)?;
        crate::pattern::check(1, extent.fe_logical, &bytes)?;
    }
    Ok(())
}

fn flags_need_rights(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    std::os::unix::fs::chown(env.at("file"), Some(1000), Some(1000))?;
    chmod(env.at("file"), Mode::from(0o666)).context("chmod")?;
    let path = env.at("file");
    let set = |flags| -> Result<Result<(), Errno>> {
        let file = fs::File::open(&path).context("open")?;
        Ok(ioctl_setflags(&file, flags))
    };
    as_user(1001, 1001, &[], || {
        fails("a stranger", set(IFlags::NODUMP)?, Errno::PERM)
    })?;
    as_user(1000, 1000, &[], || {
        set(IFlags::NODUMP)?.context("the owner")?;
        fails("the owner", set(IFlags::IMMUTABLE)?, Errno::PERM)?;
        fails("the owner", set(IFlags::APPEND)?, Errno::PERM)
    })?;
    same("flags", flags(env, "file")?, IFlags::NODUMP)?;
    // A write through an old descriptor of an immutable file is the driver's to judge.
    let old = env.open("file", OFlags::RDWR)?;
    self::set(env, "file", IFlags::IMMUTABLE)?;
    let written = pwrite(&old, b"y", 0);
    ensure!(
        written == Ok(1) || written == Err(Errno::PERM),
        "{written:?}"
    );
    self::set(env, "file", IFlags::empty())
}

/// FS_IOC_GETVERSION tells two files in the same inode apart.
fn inode_generation(env: &mut Env) -> Result<()> {
    const GETVERSION: libc::Ioctl = 0x8008_7601;
    let generation =
        |file: &fs::File| crate::sys::ioctl_read(file, GETVERSION).context("FS_IOC_GETVERSION");
    let file = env.create("file")?;
    let (number, first) = (file.metadata()?.ino(), generation(&file)?);
    drop(file);
    env.again()?;
    same(
        "on disk",
        generation(&env.open("file", OFlags::RDONLY)?)?,
        first,
    )?;
    unlink(env.at("file")).context("unlink")?;
    for count in 0..2000 {
        let file = env.create(&format!("new-{count}"))?;
        if file.metadata()?.ino() == number {
            ensure!(generation(&file)? != first, "the generation is the same");
            return Ok(());
        }
    }
    anyhow::bail!("the inode is never used again")
}
