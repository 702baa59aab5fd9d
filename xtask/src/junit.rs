// SPDX-License-Identifier: GPL-2.0

//! Verdicts as JUnit XML: one suite a part, one case a leaf test.

use anyhow::Context as _;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

use crate::exit::Exit;
use crate::ktap::{Outcome, Test};
use crate::part::Part;

/// The parts of a run as one document.
pub fn document(parts: &[Part]) -> anyhow::Result<String> {
    let mut report = Report::new("rext2");
    for part in parts {
        report.add_test_suite(suite(part));
    }
    report.to_string().context("cannot write JUnit XML")
}

fn suite(part: &Part) -> TestSuite {
    let mut suite = TestSuite::new(part.name.as_str());
    suite.set_time(Duration::from_secs_f64(part.seconds));
    let verdict = part.verdict.as_ref();
    for (name, test) in verdict
        .and_then(|verdict| verdict.ktap.as_ref())
        .iter()
        .flat_map(|ktap| ktap.leaves())
    {
        suite.add_test_case(case(&name, test));
    }
    // The part as a whole: a panic or a splat belongs to no single test.
    let mut whole = TestCase::new("verdict", status(part.exit, &part.reason));
    whole.set_time(Duration::from_secs_f64(part.seconds));
    if let Some(folder) = &part.folder {
        whole.set_system_out(format!("run {}", folder.display()));
    }
    suite.add_test_case(whole);
    suite
}

fn status(exit: Exit, reason: &str) -> TestCaseStatus {
    let kind = match exit {
        Exit::Good => return TestCaseStatus::success(),
        Exit::TestsFailed | Exit::NothingRan => NonSuccessKind::Failure,
        _ => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(reason);
    status
}

fn case(name: &str, test: &Test) -> TestCase {
    let message = |mut status: TestCaseStatus, text: &str| {
        status.set_message(text);
        status
    };
    let failure = || TestCaseStatus::non_success(NonSuccessKind::Failure);
    let error = || TestCaseStatus::non_success(NonSuccessKind::Error);
    let first = test.diagnostics.first().map_or("", String::as_str);
    let status = match &test.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Skipped(reason) => message(TestCaseStatus::skipped(), reason),
        Outcome::Failed => message(failure(), first),
        Outcome::Crashed => message(error(), "no result"),
        Outcome::NotRun => message(error(), "not run"),
    };
    let (class, name) = name.rsplit_once('/').unwrap_or(("", name));
    let mut case = TestCase::new(name, status);
    if !class.is_empty() {
        case.set_classname(class);
    }
    if let Some(time) = time(test) {
        case.set_time(time);
    }
    if !test.diagnostics.is_empty() {
        case.set_system_out(test.diagnostics.join("\n"));
    }
    case
}

/// The guest's runner says `N ms` in front of each result.
fn time(test: &Test) -> Option<Duration> {
    let mut lines = test.diagnostics.iter().rev();
    let millis = lines.find_map(|line| line.strip_suffix(" ms")?.parse().ok())?;
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ktap;
    use crate::verdict::Verdict;

    #[test]
    fn every_outcome_is_told_apart() {
        let text = "KTAP version 1\n1..4\n  KTAP version 1\n  # Subtest: g\n  1..2\n  # 12 ms\n  \
                    ok 1 a\n  # size: 1 < 2\n  not ok 2 b\nnot ok 1 g\nok 2 c # SKIP no disk\n";
        let ktap = ktap::parse(text, None);
        let part = Part {
            name: "smoke (dev)".to_owned(),
            exit: Exit::TestsFailed,
            reason: "of 5 tests: 1 failed".to_owned(),
            passed: 1,
            failed: 3,
            skipped: 1,
            seconds: 1.5,
            folder: None,
            repeat: "cargo xtask test smoke".to_owned(),
            verdict: Some(Verdict {
                exit: Exit::TestsFailed,
                reason: String::new(),
                counts: ktap.counts(),
                ktap: Some(ktap),
                findings: Vec::new(),
                status: None,
                boot_ms: None,
            }),
        };
        let xml = document(&[part]).unwrap();
        for piece in [
            "<testsuite name=\"smoke (dev)\" tests=\"6\"",
            "<testcase name=\"a\" classname=\"g\" time=\"0.012\"",
            "<failure message=\"size: 1 &lt; 2\"",
            "<skipped message=\"no disk\"",
            "<error message=\"no result\"",
            "<error message=\"not run\"",
            "<testcase name=\"verdict\"",
        ] {
            assert!(xml.contains(piece), "{piece}:\n{xml}");
        }
    }
}
