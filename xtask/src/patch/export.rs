// SPDX-License-Identifier: GPL-2.0

//! Commits of the kernel tree become patch files and new files again.

mod names;

use super::commits::NOTES;
use super::mail::{AUTHOR, DATE, Mail};
use super::series::{Entry, NewFile, Series, named_by_other_bases};
use crate::artifact::Source;
use crate::exit::{self, Exit};
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use anyhow::{Context as _, ensure};
use fs_err as fs;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// What is read from one commit.
struct Commit {
    id: String,
    parents: String,
    message: String,
    notes: String,
}

/// The series that the commits up to `head` make; file names and places come
/// from `old`, the series on disk.
pub fn render(
    project: &Project,
    source: &Source,
    head: &str,
    old: &Series,
) -> anyhow::Result<Series> {
    let mut series = Series::default();
    let mut brought: BTreeMap<String, String> = BTreeMap::new();
    let mut parent = source.commit.clone();
    for commit in commits(source, head)? {
        let (subject, body) = Mail::split_message(&commit.message);
        let named = || format!("commit {} ({subject})", &commit.id[..12]);
        ensure!(
            commit.parents == parent,
            "{} is a merge or does not follow the commit before it; make the history straight with git rebase",
            named()
        );
        parent = commit.id.clone();
        let changed = changed_paths(source, &commit.id)?;
        for path in changed.iter().map(|(_, path)| path) {
            if let Some(by) = brought.get(path) {
                return Err(exit::error(
                    Exit::Patch,
                    format!(
                        "{} changes {path}, which \"{by}\" brings: a new file is kept as one file; squash the change into that commit \
                         (git commit --fixup, git rebase --autosquash)",
                        named()
                    ),
                ));
            }
        }
        let mut new_files = Vec::new();
        for (added, path) in changed {
            if added {
                new_files.push(
                    new_file(project, source, &commit.id, path.clone(), old).with_context(named)?,
                );
                brought.insert(path, subject.clone());
            }
        }
        let mail = Mail {
            author: AUTHOR.into(),
            date: DATE.into(),
            subject: subject.clone(),
            body,
            new_files: new_files.iter().map(|file| file.path.clone()).collect(),
            notes: commit.notes.trim_end().to_owned(),
            diff: diff(source, &commit.id)?,
        };
        mail.check().with_context(named)?;
        super::hunk::parse(&mail.diff).with_context(named)?;
        series.entries.push(Entry {
            name: String::new(),
            mail,
            new_files,
        });
    }
    names::give(&mut series, old);
    Ok(series)
}

fn commits(source: &Source, head: &str) -> anyhow::Result<Vec<Commit>> {
    let range = format!("{}..{head}", source.commit);
    let text = Cmd::git(&source.git)
        .args([
            "log",
            "--reverse",
            "--topo-order",
            "--no-color",
            &format!("--notes={NOTES}"),
        ])
        .arg("--format=%H%x1f%P%x1f%B%x1f%N%x1e")
        .arg(range)
        .read()?;
    let record = |record: &str| -> anyhow::Result<Commit> {
        let parts: Vec<&str> = record.trim_start_matches('\n').split('\x1f').collect();
        let [id, parents, message, notes]: [&str; 4] = parts
            .try_into()
            .ok()
            .context("a commit message holds control characters")?;
        Ok(Commit {
            id: id.into(),
            parents: parents.into(),
            message: message.into(),
            notes: notes.into(),
        })
    };
    text.split('\x1e')
        .filter(|part| !part.trim().is_empty())
        .map(record)
        .collect()
}

/// The paths that a commit changes, and whether it adds them.
fn changed_paths(source: &Source, commit: &str) -> anyhow::Result<Vec<(bool, String)>> {
    let text = Cmd::git(&source.git)
        .args([
            "diff-tree",
            "-r",
            "-z",
            "--no-commit-id",
            "--no-renames",
            "--name-status",
            commit,
        ])
        .read_bytes()?;
    let text = String::from_utf8(text).context("a path is not UTF-8")?;
    let words: Vec<&str> = text.split_terminator('\0').collect();
    Ok(words
        .chunks_exact(2)
        .map(|pair| (pair[0] == "A", pair[1].to_owned()))
        .collect())
}

