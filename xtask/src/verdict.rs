// SPDX-License-Identifier: GPL-2.0

//! The verdict on a run. It starts as *failed* and only evidence changes it:
//! KTAP with plan and end token, a clean console, an untainted kernel, clean
//! disks. QEMU's status is never evidence for success.

use rext2_init::Event;
use serde::Serialize;

use crate::console::{Finding, Kind, Lists};
use crate::exit::Exit;
use crate::fsck::Checked;
use crate::ktap::{self, Counts, Outcome, Report};
use crate::rundir::{Folder, Record};
use crate::watch::End;

/// Everything that a run left behind.
pub struct Evidence<'a> {
    /// What the run was and how it ended.
    pub record: &'a Record,
    /// The kernel's console.
    pub console: &'a str,
    /// QEMU's own output.
    pub qemu_log: &'a str,
    /// The events of init.
    pub events: &'a [Event],
    /// The KTAP stream, of a suite.
    pub ktap: &'a str,
}

/// What a run was worth.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The exit code.
    #[serde(serialize_with = "code")]
    pub exit: Exit,
    /// Why, in one line.
    pub reason: String,
    /// Number of tests by outcome.
    pub counts: Counts,
    /// The KTAP stream, of a suite.
    pub ktap: Option<Report>,
    /// Console lines that spoil the run.
    pub findings: Vec<Finding>,
    /// The exit status of the guest's program.
    pub status: Option<i32>,
    /// Milliseconds of guest time until init ran.
    pub boot_ms: Option<u64>,
}

/// An exit code as its number.
pub fn code<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(exit.code())
}

/// Judges a run by what lies in its folder.
pub fn of_folder(folder: &Folder, record: &Record, lists: &Lists) -> Verdict {
    judge(
        &Evidence {
            record,
            console: &folder.text(&folder.console()),
            qemu_log: &folder.text(&folder.qemu_log()),
            events: &folder.events(),
            ktap: &folder.text(&folder.port(rext2_init::PORT_KTAP)),
        },
        lists,
    )
}

/// Judges a run.
pub fn judge(evidence: &Evidence, lists: &Lists) -> Verdict {
    let mut findings = lists.scan(evidence.console);
    findings.extend(lists.scan(evidence.qemu_log));
    let record = evidence.record;
    let ktap = (record.suite).then(|| ktap::parse(evidence.ktap, Some(&record.token)));
    let status = evidence.events.iter().find_map(|event| match event {
        Event::Exit { status } => Some(*status),
        _ => None,
    });
    let boot_ms = evidence.events.iter().find_map(|event| match event {
        Event::Started { uptime_ms, .. } => Some(*uptime_ms),
        _ => None,
    });
    let mut verdict = Verdict {
        exit: Exit::TestsFailed,
        reason: String::new(),
        counts: ktap.as_ref().map(Report::counts).unwrap_or_default(),
        ktap,
        findings,
        status,
        boot_ms,
    };
    let trouble = machine(evidence, &verdict)
        .or_else(|| guest(evidence, &verdict))
        .or_else(|| tests(evidence, &verdict))
        .or_else(|| disks(&record.disks))
        .or_else(|| splats(evidence, &verdict, lists));
    (verdict.exit, verdict.reason) = trouble.unwrap_or_else(|| (Exit::Good, good(&verdict)));
    verdict
}

fn good(verdict: &Verdict) -> String {
    match &verdict.ktap {
        Some(_) => "all tests passed, the console is clean".to_owned(),
        None => "the guest did its job, the console is clean".to_owned(),
    }
}

