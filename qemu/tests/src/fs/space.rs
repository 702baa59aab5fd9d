// SPDX-License-Identifier: GPL-2.0

//! Blocks and inodes: taken, counted, given back, used up, kept for root.

use super::Test;
use super::check::{as_user, errno, fails, get, holds, put, put_bytes, same, size};
use super::env::{Env, Field};
use crate::fs::manifest;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, fsync, ftruncate, mkdir, setxattr, statvfs, symlink, unlink};
use rustix::io::{Errno, pwrite};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The cases.
pub const TESTS: &[Test] = &[
    Test::new("statfs-numbers", statfs_numbers).make(&["-N", "1024", "-m", "5"]),
    Test::new("statfs-minixdf", statfs_minixdf).options("minixdf"),
    Test::new("every-block-can-be-used", every_block_can_be_used).mib(9),
    Test::new("full-short-write", full_short_write).mib(4),
    Test::new("full-other-calls", full_other_calls).mib(4),
    Test::new("full-no-room-for-pointers", full_no_room_for_pointers).mib(4),
    Test::new("full-mapped-store-into-room", full_mapped_store_into_room).mib(4),
    Test::new("full-writers-share-the-rest", full_writers_share_the_rest).mib(4),
    Test::new("reserved-for-root", reserved_for_root)
        .make(RESERVED)
        .mib(4),
    Test::new("reserved-for-a-user", reserved_for_a_user)
        .make(RESERVED)
        .mib(4)
        .options("resuid=1000"),
    Test::new("reserved-for-a-group", reserved_for_a_group)
        .make(RESERVED)
        .mib(4)
        .options("resgid=2000"),
    Test::new("inodes-run-out", inodes_run_out)
        .make(&["-N", "32", "-m", "0"])
        .mib(4),
    Test::new("inode-numbers-are-reused", inode_numbers_are_reused),
    Test::new("counts-on-disk", counts_on_disk),
    Test::new("files-of-parallel-writers-are-whole", parallel_writers),
];

const RESERVED: &[&str] = &["-N", "64", "-m", "20"];
const FREE_BLOCKS: Field = Field::new(12, 4);
const FREE_INODES: Field = Field::new(16, 4);
const BLOCKS: Field = Field::new(4, 4);
const INODES: Field = Field::new(0, 4);
const RESERVED_BLOCKS: Field = Field::new(8, 4);

fn statfs_numbers(env: &mut Env) -> Result<()> {
    let stat = statvfs(env.root()).context("statvfs")?;
    same("f_bsize", stat.f_bsize, env.layout.block)?;
    same("f_frsize", stat.f_frsize, env.layout.block)?;
    same("f_bfree", stat.f_bfree, env.superblock(FREE_BLOCKS)?)?;
    same("f_ffree", stat.f_ffree, env.superblock(FREE_INODES)?)?;
    same("f_files", stat.f_files, env.superblock(INODES)?)?;
    let reserved = env.superblock(RESERVED_BLOCKS)?;
    same("f_bavail", stat.f_bavail, stat.f_bfree - reserved)?;
    // The blocks that hold no data are no part of it.
    let all = env.superblock(BLOCKS)?;
    ensure!(
        stat.f_blocks < all && stat.f_blocks > stat.f_bfree,
        "f_blocks is {} of {all}",
        stat.f_blocks
    );
    let type_ = rustix::fs::statfs(env.root()).context("statfs")?.f_type;
    same("f_type", type_ as u64, 0xef53)?;

    let file = env.create("file")?;
    put(&file, 1, 0..20 * env.layout.block)?;
    fsync(&file).context("fsync")?;
    let now = statvfs(env.root()).context("statvfs")?;
    let taken = file.metadata()?.blocks() * 512 / env.layout.block;
    same("f_bfree", now.f_bfree, stat.f_bfree - taken)?;
    same("f_ffree", now.f_ffree, stat.f_ffree - 1)
}

fn statfs_minixdf(env: &mut Env) -> Result<()> {
    let stat = statvfs(env.root()).context("statvfs")?;
    same("f_blocks", stat.f_blocks, env.superblock(BLOCKS)?)?;
    let options = env.mount().options()?;
    ensure!(options.contains("minixdf"), "options {options}");
    Ok(())
}

/// Writes to a file until nothing fits; its size.
pub fn fill(file: &File, block: u64) -> Result<u64> {
    let mut pos = file.metadata()?.len();
    for length in [1 << 20, block as usize] {
        let mut bytes = vec![0; length];
        loop {
            crate::pattern::fill(9, pos, &mut bytes);
            match pwrite(file, &bytes, pos) {
                Ok(done) => pos += done as u64,
                Err(Errno::NOSPC) => break,
                Err(error) => return Err(error).context(format!("cannot write at {pos}")),
            }
        }
    }
    Ok(pos)
}

