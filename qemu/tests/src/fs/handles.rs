// SPDX-License-Identifier: GPL-2.0

//! File handles, by which an NFS server finds files without names.

use super::Test;
use super::check::{fails, holds, put, same};
use super::env::Env;
use crate::kernel;
use crate::sys::Handle;
use anyhow::{Context, Result};
use rustix::fs::{OFlags, rename, rmdir, unlink};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[Test] = &[
    Test::new("handle-of-a-file", of_a_file).inodes(),
    Test::new("handle-of-a-directory", of_a_directory),
    Test::new("handle-after-unlink", after_unlink),
    Test::new("handle-after-inode-is-reused", after_reuse),
    Test::new("handle-of-nothing", of_nothing),
];

fn open(env: &Env, handle: &mut Handle, flags: i32) -> Result<Result<File, Errno>> {
    let mount = env.open(".", OFlags::RDONLY)?;
    Ok(handle.open(&mount, flags).map(File::from))
}

/// It outlives renames, caches and mounts.
fn of_a_file(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    put(&env.create("dir/file")?, 1, 0..5000)?;
    let mut handle = Handle::of(&env.at("dir/file")).context("name_to_handle_at")?;
    rename(env.at("dir/file"), env.at("other")).context("rename")?;
    kernel::drop_caches()?;
    holds(
        &open(env, &mut handle, libc::O_RDONLY)?.context("open")?,
        1,
        0..5000,
    )?;
    env.again()?;
    let file = open(env, &mut handle, libc::O_RDWR)?.context("open")?;
    holds(&file, 1, 0..5000)?;
    put(&file, 2, 0..100)?;
    holds(&env.open("other", OFlags::RDONLY)?, 2, 0..100)
}

/// One without its parents in memory is connected to the tree.
fn of_a_directory(env: &mut Env) -> Result<()> {
    env.mkdir("a")?;
    env.mkdir("a/b")?;
    env.mkdir("a/b/c")?;
    env.write("a/b/c/file", b"x")?;
    let mut handle = Handle::of(&env.at("a/b/c")).context("name_to_handle_at")?;
    env.again()?;
    let dir = open(env, &mut handle, libc::O_RDONLY | libc::O_DIRECTORY)?.context("open")?;
    let up = rustix::fs::statat(&dir, "..", rustix::fs::AtFlags::empty()).context("stat of ..")?;
    same("..", up.st_ino, env.stat("a/b")?.ino())?;
    let path = std::fs::read_link(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&dir)
    ))?;
    same("path", path, env.at("a/b/c"))?;
    drop(dir);
    std::fs::remove_file(env.at("a/b/c/file"))?;
    rmdir(env.at("a/b/c")).context("rmdir")?;
    fails(
        "removed",
        open(env, &mut handle, libc::O_RDONLY)?,
        Errno::STALE,
    )
}

fn after_unlink(env: &mut Env) -> Result<()> {
    put(&env.create("file")?, 1, 0..5000)?;
    let mut handle = Handle::of(&env.at("file")).context("name_to_handle_at")?;
    let file = env.open("file", OFlags::RDONLY)?;
    unlink(env.at("file")).context("unlink")?;
    // Still there, for who has it open.
    let again = open(env, &mut handle, libc::O_RDONLY)?;
    if let Ok(again) = &again {
        holds(again, 1, 0..5000)?;
    }
    drop((file, again));
    fails(
        "deleted",
        open(env, &mut handle, libc::O_RDONLY)?,
        Errno::STALE,
    )?;
    env.again()?;
    fails(
        "deleted, on disk",
        open(env, &mut handle, libc::O_RDONLY)?,
        Errno::STALE,
    )
}

/// The generation tells the new file from the old one.
fn after_reuse(env: &mut Env) -> Result<()> {
    let number = env.create("file")?.metadata()?.ino();
    let mut handle = Handle::of(&env.at("file")).context("name_to_handle_at")?;
    unlink(env.at("file")).context("unlink")?;
    for count in 0..2000 {
        if env.create(&format!("new-{count}"))?.metadata()?.ino() == number {
            fails(
                "reused",
                open(env, &mut handle, libc::O_RDONLY)?,
                Errno::STALE,
            )?;
            env.again()?;
            return fails(
                "reused, on disk",
                open(env, &mut handle, libc::O_RDONLY)?,
                Errno::STALE,
            );
        }
    }
    anyhow::bail!("the inode is never used again")
}

/// Numbers that no file has, and such that no user may reach.
fn of_nothing(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    for number in [0u32, 1, 3, 8, 10, 1000, 1025, 4_000_000_000] {
        let mut handle = Handle::of(&env.at("file")).context("name_to_handle_at")?;
        handle.bytes()[..4].copy_from_slice(&number.to_le_bytes());
        let opened = open(env, &mut handle, libc::O_RDONLY)?;
        fails(&format!("inode {number}"), opened, Errno::STALE)?;
    }
    Ok(())
}
