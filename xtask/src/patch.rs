// SPDX-License-Identifier: GPL-2.0

//! `patch`: the series of a base as files in the checkout and as commits in the
//! kernel tree. The files are the truth; git is only the editor.

pub mod commits;
pub mod export;
pub mod hunk;
pub mod mail;
pub mod series;
pub mod tree;

use crate::artifact::{Source, Tree};
use crate::exit::{self, Exit, WithExit as _};
use crate::fetch;
use crate::lock;
use crate::opts::PatchVerb;
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::{self, Step};
use anyhow::Context as _;
use series::Series;
use tree::{Look, State};

/// Brings the kernel tree to the series on disk.
pub fn apply(project: &Project, source: &Source, discard: bool) -> anyhow::Result<Tree> {
    let series = Series::load(project).exit(Exit::Patch)?;
    let _lock = lock::hold(project)?;
    apply_series(project, source, &series, discard).exit(Exit::Patch)
}

fn apply_series(
    project: &Project,
    source: &Source,
    series: &Series,
    discard: bool,
) -> anyhow::Result<Tree> {
    let log = project.new_log("patch")?;
    let series_hash = series.hash();
    let tree = |commit: String| Tree {
        path: source.git.clone(),
        series_hash: series_hash.clone(),
        commit,
        patches: series.entries.len(),
    };
    tree::repair(source, &log)?;
    let commits = commits::get(project, source, series)?;
    // An equal tree needs no search for unknown files: nothing will be moved.
    let at = Cmd::git(&source.git).args(["rev-parse", "HEAD"]).read()?;
    let look = if at == commits.last && !discard {
        Look::Tracked
    } else {
        Look::All
    };
    match tree::state(source, look)? {
        State::Foreign(why) if !discard => return Err(tree::refuse(source, &why)),
        State::Foreign(why) => {
            let name = tree::save(project, source, &log)?;
            step::note(&format!(
                "the tree held {why}; it is kept as {name} in {}",
                source.git.display()
            ));
        }
        State::Pristine | State::Series(_) if at == commits.last => return Ok(tree(commits.last)),
        State::Pristine | State::Series(_) => {}
    }
    let mut step = Step::new(
        "patch",
        format!("linux {} +{} patches", source.version, series.entries.len()),
    )
    .log(&log);
    tree::prepare(source, &series_hash, &commits.last, &log)?;
    tree::move_to(source, &commits.last, &log)?;
    if !commits.offsets.is_empty() {
        step.what(format!(
            "linux {} +{} patches, {} hunks on other lines",
            source.version,
            series.entries.len(),
            commits.offsets.len()
        ));
    }
    step.ok();
    for offset in commits.offsets.iter().filter(|_| project.opts.verbose) {
        step::note(offset);
    }
    Ok(tree(commits.last))
}

/// Writes the commits of the tree to the checkout, after proving that they come back.
pub fn export(project: &Project, source: &Source) -> anyhow::Result<Series> {
    if !project.opts.without.is_empty() {
        return Err(exit::error(
            Exit::Usage,
            "--without would remove patch files here; export without it",
        ));
    }
    let _lock = lock::hold(project)?;
    export_locked(project, source).exit(Exit::Patch)
}

fn export_locked(project: &Project, source: &Source) -> anyhow::Result<Series> {
    let log = project.new_log("patch")?;
    tree::repair(source, &log)?;
    // A malformed series must not keep a good tree from replacing it.
    let old = Series::load_what_is_good(project)?;
    let git = |args: &[&str]| Cmd::git(&source.git).args(args).read();
    let changes = git(&["status", "--porcelain"])?;
    if let Some(first) = changes.lines().next() {
        let path = first.get(3..).unwrap_or(first);
        return Err(exit::error(
            Exit::Patch,
            format!(
                "{path} in {} is changed but not committed; commit it (git commit --amend, or --fixup and rebase) and export again",
                source.git.display()
            ),
        ));
    }
    let head = git(&["rev-parse", "HEAD"])?;
    let step = Step::new("patch", format!("export from {}", source.git.display())).log(&log);
    let series = export::render(project, source, &head, &old)?;
    let commits = commits::make(project, source, &series)
        .context("the exported series does not come back")?;
    same_trees(source, &head, &commits.last)?;
    let changed = export::write(project, &series, &old)?;
    let reread = Series::load(project)?;
    if reread != series {
        return Err(exit::error(
            Exit::Patch,
            "the patch files on disk are not what was exported; run \"cargo xtask patch check\"",
        ));
    }
    tree::prepare(source, &series.hash(), &commits.last, &log)?;
    tree::move_to(source, &commits.last, &log)?;
    step.end(if changed.is_empty() {
        "unchanged"
    } else {
        "ok"
    });
    for path in &changed {
        println!(
            "{}",
            path.strip_prefix(&project.root).unwrap_or(path).display()
        );
    }
    Ok(series)
}

