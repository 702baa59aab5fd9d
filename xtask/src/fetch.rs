// SPDX-License-Identifier: GPL-2.0

//! `fetch`: the kernel source, from Debian, a folder or an archive, imported
//! as one commit into a git repository of our own.

mod debian;
mod import;

pub use import::configure;

use crate::artifact::Source;
use crate::exit::{self, Exit, WithExit as _};
use crate::hash;
use crate::lock;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::{self, Step};
use anyhow::Context as _;
use fs_err as fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The branch that holds the pristine source.
pub const BASE_BRANCH: &str = "base";
/// The branch on which the series is applied.
pub const WORK_BRANCH: &str = "rext2";

/// Where a source comes from, and the name under which its import is remembered.
enum Origin {
    /// An archive with one folder of sources in it.
    Archive { file: PathBuf, text: String },
    /// The HEAD of a git tree of the user's.
    Git { folder: PathBuf, text: String },
    /// An unpacked source of the user's.
    Folder { folder: PathBuf, text: String },
}

/// The source that the flags ask for: from the cache if it is there.
pub fn run(project: &Project) -> anyhow::Result<Source> {
    get(project, false).exit(Exit::Fetch)
}

/// The same, but looks whether Debian has a newer one.
pub fn refresh(project: &Project) -> anyhow::Result<Source> {
    get(project, true).exit(Exit::Fetch)
}

fn get(project: &Project, refresh: bool) -> anyhow::Result<Source> {
    if let Some(folder) = &project.opts.linux {
        return from_folder(project, folder)
            .with_context(|| format!("cannot use --linux {}", folder.display()));
    }
    if let Some(file) = &project.opts.tarball {
        return from_tarball(project, file)
            .with_context(|| format!("cannot use --tarball {}", file.display()));
    }
    let current = project
        .sources()
        .join(format!("{}-current.json", project.opts.base));
    if !refresh && let Some(source) = usable(project, &current) {
        return Ok(source);
    }
    let _lock = lock::hold(project)?;
    // Another run may have fetched it while we waited.
    if !refresh && let Some(source) = usable(project, &current) {
        return Ok(source);
    }
    let source = from_debian(project, refresh)?;
    if !project.opts.dry_run {
        publish::write_json(&current, &source)?;
    }
    Ok(source)
}

fn from_debian(project: &Project, fresh: bool) -> anyhow::Result<Source> {
    let package = debian::newest(project, fresh && !project.opts.dry_run)?;
    let record = project
        .sources()
        .join(format!("{}.json", &package.sha256[..16]));
    if let Some(source) = usable(project, &record) {
        return Ok(source);
    }
    absent(project)?;
    let file = match debian::archive(project, &package) {
        Ok(file) => file,
        // Old lists name a file that mirrors no longer have.
        Err(error) if !fresh => {
            step::note(&format!("{error:#}; trying with fresh package lists"));
            return from_debian(project, true);
        }
        Err(error) => return Err(error),
    };
    let text = format!("{} {}", project.base.package, package.version);
    import(project, &record, &Origin::Archive { file, text })
}

/// An import that is remembered and still there.
fn usable(project: &Project, record: &Path) -> Option<Source> {
    let source: Source = publish::read_json(record)?;
    if source.git != project.tree(&source.key) {
        return None;
    }
    let file = source.git.join(".git/refs/heads").join(BASE_BRANCH);
    if fs::read_to_string(file).is_ok_and(|base| base.trim() == source.commit) {
        return source
            .git
            .join(".git/objects/pack")
            .is_dir()
            .then_some(source);
    }
    // Someone moved the branch, or git has packed its refs.
    let name = format!("refs/heads/{BASE_BRANCH}");
    Cmd::git(&source.git)
        .args(["update-ref", &name, &source.commit])
        .read()
        .ok()?;
    Some(source)
}

fn from_tarball(project: &Project, file: &Path) -> anyhow::Result<Source> {
    let file = fs::canonicalize(file)?;
    let meta = fs::metadata(&file)?;
    // Hashing 150 MB at each run would cost half a second: remember it by the file's times.
    let mut stat = hash::Hasher::default();
    stat.part(file.as_os_str().as_encoded_bytes()).part(
        format!(
            "{} {} {} {}",
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ino()
        )
        .as_bytes(),
    );
    let seen = project
        .sources()
        .join(format!("seen-{}.json", stat.short()));
    let sha256 = match publish::read_json::<String>(&seen) {
        Some(sha256) => sha256,
        None => hash::file(&file)?,
    };
    let record = project.sources().join(format!("{}.json", &sha256[..16]));
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let source = import_once(project, &record, &Origin::Archive { file, text: name })?;
    if !project.opts.dry_run {
        publish::write_json(&seen, &sha256)?;
    }
    Ok(source)
}

