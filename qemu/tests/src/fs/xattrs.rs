// SPDX-License-Identifier: GPL-2.0

//! Extended attributes: names, sizes, blocks that files share.

use super::Test;
use super::check::{as_user, fails, same};
use super::env::{Env, Field};
use super::manifest::attributes;
use anyhow::{Context, Result, ensure};
use rustix::fs::{
    Mode, XattrFlags, chmod, getxattr, getxattr_query, lgetxattr, listxattr, listxattr_query,
    lremovexattr, lsetxattr, removexattr, setxattr, unlink,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};

pub const TESTS: &[Test] = &[
    Test::new("xattr-set-get-list-remove", set_get_list_remove).inodes(),
    Test::new("xattr-create-and-replace", create_and_replace),
    Test::new("xattr-errors", errors),
    Test::new("xattr-buffer-sizes", buffer_sizes),
    Test::new("xattr-name-and-value-limits", limits).inodes(),
    Test::new("xattr-namespaces", namespaces),
    Test::new("xattr-of-users", of_users),
    Test::new("xattr-of-special-files", of_special_files),
    Test::new("xattr-shared-blocks", shared_blocks),
    Test::new("xattr-many-share-a-block", many_share_a_block)
        .make(&["-N", "2048", "-m", "0"])
        .limit(120),
    Test::new("xattr-block-is-freed", block_is_freed),
    Test::new("xattr-option-off", option_off).options("nouser_xattr"),
    Test::new("xattr-sets-the-feature", sets_the_feature).make(&[
        "-N",
        "1024",
        "-m",
        "0",
        "-O",
        "^ext_attr",
    ]),
    Test::new("xattr-in-random-order", in_random_order).inodes(),
];

const PLAIN: XattrFlags = XattrFlags::empty();

fn set(env: &Env, file: &str, name: &str, value: &[u8]) -> Result<(), Errno> {
    setxattr(env.at(file), name, value, PLAIN)
}