/// The hunks in existing files. Without the `index` lines, which would change
/// with every version of the source though no line of the patch does.
fn diff(source: &Source, commit: &str) -> anyhow::Result<String> {
    let bytes = Cmd::git(&source.git)
        .args([
            "diff-tree",
            "-r",
            "-p",
            "--no-commit-id",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
        ])
        .args([
            "--diff-filter=a",
            "--unified=3",
            "--inter-hunk-context=0",
            "--diff-algorithm=myers",
            "--indent-heuristic",
        ])
        .args(["--src-prefix=a/", "--dst-prefix=b/", commit])
        .read_bytes()?;
    let text = String::from_utf8(bytes).context("a hunk is not UTF-8")?;
    let mut header = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        header = line.starts_with("diff --git ") || (header && !line.starts_with("@@ "));
        if !(header && line.starts_with("index ")) {
            kept.push_str(line);
        }
    }
    Ok(kept)
}

fn new_file(
    project: &Project,
    source: &Source,
    commit: &str,
    path: String,
    old: &Series,
) -> anyhow::Result<NewFile> {
    let listing = Cmd::git(&source.git)
        .args(["ls-tree", commit, "--", &path])
        .read()?;
    ensure!(listing.starts_with("100"), "{path} is no plain file");
    let content = Cmd::git(&source.git)
        .args(["cat-file", "blob", &format!("{commit}:{path}")])
        .read_bytes()?;
    let shared = PathBuf::from("files").join(&path);
    let known = old
        .entries
        .iter()
        .flat_map(|entry| &entry.new_files)
        .find(|file| file.path == path);
    let place = match known {
        Some(file) => file.place.clone(),
        // Beside its siblings; a file of its own kind is this base's.
        None if project
            .patches()
            .join(&shared)
            .parent()
            .is_some_and(|folder| folder.is_dir()) =>
        {
            shared
        }
        None => PathBuf::from(&project.opts.base).join(shared),
    };
    Ok(NewFile {
        path,
        place,
        content,
        executable: listing.starts_with("100755"),
    })
}

/// The files that a series consists of, with their content.
fn files(project: &Project, series: &Series) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = project.base_patches();
    let mut files = Vec::new();
    for entry in &series.entries {
        files.push((folder.join(&entry.name), entry.mail.render().into_bytes()));
        for file in &entry.new_files {
            files.push((project.patches().join(&file.place), file.content.clone()));
        }
    }
    let list = folder.join("series");
    let text = names::series_text(&fs::read_to_string(&list)?, series);
    // Last: until then the old list still names what is there.
    files.push((list, text.into_bytes()));
    Ok(files)
}

/// Files of `old` that no series has any more.
fn gone(project: &Project, series: &Series, old: &Series) -> anyhow::Result<Vec<PathBuf>> {
    let kept: BTreeSet<PathBuf> = files(project, series)?
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    let elsewhere = named_by_other_bases(project)?;
    let mut gone = Vec::new();
    for entry in &old.entries {
        let files = entry
            .new_files
            .iter()
            .filter(|file| !elsewhere.contains(&file.path));
        gone.extend(files.map(|file| project.patches().join(&file.place)));
        gone.push(project.base_patches().join(&entry.name));
    }
    gone.retain(|path| !kept.contains(path) && path.exists());
    Ok(gone)
}

/// The files that `write` would change.
pub fn differing(project: &Project, series: &Series, old: &Series) -> anyhow::Result<Vec<PathBuf>> {
    let files = files(project, series)?.into_iter();
    let changed = files.filter(|(path, bytes)| fs::read(path).ok().as_ref() != Some(bytes));
    let mut differing: Vec<PathBuf> = changed.map(|(path, _)| path).collect();
    differing.extend(gone(project, series, old)?);
    Ok(differing)
}

/// Brings the files on disk to `series`; returns the paths that changed.
pub fn write(project: &Project, series: &Series, old: &Series) -> anyhow::Result<Vec<PathBuf>> {
    let changed = differing(project, series, old)?;
    for (path, bytes) in files(project, series)? {
        publish::write(&path, &bytes)?;
    }
    for file in series.entries.iter().flat_map(|entry| &entry.new_files) {
        let mode = if file.executable { 0o755 } else { 0o644 };
        let path = project.patches().join(&file.place);
        fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    for path in gone(project, series, old)? {
        fs::remove_file(path)?;
    }
    Ok(changed)
}