/// Proves that two histories have the same content commit by commit.
fn same_trees(source: &Source, one: &str, other: &str) -> anyhow::Result<()> {
    let trees = |head: &str| {
        Cmd::git(&source.git)
            .args([
                "log",
                "--reverse",
                "--format=%T %s",
                &format!("{}..{head}", source.commit),
            ])
            .read()
    };
    let (one, other) = (trees(one)?, trees(other)?);
    match one
        .lines()
        .zip(other.lines())
        .find(|(one, other)| one != other)
    {
        None if one.lines().count() == other.lines().count() => Ok(()),
        None => Err(exit::error(
            Exit::Patch,
            "the exported series has another number of commits than the tree",
        )),
        Some((one, _)) => {
            let subject = one.split_once(' ').map_or(one, |(_, subject)| subject);
            Err(exit::error(
                Exit::Patch,
                format!("\"{subject}\" does not come back from its patch file as it was"),
            ))
        }
    }
}

/// What a round trip has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Number of patches.
    pub patches: usize,
    /// Hunks that fit on other lines than their patch says.
    pub offsets: Vec<String>,
}

/// Proves the round trip of every patch: apply, export, compare, apply again.
/// Needs no work tree, so it does not disturb one.
pub fn check(project: &Project, source: &Source) -> anyhow::Result<Checked> {
    let series = Series::load(project).exit(Exit::Patch)?;
    let _lock = lock::hold(project)?;
    check_series(project, source, &series).exit(Exit::Patch)
}

fn check_series(project: &Project, source: &Source, series: &Series) -> anyhow::Result<Checked> {
    let first = commits::make(project, source, series)?;
    let back = export::render(project, source, &first.last, series)?;
    let mut mistakes = Vec::new();
    for (there, back) in series.entries.iter().zip(&back.entries) {
        // Other line numbers are the mark of another 6.12.y, not of a bad patch.
        let moved = first
            .offsets
            .iter()
            .any(|offset| offset.starts_with(&there.name));
        let on_disk =
            std::fs::read_to_string(project.base_patches().join(&there.name)).unwrap_or_default();
        let rendered = back.mail.render();
        let same = if moved {
            without_lines(&on_disk) == without_lines(&rendered)
        } else {
            on_disk == rendered
        };
        if !same {
            let line = on_disk
                .lines()
                .zip(rendered.lines())
                .position(|(a, b)| a != b);
            let line =
                line.unwrap_or_else(|| on_disk.lines().count().min(rendered.lines().count())) + 1;
            mistakes.push(format!(
                "{} comes back with another line {line}",
                there.name
            ));
        }
        if let Err(error) = mailed(&on_disk, &there.mail) {
            mistakes.push(format!("{}: {error:#}", there.name));
        }
        if there.new_files != back.new_files {
            mistakes.push(format!("{}: its new files come back otherwise", there.name));
        }
    }
    if !mistakes.is_empty() {
        let text = mistakes.join("\n  ");
        return Err(exit::error(
            Exit::Patch,
            format!(
                "the round trip differs; \"cargo xtask patch apply\" and \"cargo xtask patch export\" put it right:\n  {text}"
            ),
        ));
    }
    let second = commits::make(project, source, &back)?;
    same_trees(source, &first.last, &second.last)?;
    Ok(Checked {
        patches: series.entries.len(),
        offsets: first.offsets,
    })
}

