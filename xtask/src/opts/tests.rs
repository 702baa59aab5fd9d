// SPDX-License-Identifier: GPL-2.0

//! The command line as clap reads it.

use super::*;
use clap::CommandFactory as _;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn shared_flags_stand_before_and_after_the_verb() {
    for line in [
        "xtask --flavor debug -j 3 build -- RUSTC=/x V=1",
        "xtask build --flavor debug -j 3 -- RUSTC=/x V=1",
    ] {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(cli.opts.flavor, Some(Flavor::Debug));
        assert_eq!(cli.opts.jobs, Some(3));
        let Verb::Build(args) = cli.verb else {
            panic!("{line}");
        };
        assert_eq!(args.make, ["RUSTC=/x", "V=1"]);
    }
}

#[test]
fn exec_takes_its_command_only_after_the_dashes() {
    assert!(Cli::try_parse_from(["xtask", "exec", "uname"]).is_err());
    assert!(Cli::try_parse_from(["xtask", "exec"]).is_err());
    let cli = Cli::try_parse_from(["xtask", "exec", "--", "uname", "-r"]).unwrap();
    let Verb::Exec(args) = cli.verb else {
        panic!();
    };
    assert_eq!(args.command, ["uname", "-r"]);
}

/// Who sets a limit of nothing has made a mistake, and learns in which option.
#[test]
fn nothing_is_no_number_of_anything() {
    for (line, option) in [
        ("-j 0 build", "--jobs"),
        ("build -j 0", "--jobs"),
        ("--timeout 0 test", "--timeout"),
        ("boot --boot-timeout 0", "--boot-timeout"),
        ("test fuzz --count 0", "--count"),
        ("test stress --ops 0", "--ops"),
        ("test stress --seconds 0", "--seconds"),
        ("test stress --seconds -1", "--seconds"),
        ("test stress --seconds inf", "--seconds"),
        ("test stress --seconds NaN", "--seconds"),
        ("bench cost --reps 0", "--reps"),
        ("test --timeout 1e3", "--timeout"),
        ("test --timeout 99999999999999999999", "--timeout"),
    ] {
        let words = std::iter::once("xtask").chain(line.split(' '));
        let error = Cli::try_parse_from(words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(option), "{line}: {error}");
    }
    let cli = Cli::try_parse_from("xtask test stress --seconds 0.5 --seed 0".split(' '));
    assert!(cli.is_ok(), "{cli:?}");
}
