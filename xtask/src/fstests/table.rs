// SPDX-License-Identifier: GPL-2.0

//! Results of fstests as tables: of a run, merged from shards, and held against
//! the stored baseline.

use crate::ktap::Outcome;
use crate::part::Case;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How a test ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It passed.
    Pass,
    /// It could not run.
    Notrun,
    /// It failed, or the kernel complained.
    Fail,
    /// It was not done within its limit.
    Timeout,
    /// The guest died or hung.
    Crashed,
}

impl Verdict {
    const ALL: [Verdict; 5] = [
        Verdict::Pass,
        Verdict::Notrun,
        Verdict::Fail,
        Verdict::Timeout,
        Verdict::Crashed,
    ];

    /// Its word in a table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Notrun => "notrun",
            Verdict::Fail => "fail",
            Verdict::Timeout => "timeout",
            Verdict::Crashed => "crashed",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
    }

    /// Whether something went wrong.
    pub fn is_bad(self) -> bool {
        self >= Verdict::Fail
    }
}

/// The result of a test.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// `generic/001`
    pub test: String,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
    /// Why; what it said.
    pub notes: Vec<String>,
}

impl Row {
    /// What stands behind it in a table.
    fn reason(&self) -> &str {
        self.notes.first().map_or("", String::as_str)
    }
}

/// The results of a run, or of the shards of one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Results {
    /// The driver under test.
    pub on: String,
    /// The kernel's name for people.
    pub kernel: String,
    /// The tests that ran.
    pub rows: Vec<Row>,
    /// Tests that were left out, and why.
    pub excluded: Vec<(String, String)>,
    /// What went wrong outside of any test.
    pub troubles: Vec<String>,
    /// All of it for people, next to the baseline.
    #[serde(skip)]
    pub text: String,
}

impl Results {
    /// Adds those of another shard. Of a test that ran twice the worse counts.
    pub fn merge(&mut self, other: Results) -> anyhow::Result<()> {
        if self.on != other.on || self.kernel != other.kernel {
            bail!(
                "results on {} with {} and on {} with {} are of different runs",
                self.on,
                self.kernel,
                other.on,
                other.kernel
            );
        }
        for row in other.rows {
            match self.rows.iter_mut().find(|mine| mine.test == row.test) {
                Some(mine) if mine.verdict >= row.verdict => {}
                Some(mine) => *mine = row,
                None => self.rows.push(row),
            }
        }
        self.rows.sort_by(|one, other| one.test.cmp(&other.test));
        for left_out in other.excluded {
            if !self.excluded.contains(&left_out) {
                self.excluded.push(left_out);
            }
        }
        self.excluded.sort();
        self.troubles.extend(other.troubles);
        Ok(())
    }

    /// Number of tests with a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let same = |row: &&Row| row.verdict == verdict;
        self.rows.iter().filter(same).count()
    }
}

/// A line of the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
    /// Why; for a failure, what is known of it.
    pub reason: String,
}

/// The stored results of one driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Comments at its head.
    head: Vec<String>,
    known: BTreeMap<String, Known>,
}

/// The columns of the file.
const COLUMNS: &str = "test\tverdict\tseconds\treason";

impl Baseline {
    /// Reads the file's text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut baseline = Baseline::default();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                baseline.head.push(line.to_owned());
                continue;
            }
            if line == COLUMNS || line.is_empty() {
                continue;
            }
            let fields: Vec<_> = line.split('\t').collect();
            let known = || {
                let [test, verdict, seconds, reason] = fields[..] else {
                    return None;
                };
                let known = Known {
                    verdict: Verdict::of(verdict)?,
                    seconds: seconds.parse().ok()?,
                    reason: reason.to_owned(),
                };
                Some((test.to_owned(), known))
            };
            let (test, known) = known()
                .with_context(|| format!("line {}: not of the form {COLUMNS:?}", number + 1))?;
            baseline.known.insert(test, known);
        }
        Ok(baseline)
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.head {
            text.push_str(&format!("{line}\n"));
        }
        text.push_str(&format!("{COLUMNS}\n"));
        for (test, known) in &self.known {
            text.push_str(&format!(
                "{test}\t{}\t{:.0}\t{}\n",
                known.verdict.word(),
                known.seconds,
                known.reason
            ));
        }
        text
    }

    /// Takes the results of a run. What was written about a failure that is
    /// still there stays.
    pub fn accept(&mut self, results: &Results) {
        for row in &results.rows {
            let old = self.known.get(&row.test);
            let reason = match (row.verdict, old) {
                (Verdict::Pass, _) => String::new(),
                (verdict, Some(old)) if verdict == old.verdict && !old.reason.is_empty() => {
                    old.reason.clone()
                }
                _ => row.reason().replace('\t', " "),
            };
            let known = Known {
                verdict: row.verdict,
                seconds: row.seconds,
                reason,
            };
            self.known.insert(row.test.clone(), known);
        }
    }

    /// What is written about a test.
    pub fn get(&self, test: &str) -> Option<&Known> {
        self.known.get(test)
    }
}