/// The last group is shorter than the others; its blocks are used, too.
fn every_block_can_be_used(env: &mut Env) -> Result<()> {
    let free = env.free_blocks()?;
    let file = env.create("full")?;
    let end = fill(&file, env.layout.block)?;
    size(&file, end)?;
    same("free blocks", env.free_blocks()?, 0)?;
    let used = file.metadata()?.blocks() * 512 / env.layout.block;
    same("blocks of the file", used, free)?;
    fsync(&file).context("fsync")?;
    holds(&file, 9, 0..end)?;
    drop(file);
    env.again()?;
    same("free blocks", env.free_blocks()?, 0)?;
    unlink(env.at("full")).context("unlink")?;
    same("free blocks", env.free_blocks()?, free)
}

fn full_short_write(env: &mut Env) -> Result<()> {
    let file = env.create("file")?;
    let block = env.layout.block;
    // More than there is, in one call.
    let bytes = vec![5; 8 << 20];
    let done = pwrite(&file, &bytes, 0).context("write")? as u64;
    ensure!(
        done > 1 << 20 && done < 8 << 20,
        "{done} bytes were written"
    );
    size(&file, done)?;
    let end = fill(&file, block)?;
    size(&file, end)?;
    fails(
        "write",
        pwrite(&file, &[1; 8192], end.next_multiple_of(block)),
        Errno::NOSPC,
    )?;
    size(&file, end)?;
    // What is there can be written over, and room that is made is found.
    put_bytes(&file, 0, &[6; 8192])?;
    ftruncate(&file, end - 10 * block).context("truncate")?;
    fill(&file, block)?;
    same("free blocks", env.free_blocks()?, 0)?;
    same("start", get(&file, 0..8192)?, vec![6; 8192])
}

fn full_other_calls(env: &mut Env) -> Result<()> {
    env.mkdir("d")?;
    env.write("d/file", b"")?;
    let full = env.create("full")?;
    fill(&full, env.layout.block)?;
    fails(
        "mkdir",
        mkdir(env.at("new"), Mode::from(0o755)),
        Errno::NOSPC,
    )?;
    let long = "s".repeat(100);
    fails("long link", symlink(&long, env.at("new")), Errno::NOSPC)?;
    symlink("short", env.at("short")).context("short link")?;
    let big = vec![1; 500];
    let flags = rustix::fs::XattrFlags::empty();
    let set = setxattr(env.at("d/file"), "user.big", &big, flags);
    fails("attribute", set, Errno::NOSPC)?;
    same(
        "attributes",
        manifest::attributes(&env.at("d/file"))?.len(),
        0,
    )?;
    env.write("empty", b"")
        .context("an empty file needs no block")?;
    let file = env.open("empty", OFlags::RDWR)?;
    fails("its first byte", pwrite(&file, b"x", 0), Errno::NOSPC)?;
    size(&file, 0)?;
    same("blocks", file.metadata()?.blocks(), 0)?;
    ensure!(!env.exists("new"), "a failed call has left a name");
    drop((file, full));
    env.again()?;
    unlink(env.at("full")).context("unlink")?;
    env.mkdir("new")
}

/// Of the pointer blocks that a far block needs some fit, and then the next
/// does not: they are given back, and the file is as before.
fn full_no_room_for_pointers(env: &mut Env) -> Result<()> {
    let (block, per) = (env.layout.block, env.layout.block / 4);
    let full = env.create("full")?;
    let end = fill(&full, block)?;
    let far = [12, 12 + per, 12 + per + per * per];
    for (depth, first) in far.into_iter().enumerate() {
        // Room for the pointers, and none for the data.
        let name = format!("file-{depth}");
        let file = env.create(&name)?;
        ftruncate(&full, end - (depth as u64 + 1) * block).context("truncate")?;
        let room = env.free_blocks()?;
        let result = pwrite(&file, &vec![1; block as usize], (first + 5) * block);
        if room <= depth as u64 + 1 {
            fails("far write", result, Errno::NOSPC)?;
            size(&file, 0)?;
            same("blocks", file.metadata()?.blocks(), 0)?;
            same("free blocks", env.free_blocks()?, room)?;
        } else {
            // Cutting the other file has freed pointers of its own as well.
            same("far write", result, Ok(block as usize))?;
        }
        put_bytes(&file, 0, b"near").context("near write")?;
        unlink(env.at(name)).context("unlink")?;
        drop(file);
        fill(&full, block)?;
    }
    Ok(())
}

