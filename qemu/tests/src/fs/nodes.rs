// SPDX-License-Identifier: GPL-2.0

//! Files that are no ordinary ones: devices, pipes, sockets, files without a
//! name, and names for them.

use super::Test;
use super::check::{fails, holds, put, same, size};
use super::env::Env;
use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, linkat, makedev, mknodat, open,
    unlink, utimensat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::thread;

pub const TESTS: &[Test] = &[
    Test::new("device-numbers", device_numbers).inodes(),
    Test::new("pipes-and-sockets", pipes_and_sockets),
    Test::new("mknod-errors", mknod_errors),
    Test::new("nodes-have-metadata", nodes_have_metadata),
    Test::new("file-without-a-name", file_without_a_name),
    Test::new("name-for-a-file-without", name_for_a_file_without),
];

/// Numbers that fit into 8 bits each are stored the old way.
fn device_numbers(env: &mut Env) -> Result<()> {
    let numbers = [
        (1, 3),
        (0, 0),
        (255, 255),
        (256, 0),
        (8, 256),
        (259, 0xff00),
        (4095, 0xf_ffff),
    ];
    for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
        for (major, minor) in numbers {
            let name = format!("{kind:?}-{major}-{minor}");
            let mode = Mode::from(0o640);
            mknodat(CWD, env.at(&name), kind, mode, makedev(major, minor)).context(name)?;
        }
    }
    env.again()?;
    for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
        for (major, minor) in numbers {
            let name = format!("{kind:?}-{major}-{minor}");
            let meta = env.stat(&name)?;
            same(&name, meta.rdev(), makedev(major, minor))?;
            same(&name, FileType::from_raw_mode(meta.mode()), kind)?;
            same(
                &name,
                (meta.mode() & 0o7777, meta.nlink(), meta.blocks()),
                (0o640, 1, 0),
            )?;
        }
    }
    // A device on it works.
    let null = env.at(format!("{:?}-1-3", FileType::CharacterDevice));
    File::options().write(true).open(null)?.write_all(b"gone")?;
    Ok(())
}

fn pipes_and_sockets(env: &mut Env) -> Result<()> {
    mknodat(CWD, env.at("fifo"), FileType::Fifo, Mode::from(0o600), 0).context("mknod")?;
    env.again()?;
    let (reader, writer) = (env.at("fifo"), env.at("fifo"));
    let writes = thread::spawn(move || {
        File::options()
            .write(true)
            .open(writer)?
            .write_all(b"hello")
    });
    let mut text = String::new();
    File::open(reader)?.read_to_string(&mut text)?;
    writes.join().expect("it reports by its result")?;
    same("through the pipe", text, "hello".to_owned())?;
    same("size", env.stat("fifo")?.len(), 0)?;
    // A socket is made by binding it.
    let socket = std::os::unix::net::UnixListener::bind(env.at("socket")).context("bind")?;
    let kind = FileType::from_raw_mode(env.stat("socket")?.mode());
    same("type", kind, FileType::Socket)?;
    std::os::unix::net::UnixStream::connect(env.at("socket")).context("connect")?;
    let again = std::os::unix::net::UnixListener::bind(env.at("socket"));
    same(
        "bind again",
        again.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::AddrInUse),
    )?;
    drop(socket);
    fails(
        "open of a socket",
        env.try_open("socket", OFlags::RDWR),
        Errno::NXIO,
    )?;
    unlink(env.at("socket")).context("unlink")
}

fn mknod_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"")?;
    let mode = Mode::from(0o600);
    let make = |name, kind| mknodat(CWD, env.at(name), kind, mode, 0);
    fails("over a file", make("file", FileType::Fifo), Errno::EXIST)?;
    fails("in nothing", make("none/x", FileType::Fifo), Errno::NOENT)?;
    fails("a directory", make("dir", FileType::Directory), Errno::PERM)?;
    fails("a link", make("link", FileType::Symlink), Errno::INVAL)?;
    make("regular", FileType::RegularFile).context("a regular file")?;
    size(&env.open("regular", OFlags::RDWR)?, 0)?;
    make("no-device", FileType::CharacterDevice).context("device 0:0")?;
    fails(
        "open of no device",
        env.try_open("no-device", OFlags::RDWR),
        Errno::NXIO,
    )
}

/// Owner, mode and times of a node and of a link itself.
fn nodes_have_metadata(env: &mut Env) -> Result<()> {
    mknodat(CWD, env.at("fifo"), FileType::Fifo, Mode::from(0o600), 0).context("mknod")?;
    std::os::unix::fs::symlink("nowhere", env.at("link"))?;
    for name in ["fifo", "link"] {
        std::os::unix::fs::lchown(env.at(name), Some(70_000), Some(3_000_000_000))?;
        let time = Timespec {
            tv_sec: 1_000_000_000,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, env.at(name), &times, AtFlags::SYMLINK_NOFOLLOW).context("utimensat")?;
    }
    rustix::fs::chmod(env.at("fifo"), Mode::from(0o4711)).context("chmod")?;
    env.again()?;
    for name in ["fifo", "link"] {
        let meta = env.stat(name)?;
        same(name, (meta.uid(), meta.gid()), (70_000, 3_000_000_000))?;
        same(name, meta.mtime(), 1_000_000_000)?;
    }
    same("mode", env.stat("fifo")?.mode() & 0o7777, 0o4711)
}

fn nameless(env: &Env, more: OFlags) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | more;
    let fd = open(env.root(), flags, Mode::from(0o600)).context("O_TMPFILE")?;
    Ok(File::from(fd))
}

/// It takes an inode and blocks, and gives them back.
fn file_without_a_name(env: &mut Env) -> Result<()> {
    let (blocks, inodes) = (env.free_blocks()?, env.free_inodes()?);
    let file = nameless(env, OFlags::empty())?;
    same("links", file.metadata()?.nlink(), 0)?;
    put(&file, 1, 0..200_000)?;
    rustix::fs::fsync(&file).context("fsync")?;
    holds(&file, 1, 0..200_000)?;
    same("free inodes", env.free_inodes()?, inodes - 1)?;
    drop(file);
    same("free blocks", env.free_blocks()?, blocks)?;
    same("free inodes", env.free_inodes()?, inodes)?;
    let reader = OFlags::RDONLY | OFlags::TMPFILE;
    fails(
        "read-only",
        open(env.root(), reader, Mode::from(0o600)),
        Errno::INVAL,
    )
}

fn name_for_a_file_without(env: &mut Env) -> Result<()> {
    let file = nameless(env, OFlags::empty())?;
    put(&file, 1, 0..50_000)?;
    let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
    let name =
        |file: &File, name| linkat(CWD, path(file), CWD, env.at(name), AtFlags::SYMLINK_FOLLOW);
    name(&file, "one").context("linkat")?;
    same("links", file.metadata()?.nlink(), 1)?;
    name(&file, "two").context("linkat again")?;
    same("links", file.metadata()?.nlink(), 2)?;
    fails("over a name", name(&file, "two"), Errno::EXIST)?;
    let exclusive = nameless(env, OFlags::EXCL)?;
    fails("with O_EXCL", name(&exclusive, "three"), Errno::NOENT)?;
    drop((file, exclusive));
    env.again()?;
    same("links", env.stat("one")?.nlink(), 2)?;
    holds(&env.open("two", OFlags::RDONLY)?, 1, 0..50_000)
}
