// SPDX-License-Identifier: GPL-2.0

//! What `test` makes of its arguments, on the suites of the checkout.

use super::*;
use crate::opts::{Cli, Verb};
use clap::Parser as _;

/// What the line chooses, or the code and the text of its error.
fn chosen(line: &str) -> Result<Chosen, (Exit, String)> {
    let words = ["xtask", "test"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).unwrap();
    let Verb::Test(args) = &cli.verb else {
        panic!("{line}");
    };
    let project = Project::find(&cli.opts).unwrap();
    let suites = suites::load(&project).unwrap();
    of(&project, &suites, args).map_err(|error| (exit::of(&error), format!("{error:#}")))
}

#[track_caller]
fn refused(line: &str, exit: Exit, parts: &[&str]) {
    let (code, text) = chosen(line).unwrap_err();
    assert_eq!(code, exit, "{line}: {text}");
    for part in parts {
        assert!(text.contains(part), "{line}: {part:?} is not in: {text}");
    }
}

#[test]
fn without_names_the_usual_suites_and_all_checks_run() {
    let Chosen { checks, names } = chosen("").unwrap();
    assert_eq!(
        (checks, names),
        (
            CHECKS.to_vec(),
            DEFAULT.map(|(name, _)| name.to_owned()).to_vec()
        )
    );
    let Chosen { checks, names } = chosen("style images").unwrap();
    assert_eq!((checks, names), (vec!["style"], vec!["images".to_owned()]));
}

#[test]
fn a_filter_leaves_the_suites_in_which_it_finds_something() {
    let Chosen { checks, names } = chosen("--filter module/").unwrap();
    assert_eq!((checks.len(), names), (0, vec!["smoke".to_owned()]));
    let Chosen { names, .. } = chosen("--filter module/,rename").unwrap();
    assert!(names.len() > 1, "{names:?}");
}

#[test]
fn a_filter_that_finds_nothing_names_what_is_like_it() {
    refused(
        "smoke --filter modul/unlod",
        Exit::NothingRan,
        &["--filter modul/unlod", "test smoke --list"],
    );
    let some = suites::load(&Project::find(&opts()).unwrap()).unwrap()["fs"]
        .tests(&TestArgs::default())
        .unwrap();
    let test = some[0].rsplit('/').next().unwrap();
    let (last, first) = (test.len() - 1, &test[..1]);
    // A letter too few in the middle.
    let typo = format!("{first}{}", &test[2..=last]);
    refused(
        &format!("fs --filter {typo}"),
        Exit::NothingRan,
        &["did you mean", test],
    );
    // One that finds something does not hide one that does not.
    refused(
        "smoke --filter module/,xyzzy",
        Exit::NothingRan,
        &["--filter xyzzy"],
    );
    refused(
        "uncached --mutants --filter xyzzy",
        Exit::NothingRan,
        &["mutant", "xyzzy"],
    );
}

fn opts() -> crate::opts::Opts {
    Cli::try_parse_from(["xtask", "test"]).unwrap().opts
}

#[test]
fn an_option_that_means_nothing_to_a_suite_is_refused_by_name() {
    for (line, option) in [
        ("images --seed 1", "--seed"),
        ("smoke --count 3", "--count"),
        ("fs --ops 3", "--ops"),
        ("crash --seconds 3", "--seconds"),
        ("smoke --off write", "--off"),
        ("smoke --strict", "--strict"),
        ("fuzz --replay x", "--replay"),
        ("uncached --fs ext4", "--fs"),
        ("smoke --mutants", "--mutants"),
        ("host --seed 1", "--seed"),
        ("style --filter x", "--filter"),
        // None of those that run without a name.
        ("--ops 3", "--ops"),
        // One of two.
        ("fuzz images --count 3", "--count"),
    ] {
        refused(line, Exit::Usage, &[option, "suites that do: "]);
    }
    for line in [
        "fuzz --count 3 --seed 4",
        "stress --seconds 2 --fs xfs",
        "--fs ext2",
    ] {
        chosen(line).unwrap();
    }
}

#[test]
fn a_value_that_nothing_knows_is_refused_before_a_guest_starts() {
    refused("nosuch", Exit::Usage, &["no suite \"nosuch\""]);
    refused("smoke --fs nosuch", Exit::Usage, &["--fs nosuch", "ext2"]);
    refused("stress --fs nosuch", Exit::Usage, &["\"nosuch\""]);
    for suite in ["exercise", "stress", "crash"] {
        refused(&format!("{suite} --off nosuch"), Exit::Usage, &["nosuch"]);
    }
    refused("--mutants", Exit::Usage, &["needs the name of a suite"]);
    refused(
        "parallel --flavor debug",
        Exit::NothingRan,
        &["does not run on flavor debug"],
    );
}