/// Pages that have blocks can be stored to on a full file system.
fn full_mapped_store_into_room(env: &mut Env) -> Result<()> {
    use crate::mapping::{Mapping, Sharing};
    let file = env.create("file")?;
    put(&file, 1, 0..64 << 10)?;
    fsync(&file).context("fsync")?;
    fill(&env.create("full")?, env.layout.block)?;
    let mapping = Mapping::new(&file, 64 << 10, Sharing::Shared)?;
    mapping.store(5000, &[9; 20_000])?;
    mapping.sync()?;
    drop(mapping);
    drop(file);
    env.again()?;
    let file = env.open("file", OFlags::RDONLY)?;
    same("stored", get(&file, 5000..25_000)?, vec![9; 20_000])?;
    holds(&file, 1, 0..5000)?;
    holds(&file, 1, 25_000..64 << 10)
}

/// Several writers find the end together: each has what its size says, and no
/// block is lost.
fn full_writers_share_the_rest(env: &mut Env) -> Result<()> {
    let (block, free) = (env.layout.block, env.free_blocks()?);
    let ends = std::thread::scope(|scope| {
        let writers = [0, 1, 2, 3].map(|number| {
            let file = env.create(&format!("file-{number}"));
            scope.spawn(move || -> Result<(File, u64)> {
                let file = file?;
                let mut pos = 0;
                loop {
                    let mut bytes = vec![0; block as usize * 3];
                    crate::pattern::fill(number, pos, &mut bytes);
                    match pwrite(&file, &bytes, pos) {
                        Ok(done) => pos += done as u64,
                        Err(Errno::NOSPC) => return Ok((file, pos)),
                        Err(error) => return Err(error).context("write"),
                    }
                }
            })
        });
        writers.map(|writer| writer.join().expect("it reports by its result"))
    });
    for (number, result) in (0..).zip(ends) {
        let (file, end) = result?;
        size(&file, end)?;
        fsync(&file).context("fsync")?;
        holds(&file, number, 0..end)?;
        unlink(env.at(format!("file-{number}"))).context("unlink")?;
    }
    same("free blocks", env.free_blocks()?, free)
}

/// Writes as this user until nothing fits; the free blocks then.
fn filled_by(env: &Env, uid: u32, gid: u32, groups: &[u32]) -> Result<u64> {
    rustix::fs::chmod(env.root(), Mode::from(0o777)).context("chmod")?;
    let path = env.at(format!("by-{uid}-{gid}"));
    let block = env.layout.block;
    let write = |path: &Path| {
        let file = File::create_new(path).context("create")?;
        fill(&file, block)
    };
    as_user(uid, gid, groups, || write(&path))?;
    env.free_blocks()
}

/// The reserve is kept, as well as it is counted: a counter in parts for each
/// processor is wrong by some blocks. A pointer block may not fit with its data.
fn kept(left: u64, reserved: u64) -> Result<()> {
    ensure!(
        left + 64 >= reserved && left <= reserved + 4,
        "{left} blocks are left of {reserved} reserved"
    );
    Ok(())
}

fn reserved_for_root(env: &mut Env) -> Result<()> {
    let reserved = env.superblock(RESERVED_BLOCKS)?;
    let left = filled_by(env, 1000, 1000, &[])?;
    kept(left, reserved)?;
    let available = statvfs(env.root())?.f_bavail;
    same("f_bavail", available, left.saturating_sub(reserved))?;
    let root = fs::metadata(env.root())?;
    same("mode of the root", root.mode() & 0o777, 0o777)?;
    fill(&env.create("by-root")?, env.layout.block)?;
    same("free blocks", env.free_blocks()?, 0)?;
    same("f_bavail", statvfs(env.root())?.f_bavail, 0)
}

fn reserved_for_a_user(env: &mut Env) -> Result<()> {
    let reserved = env.superblock(RESERVED_BLOCKS)?;
    let options = env.mount().options()?;
    ensure!(options.contains("resuid=1000"), "options {options}");
    let left = filled_by(env, 1001, 1000, &[])?;
    kept(left, reserved)?;
    same("free blocks", filled_by(env, 1000, 1000, &[])?, 0)
}

fn reserved_for_a_group(env: &mut Env) -> Result<()> {
    let reserved = env.superblock(RESERVED_BLOCKS)?;
    let options = env.mount().options()?;
    ensure!(options.contains("resgid=2000"), "options {options}");
    let left = filled_by(env, 1000, 1000, &[])?;
    kept(left, reserved)?;
    same("free blocks", filled_by(env, 1001, 1001, &[2000])?, 0)
}

