// SPDX-License-Identifier: GPL-2.0

//! Names of files: creating, opening, linking, removing, symbolic links.

use super::Test;
use super::check::{errno, fails, get, holds, put, same, size};
use super::env::Env;
use crate::kernel;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, link, linkat, mkdir, open, readlink, rmdir, stat, symlink, unlink,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("create-and-open-flags", create_and_open_flags),
    Test::new("open-errors", open_errors),
    Test::new("name-lengths", name_lengths),
    Test::new("names-of-any-bytes", names_of_any_bytes),
    Test::new("dots-are-taken", dots_are_taken),
    Test::new("hard-links", hard_links),
    Test::new("link-errors", link_errors),
    Test::new("link-limit", link_limit),
    Test::new("unlink-errors", unlink_errors),
    Test::new("unlink-open-file", unlink_open_file).inodes(),
    Test::new("symlink-lengths", symlink_lengths).inodes(),
    Test::new("symlink-walks", symlink_walks),
];

fn create_and_open_flags(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    put(&file, 1, 0..5000)?;
    let create = OFlags::RDWR | OFlags::CREATE;
    fails(
        "O_EXCL",
        env.try_open("file", create | OFlags::EXCL),
        Errno::EXIST,
    )?;
    // Without O_EXCL, creating what is there opens it as it is.
    size(&env.open("file", create)?, 5000)?;
    size(&env.open("file", OFlags::RDONLY)?, 5000)?;
    let reader = env.open("file", OFlags::RDONLY)?;
    fails(
        "write to a reader",
        rustix::io::pwrite(&reader, b"x", 0),
        Errno::BADF,
    )?;
    let writer = env.open("file", OFlags::WRONLY)?;
    fails(
        "read from a writer",
        rustix::io::pread(&writer, &mut [0; 1], 0),
        Errno::BADF,
    )?;

    let truncated = env.open("file", OFlags::WRONLY | OFlags::TRUNC)?;
    size(&truncated, 0)?;
    same("blocks after O_TRUNC", truncated.metadata()?.blocks(), 0)?;
    put(&file, 2, 0..100)?;

    let made = env.stat("file")?;
    same("mode", made.mode(), 0o100_644)?;
    same("links", made.nlink(), 1)?;
    same("owner", (made.uid(), made.gid()), (0, 0))?;
    drop((file, reader, writer, truncated));
    env.again()?;
    holds(&env.open("file", OFlags::RDONLY)?, 2, 0..100)
}

fn open_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    symlink("nowhere", env.at("dangling")).context("symlink")?;
    symlink("file", env.at("link")).context("symlink")?;
    let create = OFlags::RDWR | OFlags::CREATE;
    let excl = create | OFlags::EXCL;
    fails(
        "missing",
        env.try_open("none", OFlags::RDONLY),
        Errno::NOENT,
    )?;
    fails(
        "below a file",
        env.try_open("file/x", create),
        Errno::NOTDIR,
    )?;
    fails(
        "below nothing",
        env.try_open("none/x", create),
        Errno::NOENT,
    )?;
    fails(
        "directory to write",
        env.try_open("dir", OFlags::WRONLY),
        Errno::ISDIR,
    )?;
    fails(
        "creating a directory",
        env.try_open("dir", create),
        Errno::ISDIR,
    )?;
    fails(
        "file with a slash",
        env.try_open("new/", create),
        Errno::ISDIR,
    )?;
    let directory = OFlags::RDONLY | OFlags::DIRECTORY;
    fails(
        "file as directory",
        env.try_open("file", directory),
        Errno::NOTDIR,
    )?;
    let nofollow = OFlags::RDONLY | OFlags::NOFOLLOW;
    fails("O_NOFOLLOW", env.try_open("link", nofollow), Errno::LOOP)?;
    fails(
        "O_EXCL on a link",
        env.try_open("dangling", excl),
        Errno::EXIST,
    )?;
    fails(
        "dangling",
        env.try_open("dangling", OFlags::RDONLY),
        Errno::NOENT,
    )?;
    // Creating through a link makes what it leads to.
    env.open("dangling", create)?;
    same("size of the target", env.stat("nowhere")?.len(), 0)
}

