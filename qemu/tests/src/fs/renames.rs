// SPDX-License-Identifier: GPL-2.0

//! rename(2) and renameat2(2).

use super::Test;
use super::check::{fails, holds, put, same};
use super::env::Env;
use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, OFlags, RenameFlags, link, rename, renameat_with, unlink};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

pub const TESTS: &[Test] = &[
    Test::new("rename-to-a-new-name", rename_to_a_new_name),
    Test::new("rename-over-a-file", rename_over_a_file),
    Test::new("rename-over-a-directory", rename_over_a_directory),
    Test::new("rename-moves-a-directory", rename_moves_a_directory),
    Test::new("rename-into-itself", rename_into_itself),
    Test::new("rename-of-one-file-to-itself", rename_of_one_file_to_itself),
    Test::new("rename-errors", rename_errors),
    Test::new("rename-noreplace", rename_noreplace),
    Test::new("rename-exchange", rename_exchange),
    Test::new(
        "rename-exchange-of-directories",
        rename_exchange_of_directories,
    ),
    Test::new("rename-whiteout", rename_whiteout),
    Test::new("rename-needs-a-block", rename_needs_a_block),
];

fn flagged(env: &Env, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, env.at(from), CWD, env.at(to), flags)
}

fn moved(env: &Env, from: &str, to: &str) -> Result<()> {
    rename(env.at(from), env.at(to)).context(format!("rename {from} to {to}"))
}

fn rename_to_a_new_name(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    let file = env.create("file")?;
    put(&file, 1, 0..3000)?;
    let number = file.metadata()?.ino();
    symlink("file", env.at("link"))?;
    for (from, to) in [
        ("file", "other"),
        ("other", "d/file"),
        ("d/file", "a-much-longer-name-than-before"),
        ("a-much-longer-name-than-before", "f"),
    ] {
        moved(env, from, to)?;
        ensure!(!env.exists(from), "{from} is still there");
        same(to, env.stat(to)?.ino(), number)?;
        same(to, env.stat(to)?.nlink(), 1)?;
    }
    // The link moves, not what it leads to.
    moved(env, "link", "d/link")?;
    same("target", fs::read_link(env.at("d/link"))?, "file".into())?;
    drop(file);
    env.again()?;
    holds(&env.open("f", OFlags::RDONLY)?, 1, 0..3000)
}

fn rename_over_a_file(env: &mut Env) -> Result<()> {
    let victim = env.create("to")?;
    put(&victim, 1, 0..20_000)?;
    link(env.at("to"), env.at("to-2")).context("link")?;
    put(&env.create("from")?, 2, 0..100)?;
    moved(env, "from", "to")?;
    holds(&env.open("to", OFlags::RDONLY)?, 2, 0..100)?;
    same("links of the victim", victim.metadata()?.nlink(), 1)?;
    holds(&victim, 1, 0..20_000)?;
    moved(env, "to", "to-2")?;
    same("links of the victim", victim.metadata()?.nlink(), 0)?;
    // It is still open.
    holds(&victim, 1, 0..20_000)?;
    let free = env.free_blocks()?;
    drop(victim);
    ensure!(
        env.free_blocks()? > free,
        "the victim's blocks are not free"
    );
    symlink("nowhere", env.at("soft"))?;
    moved(env, "to-2", "soft")?;
    ensure!(env.stat("soft")?.is_file(), "the link was followed");
    env.again()?;
    holds(&env.open("soft", OFlags::RDONLY)?, 2, 0..100)
}

fn rename_over_a_directory(env: &mut Env) -> Result<()> {
    for name in ["from", "to", "full", "full/sub"] {
        env.mkdir(name)?;
    }
    env.write("from/x", b"x")?;
    env.write("file", b"x")?;
    let root = env.stat(".")?.nlink();
    let at = |name| env.at(name);
    fails(
        "over a full one",
        rename(at("from"), at("full")),
        Errno::NOTEMPTY,
    )?;
    fails("a file over it", rename(at("file"), at("to")), Errno::ISDIR)?;
    fails("over a file", rename(at("from"), at("file")), Errno::NOTDIR)?;
    moved(env, "from", "to")?;
    same("links of the root", env.stat(".")?.nlink(), root - 1)?;
    same("links", env.stat("to")?.nlink(), 2)?;
    ensure!(env.exists("to/x"), "the wrong one is left");
    moved(env, "to", "full/sub")?;
    same("links of the root", env.stat(".")?.nlink(), root - 2)?;
    same("links of the parent", env.stat("full")?.nlink(), 3)?;
    env.again()?;
    same(
        "..",
        env.stat("full/sub/..")?.ino(),
        env.stat("full")?.ino(),
    )
}