fn get(env: &Env, file: &str, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let length = getxattr(env.at(file), name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn set_get_list_remove(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let values: [(&str, &[u8]); 6] = [
        ("user.a", b"value"),
        ("user.empty", b""),
        ("user.binary", &[0, 255, 10, 0]),
        ("user.with.dots and spaces", b"x"),
        ("user.\u{e9}\u{ff}", b"high bits"),
        ("trusted.t", b"for root"),
    ];
    for (name, value) in values {
        set(env, "file", name, value).context(name)?;
    }
    let right: BTreeMap<String, Vec<u8>> = values
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    same("attributes", attributes(&env.at("file"))?, right.clone())?;
    env.again()?;
    same("on disk", attributes(&env.at("file"))?, right)?;
    set(env, "file", "user.a", b"a longer value than before").context("again")?;
    same(
        "value",
        get(env, "file", "user.a"),
        Ok(b"a longer value than before".to_vec()),
    )?;
    set(env, "file", "user.a", b"s").context("shorter")?;
    same("value", get(env, "file", "user.a"), Ok(b"s".to_vec()))?;
    for (name, _) in values {
        removexattr(env.at("file"), name).context(name)?;
        fails(name, get(env, "file", name), Errno::NODATA)?;
    }
    same("none", attributes(&env.at("file"))?.len(), 0)?;
    let blocks = env.stat("file")?.blocks();
    same("blocks", blocks, env.layout.block / 512)
}

fn create_and_replace(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let with = |flags| setxattr(env.at("file"), "user.a", b"1", flags);
    fails("replace nothing", with(XattrFlags::REPLACE), Errno::NODATA)?;
    with(XattrFlags::CREATE).context("create")?;
    fails("create again", with(XattrFlags::CREATE), Errno::EXIST)?;
    with(XattrFlags::REPLACE).context("replace")?;
    set(env, "file", "user.b", b"2").context("another")?;
    fails(
        "replace another nothing",
        setxattr(env.at("file"), "user.c", b"", XattrFlags::REPLACE),
        Errno::NODATA,
    )
}

fn errors(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    fails("get nothing", get(env, "file", "user.a"), Errno::NODATA)?;
    fails(
        "remove nothing",
        removexattr(env.at("file"), "user.a"),
        Errno::NODATA,
    )?;
    set(env, "file", "user.b", b"").context("set")?;
    fails(
        "remove another",
        removexattr(env.at("file"), "user.a"),
        Errno::NODATA,
    )?;
    fails(
        "unknown space",
        set(env, "file", "other.a", b""),
        Errno::OPNOTSUPP,
    )?;
    fails("no space", set(env, "file", "name", b""), Errno::OPNOTSUPP)?;
    fails("only a space", set(env, "file", "user.", b""), Errno::INVAL)?;
    fails("of nothing", set(env, "none", "user.a", b""), Errno::NOENT)?;
    let bad = XattrFlags::from_bits_retain(1 << 5);
    fails(
        "unknown flag",
        setxattr(env.at("file"), "user.a", b"", bad),
        Errno::INVAL,
    )
}

fn buffer_sizes(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    set(env, "file", "user.name", b"0123456789").context("set")?;
    let path = env.at("file");
    same(
        "size of the value",
        getxattr_query(&path, "user.name"),
        Ok(10),
    )?;
    let get = |size| getxattr(&path, "user.name", &mut vec![0; size][..]);
    fails("small", get(9), Errno::RANGE)?;
    same("exact", get(10), Ok(10))?;
    same("size of the list", listxattr_query(&path), Ok(10))?;
    let small = listxattr(&path, &mut [0u8; 9][..]);
    fails("small list", small, Errno::RANGE)?;
    let mut list = [0u8; 10];
    same("exact list", listxattr(&path, &mut list[..]), Ok(10))?;
    same("list", &list, b"user.name\0")
}

/// All of a file's attributes fit into one block.
fn limits(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    let block = env.layout.block as usize;
    let name = |length| format!("user.{}", "n".repeat(length));
    set(env, "file", &name(250), b"v").context("a name of 255 bytes")?;
    same("value", get(env, "file", &name(250)), Ok(b"v".to_vec()))?;
    fails(
        "a name of 256 bytes",
        set(env, "file", &name(251), b"v"),
        Errno::RANGE,
    )?;
    removexattr(env.at("file"), name(250)).context("remove")?;
    // The head of the block, an entry with its name, and four zeros at the end.
    let most = (block - 32 - 16 - 4 - 4) / 4 * 4;
    let big = set(env, "file", "user.v", &vec![7; block]);
    ensure!(
        matches!(big, Err(Errno::NOSPC | Errno::RANGE)),
        "a value of a block: {big:?}"
    );
    set(env, "file", "user.v", &vec![7; most]).context("the largest value")?;
    fails(
        "no room",
        set(env, "file", "user.w", b"value"),
        Errno::NOSPC,
    )?;
    same("value", get(env, "file", "user.v"), Ok(vec![7; most]))?;
    set(env, "file", "user.v", b"small").context("smaller")?;
    set(env, "file", "user.w", b"value").context("room again")?;
    fails(
        "too large for the rest",
        set(env, "file", "user.w", &vec![7; most]),
        Errno::NOSPC,
    )?;
    same("value", get(env, "file", "user.w"), Ok(b"value".to_vec()))?;
    env.again()?;
    same("attributes", attributes(&env.at("file"))?.len(), 2)
}

fn namespaces(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    for name in ["user.a", "trusted.a", "security.a"] {
        set(env, "file", name, name.as_bytes()).context(name)?;
    }
    env.again()?;
    for name in ["user.a", "trusted.a", "security.a"] {
        same(name, get(env, "file", name), Ok(name.as_bytes().to_vec()))?;
    }
    same("attributes", attributes(&env.at("file"))?.len(), 3)
}

fn of_users(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    for name in ["user.a", "trusted.a"] {
        set(env, "file", name, b"v").context(name)?;
    }
    chmod(env.at("file"), Mode::from(0o644)).context("chmod")?;
    let shared = &*env;
    as_user(1000, 1000, &[], || {
        same("user.", get(shared, "file", "user.a"), Ok(b"v".to_vec()))?;
        fails("set", set(shared, "file", "user.b", b""), Errno::ACCESS)?;
        fails(
            "remove",
            removexattr(shared.at("file"), "user.a"),
            Errno::ACCESS,
        )?;
        fails("trusted.", get(shared, "file", "trusted.a"), Errno::NODATA)?;
        fails(
            "set trusted.",
            set(shared, "file", "trusted.b", b""),
            Errno::PERM,
        )?;
        let mut list = [0u8; 100];
        let length = listxattr(shared.at("file"), &mut list[..]).context("list")?;
        same("list", &list[..length], &b"user.a\0"[..])
    })?;
    chmod(env.at("file"), Mode::from(0o600)).context("chmod")?;
    let shared = &*env;
    as_user(1000, 1000, &[], || {
        fails(
            "without the right to read",
            get(shared, "file", "user.a"),
            Errno::ACCESS,
        )
    })
}

fn of_special_files(env: &mut Env) -> Result<()> {
    env.mkdir("dir")?;
    symlink("target", env.at("link"))?;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, env.at("fifo"), kind, Mode::from(0o600), 0)
        .context("mknod")?;
    set(env, "dir", "user.a", b"v").context("user. of a directory")?;
    let on = |file: &str, name: &str| lsetxattr(env.at(file), name, b"v", PLAIN);
    fails("user. of a link", on("link", "user.a"), Errno::PERM)?;
    fails("user. of a pipe", on("fifo", "user.a"), Errno::PERM)?;
    on("link", "trusted.a").context("trusted. of a link")?;
    on("fifo", "trusted.a").context("trusted. of a pipe")?;
    env.again()?;
    // A fast link with an attribute block is still a fast link.
    same(
        "target",
        std::fs::read_link(env.at("link"))?,
        "target".into(),
    )?;
    same("blocks", env.stat("link")?.blocks(), env.layout.block / 512)?;
    let mut value = [0u8; 10];
    same(
        "link",
        lgetxattr(env.at("link"), "trusted.a", &mut value[..]),
        Ok(1),
    )?;
    lremovexattr(env.at("link"), "trusted.a").context("remove")?;
    same("blocks", env.stat("link")?.blocks(), 0)?;
    same(
        "target",
        std::fs::read_link(env.at("link"))?,
        "target".into(),
    )
}

/// The attribute block of a file.
fn block_of(env: &Env, file: &str) -> Result<u64> {
    let text = env.debugfs(&format!("stat {file}"))?;
    let number = text
        .split("File ACL: ")
        .nth(1)
        .context("no attribute block")?;
    let number = number.split_whitespace().next().context("no number")?;
    number.parse().context("bad number")
}

/// How many files share a block.
fn references(env: &Env, block: u64) -> Result<u32> {
    let bytes = env.on_medium(block * env.layout.block + 4, 4)?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn sync(env: &Env) -> Result<()> {
    let root = env.open(".", rustix::fs::OFlags::RDONLY)?;
    rustix::fs::syncfs(root).context("syncfs")
}

/// Files with the same attributes share a block, until one of them changes.
fn shared_blocks(env: &mut Env) -> Result<()> {
    let free = env.free_blocks()?;
    let files = ["a", "b", "c"];
    for file in files {
        env.write(file, b"")?;
        set(env, file, "user.k", b"same").context("set")?;
    }
    sync(env)?;
    let block = block_of(env, "a")?;
    for file in files {
        same(file, block_of(env, file)?, block)?;
        // Each counts it as its own.
        same(file, env.stat(file)?.blocks(), env.layout.block / 512)?;
    }
    same("references", references(env, block)?, 3)?;
    same("free blocks", env.free_blocks()?, free - 1)?;
    set(env, "b", "user.k", b"different").context("set")?;
    sync(env)?;
    same("references", references(env, block)?, 2)?;
    ensure!(
        block_of(env, "b")? != block,
        "the change was made in the shared block"
    );
    same("the others", get(env, "a", "user.k"), Ok(b"same".to_vec()))?;
    removexattr(env.at("c"), "user.k").context("remove")?;
    sync(env)?;
    same("references", references(env, block)?, 1)?;
    // Back to what another has: shared again.
    set(env, "b", "user.k", b"same").context("set")?;
    sync(env)?;
    same("shared again", block_of(env, "b")?, block)?;
    for file in files {
        unlink(env.at(file)).context("unlink")?;
    }
    same("free blocks", env.free_blocks()?, free)
}

/// 1,024 files share a block at most; C ext2 lets one more in.
fn many_share_a_block(env: &mut Env) -> Result<()> {
    const FILES: usize = 1030;
    for folder in 0..FILES.div_ceil(128) {
        env.mkdir(&format!("d{folder}"))?;
    }
    let path = |number: usize| format!("d{}/{number}", number / 128);
    for number in 0..FILES {
        env.write(&path(number), b"")?;
        set(env, &path(number), "user.k", b"same").context(path(number))?;
    }
    sync(env)?;
    let (first, last) = (block_of(env, &path(0))?, block_of(env, &path(FILES - 1))?);
    ensure!(first != last, "{FILES} files share a block");
    let sharing = references(env, first)?;
    ensure!(
        matches!(sharing, 1024 | 1025),
        "{sharing} files share a block"
    );
    same("references", references(env, last)?, FILES as u32 - sharing)?;
    for number in 0..FILES {
        unlink(env.at(path(number))).context("unlink")?;
    }
    Ok(())
}

fn block_is_freed(env: &mut Env) -> Result<()> {
    let free = env.free_blocks()?;
    for file in ["file", "link", "dir"] {
        match file {
            "file" => env.write(file, b"")?,
            "link" => symlink("x", env.at(file))?,
            _ => env.mkdir(file)?,
        }
        lsetxattr(env.at(file), "trusted.a", file.as_bytes(), PLAIN).context("set")?;
    }
    unlink(env.at("file")).context("unlink")?;
    unlink(env.at("link")).context("unlink")?;
    rustix::fs::rmdir(env.at("dir")).context("rmdir")?;
    same("free blocks", env.free_blocks()?, free)?;
    // An open file keeps its attributes.
    let file = env.create("open")?;
    set(env, "open", "user.a", b"v").context("set")?;
    unlink(env.at("open")).context("unlink")?;
    let mut value = [0u8; 10];
    same(
        "deleted",
        rustix::fs::fgetxattr(&file, "user.a", &mut value[..]),
        Ok(1),
    )?;
    drop(file);
    same("free blocks", env.free_blocks()?, free)
}

fn option_off(env: &mut Env) -> Result<()> {
    env.write("file", b"x")?;
    fails("set", set(env, "file", "user.a", b""), Errno::OPNOTSUPP)?;
    fails("get", get(env, "file", "user.a"), Errno::OPNOTSUPP)?;
    set(env, "file", "trusted.a", b"v").context("trusted.")?;
    let options = env.mount().options()?;
    ensure!(options.contains("nouser_xattr"), "options {options}");
    Ok(())
}

fn sets_the_feature(env: &mut Env) -> Result<()> {
    const COMPAT: Field = Field::new(92, 4);
    const EXT_ATTR: u64 = 8;
    same("at first", env.superblock(COMPAT)? & EXT_ATTR, 0)?;
    env.write("file", b"x")?;
    env.stop()?;
    env.start("user_xattr")?;
    set(env, "file", "user.a", b"v").context("set")?;
    sync(env)?;
    same("then", env.superblock(COMPAT)? & EXT_ATTR, EXT_ATTR)
}

/// Against a map in memory.
fn in_random_order(env: &mut Env) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(env.job.get_or("seed", 1)?);
    let mut right: [BTreeMap<String, Vec<u8>>; 3] = Default::default();
    for file in 0..3 {
        env.write(&format!("file-{file}"), b"x")?;
    }
    for step in 0..400 {
        let file = random.usize(0..3);
        let path = format!("file-{file}");
        let name = format!("user.{}", "n".repeat(random.usize(1..12)));
        if random.u8(0..4) == 0 {
            let removed = removexattr(env.at(&path), &name);
            let known = right[file].remove(&name).is_some();
            same(&format!("step {step}: remove"), removed.is_ok(), known)?;
        } else {
            let value = vec![random.u8(..); random.usize(0..90)];
            match set(env, &path, &name, &value) {
                Ok(()) => drop(right[file].insert(name, value)),
                Err(Errno::NOSPC) => {}
                Err(error) => return Err(error).context(format!("step {step}: set")),
            }
        }
        if step % 50 == 49 {
            env.again()?;
        }
        let found = attributes(&env.at(&path))?;
        same(&format!("step {step}"), &found, &right[file])?;
    }
    Ok(())
}
