// SPDX-License-Identifier: GPL-2.0

//! Sound images to damage: made by mke2fs when they are first needed, the same
//! in every run.

use super::image::Image;
use crate::fs::env::tool_with;
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Name and arguments of each.
const TEMPLATES: &[(&str, &[&str])] = &[
    ("1k-128", &["-b", "1024", "-I", "128", "-N", "128"]),
    (
        "1k-256",
        &["-b", "1024", "-I", "256", "-N", "128", "-g", "1024"],
    ),
    ("2k-256", &["-b", "2048", "-I", "256", "-N", "128"]),
    ("4k-256", &["-b", "4096", "-I", "256", "-N", "128"]),
    (
        "1k-plain",
        &["-b", "1024", "-I", "128", "-N", "128", "-O", "none"],
    ),
];
/// Small: each try writes two copies of it.
const SIZE: u64 = 3 << 20;
const UUID: &str = "11111111-2222-3333-4444-555555555555";
const FOLDER: &str = "/tmp/fuzz";
const TIME: u32 = 1_700_000_000;

/// One of them, by chance.
pub fn choose(random: &mut fastrand::Rng) -> Result<Vec<u8>> {
    let (name, args) = TEMPLATES[random.usize(0..TEMPLATES.len())];
    let path = Path::new(FOLDER).join(name);
    if !path.exists() {
        make(&path, args).context(format!("cannot make image {name}"))?;
    }
    fs::read(&path).context(format!("cannot read image {name}"))
}

fn make(path: &Path, args: &[&str]) -> Result<()> {
    let tree = Path::new(FOLDER).join("tree");
    if !tree.exists() {
        fill(&tree)?;
    }
    fs::File::create(path)?.set_len(SIZE)?;
    let (name, tree) = (path.to_string_lossy(), tree.to_string_lossy());
    let extended = format!("root_owner=0:0,hash_seed={UUID}");
    let usual = [
        "-q", "-F", "-t", "ext2", "-m", "0", "-E", &extended, "-U", UUID, "-d", &tree,
    ];
    timeless("mke2fs", &[&usual, args, &[&name]].concat())?;
    // This kernel's tmpfs has no extended attributes that mke2fs could copy.
    for (file, attribute, length) in [
        ("small", "trusted.one", 30),
        ("a/direct", "trusted.one", 30),
        ("a/b", "trusted.two", 1),
        ("a/indirect", "trusted.large", 600),
    ] {
        let request = format!("ea_set {file} {attribute} {}", "v".repeat(length));
        timeless("debugfs", &["-w", "-R", &request, &name])?;
    }
    let mut bytes = fs::read(path)?;
    steady(&mut bytes)?;
    fs::write(path, bytes).context("cannot write a template")
}

/// Runs a tool that takes its time from nowhere.
fn timeless(name: &str, args: &[&str]) -> Result<()> {
    tool_with(name, args, &[("E2FSPROGS_FAKE_TIME", "1700000000")]).map(|_| ())
}

/// A bit of everything that metadata can be.
fn fill(root: &Path) -> Result<()> {
    let at = |name: &str| root.join(name);
    for dir in ["", "a", "a/b", "a/b/c", "many"] {
        fs::create_dir_all(at(dir))?;
    }
    for (name, size) in [
        ("empty", 0),
        ("small", 100),
        ("a/direct", 9000),
        ("a/indirect", 60_000),
    ] {
        fs::write(at(name), vec![7; size])?;
    }
    let double = File::create(at("a/b/double"))?;
    for pos in [0u64, 20 << 10, 300 << 10, 600 << 10, 5 << 20] {
        double.write_all_at(&[9; 1000], pos)?;
    }
    let triple = File::create(at("triple"))?;
    triple.write_all_at(&[9; 10], 70 << 20)?;
    triple.set_len(80 << 20)?;
    for number in 0..60 {
        fs::write(at(&format!("many/a-name-of-some-length-{number:02}")), b"")?;
    }
    fs::hard_link(at("small"), at("a/linked"))?;
    symlink("a/direct", at("fast"))?;
    symlink("d/".repeat(100), at("slow"))?;
    let cwd = rustix::fs::CWD;
    let mode = Mode::from(0o600);
    mknodat(cwd, at("fifo"), FileType::Fifo, mode, 0)?;
    mknodat(cwd, at("null"), FileType::CharacterDevice, mode, 0x103)?;
    Ok(())
}

/// Takes clock and chance out of superblock and inodes.
fn steady(bytes: &mut [u8]) -> Result<()> {
    let mut image = Image::parse(bytes.to_vec())?;
    // Times of mount, write, check and making.
    for field in [44, 48, 64, 264] {
        image.set32(1024 + field, 0);
    }
    for inode in image.inodes().to_vec() {
        // Times and generation.
        for (field, value) in [(8, TIME), (12, TIME), (16, TIME), (100, 7)] {
            image.set32(inode.at + field, value);
        }
    }
    bytes.copy_from_slice(image.bytes());
    Ok(())
}