fn rename_moves_a_directory(env: &mut Env) -> Result<()> {
    for name in ["a", "b", "a/c", "a/c/d"] {
        env.mkdir(name)?;
    }
    moved(env, "a/c", "b/c")?;
    let links = |name| env.stat(name).map(|meta| meta.nlink());
    same(
        "links",
        (links("a")?, links("b")?, links("b/c")?),
        (2, 3, 3),
    )?;
    same("..", env.stat("b/c/..")?.ino(), env.stat("b")?.ino())?;
    // Inside its parent nothing but the name changes.
    moved(env, "b/c", "b/e")?;
    same("links", (links("b")?, links("b/e")?), (3, 3))?;
    env.again()?;
    same("..", env.stat("b/e/..")?.ino(), env.stat("b")?.ino())?;
    same("links", env.stat("b")?.nlink(), 3)
}

fn rename_into_itself(env: &mut Env) -> Result<()> {
    for name in ["a", "a/b", "a/b/c"] {
        env.mkdir(name)?;
    }
    let at = |name| env.at(name);
    fails("into a child", rename(at("a"), at("a/x")), Errno::INVAL)?;
    fails(
        "into a grandchild",
        rename(at("a"), at("a/b/c/x")),
        Errno::INVAL,
    )?;
    fails(
        "over an ancestor",
        rename(at("a/b/c"), at("a")),
        Errno::NOTEMPTY,
    )?;
    fails(
        "over its parent",
        rename(at("a/b"), at("a")),
        Errno::NOTEMPTY,
    )?;
    same("links", env.stat("a")?.nlink(), 3)
}

/// Two names of one file: nothing happens, says POSIX.
fn rename_of_one_file_to_itself(env: &mut Env) -> Result<()> {
    env.write("one", b"x")?;
    link(env.at("one"), env.at("two")).context("link")?;
    moved(env, "one", "two")?;
    moved(env, "one", "one")?;
    ensure!(env.exists("one") && env.exists("two"), "a name is gone");
    same("links", env.stat("one")?.nlink(), 2)
}

fn rename_errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    env.mkdir("dir")?;
    let at = |name| env.at(name);
    fails("of nothing", rename(at("none"), at("new")), Errno::NOENT)?;
    fails(
        "into nothing",
        rename(at("file"), at("none/new")),
        Errno::NOENT,
    )?;
    fails(
        "below a file",
        rename(at("dir"), at("file/new")),
        Errno::NOTDIR,
    )?;
    fails(
        "file with a slash",
        rename(at("file"), at("new/")),
        Errno::NOTDIR,
    )?;
    fails("to elsewhere", rename(at("file"), "/tmp/new"), Errno::XDEV)?;
    fails("of the root", rename(at("."), at("dir/x")), Errno::BUSY)?;
    let bad = RenameFlags::from_bits_retain(1 << 10);
    fails(
        "unknown flag",
        flagged(env, "file", "new", bad),
        Errno::INVAL,
    )?;
    ensure!(
        env.exists("file") && !env.exists("new"),
        "a failed rename did something"
    );
    Ok(())
}

fn rename_noreplace(env: &mut Env) -> Result<()> {
    let noreplace = RenameFlags::NOREPLACE;
    env.write("one", b"1")?;
    env.write("two", b"2")?;
    env.mkdir("dir")?;
    fails(
        "over a file",
        flagged(env, "one", "two", noreplace),
        Errno::EXIST,
    )?;
    fails(
        "over a directory",
        flagged(env, "one", "dir", noreplace),
        Errno::EXIST,
    )?;
    fails(
        "to itself",
        flagged(env, "one", "one", noreplace),
        Errno::EXIST,
    )?;
    same("content", fs::read(env.at("two"))?, b"2".to_vec())?;
    flagged(env, "one", "three", noreplace).context("to a new name")?;
    flagged(env, "dir", "dir-2", noreplace).context("of a directory")?;
    same("content", fs::read(env.at("three"))?, b"1".to_vec())
}

