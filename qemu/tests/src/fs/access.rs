// SPDX-License-Identifier: GPL-2.0

//! Who may do what: modes, owners, groups, the sticky bit, and what the set-id
//! bits become.

use super::Test;
use super::check::{as_user, errno, fails, put, same};
use super::env::Env;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Uid, chmod, chown, chownat, mkdir, rename, unlink,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};

pub const TESTS: &[Test] = &[
    Test::new("mode-bits-decide", mode_bits_decide),
    Test::new("directory-mode-bits-decide", directory_mode_bits_decide),
    Test::new(
        "new-files-belong-to-their-maker",
        new_files_belong_to_their_maker,
    ),
    Test::new("sticky-directory", sticky_directory),
    Test::new("setgid-directory", setgid_directory),
    Test::new("grpid-option", grpid_option).options("grpid"),
    Test::new("nogrpid-option", nogrpid_option).options("nogrpid"),
    Test::new("chmod", chmod_).inodes(),
    Test::new("chown", chown_).inodes(),
    Test::new("set-id-bits-are-cleared", set_id_bits_are_cleared),
    Test::new("umask", umask),
    Test::new("others-files-stay", others_files_stay),
];

const USER: u32 = 1000;
const OTHER: u32 = 1001;

fn own(env: &Env, name: &str, uid: u32, gid: u32, mode: u32) -> Result<()> {
    chown(
        env.at(name),
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
    )
    .context("chown")?;
    chmod(env.at(name), Mode::from(mode)).context("chmod")
}

/// Owner, group and others, each with the bits of their own class only.
fn mode_bits_decide(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let may = |uid, gid, groups: &[u32]| {
        let path = env.at("file");
        as_user(uid, gid, groups, || {
            let read = File::options().read(true).open(&path).is_ok();
            let write = File::options().write(true).open(&path).is_ok();
            Ok((read, write))
        })
    };
    for (mode, owner, group, other) in [
        (0o600, (true, true), (false, false), (false, false)),
        (0o640, (true, true), (true, false), (false, false)),
        (0o246, (false, true), (true, false), (true, true)),
        (0o066, (false, false), (true, true), (true, true)),
        (0o000, (false, false), (false, false), (false, false)),
    ] {
        own(env, "file", USER, 500, mode)?;
        let what = format!("mode {mode:o}");
        same(&what, may(USER, 500, &[])?, owner)?;
        same(&what, may(OTHER, 500, &[])?, group)?;
        same(&what, may(OTHER, OTHER, &[7, 500])?, group)?;
        same(&what, may(OTHER, OTHER, &[7])?, other)?;
    }
    let path = env.at("file");
    let denied = as_user(OTHER, OTHER, &[], move || {
        Ok(errno(File::open(path)).map(|_| ()))
    })?;
    fails("open", denied, Errno::ACCESS)
}

fn directory_mode_bits_decide(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.write("d/file", b"x")?;
    chmod(env.at("d/file"), Mode::from(0o666))?;
    let (dir, file, new) = (env.at("d"), env.at("d/file"), env.at("d/new"));
    let tries = |mode| -> Result<[bool; 4]> {
        own(env, "d", USER, USER, mode)?;
        let made = as_user(USER, USER, &[], || {
            let list = fs::read_dir(&dir).is_ok();
            let look = fs::metadata(&file).is_ok();
            let open = File::open(&file).is_ok();
            let make = File::create(&new).is_ok();
            Ok([list, look, open, make])
        })?;
        let _ = fs::remove_file(&new);
        Ok(made)
    };
    same("r", tries(0o400)?, [true, false, false, false])?;
    same("x", tries(0o100)?, [false, true, true, false])?;
    same("rx", tries(0o500)?, [true, true, true, false])?;
    same("wx", tries(0o300)?, [false, true, true, true])?;
    same("w", tries(0o200)?, [false, false, false, false])
}

fn new_files_belong_to_their_maker(env: &mut Env) -> Result<()> {
    chmod(env.root(), Mode::from(0o777)).context("chmod")?;
    let (file, dir, link) = (env.at("file"), env.at("dir"), env.at("link"));
    as_user(70_000, 80_000, &[], || {
        File::create(&file).context("create")?;
        fs::create_dir(&dir).context("mkdir")?;
        symlink("x", &link).context("symlink")
    })?;
    env.again()?;
    for name in ["file", "dir", "link"] {
        let meta = env.stat(name)?;
        same(name, (meta.uid(), meta.gid()), (70_000, 80_000))?;
    }
    Ok(())
}