/// What happened to the machine as a whole.
fn machine(evidence: &Evidence, verdict: &Verdict) -> Option<(Exit, String)> {
    let found = |kind| {
        let finding = verdict
            .findings
            .iter()
            .find(|finding| finding.kind == kind)?;
        Some(finding.text.clone())
    };
    if let Some(line) = found(Kind::Qemu) {
        return Some((Exit::Qemu, line));
    }
    if let Some(line) = found(Kind::Panic) {
        return Some((Exit::Panic, line));
    }
    let alive = !evidence.events.is_empty() || evidence.ktap.contains("TAP version ");
    match &evidence.record.end {
        End::BootTimeout(limit) => Some((
            Exit::BootTimeout,
            format!("no sign of life within {limit} s"),
        )),
        End::RunTimeout(limit) => {
            let seen = match &verdict.ktap {
                Some(report) => format!(", {}", seen(report, &verdict.counts)),
                None => String::new(),
            };
            Some((
                Exit::TestTimeout,
                format!("not finished within {limit} s of its start{seen}"),
            ))
        }
        End::StayedUp => Some((
            Exit::TestTimeout,
            "the work was done, but the power did not go off".to_owned(),
        )),
        End::Left => Some((Exit::Good, "the user ended the guest".to_owned())),
        End::Dead => Some((Exit::Panic, "the guest died".to_owned())),
        End::Down { status, success } if !alive => Some(match success {
            false => (
                Exit::Qemu,
                format!("QEMU ended with {status}{}", last_line(evidence)),
            ),
            true => (
                Exit::Panic,
                "the guest went down before its first sign of life".to_owned(),
            ),
        }),
        End::Down { .. } => ended_by_others(evidence).map(|line| (Exit::Qemu, line)),
    }
}

/// QEMU's line about a signal that made it end; it was not ours, for then the
/// run would have ended otherwise.
fn ended_by_others(evidence: &Evidence) -> Option<String> {
    let mut lines = evidence.qemu_log.lines();
    let line = lines.find(|line| line.contains(": terminating on signal "))?;
    Some(line.to_owned())
}

fn seen(report: &Report, counts: &Counts) -> String {
    let seen = counts.passed + counts.failed + counts.skipped;
    match report.plan {
        Some(_) => format!("{seen} of {} results seen", counts.total()),
        None => format!("{seen} results seen, no plan"),
    }
}

/// QEMU's last own line.
fn last_line(evidence: &Evidence) -> String {
    let own = |line: &&str| !line.is_empty() && !line.starts_with(['$', '#']);
    match evidence.qemu_log.lines().rev().find(own) {
        Some(line) => format!(": {line}"),
        None => String::new(),
    }
}

/// What init reported.
fn guest(evidence: &Evidence, verdict: &Verdict) -> Option<(Exit, String)> {
    for event in evidence.events {
        if let Event::Failed { what } = event {
            return Some((Exit::TestsFailed, format!("in the guest: {what}")));
        }
    }
    let ended = |event: &Event| matches!(event, Event::End { .. });
    let token = verdict.ktap.as_ref().is_some_and(|report| report.ended);
    let complete = match evidence.events.is_empty() {
        true => token,
        false => evidence.events.iter().any(ended),
    };
    match &evidence.record.end {
        End::Down {
            status,
            success: false,
        } if !complete => Some((
            Exit::Qemu,
            format!(
                "QEMU ended with {status} in the middle of the run{}",
                last_line(evidence)
            ),
        )),
        _ if !complete && verdict.ktap.is_none() => Some((
            Exit::Panic,
            "the guest went down in the middle of the run".to_owned(),
        )),
        _ => None,
    }
}

/// What the tests reported.
fn tests(evidence: &Evidence, verdict: &Verdict) -> Option<(Exit, String)> {
    let report = verdict.ktap.as_ref()?;
    let counts = verdict.counts;
    let failed = |text: String| Some((Exit::TestsFailed, text));
    if counts.total() == 0 {
        return Some((Exit::NothingRan, "no test reported anything".to_owned()));
    }
    if counts.bad() > 0 {
        let count = |n: usize, what: &str| (n > 0).then(|| format!("{n} {what}"));
        let parts: Vec<_> = [
            count(counts.failed, "failed"),
            count(counts.crashed, "crashed"),
            count(counts.not_run, "not run"),
        ]
        .into_iter()
        .flatten()
        .collect();
        return failed(format!("of {} tests: {}", counts.total(), parts.join(", ")));
    }
    if let Some(error) = report.errors.first() {
        return failed(format!("the KTAP stream contradicts itself: {error}"));
    }
    if report.plan.is_none() {
        return failed("the KTAP stream has no plan: it may be incomplete".to_owned());
    }
    if !report.ended {
        return failed("the end token is missing: the guest stopped early".to_owned());
    }
    match verdict.status {
        Some(status) if status != 0 => {
            return failed(format!("the test program ended with status {status}"));
        }
        None if !evidence.events.is_empty() => {
            return failed("the test program did not report its end".to_owned());
        }
        _ => {}
    }
    let skipped = |(_, test): &&(String, &ktap::Test)| matches!(test.outcome, Outcome::Skipped(_));
    let leaves = report.leaves();
    let required =
        (leaves.iter().filter(skipped)).find(|(name, _)| !evidence.record.may_skip.contains(name));
    if let Some((name, _)) = required {
        return Some((
            Exit::NothingRan,
            format!("{name} was skipped, and the suite does not allow it"),
        ));
    }
    if counts.passed == 0 {
        return Some((Exit::NothingRan, "every test was skipped".to_owned()));
    }
    None
}