/// How a result stands to the baseline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// As it was, or as it should be.
    None,
    /// It went wrong, and did not before, or not so badly.
    NewFailure,
    /// It passed before and does not run any more.
    Lost,
    /// It passes now.
    NewPass,
    /// It goes wrong as before.
    Known,
}

/// Holds a result against the baseline.
pub fn change(row: &Row, known: Option<&Known>) -> Change {
    let before = known.map(|known| known.verdict);
    // A test that fails may be over its limit on another host; a dead guest is worse.
    let crashed = |verdict| verdict == Verdict::Crashed;
    match (row.verdict, before) {
        (Verdict::Pass, Some(before)) if before != Verdict::Pass => Change::NewPass,
        (Verdict::Notrun, Some(Verdict::Pass)) => Change::Lost,
        (now, Some(before)) if now.is_bad() && before.is_bad() => {
            match crashed(now) && !crashed(before) {
                true => Change::NewFailure,
                false => Change::Known,
            }
        }
        (now, _) if now.is_bad() => Change::NewFailure,
        _ => Change::None,
    }
}

/// The results as cases of a report: a known failure counts as skipped.
pub fn cases(results: &Results, baseline: &Baseline) -> Vec<Case> {
    let case = |row: &Row| {
        let known = baseline.get(&row.test);
        let outcome = match change(row, known) {
            Change::Known => {
                let reason = known.map_or("", |known| &known.reason);
                Outcome::Skipped(format!("known failure: {reason}"))
            }
            Change::Lost => Outcome::NotRun,
            _ => match row.verdict {
                Verdict::Pass => Outcome::Passed,
                Verdict::Notrun => Outcome::Skipped(row.reason().to_owned()),
                Verdict::Fail | Verdict::Timeout => Outcome::Failed,
                Verdict::Crashed => Outcome::Crashed,
            },
        };
        Case {
            name: row.test.clone(),
            outcome,
            output: row.notes.clone(),
            seconds: Some(row.seconds),
        }
    };
    results.rows.iter().map(case).collect()
}

/// Lines of a failure that are shown; the run's folder has all.
const SHOWN: usize = 12;
/// A test is slower if it took so many times longer, and this many seconds.
const SLOWER: (f64, f64) = (3.0, 20.0);