fn sticky_directory(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    own(env, "d", 0, 0, 0o1777)?;
    for name in ["d/a", "d/b", "d/c"] {
        env.write(name, b"x")?;
        own(env, name, USER, USER, 0o666)?;
    }
    let (a, b, c, new) = (env.at("d/a"), env.at("d/b"), env.at("d/c"), env.at("d/new"));
    as_user(OTHER, OTHER, &[], || {
        fails("unlink", unlink(&a), Errno::PERM)?;
        fails("rename", rename(&a, &new), Errno::PERM)?;
        File::create(&new).context("create")?;
        fails("rename over", rename(&new, &a), Errno::PERM)
    })?;
    as_user(USER, USER, &[], || {
        unlink(&a).context("unlink of the owner")?;
        rename(&b, &c).context("rename of the owner")
    })
}

fn setgid_directory(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    own(env, "d", 0, 500, 0o2777)?;
    let (file, dir) = (env.at("d/file"), env.at("d/dir"));
    as_user(USER, USER, &[], || {
        File::create(&file).context("create")?;
        fs::create_dir(&dir).context("mkdir")
    })?;
    same("group", env.stat("d/file")?.gid(), 500)?;
    same("group", env.stat("d/dir")?.gid(), 500)?;
    same(
        "directories inherit the bit",
        env.stat("d/dir")?.mode() & 0o2000,
        0o2000,
    )?;
    same("files do not", env.stat("d/file")?.mode() & 0o2000, 0)?;
    // A set-group-id file for a group that its maker is not in.
    let path = env.at("d/program");
    as_user(USER, USER, &[], || {
        let flags = OFlags::RDWR | OFlags::CREATE;
        rustix::fs::open(&path, flags, Mode::from(0o2755)).context("create")?;
        Ok(())
    })?;
    same(
        "the bit of a stranger",
        env.stat("d/program")?.mode() & 0o2000,
        0,
    )
}

fn made_in(env: &Env, gid: u32) -> Result<u32> {
    env.mkdir("d")?;
    own(env, "d", 0, gid, 0o777)?;
    let path = env.at("d/file");
    as_user(USER, USER, &[], || Ok(File::create(&path).map(|_| ())?))?;
    Ok(env.stat("d/file")?.gid())
}

/// New files get the group of their directory.
fn grpid_option(env: &mut Env) -> Result<()> {
    same("group", made_in(env, 500)?, 500)?;
    let options = env.mount().options()?;
    ensure!(options.contains("grpid"), "options {options}");
    Ok(())
}

fn nogrpid_option(env: &mut Env) -> Result<()> {
    same("group", made_in(env, 500)?, USER)
}

fn chmod_(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    let modes = [0o7777, 0, 0o4711, 0o2755, 0o1777, 0o644];
    for mode in modes {
        chmod(env.at("file"), Mode::from(mode)).context("chmod")?;
        chmod(env.at("dir"), Mode::from(mode)).context("chmod")?;
        env.again()?;
        same("file", env.stat("file")?.mode(), 0o100_000 | mode)?;
        same("dir", env.stat("dir")?.mode(), 0o40_000 | mode)?;
    }
    chown(
        env.at("file"),
        Some(Uid::from_raw(USER)),
        Some(Gid::from_raw(500)),
    )
    .context("chown")?;
    let path = env.at("file");
    as_user(OTHER, OTHER, &[], || {
        fails(
            "of a stranger",
            chmod(&path, Mode::from(0o777)),
            Errno::PERM,
        )
    })?;
    // Who is not in the group loses the group's bit.
    as_user(USER, USER, &[], || {
        chmod(&path, Mode::from(0o2755)).context("of the owner")
    })?;
    same("mode", env.stat("file")?.mode() & 0o7777, 0o755)?;
    fails(
        "of nothing",
        chmod(env.at("none"), Mode::from(0o755)),
        Errno::NOENT,
    )
}

