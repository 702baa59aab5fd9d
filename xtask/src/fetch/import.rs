// SPDX-License-Identifier: GPL-2.0

//! Streams a kernel source into `git fast-import`: one commit, no file touched twice.

mod stream;

use stream::{Content, Stream};

use super::{BASE_BRANCH, WORK_BRANCH};
use crate::hash::Hasher;
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;
use anyhow::{Context as _, bail};
use fs_err as fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What an import found.
pub struct Imported {
    /// `6.12.117`
    pub version: String,
    /// The commit.
    pub commit: String,
    /// Its tree: the hash of the content.
    pub tree: String,
}

/// Imports what `fill` streams, into a new repository and work tree at `place`.
fn import(
    project: &Project,
    place: &Path,
    log: &Path,
    step: &mut Step,
    fill: impl FnOnce(&mut Stream<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Imported> {
    fs::create_dir_all(place)?;
    Cmd::git(place).args(["init", "--quiet"]).run(log)?;
    // Above the tree's own attributes: the form of a patch must not depend on
    // the version of git that knows more or fewer languages.
    fs::write(
        place.join(".git/info/attributes"),
        "* !diff !merge !text !eol !export-subst !export-ignore\n",
    )?;
    // Stored, not packed tight: the tree is read far more often than kept.
    let version = Cmd::git(place)
        .args(["fast-import", "--quiet", "--depth=0", "--force"])
        .feed(log, |out| {
            let mut stream = Stream::new(out, &project.base.version);
            stream.begin()?;
            fill(&mut stream)?;
            stream.end()
        })?;
    step.what(format!("write out linux {version}"));
    Cmd::git(place)
        .args([
            "update-ref",
            &format!("refs/heads/{WORK_BRANCH}"),
            BASE_BRANCH,
        ])
        .run(log)?;
    Cmd::git(place)
        .args(["symbolic-ref", "HEAD", &format!("refs/heads/{WORK_BRANCH}")])
        .run(log)?;
    Cmd::git(place)
        .args(["reset", "--hard", "--quiet"])
        .run(log)?;
    let commit = Cmd::git(place).args(["rev-parse", BASE_BRANCH]).read()?;
    let tree = Cmd::git(place)
        .args(["rev-parse", &format!("{BASE_BRANCH}^{{tree}}")])
        .read()?;
    Ok(Imported {
        version,
        commit,
        tree,
    })
}

/// Imports an archive: one folder in a tar, packed or not.
pub fn archive(
    project: &Project,
    file: &Path,
    place: &Path,
    log: &Path,
    step: &mut Step,
) -> anyhow::Result<Imported> {
    let mut magic = [0; 6];
    let n = fs::File::open(file)?.read(&mut magic)?;
    let unpack = match &magic[..n] {
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Cmd::new("xz").args(["-T0", "-dc"]),
        [0x1f, 0x8b, ..] => Cmd::new("gzip").arg("-dc"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Cmd::new("zstd").arg("-dcq"),
        [b'B', b'Z', b'h', ..] => Cmd::new("bzip2").arg("-dc"),
        _ => Cmd::new("cat"),
    };
    tarred(project, &unpack.arg(file), place, log, step)
        .with_context(|| format!("cannot import {}", file.display()))
}

/// Imports the HEAD of a git tree, which is only read.
pub fn git(
    project: &Project,
    folder: &Path,
    place: &Path,
    log: &Path,
    step: &mut Step,
) -> anyhow::Result<Imported> {
    let archive = Cmd::git(folder).args(["archive", "--format=tar", "--prefix=linux/", "HEAD"]);
    tarred(project, &archive, place, log, step)
        .with_context(|| format!("cannot import {}", folder.display()))
}

fn tarred(
    project: &Project,
    producer: &Cmd,
    place: &Path,
    log: &Path,
    step: &mut Step,
) -> anyhow::Result<Imported> {
    let mut reader = producer.reader()?;
    let mut failed = None;
    let imported = import(project, place, log, step, |stream| {
        failed = entries(&mut reader, stream).err();
        anyhow::ensure!(failed.is_none(), "the stream broke off");
        Ok(())
    });
    // Whatever tar says about a stream that broke off: if its producer failed,
    // that is the reason.
    std::io::copy(&mut reader, &mut std::io::sink())?;
    reader.finish()?;
    match failed {
        Some(error) => Err(error),
        None => imported,
    }
}

fn entries(reader: &mut dyn Read, stream: &mut Stream<'_>) -> anyhow::Result<()> {
    let mut tar = tar::Archive::new(std::io::BufReader::with_capacity(1 << 20, reader));
    let mut top: Option<PathBuf> = None;
    for entry in tar.entries()? {
        let mut entry = entry.context("the archive is damaged")?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() {
            continue;
        }
        let path = entry.path()?.into_owned();
        let path = inside(&path, &mut top)?;
        let content = if kind.is_symlink() {
            Content::Symlink(
                entry
                    .link_name()?
                    .context("a symbolic link without a target")?
                    .into_owned(),
            )
        } else if kind.is_hard_link() {
            let target = entry
                .link_name()?
                .context("a hard link without a target")?
                .into_owned();
            Content::Copy(inside(&target, &mut top)?)
        } else if kind.is_file() {
            let executable = entry.header().mode()? & 0o100 != 0;
            Content::File {
                size: entry.size(),
                executable,
                data: &mut entry,
            }
        } else {
            bail!("{} is neither file nor link", path.display());
        };
        stream.add(&path, content)?;
    }
    Ok(())
}

/// The path inside the archive's one folder.
fn inside(path: &Path, top: &mut Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let mut components = path.strip_prefix(".").unwrap_or(path).components();
    let first = components
        .next()
        .map(|first| PathBuf::from(first.as_os_str()))
        .unwrap_or_default();
    let rest = components.as_path().to_owned();
    let top = top.get_or_insert_with(|| first.clone());
    if rest.as_os_str().is_empty() || *top != first {
        bail!(
            "it must hold exactly one folder, as the archives of kernel.org and Debian do; found {}",
            path.display()
        );
    }
    Ok(rest)
}

/// Imports an unpacked source, which is only read.
pub fn folder(
    project: &Project,
    folder: &Path,
    place: &Path,
    log: &Path,
    step: &mut Step,
) -> anyhow::Result<Imported> {
    for built in [".config", "include/config/auto.conf", "vmlinux"] {
        if folder.join(built).exists() {
            bail!(
                "{} has been built in (it holds {built}); give a clean copy: \"make mrproper\" makes one clean",
                folder.display()
            );
        }
    }
    import(project, place, log, step, |stream| {
        walk(folder, &mut |path, meta| {
            let full = folder.join(path);
            if meta.is_symlink() {
                stream.add(path, Content::Symlink(fs::read_link(&full)?))
            } else if meta.is_file() {
                let mut data = fs::File::open(&full)?;
                let executable = meta.mode() & 0o100 != 0;
                stream.add(
                    path,
                    Content::File {
                        size: meta.len(),
                        executable,
                        data: &mut data,
                    },
                )
            } else {
                bail!("{} is neither file nor link", full.display())
            }
        })
    })
    .with_context(|| format!("cannot import {}", folder.display()))
}

/// A hash over names, sizes and times of all files of a folder.
pub fn fingerprint(folder: &Path) -> anyhow::Result<String> {
    let mut hasher = Hasher::default();
    hasher.part(folder.as_os_str().as_encoded_bytes());
    walk(folder, &mut |path, meta| {
        let stat = format!(
            "{} {} {}.{} {}",
            meta.mode(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ino()
        );
        hasher
            .part(path.as_os_str().as_encoded_bytes())
            .part(stat.as_bytes());
        Ok(())
    })?;
    Ok(hasher.short())
}

/// Visits all files and links below a folder in the order of their names.
fn walk(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, &std::fs::Metadata) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    fn below(
        folder: &Path,
        path: &Path,
        visit: &mut dyn FnMut(&Path, &std::fs::Metadata) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut names: Vec<_> = fs::read_dir(folder.join(path))?.collect::<Result<_, _>>()?;
        names.sort_by_key(|entry| entry.file_name());
        for entry in names {
            let path = path.join(entry.file_name());
            let meta = entry.metadata()?;
            if meta.is_dir() {
                below(folder, &path, visit)?;
            } else {
                visit(&path, &meta)?;
            }
        }
        Ok(())
    }
    below(folder, Path::new(""), visit)
}