fn disks(disks: &[Checked]) -> Option<(Exit, String)> {
    let dirty = disks.iter().find(|checked| !checked.clean)?;
    let line = dirty
        .output
        .lines()
        .find(|line| !line.starts_with("e2fsck "));
    Some((
        Exit::TestsFailed,
        format!("{} is damaged: {}", dirty.disk, line.unwrap_or("no detail")),
    ))
}

/// Reports that did not stop the kernel.
fn splats(evidence: &Evidence, verdict: &Verdict, lists: &Lists) -> Option<(Exit, String)> {
    if let Some(finding) = verdict.findings.first() {
        return Some((Exit::Splat, finding.text.clone()));
    }
    evidence.events.iter().find_map(|event| match event {
        Event::Leaks { count, .. } => Some((
            Exit::Splat,
            format!("kmemleak found {count} leaked objects"),
        )),
        Event::End { tainted, .. } => {
            let letters = lists.taint(*tainted);
            (!letters.is_empty())
                .then(|| (Exit::Splat, format!("the kernel is tainted: {letters}")))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn lists() -> Lists {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
        Lists::read(&file).unwrap()
    }

    fn record() -> Record {
        Record {
            name: "suite".to_owned(),
            repeat: String::new(),
            suite: true,
            token: "t".to_owned(),
            may_skip: Vec::new(),
            kernel: None,
            accel: None,
            end: End::Down {
                status: "exit status: 0".to_owned(),
                success: true,
            },
            seconds: 1.0,
            disks: Vec::new(),
        }
    }

    fn judged(record: &Record, lines: &str) -> (Exit, String) {
        let evidence = Evidence {
            record,
            console: "",
            qemu_log: "",
            events: &[],
            ktap: &format!("KTAP version 1\n{lines}# rext2-end t\n"),
        };
        let verdict = judge(&evidence, &lists());
        (verdict.exit, verdict.reason)
    }

    #[test]
    fn a_damaged_disk_fails_a_run_whose_tests_passed() {
        let mut record = record();
        record.disks = vec![Checked {
            disk: "data".to_owned(),
            clean: false,
            output: "e2fsck 1.47.0\nBlock bitmap differences: -5\n".to_owned(),
        }];
        let (exit, reason) = judged(&record, "1..1\nok 1 a\n");
        assert_eq!(exit, Exit::TestsFailed);
        assert!(reason.contains("data is damaged: Block bitmap"), "{reason}");
        record.disks[0].clean = true;
        assert_eq!(judged(&record, "1..1\nok 1 a\n").0, Exit::Good);
    }

    #[test]
    fn only_a_listed_test_may_be_skipped() {
        let lines = "1..2\nok 1 a\nok 2 b # SKIP no kmemleak\n";
        let mut record = record();
        let (exit, reason) = judged(&record, lines);
        assert_eq!(exit, Exit::NothingRan);
        assert!(reason.contains("b was skipped"), "{reason}");
        record.may_skip = vec!["b".to_owned()];
        assert_eq!(judged(&record, lines).0, Exit::Good);
        let all = "1..1\nok 1 b # SKIP no kmemleak\n";
        assert_eq!(judged(&record, all).0, Exit::NothingRan);
    }

    #[test]
    fn every_other_end_of_the_machine_spoils_good_tests() {
        let lines = "1..1\nok 1 a\n";
        for (end, exit) in [
            (End::Dead, Exit::Panic),
            (End::BootTimeout(1), Exit::BootTimeout),
            (End::RunTimeout(1), Exit::TestTimeout),
            (End::StayedUp, Exit::TestTimeout),
        ] {
            let record = Record { end, ..record() };
            assert_eq!(judged(&record, lines).0, exit);
        }
    }
}