fn from_folder(project: &Project, folder: &Path) -> anyhow::Result<Source> {
    let folder = fs::canonicalize(folder)?;
    if !folder.join("Makefile").is_file() || !folder.join("Kconfig").is_file() {
        return Err(exit::error(
            Exit::Fetch,
            format!(
                "{} holds no kernel source: it has no Makefile and Kconfig; name the top of one",
                folder.display()
            ),
        ));
    }
    if folder.join(".git").exists() {
        let git = |args: &[&str]| Cmd::git(&folder).args(args).read();
        let tree = git(&["rev-parse", "HEAD^{tree}"])
            .with_context(|| format!("{} is a git tree without a commit", folder.display()))?;
        let dirty = git(&["status", "--porcelain", "--untracked-files=no"])?;
        if let Some(first) = dirty.lines().next() {
            return Err(exit::error(
                Exit::Fetch,
                format!(
                    "{} has changes that are not committed ({}); commit or stash them",
                    folder.display(),
                    first.trim()
                ),
            ));
        }
        let text = git(&["describe", "--always", "--abbrev=12", "HEAD"])?;
        let record = project.sources().join(format!("git-{tree}.json"));
        return import_once(
            project,
            &record,
            &Origin::Git {
                folder,
                text: format!("git {text}"),
            },
        );
    }
    let record = project
        .sources()
        .join(format!("folder-{}.json", import::fingerprint(&folder)?));
    let text = format!("folder {}", folder.display());
    import_once(project, &record, &Origin::Folder { folder, text })
}

fn import_once(project: &Project, record: &Path, origin: &Origin) -> anyhow::Result<Source> {
    if let Some(source) = usable(project, record) {
        return Ok(source);
    }
    let _lock = lock::hold(project)?;
    match usable(project, record) {
        Some(source) => Ok(source),
        None => import(project, record, origin),
    }
}

/// Where a dry run ends if there is no source yet: what follows depends on it.
fn absent(project: &Project) -> anyhow::Result<()> {
    if !project.opts.dry_run {
        return Ok(());
    }
    Err(exit::error(
        Exit::Fetch,
        "the source is not in the cache, so a dry run ends here; \"cargo xtask fetch\" gets it",
    ))
}

/// Imports a source, publishes its tree and remembers both.
fn import(project: &Project, record: &Path, origin: &Origin) -> anyhow::Result<Source> {
    absent(project)?;
    let (Origin::Archive { text, .. } | Origin::Git { text, .. } | Origin::Folder { text, .. }) =
        origin;
    let log = project.new_log("fetch")?;
    let mut step = Step::new("fetch", format!("import {text}")).log(&log);
    let half = project.tmp().join("tree");
    let imported = match origin {
        Origin::Archive { file, .. } => import::archive(project, file, &half, &log, &mut step),
        Origin::Git { folder, .. } => import::git(project, folder, &half, &log, &mut step),
        Origin::Folder { folder, .. } => import::folder(project, folder, &half, &log, &mut step),
    }?;
    let source = Source {
        version: imported.version.clone(),
        key: format!("{}-{}", imported.version, &imported.tree[..8]),
        commit: imported.commit.clone(),
        origin: text.clone(),
        git: PathBuf::new(),
    };
    let place = project.tree(&source.key);
    let source = Source {
        git: place.clone(),
        ..source
    };
    // The same content from another origin: its tree may hold the user's work.
    let same = project.sources().join(format!("tree-{}.json", source.key));
    if usable(project, &same).is_none() {
        if place.exists() {
            // Whatever happened to it, it may hold the user's work.
            let name = |n: usize| {
                PathBuf::from(format!(
                    "{}.damaged{}",
                    place.display(),
                    if n == 0 { String::new() } else { n.to_string() }
                ))
            };
            let aside = (0..)
                .map(name)
                .find(|path| !path.exists())
                .context("no free name")?;
            step::note(&format!(
                "{} is damaged; it is kept as {}",
                place.display(),
                aside.display()
            ));
            publish::folder(&place, &aside)?;
        }
        publish::folder(&half, &place)?;
        publish::write_json(&same, &source)?;
    }
    publish::write_json(record, &source)?;
    step.what(format!("linux {} from {text}", source.version));
    step.ok();
    Ok(source)
}

/// The verb.
pub fn verb(project: &Project) -> anyhow::Result<()> {
    let source = refresh(project)?;
    step::note(&format!("{} is in {}", source.origin, source.git.display()));
    match project.opts.format {
        crate::opts::Format::Json => println!("{}", serde_json::to_string(&source)?),
        _ => println!("linux {} ({})", source.version, source.origin),
    }
    Ok(())
}
