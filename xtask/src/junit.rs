// SPDX-License-Identifier: GPL-2.0

//! Verdicts as JUnit XML: one suite a part, one case a leaf test.

use anyhow::Context as _;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

use crate::exit::Exit;
use crate::ktap::Outcome;
use crate::part::{Case, Part};

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
    for case in &part.cases {
        suite.add_test_case(test_case(case));
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

fn test_case(case: &Case) -> TestCase {
    let message = |mut status: TestCaseStatus, text: &str| {
        status.set_message(text);
        status
    };
    let failure = || TestCaseStatus::non_success(NonSuccessKind::Failure);
    let error = || TestCaseStatus::non_success(NonSuccessKind::Error);
    let first = case.output.first().map_or("", String::as_str);
    let status = match &case.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Skipped(reason) => message(TestCaseStatus::skipped(), reason),
        Outcome::Failed => message(failure(), first),
        Outcome::Crashed => message(error(), "no result"),
        Outcome::NotRun => message(error(), "not run"),
    };
    let (class, name) = case.name.rsplit_once('/').unwrap_or(("", &case.name));
    let mut test_case = TestCase::new(name, status);
    if !class.is_empty() {
        test_case.set_classname(class);
    }
    if let Some(seconds) = case.seconds {
        test_case.set_time(Duration::from_secs_f64(seconds));
    }
    if !case.output.is_empty() {
        test_case.set_system_out(case.output.join("\n"));
    }
    test_case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ktap;
    use crate::rundir::{Folder, Record};
    use crate::verdict::Verdict;
    use crate::watch::End;

    #[test]
    fn every_outcome_is_told_apart() {
        let text = "KTAP version 1\n1..4\n  KTAP version 1\n  # Subtest: g\n  1..2\n  # 12 ms\n  \
                    ok 1 a\n  # size: 1 < 2\n  not ok 2 b\nnot ok 1 g\nok 2 c # SKIP no disk\n";
        let ktap = ktap::parse(text, None);
        let record = Record {
            name: "smoke".to_owned(),
            repeat: "cargo xtask test smoke".to_owned(),
            suite: true,
            token: String::new(),
            may_skip: Vec::new(),
            kernel: None,
            accel: None,
            end: End::Dead,
            seconds: 1.5,
            disks: Vec::new(),
        };
        let verdict = Verdict {
            exit: Exit::TestsFailed,
            reason: "of 5 tests: 1 failed".to_owned(),
            counts: ktap.counts(),
            ktap: Some(ktap),
            findings: Vec::new(),
            status: None,
            boot_ms: None,
        };
        let folder = Folder::open(std::path::Path::new("/r"));
        let part = Part::of_run("smoke (dev)".to_owned(), &folder, &record, verdict);
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
