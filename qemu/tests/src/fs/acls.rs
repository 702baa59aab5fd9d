// SPDX-License-Identifier: GPL-2.0

//! POSIX access control lists, as setfacl(1) sets them: by the attribute with
//! the list in the kernel's form.

use super::Test;
use super::check::{as_user, fails, same};
use super::env::Env;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, XattrFlags, chmod, getxattr, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};

pub const TESTS: &[Test] = &[
    Test::new("acl-of-a-named-user", named_user).inodes(),
    Test::new("acl-of-a-named-group", named_group),
    Test::new("acl-mask", mask),
    Test::new("acl-and-mode-agree", mode_agrees),
    Test::new("acl-without-names-is-a-mode", minimal),
    Test::new("acl-default-is-inherited", default_is_inherited).inodes(),
    Test::new("acl-default-and-umask", default_and_umask),
    Test::new("acl-errors", errors),
    Test::new("acl-removed", removed),
    Test::new("acl-of-many-entries", many_entries),
    Test::new("acl-option-off", option_off).options("noacl"),
];

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const USER: u32 = 1000;

/// Who an entry is for.
#[derive(Clone, Copy, Debug)]
enum Who {
    Owner,
    User(u32),
    OwnerGroup,
    Group(u32),
    Mask,
    Other,
}

