// SPDX-License-Identifier: GPL-2.0

//! The kernel tree of the cache: what it holds, and how it moves to a series.

use super::commits::{NOTES, kept_as};
use crate::artifact::Source;
use crate::exit::{self, Exit};
use crate::fetch::{BASE_BRANCH, WORK_BRANCH};
use crate::project::Project;
use crate::sh::Cmd;
use fs_err as fs;
use std::path::{Path, PathBuf};

/// What the tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The pristine source.
    Pristine,
    /// The commits of this series, and nothing else.
    Series(String),
    /// Work that is in no patch file: why we think so.
    Foreign(String),
}

/// How closely to look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Commits and changes of known files: a tenth of a second.
    Tracked,
    /// Unknown files, too: a second.
    All,
}

/// Looks at the tree.
pub fn state(source: &Source, look: Look) -> anyhow::Result<State> {
    let git = |args: &[&str]| Cmd::git(&source.git).args(args).read();
    for unfinished in [
        "rebase-merge",
        "rebase-apply",
        "MERGE_HEAD",
        "CHERRY_PICK_HEAD",
    ] {
        if source.git.join(".git").join(unfinished).exists() {
            return Ok(State::Foreign(format!(
                "an unfinished git operation ({unfinished})"
            )));
        }
    }
    let head = git(&["rev-parse", "HEAD"])?;
    let untracked = if look == Look::All {
        "--untracked-files=normal"
    } else {
        "--untracked-files=no"
    };
    let changes = git(&["status", "--porcelain", untracked])?;
    if let Some(first) = changes.lines().next() {
        let count = changes.lines().count();
        return Ok(State::Foreign(format!(
            "{count} changed or unknown files, the first is {}",
            first.get(3..).unwrap_or(first)
        )));
    }
    if head == source.commit {
        return Ok(State::Pristine);
    }
    let known = git(&[
        "for-each-ref",
        "--format=%(refname)",
        "--points-at",
        &head,
        "refs/rext2/series/",
    ])?;
    match known
        .lines()
        .next()
        .and_then(|name| name.rsplit('/').next())
    {
        Some(hash) => Ok(State::Series(hash.to_owned())),
        None => {
            let range = format!("{BASE_BRANCH}..HEAD");
            let last = git(&["log", "-1", "--format=%h %s", "HEAD"])?;
            let count = git(&["rev-list", "--count", &range])?;
            Ok(State::Foreign(format!(
                "commits that are in no patch file; the last of {count} is {last}"
            )))
        }
    }
}

/// The error about work that would be lost.
pub fn refuse(source: &Source, why: &str) -> anyhow::Error {
    exit::error(
        Exit::Patch,
        format!(
            "the kernel tree {} holds {why}; commit it there and keep it with \"cargo xtask patch export\", \
             or drop it with \"cargo xtask patch apply --discard\"",
            source.git.display()
        ),
    )
}

/// The file that says that we are moving the tree, and to which commit.
fn moving(source: &Source) -> PathBuf {
    source.git.join(".git/rext2-moving")
}

/// Ends a move that an earlier run was stopped in: nothing of the user's is in the tree then.
pub fn repair(source: &Source, log: &Path) -> anyhow::Result<()> {
    match fs::read_to_string(moving(source)) {
        Ok(commit) => move_to(source, commit.trim(), log),
        Err(_) => Ok(()),
    }
}

/// Moves branch and work tree; files that are the same in both stay untouched,
/// so that make rebuilds only what differs.
pub fn move_to(source: &Source, commit: &str, log: &Path) -> anyhow::Result<()> {
    crate::publish::write(&moving(source), commit.as_bytes())?;
    let lock = source.git.join(".git/index.lock");
    if lock.exists() {
        fs::remove_file(lock)?;
    }
    checkout(source, commit).run(log)?;
    fs::remove_file(moving(source))?;
    Ok(())
}

/// The command that moves branch and work tree.
pub fn checkout(source: &Source, commit: &str) -> Cmd {
    Cmd::git(&source.git).args(["checkout", "--force", "--quiet", "-B", WORK_BRANCH, commit])
}

/// Puts everything that the tree holds under a ref, so that discarding loses
/// nothing; returns the ref.
pub fn save(project: &Project, source: &Source, log: &Path) -> anyhow::Result<String> {
    let index = project.tmp().join("index");
    fs::copy(source.git.join(".git/index"), &index)?;
    let with_index = |args: &[&str]| {
        Cmd::git(&source.git)
            .args(args)
            .env("GIT_INDEX_FILE", &index)
    };
    with_index(&["add", "--all"]).run(log)?;
    let tree = with_index(&["write-tree"]).read()?;
    let commit = Cmd::git(&source.git)
        .args([
            "commit-tree",
            "-p",
            "HEAD",
            "-m",
            "What \"patch apply --discard\" took away",
            &tree,
        ])
        .read()?;
    let name = format!("refs/rext2/discarded/{}", &commit[..12]);
    Cmd::git(&source.git)
        .args(["update-ref", &name, &commit])
        .run(log)?;
    for unfinished in ["rebase", "am", "merge", "cherry-pick"] {
        // Only one of them is under way, if any.
        let _ = Cmd::git(&source.git)
            .args([unfinished, "--quit"])
            .output()?;
    }
    Cmd::git(&source.git).args(["clean", "-dfxq"]).run(log)?;
    Ok(name)
}

/// Makes git in the tree carry the text below `---` along when commits are
/// amended or rebased, and remembers the series that the tree is at.
pub fn prepare(source: &Source, series_hash: &str, commit: &str, log: &Path) -> anyhow::Result<()> {
    let config = source.git.join(".git/config");
    if !fs::read_to_string(&config)?.contains("rewriteRef") {
        Cmd::git(&source.git)
            .args(["config", "notes.rewriteRef", NOTES])
            .run(log)?;
        Cmd::git(&source.git)
            .args(["config", "notes.displayRef", NOTES])
            .run(log)?;
    }
    Cmd::git(&source.git)
        .args(["update-ref", &kept_as(series_hash), commit])
        .run(log)
}
