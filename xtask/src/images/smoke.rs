// SPDX-License-Identifier: GPL-2.0

//! The images of suite `smoke`: one for each layout, all with the tree that the
//! guest expects, made by mke2fs and debugfs and accepted by e2fsck.

use crate::sh::Cmd;
use anyhow::{Context as _, ensure};
use fs_err as fs;
use rext2_tests::pattern;
use rext2_tests::tree::{self, Content, Entry, Kind, Layout, TIME};
use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
/// Files, and a directory entry for each name of the largest folder.
const SIZE: u64 = 48 << 20;
const S_REV_LEVEL: u64 = 1024 + 76;

/// Makes all images in `folder`; their labels and paths.
pub fn make(folder: &Path, config: &Path, log: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let made: Vec<_> = std::thread::scope(|scope| {
        let start = |layout| scope.spawn(move || image(folder, config, log, layout));
        // The largest takes as long as the rest together.
        let mut layouts: Vec<_> = tree::LAYOUTS.iter().collect();
        layouts.sort_by_key(|layout| std::cmp::Reverse(layout.many));
        let jobs: Vec<_> = layouts.into_iter().map(start).collect();
        jobs.into_iter()
            .map(|job| job.join().expect("a maker of images does not panic"))
            .collect::<anyhow::Result<_>>()
    })?;
    Ok(made)
}

fn image(
    folder: &Path,
    config: &Path,
    log: &Path,
    layout: &Layout,
) -> anyhow::Result<(String, PathBuf)> {
    let path = folder.join(format!("{}.img", layout.name));
    let staging = folder.join(layout.name);
    let entries = tree::entries(layout);
    let tool = |name: &str| {
        Cmd::new(name)
            .env("MKE2FS_CONFIG", config)
            .env("E2FSPROGS_FAKE_TIME", TIME.to_string())
            .env("E2FSCK_TIME", TIME.to_string())
    };

    fs::create_dir(&staging)?;
    for content in entries.iter().filter_map(Entry::content) {
        write(&staged(&staging, content), content)?;
    }
    fs::File::create(&path)?.set_len(SIZE)?;
    tool("mke2fs")
        .args(["-q", "-F", "-t", "ext2", "-U", UUID])
        .args(["-b", &layout.block_size.to_string()])
        .args(["-N", &(entries.len() + 64).to_string()])
        .args(arguments(layout)?)
        .arg(&path)
        .run(log)?;
    let said = tool("debugfs")
        .args(["-w", "-f", "/dev/stdin"])
        .arg(&path)
        .stdin(commands(&entries, &staging, layout)?)
        .output()?;
    // debugfs ends with 0 after an error, but says more than its banner.
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(
        said.lines().count() <= 1,
        "debugfs: {}",
        said.lines().skip(1).take(3).collect::<Vec<_>>().join("; ")
    );
    // Index the folders; 1 means that it has done so.
    let status = tool("e2fsck").arg("-fyD").arg(&path).output()?.status;
    ensure!(matches!(status.code(), Some(0 | 1)), "e2fsck: {status}");
    tool("e2fsck").arg("-fn").arg(&path).run(log)?;

    let mut revision = [0; 4];
    let mut file = fs::File::open(&path)?;
    file.seek(SeekFrom::Start(S_REV_LEVEL))?;
    file.read_exact(&mut revision)?;
    ensure!(
        u32::from_le_bytes(revision) == layout.revision,
        "e2fsprogs changed the revision of {}",
        layout.name
    );
    fs::remove_dir_all(&staging)?;
    Ok((layout.name.into(), path))
}

