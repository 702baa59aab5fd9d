// SPDX-License-Identifier: GPL-2.0

//! Turns a series into commits, one a patch, without touching the work tree:
//! `git apply` (which knows no fuzz) on the touched files alone, then one
//! `git fast-import`. The commits are the same on every machine.

use super::hunk::{self, FilePatch};
use super::mail::{GIT_DATE, Mail};
use super::series::{Entry, Series};
use crate::artifact::Source;
use crate::exit::{self, Exit};
use crate::project::Project;
use crate::sh::Cmd;
use anyhow::{Context as _, bail, ensure};
use fs_err as fs;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The notes that keep what stands below `---`.
pub const NOTES: &str = "refs/notes/rext2";

/// The commits of a series.
pub struct Commits {
    /// The last one; the source itself if the series is empty.
    pub last: String,
    /// Hunks that were found on other lines than they say.
    pub offsets: Vec<String>,
}

/// The ref under which the commits of a series are kept.
pub fn kept_as(series_hash: &str) -> String {
    format!("refs/rext2/series/{series_hash}")
}

/// The commits of a series, made before or now.
pub fn get(project: &Project, source: &Source, series: &Series) -> anyhow::Result<Commits> {
    let name = kept_as(&series.hash());
    if let Ok(last) = Cmd::git(&source.git)
        .args(["rev-parse", "--verify", "--quiet", &name])
        .read()
    {
        return Ok(Commits {
            last,
            offsets: Vec::new(),
        });
    }
    make(project, source, series)
}

/// One file while the series is applied to it.
#[derive(Clone, PartialEq, Eq)]
struct File {
    executable: bool,
    content: Vec<u8>,
}

/// What one patch leaves: paths with their new state, `None` if removed.
type Change = BTreeMap<String, Option<File>>;

/// Makes the commits of a series.
pub fn make(project: &Project, source: &Source, series: &Series) -> anyhow::Result<Commits> {
    let name = kept_as(&series.hash());
    let log = project.log("patch");
    let parsed: Vec<Vec<FilePatch>> = series
        .entries
        .iter()
        .map(|entry| hunk::parse(&entry.mail.diff).with_context(|| entry.name.clone()))
        .collect::<Result<_, _>>()
        .map_err(|error| exit::error(Exit::Patch, format!("{error:#}")))?;
    let mut touched: BTreeSet<&str> = BTreeSet::new();
    for file in parsed.iter().flatten() {
        touched.extend(
            [file.old.as_deref(), file.new.as_deref()]
                .into_iter()
                .flatten(),
        );
    }
    touched.extend(
        series
            .entries
            .iter()
            .flat_map(|entry| &entry.new_files)
            .map(|file| file.path.as_str()),
    );
    let pristine = read_files(&source.git, &source.commit, &touched)?;

    fs::create_dir_all(project.tmp())?;
    let scratch = tempfile::Builder::new()
        .prefix("apply-")
        .tempdir_in(project.tmp())?;
    for (path, file) in &pristine {
        write_file(&scratch.path().join(path), file)?;
    }
    let mut offsets = Vec::new();
    let mut changes = Vec::new();
    for (entry, files) in series.entries.iter().zip(&parsed) {
        let change = apply_one(source, entry, files, scratch.path(), &mut offsets)
            .map_err(|error| exit::error(Exit::Patch, format!("{error:#}")))?;
        changes.push(change);
    }
    let notes_exist = Cmd::git(&source.git)
        .args(["rev-parse", "--verify", "--quiet", NOTES])
        .read()
        .is_ok();
    let stream = stream(&name, source, series, &changes, notes_exist);
    if !series.entries.is_empty() {
        Cmd::git(&source.git)
            .args(["fast-import", "--quiet", "--force"])
            .stdin(stream)
            .run(&log)?;
    } else {
        Cmd::git(&source.git)
            .args(["update-ref", &name, &source.commit])
            .run(&log)?;
    }
    let last = Cmd::git(&source.git)
        .args(["rev-parse", "--verify", &name])
        .read()?;
    Ok(Commits { last, offsets })
}

/// Applies one patch to the files in `scratch`.
fn apply_one(
    source: &Source,
    entry: &Entry,
    files: &[FilePatch],
    scratch: &Path,
    offsets: &mut Vec<String>,
) -> anyhow::Result<Change> {
    let read = |path: &str| read_file(&scratch.join(path));
    let mut paths = BTreeSet::new();
    for file in files {
        paths.extend(
            [file.old.as_deref(), file.new.as_deref()]
                .into_iter()
                .flatten(),
        );
    }
    let before: BTreeMap<&str, Option<File>> = paths
        .iter()
        .map(|path| Ok((*path, read(path)?)))
        .collect::<anyhow::Result<_>>()?;
    if !files.is_empty() {
        let output = Cmd::git(scratch)
            .args(["apply", "--verbose", "--whitespace=nowarn", "-p1", "-"])
            .stdin(entry.mail.diff.as_bytes())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let reason = files.iter().find_map(|file| {
                let content = before.get(file.path()).cloned().flatten();
                hunk::explain(
                    file,
                    content
                        .map(|file| String::from_utf8_lossy(&file.content).into_owned())
                        .as_deref(),
                )
            });
            let reason = reason.unwrap_or_else(|| {
                said.lines()
                    .filter(|line| line.contains("does not apply"))
                    .collect::<Vec<_>>()
                    .join("; ")
            });
            bail!(
                "{} does not apply to linux {}: {reason}; the tree is as it was: correct the patch, or give the source it was made for with --linux DIR",
                entry.name,
                source.version
            );
        }
        let moved = said
            .lines()
            .filter(|line| line.starts_with("Hunk #") && line.contains("offset"));
        offsets.extend(moved.map(|line| format!("{}: {line}", entry.name)));
    }
    let mut change = Change::new();
    for (path, old) in before {
        let new = read(path)?;
        // A patch that is "applied" and changes nothing is the worst kind of failure.
        ensure!(
            new != old,
            "{}: {path} is named by a hunk, but applying it changed nothing",
            entry.name
        );
        change.insert(path.to_owned(), new);
    }
    for file in &entry.new_files {
        ensure!(
            read(&file.path)?.is_none(),
            "{}: the new file {} exists already in linux {} or comes from an earlier patch",
            entry.name,
            file.path,
            source.version
        );
        let new = File {
            executable: file.executable,
            content: file.content.clone(),
        };
        write_file(&scratch.join(&file.path), &new)?;
        change.insert(file.path.clone(), Some(new));
    }
    Ok(change)
}

