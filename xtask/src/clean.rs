// SPDX-License-Identifier: GPL-2.0

//! `clean`: removes what can be made again; never work that exists nowhere else.

use crate::artifact::Source;
use crate::exit::{self, Exit};
use crate::lock;
use crate::opts::CleanArgs;
use crate::patch::tree::{self, Look, State};
use crate::project::Project;
use crate::publish;
use crate::step::Step;
use fs_err as fs;
use std::path::PathBuf;

/// The verb.
pub fn verb(project: &Project, args: &CleanArgs) -> anyhow::Result<()> {
    let _lock = lock::hold(project)?;
    let mut folders = vec![project.out()];
    folders.extend(project.made().into_iter().filter(|folder| folder.is_dir()));
    if args.all {
        unexported(project)?;
        folders.extend(project.gotten());
    }
    for folder in folders.into_iter().filter(|folder| folder.exists()) {
        if project.opts.dry_run {
            println!("rm -r {}", folder.display());
            continue;
        }
        let step = Step::new("clean", folder.display().to_string());
        fs::remove_dir_all(&folder)?;
        step.ok();
    }
    Ok(())
}

/// Refuses if a kernel tree holds work that is in no patch file.
fn unexported(project: &Project) -> anyhow::Result<()> {
    let mut holding = Vec::new();
    for source in trees(project)? {
        match tree::state(&source, Look::All) {
            Ok(State::Foreign(why)) => {
                holding.push(format!("{} holds {why}", source.git.display()))
            }
            Ok(State::Pristine | State::Series(_)) => {}
            Err(error) => holding.push(format!("{}: {error:#}", source.git.display())),
        }
    }
    if holding.is_empty() {
        return Ok(());
    }
    Err(exit::error(
        Exit::Patch,
        format!(
            "nothing was removed, because work would be lost:\n  {}\n  export it, drop it with \"cargo xtask patch apply --discard\", or remove the tree by hand",
            holding.join("\n  ")
        ),
    ))
}

fn trees(project: &Project) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    if project.sources().is_dir() {
        for entry in fs::read_dir(project.sources())? {
            let path: PathBuf = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("tree-"))
            {
                found.extend(
                    publish::read_json::<Source>(&path).filter(|source| source.git.is_dir()),
                );
            }
        }
    }
    Ok(found)
}