/// mke2fs's arguments for inode size and revision.
fn arguments(layout: &Layout) -> anyhow::Result<Vec<String>> {
    let extended = format!("root_owner=0:0,hash_seed={UUID}");
    let version = Cmd::new("mke2fs").arg("-V").output()?;
    let old = String::from_utf8_lossy(&version.stderr).contains(" 1.47.0 ");
    let words: &[&str] = match (layout.revision, old) {
        (0, true) => &["-r", "0", "-E", &extended],
        (0, false) => &["-E", &format!("{extended},revision=0")],
        _ => &["-I", &layout.inode_size.to_string(), "-E", &extended],
    };
    Ok(words.iter().map(|word| word.to_string()).collect())
}

fn staged(staging: &Path, content: &Content) -> PathBuf {
    staging.join(content.number.to_string())
}

/// Writes a file with its holes.
fn write(path: &Path, content: &Content) -> anyhow::Result<()> {
    let mut file = fs::File::create(path)?;
    let mut buffer = vec![0; 1 << 20];
    for data in &content.data {
        file.seek(SeekFrom::Start(data.start))?;
        let mut pos = data.start;
        while pos < data.end {
            let length = (data.end - pos).min(buffer.len() as u64) as usize;
            pattern::fill(content.number, pos, &mut buffer[..length]);
            file.write_all(&buffer[..length])?;
            pos += length as u64;
        }
    }
    file.set_len(content.size)?;
    Ok(())
}

/// debugfs's commands that make the tree.
fn commands(entries: &[Entry], staging: &Path, layout: &Layout) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut folder = "";
    for entry in entries {
        let (parent, name) = entry.path.rsplit_once('/').unwrap_or(("", &entry.path));
        if parent != folder {
            writeln!(text, "cd \"/{parent}\"")?;
            folder = parent;
        }
        match &entry.kind {
            Kind::Directory => writeln!(text, "mkdir \"{name}\""),
            Kind::File(content) => {
                let file = staged(staging, content);
                let file = file.to_str().context("the cache's path is not UTF-8")?;
                writeln!(text, "write \"{file}\" \"{name}\"")
            }
            Kind::Hard(to) => {
                let links = entries.iter().filter(|other| other.kind == entry.kind);
                writeln!(text, "link \"/{to}\" \"{name}\"")?;
                writeln!(text, "sif \"{name}\" links_count {}", links.count() + 1)
            }
            Kind::Symlink(target) => writeln!(text, "symlink \"{name}\" {target}"),
            Kind::Char(major, minor) => writeln!(text, "mknod \"{name}\" c {major} {minor}"),
            Kind::Block(major, minor) => writeln!(text, "mknod \"{name}\" b {major} {minor}"),
            Kind::Fifo | Kind::Socket => writeln!(text, "mknod \"{name}\" p"),
        }?;
        fields(&mut text, entry, name, layout)?;
    }
    Ok(text)
}

/// The inode's fields that differ from what debugfs gives a new one.
fn fields(text: &mut String, entry: &Entry, name: &str, layout: &Layout) -> anyhow::Result<()> {
    let mut set = |field: &str, value: String| writeln!(text, "sif \"{name}\" {field} {value}");
    let kind = match entry.kind {
        Kind::File(_) => 0o100_000,
        Kind::Directory => 0o40_000,
        Kind::Char(..) => 0o20_000,
        Kind::Block(..) => 0o60_000,
        Kind::Fifo => 0o10_000,
        // debugfs makes no socket; e2fsck corrects the entry's type.
        Kind::Socket => 0o140_000,
        Kind::Symlink(_) | Kind::Hard(_) => return Ok(()),
    };
    set("mode", format!("0{:o}", kind | entry.mode))?;
    if (entry.uid, entry.gid) != (0, 0) {
        set("uid", entry.uid.to_string())?;
        set("gid", entry.gid.to_string())?;
    }
    if entry.mtime != TIME {
        set("mtime", format!("@{}", entry.mtime))?;
    }
    if entry.nanos != 0 && layout.inode_size > 128 {
        // Two bits of epoch below thirty of nanoseconds.
        set("mtime_extra", (entry.nanos << 2).to_string())?;
    }
    Ok(())
}