fn chown_(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    symlink("file", env.at("link"))?;
    let ids = |uid, gid| (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    // Both halves of 32 bits.
    for (uid, gid) in [
        (1, 2),
        (65_535, 65_536),
        (100_000, 4_000_000_000),
        (4_294_967_294, 0),
        (0, 0),
    ] {
        let (owner, group) = ids(uid, gid);
        chown(env.at("file"), owner, group).context("chown")?;
        env.again()?;
        let meta = env.stat("file")?;
        same("owner", (meta.uid(), meta.gid()), (uid, gid))?;
    }
    let (owner, group) = ids(5, 6);
    chownat(CWD, env.at("link"), owner, group, AtFlags::SYMLINK_NOFOLLOW).context("lchown")?;
    same("link", env.stat("link")?.uid(), 5)?;
    same("file", env.stat("file")?.uid(), 0)?;
    chown(env.at("file"), None, None).context("chown of nothing")?;
    chown(
        env.at("file"),
        Some(Uid::from_raw(USER)),
        Some(Gid::from_raw(USER)),
    )
    .context("chown")?;
    let path = env.at("file");
    as_user(USER, USER, &[500], || {
        fails(
            "to another user",
            chown(&path, Some(Uid::from_raw(OTHER)), None),
            Errno::PERM,
        )?;
        fails(
            "to a strange group",
            chown(&path, None, Some(Gid::from_raw(7))),
            Errno::PERM,
        )?;
        chown(&path, None, Some(Gid::from_raw(500))).context("to a group of their own")
    })?;
    same("group", env.stat("file")?.gid(), 500)
}

/// By a write or a truncate of who is not root, and by a change of the owner.
fn set_id_bits_are_cleared(env: &mut Env) -> Result<()> {
    let fresh = |name: &str| -> Result<()> {
        env.write(name, &[1; 5000])?;
        own(env, name, USER, USER, 0o6777)
    };
    let bits = |name: &str| Ok::<_, anyhow::Error>(env.stat(name)?.mode() & 0o6000);
    fresh("written")?;
    let path = env.at("written");
    as_user(OTHER, OTHER, &[], || {
        let file = File::options().write(true).open(&path).context("open")?;
        put(&file, 1, 10..20)
    })?;
    same("written", bits("written")?, 0)?;
    fresh("truncated")?;
    let path = env.at("truncated");
    as_user(OTHER, OTHER, &[], || {
        let file = File::options().write(true).open(&path).context("open")?;
        rustix::fs::ftruncate(&file, 10).context("truncate")
    })?;
    same("truncated", bits("truncated")?, 0)?;
    fresh("given")?;
    chown(env.at("given"), Some(Uid::from_raw(OTHER)), None).context("chown")?;
    same("given", bits("given")?, 0)?;
    fresh("by-root")?;
    put(&env.open("by-root", OFlags::WRONLY)?, 1, 0..10)?;
    same("root keeps them", bits("by-root")?, 0o6000)
}

fn umask(env: &mut Env) -> Result<()> {
    let old = rustix::process::umask(Mode::from(0o027));
    let make = || -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        rustix::fs::open(env.at("file"), flags, Mode::from(0o666)).context("create")?;
        mkdir(env.at("dir"), Mode::from(0o777)).context("mkdir")?;
        symlink("x", env.at("link")).context("symlink")
    };
    let made = make();
    rustix::process::umask(old);
    made?;
    same("file", env.stat("file")?.mode() & 0o777, 0o640)?;
    same("dir", env.stat("dir")?.mode() & 0o777, 0o750)?;
    same("link", env.stat("link")?.mode() & 0o777, 0o777)
}

fn others_files_stay(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.write("d/file", b"x")?;
    env.write("own", b"x")?;
    own(env, "own", USER, USER, 0o644)?;
    let mine = env.at("own");
    let (file, dir, new) = (env.at("d/file"), env.at("d"), env.at("d/new"));
    as_user(USER, USER, &[], || {
        fails("create", errno(File::create(&new)), Errno::ACCESS)?;
        fails("mkdir", mkdir(&new, Mode::from(0o755)), Errno::ACCESS)?;
        fails("unlink", unlink(&file), Errno::ACCESS)?;
        fails("rename", rename(&file, &new), Errno::ACCESS)?;
        fails("link", rustix::fs::link(&mine, &new), Errno::ACCESS)?;
        fails("rmdir", rustix::fs::rmdir(&dir), Errno::ACCESS)?;
        fails("symlink", rustix::fs::symlink("x", &new), Errno::ACCESS)?;
        let kind = rustix::fs::FileType::CharacterDevice;
        let device = rustix::fs::mknodat(CWD, &new, kind, Mode::from(0o600), 0x103);
        ensure!(device.is_err(), "a user made a device");
        Ok(())
    })?;
    same("links", env.stat("d/file")?.nlink(), 1)
}
