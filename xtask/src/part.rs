// SPDX-License-Identifier: GPL-2.0

//! One part of a test run: host tests, a check, or a suite in a guest.

use serde::Serialize;
use std::path::PathBuf;

use crate::exit::Exit;
use crate::fstests::table::Results;
use crate::ktap::{Outcome, Test};
use crate::rundir::{Folder, Record};
use crate::verdict::Verdict;

/// What one part came to.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its name, with the flavour of the kernel if it had one.
    pub name: String,
    /// Its exit code.
    #[serde(serialize_with = "crate::verdict::code")]
    pub exit: Exit,
    /// Why, in one line.
    pub reason: String,
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed, crashed or were not run.
    pub failed: usize,
    /// Tests that were skipped.
    pub skipped: usize,
    /// How long it took.
    pub seconds: f64,
    /// Where its run lies.
    pub folder: Option<PathBuf>,
    /// The command that repeats it.
    pub repeat: String,
    /// Its tests, where they are known one by one.
    pub cases: Vec<Case>,
    /// The verdict on a guest.
    pub verdict: Option<Verdict>,
    /// The results of fstests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fstests: Option<Results>,
}

/// One test of a part.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Its full name.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What it said.
    pub output: Vec<String>,
    /// How long it took, if it said so.
    pub seconds: Option<f64>,
}

impl Case {
    fn of_test((name, test): (String, &Test)) -> Self {
        // The guest's runner says `N ms` in front of each result.
        let mut lines = test.diagnostics.iter().rev();
        let millis = lines.find_map(|line| line.strip_suffix(" ms")?.parse::<f64>().ok());
        Case {
            name,
            outcome: test.outcome.clone(),
            output: test.diagnostics.clone(),
            seconds: millis.map(|millis| millis / 1000.0),
        }
    }
}

impl Part {
    /// A part of these cases, all of which ran on the host.
    pub fn of_cases(name: &str, repeat: &str, seconds: f64, cases: Vec<Case>) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| {
            let outcomes = cases.iter().map(|case| &case.outcome);
            outcomes.filter(|outcome| wanted(outcome)).count()
        };
        let passed = count(|outcome| *outcome == Outcome::Passed);
        let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        let failed = cases.len() - passed - skipped;
        let (exit, reason) = match (failed, passed) {
            (0, 0) => (Exit::NothingRan, "no test ran".to_owned()),
            (0, passed) => (Exit::Good, format!("{passed} tests passed")),
            (failed, _) => (
                Exit::TestsFailed,
                format!("{failed} of {} tests failed", cases.len()),
            ),
        };
        Part {
            name: name.to_owned(),
            exit,
            reason,
            passed,
            failed,
            skipped,
            seconds,
            folder: None,
            repeat: repeat.to_owned(),
            cases,
            verdict: None,
            fstests: None,
        }
    }

    /// A part that is one check, which went wrong with this error or not.
    pub fn of_check(
        name: &str,
        repeat: &str,
        seconds: f64,
        result: anyhow::Result<String>,
    ) -> Self {
        let (exit, reason) = match result {
            Ok(reason) => (Exit::Good, reason),
            Err(error) => (crate::exit::of(&error), format!("{error:#}")),
        };
        Part {
            name: name.to_owned(),
            exit,
            reason,
            passed: usize::from(exit == Exit::Good),
            failed: usize::from(exit != Exit::Good),
            skipped: 0,
            seconds,
            folder: None,
            repeat: repeat.to_owned(),
            cases: Vec::new(),
            verdict: None,
            fstests: None,
        }
    }

    /// The word for its progress line.
    pub fn word(&self) -> &'static str {
        match self.exit {
            Exit::Good => "ok",
            _ => "failed",
        }
    }

    /// A suite that ran in a guest.
    pub fn of_run(name: String, folder: &Folder, record: &Record, verdict: Verdict) -> Self {
        let counts = verdict.counts;
        // A run may be spoiled without any test at fault: that counts as one.
        let spoiled = verdict.exit != Exit::Good && counts.bad() == 0;
        Part {
            name,
            exit: verdict.exit,
            reason: verdict.reason.clone(),
            passed: counts.passed,
            failed: counts.bad() + usize::from(spoiled),
            skipped: counts.skipped,
            seconds: record.seconds,
            folder: Some(folder.path().to_owned()),
            repeat: record.repeat.clone(),
            cases: (verdict.ktap.iter())
                .flat_map(|ktap| ktap.leaves())
                .map(Case::of_test)
                .collect(),
            verdict: Some(verdict),
            fstests: None,
        }
    }
}

