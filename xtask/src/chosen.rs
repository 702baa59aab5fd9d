// SPDX-License-Identifier: GPL-2.0

//! What `test` is asked for: which checks and suites, whether they take what is
//! asked of them, and what the filter leaves; and the same as a list.

use anyhow::Context as _;
use serde_json::json;

use crate::exit::{self, Exit, WithExit as _};
use crate::fstests;
use crate::mutants;
use crate::opts::{Format, TestArgs};
use crate::project::Project;
use crate::suites::{self, Suite, Suites};
use crate::test;

/// The suites that are meant when none is named, and what of them: of uncached IO, which takes minutes
/// for each file system, our own.
const DEFAULT: [(&str, Option<&str>); 5] = [
    (FIRST, None),
    ("images", None),
    ("fs", None),
    ("dio", None),
    ("uncached", Some("rext2")),
];
/// The one with which go the checks.
const FIRST: &str = "smoke";

/// What goes with it, in this order, and may be asked for by name: the host
/// tests, and checks of the patches, of their Rust code and of the verbs.
pub const CHECKS: &[&str] = &["host", "patch-check", "compile-fail", "style", "contract"];

/// File systems that a suite of ours can be asked to test instead of rext2.
const DRIVERS: [&str; 3] = ["rext2", "ext2", "ext4"];

/// What runs.
#[derive(Debug)]
pub struct Chosen {
    /// The checks, in their order.
    pub checks: Vec<&'static str>,
    /// The suites, in the order of the command line.
    pub names: Vec<String>,
}

/// What the command line names, or an error that says what it should have.
pub fn of(project: &Project, suites: &Suites, args: &TestArgs) -> anyhow::Result<Chosen> {
    let mut names = args.suites.clone();
    if names.is_empty() {
        // With another driver, those that can have one.
        let fits = |name: &str| args.fs.is_none() || takes_fs(suites, name);
        let usual = DEFAULT.iter().filter(|(name, _)| fits(name));
        names.extend(usual.map(|(name, _)| (*name).to_owned()));
    }
    if names.iter().any(|name| name == fstests::NAME) {
        fstests::check(args)?;
        let checks = Vec::new();
        return Ok(Chosen { checks, names });
    }
    if let Some(option) = fstests::option(args) {
        return Err(exit::error(
            Exit::Usage,
            format!("--{option} is for suite {} only", fstests::NAME),
        ));
    }
    for name in names.iter().filter(|name| !is_check(name)) {
        suites::find(suites, name, CHECKS)?;
    }
    if args.mutants && args.suites.is_empty() {
        return Err(exit::error(
            Exit::Usage,
            "--mutants needs the name of a suite, such as uncached",
        ));
    }
    for name in &names {
        takes(suites, name, args)?;
        if let Some(suite) = suites.get(name) {
            runs_here(project, name, suite, args)?;
        }
    }
    let everything = names.iter().any(|name| name == FIRST) && args.filter.is_none();
    let checks = (CHECKS.iter().copied())
        .filter(|check| everything || names.iter().any(|name| name == check));
    let checks = checks.collect();
    names.retain(|name| !is_check(name));
    filter(project, suites, args, &mut names)?;
    Ok(Chosen { checks, names })
}

/// What is asked of one of the suites: where none is named, maybe a part of it.
pub fn of_suite(args: &TestArgs, name: &str) -> TestArgs {
    let mut args = args.clone();
    if args.suites.is_empty() && args.filter.is_none() {
        let part = DEFAULT.iter().find(|(default, _)| *default == name);
        args.filter = part.and_then(|(_, filter)| filter.map(str::to_owned));
    }
    args
}

fn takes_fs(suites: &Suites, name: &str) -> bool {
    let suite = suites.get(name);
    suite.is_some_and(|suite| suite.takes.iter().any(|option| option == "fs"))
}

fn is_check(name: &str) -> bool {
    CHECKS.contains(&name)
}

/// Whether the suite, or check, of this name takes the options that are given.
fn takes(suites: &Suites, name: &str, args: &TestArgs) -> anyhow::Result<()> {
    let wrong = |text: String| Err(exit::error(Exit::Usage, text));
    let none = Vec::new();
    let taken = suites.get(name).map_or(&none, |suite| &suite.takes);
    let filter = ("filter", args.filter.is_some() && is_check(name));
    for (option, given) in suites::options(args).into_iter().chain([filter]) {
        if !given || taken.iter().any(|taken| taken == option) {
            continue;
        }
        let who = match is_check(name) {
            true => format!("check {name}"),
            false => format!("suite {name}"),
        };
        let with = (suites.iter())
            .filter(|(_, suite)| option == "filter" || suite.takes.iter().any(|its| its == option));
        let with: Vec<_> = with.map(|(name, _)| name.as_str()).collect();
        return wrong(format!(
            "{who} takes no --{option}; suites that do: {}",
            with.join(", ")
        ));
    }
    let Some(suite) = suites.get(name) else {
        return Ok(());
    };
    let tests = suite.tests(args).exit(Exit::Usage);
    tests.with_context(|| format!("suite {name} cannot be asked for this"))?;
    match &args.fs {
        // The others read a list of file systems, and have read it now.
        Some(fs) if !reads_a_list(suite) && !DRIVERS.contains(&fs.as_str()) => wrong(format!(
            "suite {name} takes no --fs {fs}; it takes: {}",
            DRIVERS.join(", ")
        )),
        _ => Ok(()),
    }
}

fn reads_a_list(suite: &Suite) -> bool {
    suite.program.iter().any(|word| word.starts_with("on="))
}