/// What `git fast-import` makes of it all.
fn stream(
    name: &str,
    source: &Source,
    series: &Series,
    changes: &[Change],
    notes_exist: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut from = source.commit.clone();
    for (n, (entry, change)) in series.entries.iter().zip(changes).enumerate() {
        let Mail { author, date, .. } = &entry.mail;
        let mark = n + 1;
        let mut text = format!(
            "commit {name}\nmark :{mark}\nauthor {author} {}\ncommitter {author} {GIT_DATE}\n",
            raw_date(date)
        );
        let message = entry.mail.message();
        let _ = write!(text, "data {}\n{message}\nfrom {from}\n", message.len());
        out.extend(text.into_bytes());
        for (path, file) in change {
            match file {
                Some(file) => {
                    let mode = if file.executable { "100755" } else { "100644" };
                    out.extend(
                        format!("M {mode} inline \"{path}\"\ndata {}\n", file.content.len())
                            .into_bytes(),
                    );
                    out.extend(&file.content);
                    out.push(b'\n');
                }
                None => out.extend(format!("D \"{path}\"\n").into_bytes()),
            }
        }
        from = format!(":{mark}");
    }
    let with_notes: Vec<_> = series
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| !entry.mail.notes.is_empty())
        .collect();
    if !with_notes.is_empty() {
        let head = format!(
            "commit {NOTES}\ncommitter rext2 <rext2@rext2.invalid> {GIT_DATE}\ndata 0\n{}",
            if notes_exist {
                format!("from {NOTES}^0\n")
            } else {
                String::new()
            }
        );
        out.extend(head.into_bytes());
    }
    for (n, entry) in with_notes {
        let notes = &entry.mail.notes;
        out.extend(
            format!("N inline :{}\ndata {}\n{notes}\n\n", n + 1, notes.len() + 1).into_bytes(),
        );
    }
    out
}

/// A mail's date in git's form; what cannot be read becomes the fixed one.
fn raw_date(date: &str) -> String {
    if date == super::mail::DATE {
        return GIT_DATE.to_owned();
    }
    // git itself reads dates of every form; ours is always the fixed one.
    Cmd::new("date")
        .args(["-u", "+%s +0000", "-d", date])
        .read()
        .unwrap_or_else(|_| GIT_DATE.to_owned())
}

/// Files of a commit.
fn read_files(
    git: &Path,
    commit: &str,
    paths: &BTreeSet<&str>,
) -> anyhow::Result<BTreeMap<String, File>> {
    let mut files = BTreeMap::new();
    if paths.is_empty() {
        return Ok(files);
    }
    let listing = Cmd::git(git)
        .args(["ls-tree", "-z", commit, "--"])
        .args(paths)
        .read_bytes()?;
    let mut found = Vec::new();
    let mut request = String::new();
    for line in listing
        .split(|&byte| byte == 0)
        .filter(|line| !line.is_empty())
    {
        let line = std::str::from_utf8(line)?;
        let (stat, path) = line
            .split_once('\t')
            .context("git ls-tree printed something odd")?;
        let [mode, _, blob]: [&str; 3] = stat
            .split(' ')
            .collect::<Vec<_>>()
            .try_into()
            .ok()
            .context("git ls-tree printed something odd")?;
        ensure!(
            mode == "100644" || mode == "100755",
            "{path} is no plain file in the source"
        );
        let _ = writeln!(request, "{blob}");
        found.push((path.to_owned(), mode == "100755"));
    }
    let batch = Cmd::git(git)
        .args(["cat-file", "--batch"])
        .stdin(request)
        .read_bytes()?;
    let mut rest = batch.as_slice();
    for (path, executable) in found {
        let end = rest
            .iter()
            .position(|&byte| byte == b'\n')
            .context("git cat-file ended early")?;
        let head = std::str::from_utf8(&rest[..end])?;
        let size: usize = head
            .rsplit(' ')
            .next()
            .and_then(|size| size.parse().ok())
            .context("git cat-file printed something odd")?;
        let content = rest
            .get(end + 1..end + 1 + size)
            .context("git cat-file ended early")?
            .to_vec();
        rest = rest
            .get(end + 2 + size..)
            .context("git cat-file ended early")?;
        files.insert(
            path,
            File {
                executable,
                content,
            },
        );
    }
    Ok(files)
}

fn read_file(path: &Path) -> anyhow::Result<Option<File>> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some(File {
            executable: meta.permissions().mode() & 0o100 != 0,
            content: fs::read(path)?,
        })),
        Ok(_) => bail!("{} is no plain file", path.display()),
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                || error.kind() == std::io::ErrorKind::NotADirectory =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn write_file(path: &Path, file: &File) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, &file.content)?;
    let mode = if file.executable { 0o755 } else { 0o644 };
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}