fn name_lengths(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let name = |length| format!("d/{}", "n".repeat(length));
    let lengths = [1, 2, 3, 4, 5, 8, 9, 127, 128, 254, 255];
    for length in lengths {
        env.write(&name(length), name(length).as_bytes())?;
    }
    let long = env.at(name(256));
    let create = OFlags::RDWR | OFlags::CREATE;
    fails(
        "creating 256",
        env.try_open(&name(256), create),
        Errno::NAMETOOLONG,
    )?;
    fails("stat of 256", stat(&long).map(|_| ()), Errno::NAMETOOLONG)?;
    fails(
        "mkdir of 256",
        mkdir(&long, Mode::from(0o755)),
        Errno::NAMETOOLONG,
    )?;
    fails("symlink of 256", symlink("x", &long), Errno::NAMETOOLONG)?;
    fails(
        "link of 256",
        link(env.at(name(1)), &long),
        Errno::NAMETOOLONG,
    )?;
    fails(
        "rename to 256",
        rustix::fs::rename(env.at(name(1)), &long),
        Errno::NAMETOOLONG,
    )?;
    fails("unlink of 256", unlink(&long), Errno::NAMETOOLONG)?;
    env.again()?;
    for length in lengths {
        let found = fs::read(env.at(name(length))).context(format!("length {length}"))?;
        same("content", found, name(length).into_bytes())?;
    }
    same("f_namemax", rustix::fs::statvfs(env.root())?.f_namemax, 255)
}

fn names_of_any_bytes(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let names = (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.');
    let path = |byte: u8| [b"d/".as_slice(), &[byte]].concat();
    for byte in names.clone() {
        let at = env.at(OsStr::from_bytes(&path(byte)));
        fs::write(&at, [byte]).context(format!("name {byte:#x}"))?;
    }
    env.again()?;
    for byte in names {
        let at = env.at(OsStr::from_bytes(&path(byte)));
        same(
            "content",
            fs::read(&at).context(format!("name {byte:#x}"))?,
            vec![byte],
        )?;
    }
    // Names that differ in their last byte or their length only.
    for name in ["abc", "abd", "ab", "abcd", "...", "..a", ".a", "..."] {
        env.write(name, name.as_bytes())?;
    }
    same("content", fs::read(env.at("ab"))?, b"ab".to_vec())?;
    same("content", fs::read(env.at("..."))?, b"...".to_vec())
}

fn dots_are_taken(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    for name in [".", "..", "d/.", "d/.."] {
        let at = env.at(name);
        fails("mkdir", mkdir(&at, Mode::from(0o755)), Errno::EXIST).context(name)?;
        fails("symlink", symlink("x", &at), Errno::EXIST).context(name)?;
        fails("unlink", unlink(&at), Errno::ISDIR).context(name)?;
    }
    fails("rmdir of .", rmdir(env.at("d/.")), Errno::INVAL)?;
    fails("rmdir of ..", rmdir(env.at("d/..")), Errno::NOTEMPTY)?;
    fails(
        "rename of .",
        rustix::fs::rename(env.at("d/."), env.at("e")),
        Errno::BUSY,
    )?;
    fails(
        "rename to ..",
        rustix::fs::rename(env.at("d"), env.at("d/..")),
        Errno::BUSY,
    )
}

fn hard_links(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let file = env.create("one")?;
    put(&file, 1, 0..3000)?;
    link(env.at("one"), env.at("two")).context("link")?;
    link(env.at("two"), env.at("d/three")).context("link")?;
    for name in ["one", "two", "d/three"] {
        same(name, env.stat(name)?.nlink(), 3)?;
        same(name, env.stat(name)?.ino(), file.metadata()?.ino())?;
    }
    put(&env.open("two", OFlags::WRONLY)?, 2, 0..3000)?;
    holds(&env.open("d/three", OFlags::RDONLY)?, 2, 0..3000)?;
    unlink(env.at("one")).context("unlink")?;
    same("links", file.metadata()?.nlink(), 2)?;
    drop(file);
    // A link to a symbolic link is one to the link itself, unless it is followed.
    symlink("two", env.at("soft")).context("symlink")?;
    linkat(CWD, env.at("soft"), CWD, env.at("soft-2"), AtFlags::empty()).context("link")?;
    linkat(
        CWD,
        env.at("soft"),
        CWD,
        env.at("hard-4"),
        AtFlags::SYMLINK_FOLLOW,
    )
    .context("link through a link")?;
    same("links", env.stat("soft")?.nlink(), 2)?;
    same("links", env.stat("two")?.nlink(), 3)?;
    env.again()?;
    same("links", env.stat("d/three")?.nlink(), 3)?;
    holds(&env.open("hard-4", OFlags::RDONLY)?, 2, 0..3000)
}

fn link_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    let file = env.at("file");
    fails(
        "of a directory",
        link(env.at("dir"), env.at("new")),
        Errno::PERM,
    )?;
    fails("over a file", link(&file, env.at("file")), Errno::EXIST)?;
    fails("over a directory", link(&file, env.at("dir")), Errno::EXIST)?;
    fails(
        "of nothing",
        link(env.at("none"), env.at("new")),
        Errno::NOENT,
    )?;
    fails(
        "into nothing",
        link(&file, env.at("none/new")),
        Errno::NOENT,
    )?;
    fails(
        "below a file",
        link(&file, env.at("file/new")),
        Errno::NOTDIR,
    )?;
    fails("to elsewhere", link(&file, "/tmp/new"), Errno::XDEV)?;
    same("links", env.stat("file")?.nlink(), 1)?;
    ensure!(!env.exists("new"), "a failed link has left a name");
    Ok(())
}

