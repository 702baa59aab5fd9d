// SPDX-License-Identifier: GPL-2.0

//! The tests that need no guest: `cargo nextest`, or `cargo test` without it.

use anyhow::Context as _;
use std::time::Instant;

use crate::exit::{Exit, WithExit as _};
use crate::ktap::Outcome;
use crate::part::{Case, Part};
use crate::project::Project;
use crate::sh::{self, Cmd};
use crate::step::Step;

/// Runs them all.
pub fn run(project: &Project) -> anyhow::Result<Part> {
    let nextest = sh::which("cargo-nextest").is_some();
    let log = project.new_log("host-tests")?;
    let mut words = vec!["test", "--workspace", "--no-fail-fast"];
    if nextest {
        words = vec!["nextest", "run", "--workspace", "--no-fail-fast"];
        words.extend(["--status-level", "all", "--final-status-level", "none"]);
    }
    let repeat = format!("cargo {}", words[..words.len().min(4)].join(" "));
    let step = Step::new("test", "host").log(&log);
    let begin = Instant::now();
    let mut child = Cmd::new("cargo")
        .dir(&project.root)
        .args(["--color", "never"])
        // It would also make the tests of plain cargo nameless.
        .args(nextest.then_some("--quiet"))
        .args(&words)
        .spawn(&log)
        .context("cannot run the host tests")
        .exit(Exit::Environment)?;
    let status = child.wait()?;
    let text = String::from_utf8_lossy(&fs_err::read(&log)?).into_owned();
    let mut part = of_log("host", &text);
    part.seconds = begin.elapsed().as_secs_f64();
    part.repeat = repeat;
    // A test program that does not build, or dies, names no test.
    if !status.success() && part.failed == 0 {
        part.exit = Exit::TestsFailed;
        part.failed = 1;
        part.reason = format!("cargo ended with {status} (log {})", log.display());
    }
    step.end(part.word());
    Ok(part)
}

/// What the log of either program says.
pub fn of_log(name: &str, text: &str) -> Part {
    let mut cases = of_nextest(text);
    if cases.is_empty() {
        cases = of_cargo_test(text);
    }
    Part::of_cases(name, "", 0.0, cases)
}

/// `        PASS [   0.007s] xtask exit::tests::name`
fn of_nextest(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let Some((word, rest)) = line.trim_start().split_once(" [") else {
            continue;
        };
        let outcome = match word.trim() {
            "PASS" | "SLOW" | "LEAK" => Outcome::Passed,
            "FAIL" | "TIMEOUT" => Outcome::Failed,
            "SIGABRT" | "SIGSEGV" | "ABORT" | "SIGKILL" => Outcome::Crashed,
            "SKIP" => Outcome::Skipped("not selected".to_owned()),
            _ => continue,
        };
        let Some((time, name)) = rest.split_once(']') else {
            continue;
        };
        // A slow test is announced before its end.
        if word.trim() == "SLOW" {
            continue;
        }
        cases.push(Case {
            name: name.split_whitespace().collect::<Vec<_>>().join("/"),
            outcome,
            output: Vec::new(),
            seconds: time.trim().trim_end_matches('s').parse().ok(),
        });
    }
    cases
}

/// `test exit::tests::name ... ok`
fn of_cargo_test(text: &str) -> Vec<Case> {
    let case = |line: &str| {
        let (name, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let outcome = match word.split([' ', ',']).next()? {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed,
            "ignored" => Outcome::Skipped("ignored".to_owned()),
            _ => return None,
        };
        Some(Case {
            name: name.to_owned(),
            outcome,
            output: Vec::new(),
            seconds: None,
        })
    };
    text.lines().filter_map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes<'a>(cases: &'a [Case]) -> Vec<(&'a str, &'a Outcome)> {
        let pair = |case: &'a Case| {
            let Case { name, outcome, .. } = case;
            (name.as_str(), outcome)
        };
        cases.iter().map(pair).collect()
    }

    #[test]
    fn nextest_is_read() {
        let text = "    Starting 3 tests across 2 binaries\n\
                    \x20       PASS [   0.007s] xtask exit::tests::a\n\
                    \x20       SLOW [> 60.000s] xtask b\n\
                    \x20       FAIL [  61.100s] xtask::harness sector::b\n\
                    \x20    SIGABRT [   0.100s] xtask c\n\
                    \x20    Summary [  61.107s] 3 tests run: 1 passed, 2 failed, 0 skipped\n";
        let cases = of_nextest(text);
        assert_eq!(
            outcomes(&cases),
            [
                ("xtask/exit::tests::a", &Outcome::Passed),
                ("xtask::harness/sector::b", &Outcome::Failed),
                ("xtask/c", &Outcome::Crashed),
            ]
        );
        assert_eq!(cases[0].seconds, Some(0.007));
    }

    #[test]
    fn cargo_test_is_read() {
        let text = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\n\
                    test d ... ignored, needs a disk\ntest result: FAILED. 1 passed\n";
        let skipped = Outcome::Skipped("ignored".to_owned());
        assert_eq!(
            outcomes(&of_cargo_test(text)),
            [
                ("a::b", &Outcome::Passed),
                ("c", &Outcome::Failed),
                ("d", &skipped)
            ]
        );
    }
}
