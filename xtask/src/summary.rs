// SPDX-License-Identifier: GPL-2.0

//! A verdict for people: counts, failed tests, what the console complained
//! about, its last lines, the log, and the command that repeats the run.

use rext2_init::Event;
use std::fmt::Write as _;

use crate::ktap::{Outcome, Test};
use crate::part::Case;
use crate::rundir::{Folder, Record};
use crate::verdict::Verdict;

/// Lines of the console that a failed run ends with.
const TAIL: usize = 40;
/// Console findings and diagnostics that are shown; the log has all.
const SHOWN: usize = 12;

/// The last lines of the console, unasked: a guest that died has said why.
pub fn tail(folder: &Folder) -> String {
    let console = match folder.decoded().is_file() {
        true => folder.text(&folder.decoded()),
        false => folder.text(&folder.console()),
    };
    let lines: Vec<&str> = console.lines().collect();
    let from = lines.len().saturating_sub(TAIL);
    let mut text = format!(
        "--- the console's last lines ({}) ---\n",
        folder.console().display()
    );
    for line in &lines[from..] {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str("---\n");
    text
}

/// The block that ends a run of a suite.
pub fn block(folder: &Folder, record: &Record, verdict: &Verdict) -> String {
    let mut text = String::new();
    let good = verdict.exit == crate::exit::Exit::Good;
    // Writing to a string cannot fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let outcome = match good {
        true => "passed".to_owned(),
        false => format!("FAILED (exit code {})", verdict.exit.code()),
    };
    line(format!("{}: {outcome}: {}", record.name, verdict.reason));
    let counts = verdict.counts;
    line(format!(
        "  tests   {} passed, {} failed, {} skipped, {} crashed, {} not run; {:.1} s{}",
        counts.passed,
        counts.failed,
        counts.skipped,
        counts.crashed,
        counts.not_run,
        record.seconds,
        match verdict.boot_ms {
            Some(ms) => format!(", init after {:.1} s of the guest's", ms as f64 / 1000.0),
            None => String::new(),
        }
    ));
    let details = tests(verdict);
    if !details.is_empty() {
        line(details.trim_end().to_owned());
    }
    for checked in record.disks.iter().filter(|checked| !checked.clean) {
        line(format!("  disk    {}", checked.disk));
        for output in checked.output.lines().take(SHOWN) {
            line(format!("          {output}"));
        }
    }
    for event in folder.events() {
        if let Event::Leaks { report, .. } = event {
            for leaked in report.lines().take(SHOWN) {
                line(format!("  leak    {leaked}"));
            }
        }
    }
    line(format!("  log     {}", folder.console().display()));
    if !good {
        line(format!("  repeat  {}", record.repeat));
        text.push_str(&tail(folder));
    }
    text
}

/// The tests that did not pass and why, and the console's complaints.
pub fn tests(verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    for (name, test) in tests_to_tell(verdict) {
        match &test.outcome {
            Outcome::Skipped(reason) => line(format!("  skipped {name}: {reason}")),
            outcome => line(format!("  {:<8}{name}", word(outcome))),
        }
        if test.is_bad() {
            for diagnostic in test.diagnostics.iter().take(SHOWN) {
                line(format!("          {diagnostic}"));
            }
        }
    }
    if let Some(report) = &verdict.ktap {
        for error in report.errors.iter().take(SHOWN) {
            line(format!("  KTAP    {error}"));
        }
    }
    for finding in verdict.findings.iter().take(SHOWN) {
        line(format!("  console {}: {}", finding.line, finding.text));
    }
    text
}

/// The cases that failed on the host and what they said last.
pub fn cases(cases: &[Case]) -> String {
    let mut text = String::new();
    let bad = |case: &&Case| !matches!(case.outcome, Outcome::Passed | Outcome::Skipped(_));
    for case in cases.iter().filter(bad) {
        let _ = writeln!(text, "  {:<8}{}", word(&case.outcome), case.name);
        let from = case.output.len().saturating_sub(SHOWN);
        for line in &case.output[from..] {
            let _ = writeln!(text, "          {line}");
        }
    }
    text
}

/// Everything that did not simply pass.
fn tests_to_tell(verdict: &Verdict) -> Vec<(String, &Test)> {
    let leaves = verdict.ktap.iter().flat_map(|report| report.leaves());
    leaves
        .filter(|(_, test)| test.outcome != Outcome::Passed)
        .collect()
}

/// The word for an outcome.
pub fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "failed",
        Outcome::Skipped(_) => "skipped",
        Outcome::Crashed => "crashed",
        Outcome::NotRun => "not run",
    }
}
