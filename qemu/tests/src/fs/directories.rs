// SPDX-License-Identifier: GPL-2.0

//! Directories: link counts, emptiness, growth, lists that change while they
//! are read, the index that we do not keep.

use super::Test;
use super::check::{fails, same};
use super::env::Env;
use crate::walk;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, mkdir, rename, rmdir, seek, unlink};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, symlink};

pub const TESTS: &[Test] = &[
    Test::new("mkdir-and-rmdir", mkdir_and_rmdir),
    Test::new("rmdir-errors", rmdir_errors),
    Test::new("directory-limit", directory_limit),
    Test::new("removed-while-in-use", removed_while_in_use),
    Test::new("types-in-lists", types_in_lists),
    Test::new("slots-are-reused", slots_are_reused),
    Test::new("list-while-deleting", list_while_deleting),
    Test::new("list-while-creating", list_while_creating),
    Test::new("list-from-a-position", list_from_a_position),
    Test::new("ten-thousand-names", ten_thousand_names)
        .make(&["-N", "10100", "-m", "0"])
        .limit(300),
    Test::new("index-flag-is-cleared", index_flag_is_cleared).make(INDEXED),
    Test::new("index-flag-of-the-parent", index_flag_of_the_parent).make(INDEXED),
];

/// e2fsck indexes directories of more than a few blocks.
const INDEXED: &[&str] = &["-N", "2048", "-m", "0", "-O", "dir_index"];
const INDEX_FLAG: u32 = 0x1000;

fn mkdir_and_rmdir(env: &mut Env) -> Result<()> {
    let root = env.stat(".")?.nlink();
    env.mkdir("d")?;
    same("links of the root", env.stat(".")?.nlink(), root + 1)?;
    same("links", env.stat("d")?.nlink(), 2)?;
    same("size", env.stat("d")?.len(), env.layout.block)?;
    env.mkdir("d/a")?;
    env.mkdir("d/b")?;
    same("links", env.stat("d")?.nlink(), 4)?;
    same(
        "inode of ..",
        env.stat("d/a/..")?.ino(),
        env.stat("d")?.ino(),
    )?;
    let list = walk::entries(&env.at("d/a"), 4096).context("cannot list")?;
    let names: Vec<_> = list.iter().map(|entry| entry.name.as_slice()).collect();
    same("names", names, vec![b".".as_slice(), b".."])?;
    same("d_ino of ..", list[1].ino, env.stat("d")?.ino())?;
    fails("again", mkdir(env.at("d"), Mode::from(0o755)), Errno::EXIST)?;
    fails(
        "in nothing",
        mkdir(env.at("none/d"), Mode::from(0o755)),
        Errno::NOENT,
    )?;
    let free = env.free_inodes()?;
    rmdir(env.at("d/a")).context("rmdir")?;
    same("links", env.stat("d")?.nlink(), 3)?;
    same("free inodes", env.free_inodes()?, free + 1)?;
    env.again()?;
    same("links", env.stat("d")?.nlink(), 3)?;
    rmdir(env.at("d/b")).context("rmdir")?;
    rmdir(env.at("d")).context("rmdir")?;
    same("links of the root", env.stat(".")?.nlink(), root)?;
    // Permission bits and umask, a deep path.
    mkdir(env.at("m"), Mode::from(0o1751)).context("mkdir")?;
    same("mode", env.stat("m")?.mode(), 0o41_751)?;
    let mut path = String::from("m");
    for level in 0..40 {
        path.push_str(&format!("/{level}"));
        env.mkdir(&path)?;
    }
    env.again()?;
    same("links", env.stat(&path)?.nlink(), 2)
}

fn rmdir_errors(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.write("d/.hidden", b"")?;
    env.write("file", b"")?;
    fails("hidden name", rmdir(env.at("d")), Errno::NOTEMPTY)?;
    fails("of a file", rmdir(env.at("file")), Errno::NOTDIR)?;
    fails("of nothing", rmdir(env.at("none")), Errno::NOENT)?;
    fails("of the root", rmdir(env.root()), Errno::BUSY)?;
    unlink(env.at("d/.hidden")).context("unlink")?;
    env.mkdir("d/sub")?;
    fails("subdirectory", rmdir(env.at("d")), Errno::NOTEMPTY)?;
    rmdir(env.at("d/sub")).context("rmdir")?;
    // A name in the last of several blocks counts, too.
    let many = 4 * env.layout.block / 64;
    for number in 0..many {
        env.write(&format!("d/{number:050}"), b"")?;
    }
    for number in 0..many - 1 {
        unlink(env.at(format!("d/{number:050}"))).context("unlink")?;
    }
    fails("one of many", rmdir(env.at("d")), Errno::NOTEMPTY)?;
    unlink(env.at(format!("d/{:050}", many - 1))).context("unlink")?;
    rmdir(env.at("d")).context("rmdir")
}

