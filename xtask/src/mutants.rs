// SPDX-License-Identifier: GPL-2.0

//! `test SUITE --mutants`: does the suite notice when the kernel is wrong? Each
//! patch in `patches/BASE/mutants` breaks one rule on top of the series; lines
//! `Caught-by:` in its message name the rows that must fail for it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use fs_err as fs;

use crate::build;
use crate::exit::Exit;
use crate::fetch;
use crate::ktap::Outcome;
use crate::opts::TestArgs;
use crate::part::{Case, Part};
use crate::patch;
use crate::patch::mail::Mail;
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;
use crate::suites::Suite;
use crate::test;

/// Seconds that the rows of one mutant may take: some make the guest hang.
const LIMIT: u64 = 240;

/// A kernel that is wrong.
struct Mutant {
    /// The patch file's name without its ending.
    name: String,
    /// What is wrong, in one line.
    subject: String,
    /// The rows that must notice, as `--filter` takes them.
    rows: String,
}

/// Builds each mutant, runs its rows, and demands that they do not all pass.
/// The same rows must pass on the kernel of the series.
pub fn run(
    project: &Project,
    args: &TestArgs,
    name: &str,
    suite: &Suite,
    begin: Instant,
) -> anyhow::Result<Part> {
    let mutants = load(&project.mutants(), args.filter.as_deref())?;
    let mut project = project.clone();
    project.opts.timeout.get_or_insert(LIMIT);
    let project = &project;
    let rows = |filter: &str| TestArgs {
        filter: Some(filter.to_owned()),
        ..args.clone()
    };

    let all: Vec<&str> = mutants.iter().map(|mutant| mutant.rows.as_str()).collect();
    let kernel = build::run(project)?;
    let control = test::suite_run(project, &kernel, None, &rows(&all.join(",")), name, suite)?;
    ensure!(
        control.exit == Exit::Good,
        "without a mutant the rows must pass, and do not: {}",
        control.reason
    );

    let mut cases = Vec::new();
    for mutant in &mutants {
        let start = Instant::now();
        let part = with_patch(project, mutant)
            .and_then(|kernel| {
                test::suite_run(project, &kernel, None, &rows(&mutant.rows), name, suite)
            })
            .with_context(|| format!("mutant {}", mutant.name));
        let (outcome, said) = match part {
            Ok(part) => judge(&part),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let step = Step::new("mutant", format!("{}: {said}", mutant.name));
        match outcome {
            Outcome::Passed => step.end("caught"),
            _ => step.end("NOT CAUGHT"),
        }
        cases.push(Case {
            name: mutant.name.clone(),
            outcome,
            output: vec![mutant.subject.clone(), said],
            seconds: Some(start.elapsed().as_secs_f64()),
        });
    }
    // The tree goes back to the series.
    patch::apply(project, &fetch::run(project)?, false)?;
    let again = format!("cargo xtask test {name} --mutants");
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Part::of_cases(
        &format!("mutants of {name}"),
        &again,
        seconds,
        cases,
    ))
}

/// A mutant is caught if the guest ran and something went wrong in it.
fn judge(part: &Part) -> (Outcome, String) {
    let failed: Vec<&str> = (part.cases.iter())
        .filter(|case| !matches!(case.outcome, Outcome::Passed | Outcome::Skipped(_)))
        .map(|case| case.name.as_str())
        .collect();
    match part.exit {
        Exit::TestsFailed if !failed.is_empty() => (Outcome::Passed, failed.join(" ")),
        Exit::TestTimeout | Exit::Panic | Exit::Splat => (Outcome::Passed, part.reason.clone()),
        Exit::Good => (Outcome::Failed, "every row passes".to_owned()),
        _ => (Outcome::Failed, part.reason.clone()),
    }
}

/// Builds the kernel of the series with the mutant's patch behind it: from a
/// checkout like this one that has another `series`.
fn with_patch(project: &Project, mutant: &Mutant) -> anyhow::Result<crate::artifact::Kernel> {
    let root = tempfile::tempdir()?;
    for entry in fs::read_dir(&project.root)? {
        let entry = entry?;
        if entry.file_name() != "patches" {
            symlink(entry.path(), root.path().join(entry.file_name()))?;
        }
    }
    let log = project.new_log("mutant")?;
    Cmd::new("cp")
        .arg("-a")
        .args([&project.patches(), root.path()])
        .run(&log)?;
    let broken = Project::at(root.path(), &project.cache, &project.opts)?;
    let series = broken.base_patches().join("series");
    let mut text = fs::read_to_string(&series)?;
    text.push_str(&format!("\nmutants/{}.patch\n", mutant.name));
    fs::write(&series, text)?;
    build::run(&broken)
}

/// The names of the base's mutants.
pub fn names(project: &Project) -> anyhow::Result<Vec<String>> {
    let mutants = load(&project.mutants(), None)?;
    Ok(mutants.into_iter().map(|mutant| mutant.name).collect())
}

/// The mutants whose names contain the text, or one of those between its commas.
fn load(folder: &Path, filter: Option<&str>) -> anyhow::Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for entry in fs::read_dir(folder).context("the base has no mutants")? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if filter.is_some_and(|text| !text.split(',').any(|word| name.contains(word))) {
            continue;
        }
        let mutant = Mail::parse(&fs::read_to_string(&path)?)
            .and_then(|mail| mutant(&name, &mail))
            .with_context(|| format!("{} is malformed", path.display()))?;
        mutants.push(mutant);
    }
    ensure!(!mutants.is_empty(), "no mutant has this name");
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn mutant(name: &str, mail: &Mail) -> anyhow::Result<Mutant> {
    let rows: Vec<&str> = (mail.body.lines())
        .filter_map(|line| line.strip_prefix("Caught-by: "))
        .collect();
    ensure!(
        !rows.is_empty(),
        "no line \"Caught-by: GROUP/ROW\" names a row"
    );
    Ok(Mutant {
        name: name.to_owned(),
        subject: mail.subject.clone(),
        rows: rows.join(","),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_of_the_checkout_names_its_rows() {
        let patches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../patches");
        for base in fs::read_dir(patches).unwrap() {
            let folder = base.unwrap().path().join("mutants");
            if folder.is_dir() {
                let mutants = load(&folder, None).unwrap();
                assert!(mutants.iter().all(|mutant| mutant.rows.contains('/')));
            }
        }
    }

    #[test]
    fn only_a_guest_that_ran_and_went_wrong_catches_a_mutant() {
        let part = |exit, names: &[&str]| {
            let cases = names.iter().map(|name| Case {
                name: (*name).to_owned(),
                outcome: Outcome::Failed,
                output: Vec::new(),
                seconds: None,
            });
            let mut part = Part::of_cases("suite", "", 0.0, cases.collect());
            part.exit = exit;
            judge(&part)
        };
        let (outcome, said) = part(Exit::TestsFailed, &["a/one", "a/two"]);
        assert_eq!((outcome, said.as_str()), (Outcome::Passed, "a/one a/two"));
        assert_eq!(part(Exit::Splat, &[]).0, Outcome::Passed);
        for exit in [Exit::Good, Exit::NothingRan, Exit::BootTimeout, Exit::Qemu] {
            assert_eq!(part(exit, &[]).0, Outcome::Failed);
        }
    }
}