fn rename_exchange(env: &mut Env) -> Result<()> {
    let exchange = RenameFlags::EXCHANGE;
    env.mkdir("d")?;
    put(&env.create("one")?, 1, 0..5000)?;
    put(&env.create("d/two")?, 2, 0..5000)?;
    flagged(env, "one", "d/two", exchange).context("of two files")?;
    holds(&env.open("one", OFlags::RDONLY)?, 2, 0..5000)?;
    holds(&env.open("d/two", OFlags::RDONLY)?, 1, 0..5000)?;
    same(
        "links",
        (env.stat("one")?.nlink(), env.stat("d/two")?.nlink()),
        (1, 1),
    )?;
    fails(
        "with nothing",
        flagged(env, "one", "none", exchange),
        Errno::NOENT,
    )?;
    let both = exchange | RenameFlags::NOREPLACE;
    fails(
        "with NOREPLACE",
        flagged(env, "one", "d/two", both),
        Errno::INVAL,
    )?;
    symlink("target", env.at("soft"))?;
    flagged(env, "one", "soft", exchange).context("with a link")?;
    same("target", fs::read_link(env.at("one"))?, "target".into())?;
    env.again()?;
    holds(&env.open("soft", OFlags::RDONLY)?, 2, 0..5000)
}

fn rename_exchange_of_directories(env: &mut Env) -> Result<()> {
    let exchange = RenameFlags::EXCHANGE;
    for name in ["a", "b", "a/x", "b/y", "b/y/z"] {
        env.mkdir(name)?;
    }
    env.write("b/file", b"x")?;
    let links = |name| env.stat(name).map(|meta| meta.nlink());
    flagged(env, "a/x", "b/y", exchange).context("of two directories")?;
    same("links", (links("a")?, links("b")?), (3, 3))?;
    ensure!(env.exists("a/x/z"), "they were not exchanged");
    same("..", env.stat("a/x/..")?.ino(), env.stat("a")?.ino())?;
    same("..", env.stat("b/y/..")?.ino(), env.stat("b")?.ino())?;
    // A directory against a file moves a link from one parent to the other.
    flagged(env, "a/x", "b/file", exchange).context("with a file")?;
    same("links", (links("a")?, links("b")?), (2, 4))?;
    same("..", env.stat("b/file/..")?.ino(), env.stat("b")?.ino())?;
    fails(
        "with its child",
        flagged(env, "b", "b/y", exchange),
        Errno::INVAL,
    )?;
    env.again()?;
    ensure!(
        env.exists("b/file/z") && env.stat("a/x")?.is_file(),
        "it is not on disk"
    );
    Ok(())
}

fn rename_whiteout(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let result = flagged(env, "file", "new", RenameFlags::WHITEOUT);
    fails("ext2 has no whiteouts", result, Errno::INVAL)?;
    ensure!(
        env.exists("file") && !env.exists("new"),
        "a failed rename did something"
    );
    Ok(())
}

/// On a full file system a directory cannot grow: the old name must stay.
fn rename_needs_a_block(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.mkdir("e")?;
    env.write("d/file", b"x")?;
    // Names that leave no room in the only block of `e`.
    let room = env.layout.block - 24;
    let mut left = room;
    while left >= 64 {
        let length = if left >= 64 + 64 {
            56
        } else {
            (left - 8) as usize
        };
        env.write(&format!("e/{left:0length$}"), b"")?;
        left -= (8 + length as u64).next_multiple_of(4);
    }
    fill_up(env)?;
    let long = "e/a-name-with-more-than-sixty-four-bytes-that-fits-in-no-slot-there";
    fails(
        "rename",
        rename(env.at("d/file"), env.at(long)),
        Errno::NOSPC,
    )?;
    ensure!(
        env.exists("d/file") && !env.exists(long),
        "a failed rename did something"
    );
    unlink(env.at("full")).context("unlink")?;
    moved(env, "d/file", long)?;
    same("content", fs::read(env.at(long))?, b"x".to_vec())
}

/// Takes every block.
fn fill_up(env: &Env) -> Result<()> {
    let file = env.create("full")?;
    let mut pos = 0;
    let bytes = vec![1; 1 << 20];
    for length in [1 << 20, env.layout.block as usize] {
        while let Ok(done @ 1..) = rustix::io::pwrite(&file, &bytes[..length], pos) {
            pos += done as u64;
        }
    }
    same("free blocks", env.free_blocks()?, 0)
}
