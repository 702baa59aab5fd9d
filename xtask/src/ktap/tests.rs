// SPDX-License-Identifier: GPL-2.0

//! The parser against the smallest stream of each known trap.

use super::*;

fn counts(text: &str) -> Counts {
    parse(text, None).counts()
}

fn passed(passed: usize) -> Counts {
    Counts {
        passed,
        ..Counts::default()
    }
}

#[test]
fn complete_stream() {
    let report = parse("KTAP version 1\n1..2\nok 1 a\nok 2 b\n", None);
    assert_eq!(report.counts(), passed(2));
    assert_eq!(report.plan, Some(2));
    assert_eq!(report.errors, Vec::<String>::new());
}

#[test]
fn late_plan_is_a_crash() {
    let report = parse("TAP version 13\nok 4 test4\n1..4\n", None);
    let counts = report.counts();
    assert_eq!((counts.passed, counts.crashed, counts.not_run), (1, 1, 2));
    assert_eq!(report.errors, ["top level: plan after the first result"]);
}

#[test]
fn no_tests_is_an_error() {
    for text in [
        "",
        "KTAP version 1\n",
        "hello\n",
        "KTAP version 1\n1..0\n",
        "ok 1 a\n",
    ] {
        let report = parse(text, None);
        assert_eq!(report.counts().total(), 0, "{text:?}");
        assert_eq!(report.errors, ["no tests"], "{text:?}");
    }
}

#[test]
fn skipped_plan_is_a_skip() {
    let report = parse("TAP version 13\n1..0 # SKIP no device\n", None);
    assert_eq!(report.counts().skipped, 1);
    assert_eq!(report.errors, Vec::<String>::new());
}

#[test]
fn printk_prefix_is_removed() {
    let text = "[    0.050000][    T1] Linux version 6.12\n\
                [    0.060000][    T1] KTAP version 1\n\
                [    0.060000][    T1] 1..1\n\
                [    0.060000][    T1]   KTAP version 1\n\
                [    0.060000][    T1]   # Subtest: suite\n\
                [    0.060000][    T1]   1..2\n\
                [    0.060000][    T1]   ok 1 a\n\
                [    0.060000][    T1] usb 1-1: new device\n\
                random text\n\
                [    0.070000][    T1]   ok 2 b\n\
                [    0.070000][    T1] ok 1 suite\n";
    let report = parse(text, None);
    assert_eq!(report.counts(), passed(2));
    assert_eq!(report.errors, Vec::<String>::new());
    assert_eq!(report.leaves()[1].0, "suite/b");
}

#[test]
fn foreign_lines_are_ignored() {
    let text = "KTAP version 1\n1..2\nok 1 a\nEXT4-fs (vda): mounted\nokay 3 x\nok 2 b\n";
    assert_eq!(counts(text), passed(2));
}

#[test]
fn panic_interrupts() {
    let text = "KTAP version 1\n1..3\nok 1 a\n  Kernel panic - not syncing: VFS\n";
    let counts = counts(text);
    assert_eq!((counts.passed, counts.crashed, counts.not_run), (1, 1, 1));
}

#[test]
fn panic_inside_a_subtest() {
    let text = "KTAP version 1\n1..2\n  KTAP version 1\n  # Subtest: s\n  1..3\n  ok 1 a\n";
    let report = parse(text, None);
    let names: Vec<_> = report
        .leaves()
        .into_iter()
        .map(|(name, test)| (name, test.outcome.clone()))
        .collect();
    assert_eq!(
        names,
        [
            ("s/a".to_owned(), Outcome::Passed),
            ("s/test 2".to_owned(), Outcome::Crashed),
            ("s/test 3".to_owned(), Outcome::NotRun),
            ("test 2".to_owned(), Outcome::NotRun),
        ]
    );
}

#[test]
fn either_result_word_may_skip() {
    for line in [
        "not ok 1 t # SKIP no device",
        "ok 1 t # skip: no device",
        "ok 1 - t # SKIP no device",
    ] {
        let report = parse(&format!("KTAP version 1\n1..1\n{line}\n"), None);
        assert_eq!(
            report.tests[0].outcome,
            Outcome::Skipped("no device".to_owned()),
            "{line}"
        );
        assert_eq!(report.tests[0].name, "t");
    }
}