/// 32,000 names are the most: a count near it is set by debugfs, for making so
/// many takes minutes on a slow guest.
fn link_limit(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.stop()?;
    env.debugfs("sif file links_count 31999")?;
    env.start("")?;
    link(env.at("file"), env.at("last")).context("link number 32,000")?;
    same("links", env.stat("file")?.nlink(), 32_000)?;
    fails(
        "one more",
        link(env.at("file"), env.at("more")),
        Errno::MLINK,
    )?;
    ensure!(!env.exists("more"), "a failed link has left a name");
    unlink(env.at("last")).context("unlink")?;
    same("links", env.stat("file")?.nlink(), 31_999)?;
    env.stop()?;
    env.debugfs("sif file links_count 1")?;
    env.start("")
}

fn unlink_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    fails("of a directory", unlink(env.at("dir")), Errno::ISDIR)?;
    fails("of nothing", unlink(env.at("none")), Errno::NOENT)?;
    fails("below a file", unlink(env.at("file/x")), Errno::NOTDIR)?;
    fails("with a slash", unlink(env.at("file/")), Errno::NOTDIR)?;
    fails(
        "twice",
        unlink(env.at("file")).and_then(|()| unlink(env.at("file"))),
        Errno::NOENT,
    )?;
    env.mkdir("dir/sub")?;
    unlink(env.at("dir/sub"))
        .err()
        .context("unlinked a directory")?;
    Ok(())
}

/// It lives on until it is closed; then its blocks and its inode are free.
fn unlink_open_file(env: &mut Env) -> Result<()> {
    // The directory gets its block before anything is counted.
    env.write("other", b"x")?;
    let (blocks, inodes) = (env.free_blocks()?, env.free_inodes()?);
    let file = env.create("file")?;
    put(&file, 1, 0..300_000)?;
    let number = file.metadata()?.ino();
    link(env.at("file"), env.at("again")).context("link")?;
    unlink(env.at("file")).context("unlink")?;
    unlink(env.at("again")).context("unlink")?;
    same("links", file.metadata()?.nlink(), 0)?;
    rustix::fs::fsync(&file).context("fsync of a file without a name")?;
    kernel::drop_caches()?;
    holds(&file, 1, 0..300_000)?;
    put(&file, 2, 300_000..400_000)?;
    holds(&file, 2, 300_000..400_000)?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let revived = linkat(CWD, &path, CWD, env.at("revived"), AtFlags::SYMLINK_FOLLOW);
    fails("a new name for a deleted file", revived, Errno::NOENT)?;
    drop(file);
    rustix::fs::syncfs(env.open(".", OFlags::RDONLY)?).context("syncfs")?;
    same("free blocks", env.free_blocks()?, blocks)?;
    same("free inodes", env.free_inodes()?, inodes)?;
    let inode = env.debugfs(&format!("stat <{number}>"))?;
    ensure!(inode.contains("dtime"), "no time of deletion:\n{inode}");
    Ok(())
}