/// A patch without the positions of its hunks.
fn without_lines(text: &str) -> String {
    text.lines()
        .map(|line| if line.starts_with("@@ ") { "@@" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Lets git's own mail reader confirm what ours has read.
fn mailed(text: &str, mail: &mail::Mail) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (message, hunks) = (folder.path().join("message"), folder.path().join("hunks"));
    let info = Cmd::git(folder.path())
        .args(["mailinfo", "-k", "--encoding=UTF-8", "--no-scissors"])
        .args([&message, &hunks])
        .stdin(text)
        .read()?;
    let subject = info
        .lines()
        .find_map(|line| line.strip_prefix("Subject: "))
        .unwrap_or_default();
    let body = std::fs::read_to_string(&message)?;
    anyhow::ensure!(
        subject == mail.subject,
        "git reads the subject as {subject:?}"
    );
    anyhow::ensure!(body.trim() == mail.body, "git reads another message");
    let hunks = std::fs::read_to_string(&hunks)?;
    anyhow::ensure!(hunks.ends_with(&mail.diff), "git reads other hunks");
    Ok(())
}

/// The verb.
pub fn verb(project: &Project, verb: &PatchVerb) -> anyhow::Result<()> {
    let source = fetch::run(project)?;
    if project.opts.dry_run {
        return dry_run(project, &source, verb);
    }
    match verb {
        PatchVerb::Apply { discard } => {
            let tree = apply(project, &source, *discard)?;
            println!("{}", tree.path.display());
        }
        PatchVerb::Export => {
            export(project, &source)?;
        }
        PatchVerb::Check => {
            let checked = check(project, &source)?;
            println!(
                "{} patches of {}: round trip proved on linux {}",
                checked.patches, project.opts.base, source.version
            );
            for offset in checked.offsets {
                println!("  {offset}");
            }
        }
        PatchVerb::Status => status(project, &source)?,
    }
    Ok(())
}

/// What a verb would do.
fn dry_run(project: &Project, source: &Source, verb: &PatchVerb) -> anyhow::Result<()> {
    let head = Cmd::git(&source.git).args(["rev-parse", "HEAD"]).read()?;
    match verb {
        PatchVerb::Apply { discard } => {
            let series = Series::load(project).exit(Exit::Patch)?;
            match tree::state(source, Look::All)? {
                State::Foreign(why) if !discard => return Err(tree::refuse(source, &why)),
                State::Series(hash) if hash == series.hash() => {}
                State::Pristine if series.entries.is_empty() => {}
                _ => println!(
                    "{}",
                    tree::checkout(source, &commits::kept_as(&series.hash())).dry()
                ),
            }
        }
        PatchVerb::Export => {
            let old = Series::load_what_is_good(project)?;
            let series = export::render(project, source, &head, &old).exit(Exit::Patch)?;
            for path in export::differing(project, &series, &old)? {
                println!(
                    "write {}",
                    path.strip_prefix(&project.root).unwrap_or(&path).display()
                );
            }
        }
        // They only look.
        PatchVerb::Check => {
            check(project, source)?;
        }
        PatchVerb::Status => status(project, source)?,
    }
    Ok(())
}

fn status(project: &Project, source: &Source) -> anyhow::Result<()> {
    let series = Series::load(project).exit(Exit::Patch)?;
    let state = match tree::state(source, Look::All)? {
        State::Pristine if series.entries.is_empty() => "at the series".to_owned(),
        State::Pristine => {
            "pristine: \"cargo xtask patch apply\" brings it to the series".to_owned()
        }
        State::Series(hash) if hash == series.hash() => "at the series".to_owned(),
        State::Series(hash) => {
            format!("at another series ({hash}): \"cargo xtask patch apply\" moves it")
        }
        State::Foreign(why) => format!("holds {why}"),
    };
    println!(
        "base   {} on linux {} ({})",
        project.opts.base, source.version, source.origin
    );
    println!("tree   {}", source.git.display());
    println!("state  {state}");
    println!("series {} patches, {}", series.entries.len(), series.hash());
    for (n, entry) in series.entries.iter().enumerate() {
        println!("{:4}  {:<44}  {}", n + 1, entry.name, entry.mail.subject);
        for file in &entry.new_files {
            println!("      + {}", file.place.display());
        }
    }
    Ok(())
}