/// The list as an attribute: version 2, then tag, permissions and number of
/// each entry, little-endian.
fn list(entries: &[(Who, u16)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (who, permissions) in entries {
        let (tag, number) = match who {
            Who::Owner => (0x01u16, u32::MAX),
            Who::User(uid) => (0x02, *uid),
            Who::OwnerGroup => (0x04, u32::MAX),
            Who::Group(gid) => (0x08, *gid),
            Who::Mask => (0x10, u32::MAX),
            Who::Other => (0x20, u32::MAX),
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// `u::6 u:USER:PERMISSIONS g::0 m::MASK o::0`
fn for_user(permissions: u16, mask: u16) -> Vec<u8> {
    list(&[
        (Who::Owner, 6),
        (Who::User(USER), permissions),
        (Who::OwnerGroup, 0),
        (Who::Mask, mask),
        (Who::Other, 0),
    ])
}

fn set(env: &Env, file: &str, name: &str, list: &[u8]) -> Result<(), Errno> {
    setxattr(env.at(file), name, list, XattrFlags::empty())
}

fn get(env: &Env, file: &str, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 4096];
    let length = getxattr(env.at(file), name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

/// Whether a user may read and write a file.
fn may(env: &Env, file: &str, uid: u32, groups: &[u32]) -> Result<(bool, bool)> {
    let path = env.at(file);
    as_user(uid, uid, groups, || {
        let read = File::open(&path).is_ok();
        let write = File::options().write(true).open(&path).is_ok();
        Ok((read, write))
    })
}

fn named_user(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    chmod(env.at("file"), Mode::from(0o600)).context("chmod")?;
    same("before", may(env, "file", USER, &[])?, (false, false))?;
    set(env, "file", ACCESS, &for_user(4, 7)).context("set")?;
    same("list", get(env, "file", ACCESS), Ok(for_user(4, 7)))?;
    same("named", may(env, "file", USER, &[])?, (true, false))?;
    same("another", may(env, "file", 1001, &[])?, (false, false))?;
    env.again()?;
    same("on disk", get(env, "file", ACCESS), Ok(for_user(4, 7)))?;
    same("named", may(env, "file", USER, &[])?, (true, false))
}

fn named_group(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let entries = list(&[
        (Who::Owner, 6),
        (Who::OwnerGroup, 0),
        (Who::Group(500), 6),
        (Who::Group(501), 4),
        (Who::Mask, 6),
        (Who::Other, 0),
    ]);
    set(env, "file", ACCESS, &entries).context("set")?;
    same("one group", may(env, "file", USER, &[500])?, (true, true))?;
    same(
        "another group",
        may(env, "file", USER, &[501])?,
        (true, false),
    )?;
    same("no group", may(env, "file", USER, &[])?, (false, false))
}

/// It bounds what all but owner and others get.
fn mask(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    set(env, "file", ACCESS, &for_user(6, 4)).context("set")?;
    same("bounded", may(env, "file", USER, &[])?, (true, false))?;
    set(env, "file", ACCESS, &for_user(6, 0)).context("set")?;
    same("nothing", may(env, "file", USER, &[])?, (false, false))?;
    set(env, "file", ACCESS, &for_user(6, 6)).context("set")?;
    same("all", may(env, "file", USER, &[])?, (true, true))
}

/// The group's bits of the mode are the mask, both ways.
fn mode_agrees(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    set(env, "file", ACCESS, &for_user(6, 6)).context("set")?;
    same("mode", env.stat("file")?.mode() & 0o777, 0o660)?;
    chmod(env.at("file"), Mode::from(0o640)).context("chmod")?;
    same("list", get(env, "file", ACCESS), Ok(for_user(6, 4)))?;
    same("user", may(env, "file", USER, &[])?, (true, false))?;
    env.again()?;
    same("mode", env.stat("file")?.mode() & 0o777, 0o640)?;
    same("list", get(env, "file", ACCESS), Ok(for_user(6, 4)))
}

/// What a mode can say needs no attribute.
fn minimal(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    set(env, "file", ACCESS, &for_user(6, 6)).context("set")?;
    let plain = list(&[(Who::Owner, 7), (Who::OwnerGroup, 5), (Who::Other, 1)]);
    set(env, "file", ACCESS, &plain).context("set")?;
    same("mode", env.stat("file")?.mode() & 0o777, 0o751)?;
    fails("list", get(env, "file", ACCESS), Errno::NODATA)?;
    same("blocks", env.stat("file")?.blocks(), env.layout.block / 512)
}

fn default_is_inherited(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    let default = list(&[
        (Who::Owner, 7),
        (Who::User(USER), 7),
        (Who::OwnerGroup, 5),
        (Who::Mask, 7),
        (Who::Other, 0),
    ]);
    set(env, "dir", DEFAULT, &default).context("set")?;
    fails("no list of its own", get(env, "dir", ACCESS), Errno::NODATA)?;
    env.write("dir/file", b"x")?;
    env.mkdir("dir/sub")?;
    env.write("dir/sub/file", b"x")?;
    symlink("x", env.at("dir/link"))?;
    env.again()?;
    same(
        "directory",
        get(env, "dir/sub", DEFAULT),
        Ok(default.clone()),
    )?;
    same("its own", get(env, "dir/sub", ACCESS), Ok(default))?;
    for file in ["dir/file", "dir/sub/file"] {
        // Made with 0666: the mask loses its x.
        let right = list(&[
            (Who::Owner, 6),
            (Who::User(USER), 7),
            (Who::OwnerGroup, 5),
            (Who::Mask, 6),
            (Who::Other, 0),
        ]);
        same(file, get(env, file, ACCESS), Ok(right))?;
        fails(file, get(env, file, DEFAULT), Errno::NODATA)?;
        same(file, env.stat(file)?.mode() & 0o777, 0o660)?;
    }
    chmod(env.at("dir"), Mode::from(0o755)).context("chmod")?;
    same("user", may(env, "dir/file", USER, &[])?, (true, true))
}

/// The umask counts only where no default does.
fn default_and_umask(env: &mut Env) -> Result<()> {
    env.mkdir("plain")?;
    env.mkdir("dir")?;
    let default = list(&[(Who::Owner, 7), (Who::OwnerGroup, 7), (Who::Other, 6)]);
    set(env, "dir", DEFAULT, &default).context("set")?;
    let old = rustix::process::umask(Mode::from(0o077));
    let made = fs::write(env.at("dir/file"), b"").and(fs::write(env.at("plain/file"), b""));
    rustix::process::umask(old);
    made.context("create")?;
    same(
        "with a default",
        env.stat("dir/file")?.mode() & 0o777,
        0o666,
    )?;
    same("without", env.stat("plain/file")?.mode() & 0o777, 0o600)?;
    // A default that a mode can say leaves no list behind.
    fails("list", get(env, "dir/file", ACCESS), Errno::NODATA)
}

fn errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    symlink("file", env.at("link"))?;
    let good = for_user(4, 4);
    fails(
        "default of a file",
        set(env, "file", DEFAULT, &good),
        Errno::ACCESS,
    )?;
    let on_link = lsetxattr(env.at("link"), ACCESS, &good, XattrFlags::empty());
    fails("of a link", on_link, Errno::OPNOTSUPP)?;
    let mut version = good.clone();
    version[0] = 1;
    fails(
        "version",
        set(env, "file", ACCESS, &version),
        Errno::OPNOTSUPP,
    )?;
    fails(
        "length",
        set(env, "file", ACCESS, &good[..good.len() - 1]),
        Errno::INVAL,
    )?;
    let no_mask = list(&[
        (Who::Owner, 6),
        (Who::User(USER), 4),
        (Who::OwnerGroup, 0),
        (Who::Other, 0),
    ]);
    fails(
        "names without a mask",
        set(env, "file", ACCESS, &no_mask),
        Errno::INVAL,
    )?;
    let no_other = list(&[(Who::Owner, 6), (Who::OwnerGroup, 0)]);
    fails(
        "without others",
        set(env, "file", ACCESS, &no_other),
        Errno::INVAL,
    )?;
    let order = list(&[(Who::Other, 0), (Who::OwnerGroup, 0), (Who::Owner, 6)]);
    fails("order", set(env, "file", ACCESS, &order), Errno::INVAL)?;
    same("mode", env.stat("file")?.mode() & 0o777, 0o644)?;
    let path = env.at("file");
    as_user(USER, USER, &[], || {
        let set = setxattr(&path, ACCESS, &for_user(6, 6), XattrFlags::empty());
        fails("of a stranger", set, Errno::PERM)
    })
}

fn removed(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    set(env, "dir", ACCESS, &for_user(6, 6)).context("set")?;
    set(env, "dir", DEFAULT, &for_user(6, 6)).context("set")?;
    let free = env.free_blocks()?;
    removexattr(env.at("dir"), DEFAULT).context("remove")?;
    fails("default", get(env, "dir", DEFAULT), Errno::NODATA)?;
    same("access", get(env, "dir", ACCESS), Ok(for_user(6, 6)))?;
    removexattr(env.at("dir"), ACCESS).context("remove")?;
    fails("access", get(env, "dir", ACCESS), Errno::NODATA)?;
    same("free blocks", env.free_blocks()?, free + 1)?;
    env.write("dir/file", b"x")?;
    fails(
        "nothing is inherited",
        get(env, "dir/file", ACCESS),
        Errno::NODATA,
    )
}

/// As many as fit into an attribute block.
fn many_entries(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let with = |users: u32| {
        let mut entries = vec![(Who::Owner, 6)];
        entries.extend((0..users).map(|number| (Who::User(2000 + number), 4)));
        entries.extend([(Who::OwnerGroup, 0), (Who::Mask, 4), (Who::Other, 0)]);
        list(&entries)
    };
    // Eight bytes each on the disk.
    let most = (env.layout.block as u32 - 100) / 8;
    set(env, "file", ACCESS, &with(most)).context("many")?;
    let more = set(env, "file", ACCESS, &with(env.layout.block as u32 / 8 + 10));
    ensure!(
        matches!(more, Err(Errno::NOSPC | Errno::RANGE)),
        "too many: {more:?}"
    );
    env.again()?;
    same("list", get(env, "file", ACCESS), Ok(with(most)))?;
    same(
        "last",
        may(env, "file", 2000 + most - 1, &[])?,
        (true, false),
    )?;
    same(
        "no more",
        may(env, "file", 2000 + most, &[])?,
        (false, false),
    )
}

fn option_off(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    fails(
        "set",
        set(env, "file", ACCESS, &for_user(4, 4)),
        Errno::OPNOTSUPP,
    )?;
    fails("get", get(env, "file", ACCESS), Errno::OPNOTSUPP)?;
    let options = env.mount().options()?;
    ensure!(options.contains("noacl"), "options {options}");
    // The umask counts.
    let old = rustix::process::umask(Mode::from(0o077));
    let made = fs::write(env.at("new"), b"");
    rustix::process::umask(old);
    made.context("create")?;
    same("mode", env.stat("new")?.mode() & 0o777, 0o600)
}
