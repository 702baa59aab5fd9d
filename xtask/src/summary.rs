// SPDX-License-Identifier: GPL-2.0

//! A verdict for people: counts, failed tests, what the console complained
//! about, its last lines, the log, and the command that repeats the run.

use std::fmt::Write as _;

use crate::console::Finding;
use crate::ktap::{Outcome, Test};
use crate::leaks;
use crate::part::Case;
use crate::rundir::{Folder, Record};
use crate::verdict::Verdict;

/// Lines of the console that a failed run ends with.
const TAIL: usize = 40;
/// Console findings and diagnostics that are shown; the log has all.
const SHOWN: usize = 12;
/// Lines of kmemleak's report: two or three objects.
const SHOWN_LEAKS: usize = 40;

/// The console, unasked: from its first complaint on, or else its last lines.
/// A guest that died has said why.
pub fn tail(folder: &Folder, findings: &[Finding]) -> String {
    let console = match folder.decoded().is_file() {
        true => folder.text(&folder.decoded()),
        false => folder.text(&folder.console()),
    };
    let lines: Vec<&str> = console.lines().collect();
    let last = lines.len().saturating_sub(TAIL);
    let first = findings.first().and_then(|finding| place(&lines, finding));
    let from = first.map_or(last, |first| first.min(last));
    let what = match from < last {
        true => "the console from its first complaint on",
        false => "the console's last lines",
    };
    let mut text = format!("--- {what} ({}) ---\n", folder.console().display());
    for line in lines.iter().skip(from).take(TAIL) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str("---\n");
    text
}

/// Where a finding stands in a console whose addresses may have been decoded.
fn place(lines: &[&str], finding: &Finding) -> Option<usize> {
    let text = match finding.text.find("+0x") {
        Some(end) => finding.text[..end].rsplit_once(' ')?.0,
        None => &finding.text,
    };
    lines.iter().position(|line| line.contains(text))
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
    for leaked in leaks::lines(&folder.events()).iter().take(SHOWN_LEAKS) {
        line(format!("  leak    {leaked}"));
    }
    line(format!("  log     {}", folder.console().display()));
    if !good {
        line(format!("  repeat  {}", record.repeat));
        text.push_str(&tail(folder, &verdict.findings));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Kind;
    use std::path::Path;

    fn console(folder: &Path, lines: &[String]) -> Folder {
        let folder = Folder::open(folder);
        fs_err::write(folder.console(), lines.join("\n")).unwrap();
        folder
    }

    #[test]
    fn a_report_is_shown_from_its_head_and_a_hang_from_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        let mut lines: Vec<String> = (0..200).map(|n| format!("[ 1.0] line {n}")).collect();
        lines[100] = "[ 1.0] WARNING: CPU: 0 PID: 1 at f (fs/a.c:3)".to_owned();
        let folder = console(scratch.path(), &lines);
        let text = tail(&folder, &[]);
        assert!(text.contains("last lines") && text.contains("line 199\n"));
        let finding = Finding {
            kind: Kind::Splat,
            line: 101,
            text: "WARNING: CPU: 0 PID: 1 at f+0x1/0x2".to_owned(),
        };
        let text = tail(&folder, &[finding]);
        assert!(text.contains("first complaint"), "{text}");
        assert!(text.lines().nth(1).unwrap().contains("WARNING"), "{text}");
        assert!(text.contains("line 139\n") && !text.contains("line 140\n"));
    }
}