/// 32,000 links are the most, so 31,998 subdirectories.
fn directory_limit(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.mkdir("other")?;
    env.mkdir("other/sub")?;
    env.stop()?;
    env.debugfs("sif d links_count 31999")?;
    env.start("")?;
    env.mkdir("d/last")?;
    same("links", env.stat("d")?.nlink(), 32_000)?;
    fails(
        "mkdir",
        mkdir(env.at("d/more"), Mode::from(0o755)),
        Errno::MLINK,
    )?;
    fails(
        "rename",
        rename(env.at("other/sub"), env.at("d/sub")),
        Errno::MLINK,
    )?;
    // Files and what is there already are no matter.
    env.write("d/file", b"")?;
    rename(env.at("d/last"), env.at("d/renamed")).context("rename inside")?;
    rmdir(env.at("d/renamed")).context("rmdir")?;
    same("links", env.stat("d")?.nlink(), 31_999)?;
    same("links", env.stat("other")?.nlink(), 3)?;
    env.stop()?;
    env.debugfs("sif d links_count 2")?;
    env.start("")
}

fn removed_while_in_use(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let open = env.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    rmdir(env.at("d")).context("rmdir")?;
    same("links", open.metadata()?.nlink(), 0)?;
    let list = walk::entries_from(&open, 4096);
    ensure!(
        list.as_ref().is_ok_and(Vec::is_empty) || list == Err(Errno::NOENT),
        "a removed directory lists {list:?}"
    );
    let flags = OFlags::RDWR | OFlags::CREATE;
    let made = rustix::fs::openat(&open, "file", flags, Mode::from(0o644));
    fails("create in it", made, Errno::NOENT)?;
    let made = rustix::fs::mkdirat(&open, "sub", Mode::from(0o755));
    fails("mkdir in it", made, Errno::NOENT)?;
    // Its name is free at once.
    env.write("d", b"a file now")
}

fn types_in_lists(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    env.write("file", b"")?;
    symlink("file", env.at("link"))?;
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("char", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
        ("socket", FileType::Socket),
    ] {
        let mode = Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, env.at(name), kind, mode, 0x0103)
            .context(format!("mknod {name}"))?;
    }
    // A name that is taken over changes its type.
    rename(env.at("fifo"), env.at("file")).context("rename")?;
    rename(env.at("file"), env.at("was-fifo")).context("rename")?;
    env.again()?;
    let list = walk::entries(env.root(), 4096).context("cannot list")?;
    let types: BTreeMap<_, _> = list
        .iter()
        .map(|entry| {
            (
                String::from_utf8_lossy(&entry.name).into_owned(),
                walk::letter(entry.kind),
            )
        })
        .collect();
    for (name, letter) in [
        ("dir", 'd'),
        ("link", 'l'),
        ("was-fifo", 'p'),
        ("char", 'c'),
        ("block", 'b'),
        ("socket", 's'),
    ] {
        same(name, types.get(name).copied(), Some(letter))?;
    }
    Ok(())
}

/// New names go where old ones were: the directory grows no further.
fn slots_are_reused(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let name = |number: u64, length: usize| format!("d/{number:0length$}");
    let count = 6 * env.layout.block / 64;
    for number in 0..count {
        env.write(&name(number, 50), b"")?;
    }
    let size = env.stat("d")?.len();
    same("size in blocks", size % env.layout.block, 0)?;
    for round in 1..4 {
        for number in (0..count).filter(|number| number % 3 == round % 3) {
            unlink(env.at(name(number, 50))).context("unlink")?;
            // Two short ones fit where a long one was.
            env.write(&name(number, 10), b"")?;
            env.write(&name(number, 11), b"")?;
            unlink(env.at(name(number, 10))).context("unlink")?;
            unlink(env.at(name(number, 11))).context("unlink")?;
            env.write(&name(number, 50), b"")?;
        }
        same("size", env.stat("d")?.len(), size)?;
    }
    env.again()?;
    let names = walk::entries(&env.at("d"), 4096)
        .context("cannot list")?
        .len();
    same("names", names as u64, count + 2)
}

/// Fills directory `d` with names and lists them.
fn fill(env: &Env, count: usize) -> Result<BTreeSet<Vec<u8>>> {
    env.mkdir("d")?;
    (0..count)
        .map(|number| {
            let name = format!("name-{number:020}");
            env.write(&format!("d/{name}"), b"")?;
            Ok(name.into_bytes())
        })
        .collect()
}