/// Whether base and flavour can have it.
fn runs_here(project: &Project, name: &str, suite: &Suite, args: &TestArgs) -> anyhow::Result<()> {
    let nothing = |text: String| Err(exit::error(Exit::NothingRan, text));
    if test::with_module(suite, args) && !project.base.module {
        return nothing(format!(
            "suite {name} needs rext2.ko, which base {} cannot have",
            project.opts.base
        ));
    }
    let flavor = project.flavor.name();
    if !suite.flavors.iter().any(|known| known == flavor) {
        return nothing(format!(
            "suite {name} does not run on flavor {flavor}; it runs on: {}",
            suite.flavors.join(", ")
        ));
    }
    Ok(())
}

/// Leaves the suites in which the filter finds something. Each of its words has
/// to find something in one of them.
fn filter(
    project: &Project,
    suites: &Suites,
    args: &TestArgs,
    names: &mut Vec<String>,
) -> anyhow::Result<()> {
    let Some(filter) = &args.filter else {
        return Ok(());
    };
    let mut all = Vec::new();
    for name in names.iter() {
        let tests = match args.mutants {
            true => mutants::names(project)?,
            false => suites[name].tests(args)?,
        };
        all.push(tests);
    }
    let finds = |word: &str, tests: &[String]| tests.iter().any(|test| test.contains(word));
    for word in filter.split(',') {
        if all.iter().any(|tests| finds(word, tests)) {
            continue;
        }
        let near = near(word, all.iter().flatten());
        let meant = match near.is_empty() {
            true => String::new(),
            false => format!("; did you mean {}?", near.join(", ")),
        };
        let what = match args.mutants {
            true => "mutant of the base".to_owned(),
            false => format!(
                "test of {}; \"cargo xtask test {} --list\" shows them all",
                names.join(", "),
                names.join(" ")
            ),
        };
        return Err(exit::error(
            Exit::NothingRan,
            format!("--filter {word} is in the name of no {what}{meant}"),
        ));
    }
    let mut found = all.iter();
    names.retain(|_| {
        let tests = found.next().map_or(&[][..], Vec::as_slice);
        filter.split(',').any(|word| finds(word, tests))
    });
    Ok(())
}

/// The few names that are most like the word, as wholes or in the part that is.
fn near<'a>(word: &str, names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    const ENOUGH: f64 = 0.6;
    const SHOWN: usize = 4;
    let like = |name: &str| {
        let parts = name.split('/').chain([name]);
        let likeness = parts.map(|part| strsim::normalized_damerau_levenshtein(word, part));
        likeness.fold(0.0, f64::max)
    };
    let mut found: Vec<_> = (names.map(|name| (like(name), name.as_str())))
        .filter(|(likeness, _)| *likeness >= ENOUGH)
        .collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut shown: Vec<&str> = Vec::new();
    for (_, name) in found {
        // One of each: a test runs on many layouts.
        let test = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
        if shown.len() < SHOWN && !shown.iter().any(|other| test(other) == test(name)) {
            shown.push(name);
        }
    }
    shown
}

/// Prints the suites with the groups of their tests; of those that are named,
/// every test that the filter leaves.
pub fn list(project: &Project, args: &TestArgs) -> anyhow::Result<()> {
    let suites = suites::load(project)?;
    let chosen = match args.suites.is_empty() && args.filter.is_none() {
        true => None,
        false => Some(of(project, &suites, args)?),
    };
    let wanted = |name: &String| (chosen.as_ref()).is_none_or(|chosen| chosen.names.contains(name));
    let mut documents = Vec::new();
    for (name, suite) in suites.iter().filter(|(name, _)| wanted(name)) {
        let kept = |test: &String| {
            let filter = args.filter.as_deref();
            filter.is_none_or(|filter| filter.split(',').any(|word| test.contains(word)))
        };
        let tests: Vec<_> = suite.tests(args)?.into_iter().filter(kept).collect();
        match (project.opts.format, &chosen) {
            (Format::Human, None) => print!("{}", head(name, suite, &tests)),
            (Format::Human, Some(_)) => tests.iter().for_each(|test| println!("{name} {test}")),
            _ => documents.push(json!({
                "name": name, "about": suite.about, "flavors": suite.flavors,
                "takes": suite.takes, "tests": tests,
            })),
        }
    }
    let checks = chosen.map_or(CHECKS.to_vec(), |chosen| chosen.checks);
    if project.opts.format == Format::Json {
        let document = json!({ "checks": checks, "suites": documents });
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else if args.suites.is_empty() && args.filter.is_none() {
        println!("{:<14} {}", fstests::NAME, fstests::ABOUT);
        println!("with {FIRST}, and by name: {}", checks.join(", "));
        println!("\"cargo xtask test SUITE --list\" shows the tests of a suite, for --filter");
    } else {
        checks.iter().for_each(|check| println!("{check}"));
    }
    Ok(())
}

/// A suite, and its groups with the numbers of their tests.
fn head(name: &str, suite: &Suite, tests: &[String]) -> String {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for test in tests {
        let group = test.rsplit_once('/').map_or("", |(group, _)| group);
        match groups.last_mut() {
            Some((last, count)) if *last == group => *count += 1,
            _ => groups.push((group, 1)),
        }
    }
    let groups: Vec<_> = groups
        .iter()
        .map(|(group, count)| format!("{group} {count}"))
        .collect();
    format!(
        "{name:<14} {}  [{}]\n{:14} {} tests: {}\n",
        suite.about,
        suite.flavors.join(", "),
        "",
        tests.len(),
        groups.join(", ")
    )
}

#[cfg(test)]
mod tests;