/// The table for people: what differs from the baseline, and what goes wrong.
pub fn text(results: &Results, baseline: &Baseline) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{}", words.trim_end());
    };
    let counts = Verdict::ALL.map(|verdict| {
        let count = results.count(verdict);
        format!("{count} {}", verdict.word())
    });
    line(format!(
        "  tests        {}; on {}",
        counts.join(", "),
        results.kernel
    ));
    let about = |word: &str, row: &Row, reason: &str| {
        format!(
            "  {word:<12} {} {:<8}{:>5.0} s  {reason}",
            row.test,
            row.verdict.word(),
            row.seconds
        )
    };
    for row in &results.rows {
        let known = baseline.get(&row.test);
        match change(row, known) {
            Change::NewFailure => {
                line(about("new failure", row, row.reason()));
                for note in row.notes.iter().skip(1).take(SHOWN) {
                    line(format!("               {note}"));
                }
            }
            Change::Lost => line(about("lost", row, row.reason())),
            Change::NewPass => line(about("new pass", row, "")),
            Change::Known => line(about("known", row, known.map_or("", |known| &known.reason))),
            Change::None => {}
        }
        if let Some(known) = known
            && known.verdict == Verdict::Pass
            && row.verdict == Verdict::Pass
            && row.seconds > known.seconds * SLOWER.0
            && row.seconds > known.seconds + SLOWER.1
        {
            line(about(
                "slower",
                row,
                &format!("took {:.0} s", known.seconds),
            ));
        }
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, reason) in &results.excluded {
        *reasons.entry(reason).or_default() += 1;
    }
    for (reason, count) in reasons {
        line(format!("  excluded     {count} tests: {reason}"));
    }
    for trouble in &results.troubles {
        line(format!("  trouble      {trouble}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# made by a run\ntest\tverdict\tseconds\treason\n\
        generic/001\tpass\t106\t\ngeneric/018\tnotrun\t7\tno defragmentation\n\
        generic/363\tfail\t22\tdirty bytes behind the end\n";

    fn row(test: &str, verdict: Verdict, seconds: f64, note: &str) -> Row {
        Row {
            test: format!("generic/{test}"),
            verdict,
            seconds,
            notes: vec![note.to_owned()],
        }
    }

    fn results(rows: &[Row]) -> Results {
        Results {
            on: "rext2".to_owned(),
            kernel: "6.12.117".to_owned(),
            rows: rows.to_vec(),
            excluded: Vec::new(),
            troubles: Vec::new(),
            text: String::new(),
        }
    }

    #[test]
    fn a_baseline_is_written_as_it_was_read() {
        assert_eq!(Baseline::parse(TEXT).unwrap().text(), TEXT);
        for line in [
            "generic/001\tpass\t1",
            "generic/001\tgood\t1\t",
            "x\tpass\ty\t",
        ] {
            assert!(Baseline::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_baselines_of_the_checkout_are_well_formed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/fstests");
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("baseline-") {
                let text = fs_err::read_to_string(&path).unwrap();
                let baseline = Baseline::parse(&text).unwrap();
                assert_eq!(baseline.text(), text, "{name}");
                for (test, known) in &baseline.known {
                    let told = known.verdict == Verdict::Pass || !known.reason.is_empty();
                    assert!(told, "{name}: {test} has no reason");
                }
            }
        }
    }

    #[test]
    fn every_change_is_told_apart() {
        let baseline = Baseline::parse(TEXT).unwrap();
        for (test, verdict, wanted) in [
            ("001", Verdict::Pass, Change::None),
            ("001", Verdict::Fail, Change::NewFailure),
            ("001", Verdict::Timeout, Change::NewFailure),
            ("001", Verdict::Notrun, Change::Lost),
            ("018", Verdict::Pass, Change::NewPass),
            ("018", Verdict::Fail, Change::NewFailure),
            ("018", Verdict::Notrun, Change::None),
            ("363", Verdict::Fail, Change::Known),
            ("363", Verdict::Timeout, Change::Known),
            ("363", Verdict::Crashed, Change::NewFailure),
            ("363", Verdict::Pass, Change::NewPass),
            ("363", Verdict::Notrun, Change::None),
            ("999", Verdict::Pass, Change::None),
            ("999", Verdict::Notrun, Change::None),
            ("999", Verdict::Crashed, Change::NewFailure),
        ] {
            let row = row(test, verdict, 1.0, "");
            assert_eq!(change(&row, baseline.get(&row.test)), wanted, "{row:?}");
        }
    }

    #[test]
    fn shards_become_one_and_the_worse_result_counts() {
        let mut one = results(&[
            row("003", Verdict::Pass, 1.0, ""),
            row("001", Verdict::Pass, 1.0, ""),
        ]);
        let two = results(&[
            row("002", Verdict::Fail, 2.0, "x"),
            row("003", Verdict::Crashed, 3.0, "panic"),
        ]);
        one.merge(two).unwrap();
        let got: Vec<_> = (one.rows.iter())
            .map(|row| (row.test.as_str(), row.verdict))
            .collect();
        assert_eq!(
            got,
            [
                ("generic/001", Verdict::Pass),
                ("generic/002", Verdict::Fail),
                ("generic/003", Verdict::Crashed),
            ]
        );
        let mut other = results(&[]);
        other.on = "ext2".to_owned();
        assert!(one.merge(other).is_err());
    }

    #[test]
    fn what_was_written_about_a_failure_stays_until_it_changes() {
        let mut baseline = Baseline::parse(TEXT).unwrap();
        baseline.accept(&results(&[
            row("363", Verdict::Fail, 30.0, "output mismatch"),
            row("018", Verdict::Pass, 4.0, ""),
            row("002", Verdict::Fail, 4.0, "wrong\tsize"),
        ]));
        assert_eq!(
            baseline.get("generic/363").unwrap().reason,
            "dirty bytes behind the end"
        );
        assert_eq!(baseline.get("generic/018").unwrap().reason, "");
        assert_eq!(baseline.get("generic/002").unwrap().reason, "wrong size");
        let text = baseline.text();
        assert!(text.contains("generic/363\tfail\t30\t"), "{text}");
        assert_eq!(Baseline::parse(&text).unwrap(), baseline);
    }

    #[test]
    fn the_table_shows_what_differs() {
        let mut results = results(&[
            row("001", Verdict::Pass, 500.0, ""),
            row("002", Verdict::Fail, 4.0, "wrong size"),
            row("018", Verdict::Pass, 4.0, ""),
            row("363", Verdict::Fail, 4.0, "output mismatch"),
        ]);
        results.excluded = vec![("generic/082".to_owned(), "no quota".to_owned())];
        let text = text(&results, &Baseline::parse(TEXT).unwrap());
        for piece in [
            "2 pass, 0 notrun, 2 fail, 0 timeout, 0 crashed; on 6.12.117\n",
            "slower       generic/001 pass      500 s  took 106 s\n",
            "new failure  generic/002 fail        4 s  wrong size\n",
            "new pass     generic/018 pass        4 s\n",
            "known        generic/363 fail        4 s  dirty bytes behind the end\n",
            "excluded     1 tests: no quota\n",
        ] {
            assert!(text.contains(piece), "{piece}:\n{text}");
        }
    }
}