fn inodes_run_out(env: &mut Env) -> Result<()> {
    let free = env.free_inodes()?;
    for number in 0..free {
        env.write(&format!("file-{number}"), b"")?;
    }
    same("free inodes", env.free_inodes()?, 0)?;
    let blocks = env.free_blocks()?;
    fails("create", errno(File::create(env.at("more"))), Errno::NOSPC)?;
    fails(
        "mkdir",
        mkdir(env.at("more"), Mode::from(0o755)),
        Errno::NOSPC,
    )?;
    fails("symlink", symlink("x", env.at("more")), Errno::NOSPC)?;
    let flags = OFlags::RDWR | OFlags::TMPFILE;
    fails("O_TMPFILE", env.try_open(".", flags), Errno::NOSPC)?;
    same("free blocks", env.free_blocks()?, blocks)?;
    same("links of the root", env.stat(".")?.nlink(), 3)?;
    rustix::fs::link(env.at("file-0"), env.at("link")).context("a link needs no inode")?;
    unlink(env.at("file-1")).context("unlink")?;
    env.mkdir("dir").context("there is an inode again")?;
    fails("create", errno(File::create(env.at("more"))), Errno::NOSPC)
}

/// A new file in an old inode has nothing of the old one, but another generation.
fn inode_numbers_are_reused(env: &mut Env) -> Result<()> {
    let old = env.create("old")?;
    put(&old, 1, 0..100_000)?;
    let flags = rustix::fs::XattrFlags::empty();
    setxattr(env.at("old"), "user.a", b"b", flags).context("setxattr")?;
    rustix::fs::chown(env.at("old"), Some(rustix::fs::Uid::from_raw(70_000)), None)?;
    rustix::fs::chmod(env.at("old"), Mode::from(0o4777))?;
    rustix::fs::ioctl_setflags(&old, rustix::fs::IFlags::NODUMP).context("setflags")?;
    let number = old.metadata()?.ino();
    drop(old);
    unlink(env.at("old")).context("unlink")?;
    let new = (0..2000)
        .map(|count| Ok((count, env.create(&format!("new-{count}"))?)))
        .find(|new: &Result<_>| {
            new.as_ref().map_or(true, |(_, file)| {
                file.metadata().is_ok_and(|meta| meta.ino() == number)
            })
        });
    let (count, new) = new.context("the inode is never used again")??;
    let meta = new.metadata()?;
    same("size", (meta.len(), meta.blocks()), (0, 0))?;
    same("owner", (meta.uid(), meta.gid()), (0, 0))?;
    same("mode", meta.mode(), 0o100_644)?;
    same(
        "flags",
        rustix::fs::ioctl_getflags(&new)?,
        rustix::fs::IFlags::empty(),
    )?;
    let attributes = manifest::attributes(&env.at(format!("new-{count}")))?;
    same("attributes", attributes.len(), 0)
}

/// After sync the superblock has the right sums, although ext2 ignores them.
fn counts_on_disk(env: &mut Env) -> Result<()> {
    for number in 0..20 {
        env.write(&format!("file-{number}"), &[1; 5000])?;
    }
    env.mkdir("d")?;
    unlink(env.at("file-3")).context("unlink")?;
    rustix::fs::syncfs(env.open(".", OFlags::RDONLY)?).context("syncfs")?;
    let (blocks, inodes) = (env.free_blocks()?, env.free_inodes()?);
    env.stop()?;
    same("free blocks", env.superblock(FREE_BLOCKS)?, blocks)?;
    same("free inodes", env.superblock(FREE_INODES)?, inodes)?;
    env.start("")
}

/// Writers of several files at once get blocks of their own.
fn parallel_writers(env: &mut Env) -> Result<()> {
    let write = |env: &Env, number: u16| -> Result<()> {
        let file = env.create(&format!("file-{number}"))?;
        for pos in (0..600_000).step_by(3000) {
            put(&file, number, pos..pos + 3000)?;
        }
        fsync(&file).context("fsync")
    };
    let shared = &*env;
    std::thread::scope(|scope| -> Result<()> {
        let writers = [1, 2, 3, 4].map(|number| scope.spawn(move || write(shared, number)));
        for writer in writers {
            writer.join().expect("it reports by its result")?;
        }
        Ok(())
    })?;
    env.again()?;
    for number in [1, 2, 3, 4] {
        holds(
            &env.open(&format!("file-{number}"), OFlags::RDONLY)?,
            number,
            0..600_000,
        )?;
    }
    Ok(())
}