/// The exit code of all parts together: of a machine that broke rather than of
/// a test that failed, else the first that is not good.
pub fn exit(parts: &[Part]) -> Exit {
    let bad = || {
        let exits = parts.iter().map(|part| part.exit);
        exits.filter(|exit| *exit != Exit::Good)
    };
    match (bad().next(), bad().find(|exit| *exit != Exit::TestsFailed)) {
        (_, Some(exit)) | (Some(exit), None) => exit,
        (None, None) if parts.is_empty() => Exit::NothingRan,
        (None, None) => Exit::Good,
    }
}

/// The last line of a test run for people.
pub fn totals(parts: &[Part]) -> String {
    let sum = |count: fn(&Part) -> usize| parts.iter().map(count).sum::<usize>();
    let (passed, failed) = (sum(|part| part.passed), sum(|part| part.failed));
    match sum(|part| part.skipped) {
        0 => format!("{passed} passed, {failed} failed"),
        skipped => format!("{passed} passed, {failed} failed, {skipped} skipped"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(exit: Exit) -> Part {
        Part {
            name: "a".to_owned(),
            exit,
            reason: String::new(),
            passed: 2,
            failed: usize::from(exit != Exit::Good),
            skipped: 0,
            seconds: 0.0,
            folder: None,
            repeat: String::new(),
            cases: Vec::new(),
            verdict: None,
            fstests: None,
        }
    }

    #[test]
    fn the_whole_is_as_bad_as_its_parts() {
        for (exits, whole) in [
            (&[][..], Exit::NothingRan),
            (&[Exit::Good], Exit::Good),
            (&[Exit::Good, Exit::TestsFailed], Exit::TestsFailed),
            (&[Exit::TestsFailed, Exit::Panic, Exit::Splat], Exit::Panic),
        ] {
            let parts: Vec<_> = exits.iter().map(|exit| part(*exit)).collect();
            assert_eq!(super::exit(&parts), whole, "{exits:?}");
        }
    }

    #[test]
    fn a_part_without_tests_is_no_success() {
        let exit = |outcomes: &[Outcome]| {
            let case = |outcome: &Outcome| Case {
                name: "a".to_owned(),
                outcome: outcome.clone(),
                output: Vec::new(),
                seconds: None,
            };
            let cases = outcomes.iter().map(case).collect();
            Part::of_cases("host", "", 0.0, cases).exit
        };
        let skipped = || Outcome::Skipped(String::new());
        assert_eq!(exit(&[]), Exit::NothingRan);
        assert_eq!(exit(&[skipped()]), Exit::NothingRan);
        assert_eq!(exit(&[skipped(), Outcome::Passed]), Exit::Good);
        assert_eq!(exit(&[Outcome::Passed, Outcome::Failed]), Exit::TestsFailed);
        assert_eq!(
            exit(&[Outcome::Passed, Outcome::Crashed]),
            Exit::TestsFailed
        );
    }

    #[test]
    fn the_last_line_has_the_fixed_form() {
        let mut parts = vec![part(Exit::Good), part(Exit::Splat)];
        assert_eq!(totals(&parts), "4 passed, 1 failed");
        parts[0].skipped = 3;
        assert_eq!(totals(&parts), "4 passed, 1 failed, 3 skipped");
    }
}