#[test]
fn other_directives() {
    let text = "KTAP version 1\n1..4\nok 1 a # TIMEOUT\nnot ok 2 b # TODO later\n\
                ok 3 c # XFAIL known\nok 4 d\\#1 # speed 3\n";
    let report = parse(text, None);
    let counts = report.counts();
    assert_eq!((counts.passed, counts.failed, counts.skipped), (2, 1, 1));
    assert_eq!(report.tests[3].name, "d#1");
    assert_eq!(report.tests[3].diagnostics, ["speed 3"]);
}

#[test]
fn missing_plan_is_no_error_of_the_stream() {
    let report = parse("KTAP version 1\nok 1 a\nok 2 b\n", None);
    assert_eq!(report.counts(), passed(2));
    assert_eq!((report.plan, report.errors.len()), (None, 0));
}

#[test]
fn hyphen_is_not_part_of_the_name() {
    let report = parse("KTAP version 1\n1..2\nok 1 - name\nok 2 other\n", None);
    assert_eq!(report.tests[0].name, "name");
    assert_eq!(report.tests[1].name, "other");
}

#[test]
fn carriage_returns_and_a_half_line() {
    let report = parse("KTAP version 1\r\n1..2\r\nok 1 a\r\nok 2 b", None);
    let counts = report.counts();
    assert_eq!((counts.passed, counts.crashed), (1, 1));
    assert_eq!(report.errors, ["the last line is truncated: \"ok 2 b\""]);
}

#[test]
fn failed_subtest_fails_its_parent() {
    let text = "KTAP version 1\n1..1\n  KTAP version 1\n  1..2\n  ok 1 a\n  not ok 2 b\nok 1 s\n";
    let report = parse(text, None);
    assert_eq!(report.tests[0].outcome, Outcome::Failed);
    let counts = report.counts();
    assert_eq!((counts.passed, counts.failed), (1, 1));
}

#[test]
fn parent_that_fails_by_itself_counts() {
    let text = "KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n  ok 1 a\nnot ok 1 s\n";
    let report = parse(text, None);
    let counts = report.counts();
    assert_eq!((counts.passed, counts.failed), (1, 1));
    assert_eq!(report.leaves()[1].0, "s");
}

#[test]
fn level_without_its_result_is_a_crash() {
    let text = "KTAP version 1\n1..2\n  KTAP version 1\n  # Subtest: s\n  1..1\n  ok 1 a\n\
                \n  KTAP version 1\n  # Subtest: t\n  1..1\n  ok 1 a\nok 2 t\n";
    let report = parse(text, None);
    assert!(report.counts().bad() > 0 || !report.errors.is_empty());
}

#[test]
fn contradictions_are_errors() {
    for (lines, error) in [
        ("1..2\nok 1 a\nok 2 a\n", "second test named \"a\""),
        ("1..2\nok 1 a\nok 1 b\n", "second result number 1"),
        ("1..2\nok 2 a\nok 1 b\n", "result 2, expected 1"),
        ("1..1\nok 1 a\nok 2 b\n", "beyond the plan"),
        ("1..1\n1..1\nok 1 a\n", "second plan"),
        ("1..1\n  not ok 1 a\nok 1 b\n", "outside of any level"),
        (
            "1..1\n  # Subtest: x\n  1..1\n  ok 1 a\nok 1 b\n",
            "after the subtests of \"x\"",
        ),
        ("1..1\nok 1 a\nBail out! disk gone\n", "bail out: disk gone"),
        ("1..1\n  KTAP version 1\n  1..0\nok 1 a\n", "no tests"),
    ] {
        let report = parse(&format!("KTAP version 1\n{lines}"), None);
        let errors = report.errors.join("; ");
        assert!(errors.contains(error), "{lines:?}: {errors:?}");
    }
}

#[test]
fn end_token_ends_the_stream() {
    let body = "KTAP version 1\n1..1\nok 1 a\n";
    let ended = |tail: &str| parse(&format!("{body}{tail}"), Some("f00d"));
    assert!(ended("# rext2-end f00d\n").ended);
    assert!(!ended("# rext2-end f00d").ended, "half a line");
    assert!(!ended("# rext2-end beef\n").ended, "another run's token");
    assert!(!ended("").ended);
    let report = ended("# rext2-end f00d\nok 2 b\n");
    assert_eq!(report.errors, ["output after the end token: \"ok 2 b\""]);
}