/// Reads `d` with a small buffer; after each entry something is done.
fn listed(env: &Env, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<Vec<Vec<u8>>> {
    let fd = env.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = [const { MaybeUninit::uninit() }; 300];
    let mut dir = RawDir::new(&fd, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = dir.next() {
        let name = entry.context("getdents")?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            each(&name)?;
            names.push(name);
        }
    }
    Ok(names)
}

/// What `rm -r` does: every name is seen once and the directory is empty then.
fn list_while_deleting(env: &mut Env) -> Result<()> {
    let names = fill(env, 400)?;
    let path = |name: &[u8]| env.at(format!("d/{}", String::from_utf8_lossy(name)));
    let seen = listed(env, |name| unlink(path(name)).context("unlink"))?;
    same("names seen", seen.len(), names.len())?;
    same("names", seen.into_iter().collect(), names)?;
    rmdir(env.at("d")).context("the directory is not empty")
}

/// What was there all the time is seen exactly once, whatever else comes and goes.
fn list_while_creating(env: &mut Env) -> Result<()> {
    let names = fill(env, 300)?;
    let mut number = 0;
    let seen = listed(env, |_| {
        number += 1;
        // Ends some day, even if every new name is listed.
        if number < 500 {
            env.write(&format!("d/new-{number}"), b"")?;
            if number % 2 == 0 {
                unlink(env.at(format!("d/new-{}", number / 2))).context("unlink")?;
            }
        }
        Ok(())
    })?;
    for name in &names {
        let times = seen.iter().filter(|other| *other == name).count();
        same(&String::from_utf8_lossy(name), times, 1)?;
    }
    Ok(())
}

fn list_from_a_position(env: &mut Env) -> Result<()> {
    fill(env, 200)?;
    let whole = walk::entries(&env.at("d"), 4096).context("cannot list")?;
    let middle = whole.len() / 2;
    let fd = env.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    // Change what lies before the position: what comes after it is the same.
    for entry in &whole[2..middle] {
        unlink(env.at(format!("d/{}", String::from_utf8_lossy(&entry.name)))).context("unlink")?;
    }
    seek(&fd, SeekFrom::Start(whole[middle].cookie)).context("seek")?;
    let rest = walk::entries_from(&fd, 4096).context("cannot list")?;
    same("rest", rest, whole[middle + 1..].to_vec())?;
    seek(&fd, SeekFrom::Start(0)).context("seek")?;
    let all = walk::entries_from(&fd, 4096).context("cannot list")?;
    same("all", all.len(), whole.len() - middle + 2)?;
    let after = seek(&fd, SeekFrom::Start(1 << 20)).and_then(|_| walk::entries_from(&fd, 4096));
    same("after the end", after, Ok(Vec::new()))
}

fn ten_thousand_names(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let path = |number: u32| format!("d/f{number}");
    for number in 0..10_000 {
        symlink(number.to_string(), env.at(path(number)))?;
    }
    env.again()?;
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let number = random.u32(0..10_000);
        let target = fs::read_link(env.at(path(number))).context(path(number))?;
        same("target", target, number.to_string().into())?;
        ensure!(!env.exists(&path(number + 10_000)), "a name too many");
    }
    let list = walk::entries(&env.at("d"), 32 << 10).context("cannot list")?;
    same("names", list.len(), 10_002)?;
    for entry in list.iter().filter(|entry| entry.name.ends_with(b"3")) {
        unlink(env.at(format!("d/{}", String::from_utf8_lossy(&entry.name)))).context("unlink")?;
    }
    let list = walk::entries(&env.at("d"), 32 << 10).context("cannot list")?;
    same("names", list.len(), 9_002)?;
    fails("rmdir", rmdir(env.at("d")), Errno::NOTEMPTY)
}

/// An indexed directory with names, unmounted.
fn indexed(env: &mut Env) -> Result<u64> {
    fill(env, 300)?;
    env.mkdir("d/sub")?;
    env.mkdir("e")?;
    env.stop()?;
    env.index_directories()?;
    env.debugfs("ls -l d")?;
    env.start("")?;
    let number = env.stat("d")?.ino();
    ensure!(has_index(env, number)?, "e2fsck has made no index");
    Ok(number)
}

fn has_index(env: &Env, number: u64) -> Result<bool> {
    let text = env.debugfs(&format!("stat <{number}>"))?;
    let flags = text.split("Flags: 0x").nth(1).context("no flags")?;
    let flags = flags.split_whitespace().next().context("no flags")?;
    Ok(u32::from_str_radix(flags, 16)? & INDEX_FLAG != 0)
}

/// Who changes a directory without its index must drop the index.
fn index_flag_is_cleared(env: &mut Env) -> Result<()> {
    let number = indexed(env)?;
    type Change = fn(&Env) -> Result<()>;
    let changes: [(&str, Change); 4] = [
        ("create", |env| env.write("d/new", b"")),
        ("unlink", |env| unlink(env.at("d/new")).context("unlink")),
        ("mkdir", |env| env.mkdir("d/more")),
        ("rename", |env| {
            rename(env.at("d/more"), env.at("d/most")).context("rename")
        }),
    ];
    for (name, change) in changes {
        change(env)?;
        env.stop()?;
        ensure!(
            !has_index(env, number)?,
            "the index is said to be right after {name}"
        );
        env.fsck()?;
        env.index_directories()?;
        env.start("")?;
        ensure!(has_index(env, number)?, "e2fsck has made no index");
    }
    Ok(())
}

/// The entry `..` lies in the root of the index.
fn index_flag_of_the_parent(env: &mut Env) -> Result<()> {
    let number = indexed(env)?;
    rename(env.at("d"), env.at("e/d")).context("rename")?;
    same(
        "inode of ..",
        env.stat("e/d/..")?.ino(),
        env.stat("e")?.ino(),
    )?;
    env.stop()?;
    ensure!(!has_index(env, number)?, "the index is said to be right");
    env.start("")?;
    let list = walk::entries(&env.at("e/d"), 4096).context("cannot list")?;
    same("names", list.len(), 303)
}