/// Up to 59 bytes lie in the inode, more in a block, which they must fit with
/// their end.
fn symlink_lengths(env: &mut Env) -> Result<()> {
    let target = |length| {
        (0..length)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect()
    };
    let most = env.layout.block as usize - 1;
    let lengths = [1, 58, 59, 60, 61, 255, 1000, most];
    for length in lengths {
        let target: String = target(length);
        symlink(&target, env.at(format!("link-{length}"))).context(format!("{length} bytes"))?;
    }
    // A page for the path and its end is what the system call takes.
    let long: String = target(most + 1);
    fails(
        "one byte more",
        symlink(&long, env.at("long")),
        Errno::NAMETOOLONG,
    )?;
    fails("no byte", symlink("", env.at("empty")), Errno::NOENT)?;
    ensure!(!env.exists("long"), "a failed symlink has left a name");
    env.again()?;
    for length in lengths {
        let name = format!("link-{length}");
        let right: String = target(length);
        let found = readlink(env.at(&name), Vec::new()).context(name.clone())?;
        same(&name, found.into_string()?, right)?;
        let meta = env.stat(&name)?;
        same(&name, meta.len(), length as u64)?;
        same(&name, meta.mode(), 0o120_777)?;
        let blocks = if length <= 59 {
            0
        } else {
            env.layout.block / 512
        };
        same(&format!("blocks of {name}"), meta.blocks(), blocks)?;
    }
    for length in lengths {
        unlink(env.at(format!("link-{length}"))).context("unlink")?;
    }
    Ok(())
}

fn symlink_walks(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.write("d/file", b"content")?;
    symlink("d", env.at("dir")).context("symlink")?;
    symlink("dir/file", env.at("two")).context("symlink")?;
    symlink("loop-2", env.at("loop-1")).context("symlink")?;
    symlink("loop-1", env.at("loop-2")).context("symlink")?;
    same("content", fs::read(env.at("two"))?, b"content".to_vec())?;
    fails("loop", stat(env.at("loop-1")).map(|_| ()), Errno::LOOP)?;
    fails(
        "readlink of a file",
        readlink(env.at("d/file"), Vec::new()),
        Errno::INVAL,
    )?;
    fails("over a name", symlink("x", env.at("two")), Errno::EXIST)?;
    fails(
        "into nothing",
        symlink("x", env.at("none/two")),
        Errno::NOENT,
    )?;
    // Chains are followed to a depth of 40.
    for number in 0..41 {
        let target = format!("chain-{}", number + 1);
        symlink(&target, env.at(format!("chain-{number}"))).context("symlink")?;
    }
    env.write("chain-41", b"end")?;
    same(
        "end of the chain",
        fs::read(env.at("chain-1"))?,
        b"end".to_vec(),
    )?;
    fails(
        "too long a chain",
        errno(fs::read(env.at("chain-0"))),
        Errno::LOOP,
    )?;
    let path = open(
        env.at("two"),
        OFlags::PATH | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    let path = path.context("O_PATH of a link")?;
    let target = rustix::fs::readlinkat(&path, "", Vec::new()).context("readlinkat")?;
    same("target", target.into_string()?, "dir/file".to_owned())?;
    let through = env.open("dir/file", OFlags::RDONLY)?;
    same("content", get(&through, 0..7)?, b"content".to_vec())
}
