// SPDX-License-Identifier: GPL-2.0

//! `report FILE…`: judges again what an earlier run left behind, without a
//! guest: a run's folder, a JSON report, or anybody's kernel log or KTAP.

use anyhow::{Context as _, bail, ensure};
use fs_err as fs;
use std::path::{Path, PathBuf};

use crate::console::{Kind, Lists};
use crate::exit::{Exit, WithExit as _};
use crate::fstests::{self, table::Results};
use crate::host_tests;
use crate::junit;
use crate::ktap;
use crate::opts::{Format, ReportArgs};
use crate::part::{self, Part};
use crate::project::Project;
use crate::rundir::Folder;
use crate::summary;
use crate::verdict::{self, Verdict};

/// Judges the files and prints the result.
pub fn run(project: &Project, args: &ReportArgs) -> anyhow::Result<Exit> {
    let lists = Lists::load(project)?;
    let mut parts = Vec::new();
    for file in &args.files {
        let more = self::parts(project, file, &lists)
            .with_context(|| format!("cannot judge {}", file.display()))
            .exit(Exit::Usage)?;
        parts.extend(more);
    }
    let parts = merged(project, parts).exit(Exit::Usage)?;
    print(&parts, project.opts.format)?;
    Ok(part::exit(&parts))
}

/// The same with one part for all shards of a run of fstests.
fn merged(project: &Project, parts: Vec<Part>) -> anyhow::Result<Vec<Part>> {
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        let same = |other: &&mut Part| other.fstests.is_some() && other.name == part.name;
        let Some(results) = &part.fstests else {
            merged.push(part);
            continue;
        };
        match merged.iter_mut().find(same) {
            None => merged.push(part),
            Some(other) => {
                let mut all = other.fstests.take().context("no results of fstests")?;
                all.merge(results.clone())?;
                let seconds = other.seconds + part.seconds;
                *other = fstests::judge(project, all, seconds, "")?;
            }
        }
    }
    Ok(merged)
}

/// Prints the parts of a test run, in the form that was asked for.
pub fn print(parts: &[Part], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Junit => print!("{}", junit::document(parts)?),
        Format::Json => {
            let document = serde_json::json!({
                "exit": part::exit(parts).code(),
                "parts": parts,
            });
            println!(
                "{}",
                serde_json::to_string_pretty(&document).context("JSON")?
            );
        }
        Format::Human => {
            for part in parts {
                print!("{}", text(part));
            }
            println!("{}", part::totals(parts));
        }
    }
    Ok(())
}

fn text(part: &Part) -> String {
    if let (Some(folder), Some(verdict)) = (&part.folder, &part.verdict) {
        let folder = Folder::open(folder);
        if let Ok(record) = folder.load() {
            return summary::block(&folder, &record, verdict);
        }
    }
    let mut text = match part.exit {
        Exit::Good => format!("{}: passed: {}\n", part.name, part.reason),
        exit => format!(
            "{}: FAILED (exit code {}): {}\n",
            part.name,
            exit.code(),
            part.reason
        ),
    };
    match &part.verdict {
        _ if part.fstests.is_some() => {
            text.extend(part.fstests.iter().map(|results| results.text.as_str()));
            text.extend(
                (part.folder.iter()).map(|folder| format!("  run          {}\n", folder.display())),
            );
        }
        Some(verdict) => text.push_str(&summary::tests(verdict)),
        None => text.push_str(&summary::cases(&part.cases)),
    }
    if part.exit != Exit::Good && !part.repeat.is_empty() {
        text.push_str(&format!("  repeat  {}\n", part.repeat));
    }
    text
}

fn parts(project: &Project, file: &Path, lists: &Lists) -> anyhow::Result<Vec<Part>> {
    ensure!(
        file.exists(),
        "it is not there; \"cargo xtask test\" tells the log of each run, and all are in {}",
        project.runs().display()
    );
    // A run is judged by all that it has left, whichever file of it is named.
    if let Some(folder) = run_of(file) {
        return Ok(vec![of_folder(&folder, lists)?]);
    }
    ensure!(
        !file.is_dir(),
        "it is no run's folder, or its run has not ended: there is no run.json in it; \
         name a file, such as its console.log"
    );
    let bytes = fs::read(file)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim_start().starts_with('{') {
        return of_json(project, &text, lists);
    }
    ensure!(
        !text.trim_start().starts_with("<?xml"),
        "a JUnit report only tells what was found; one that can be judged again is made by --format json"
    );
    if file.file_name() == project.log("host-tests").file_name() {
        return Ok(vec![host_tests::of_log(&file.display().to_string(), &text)]);
    }
    let part = of_text(&file.display().to_string(), &text, lists);
    ensure!(
        part.exit != Exit::NothingRan || file.parent() != project.log("step").parent(),
        "it is the log of a step, which has no tests; the runs are in {}",
        project.runs().display()
    );
    Ok(vec![part])
}

/// The folder of a finished run: the one that is named, or that has the file.
fn run_of(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let folder = match file.is_dir() {
        true => file,
        false => file.parent()?.to_owned(),
    };
    Folder::open(&folder).record().is_file().then_some(folder)
}

fn of_folder(folder: &Path, lists: &Lists) -> anyhow::Result<Part> {
    let folder = Folder::open(folder);
    let record = folder.load()?;
    let verdict = verdict::of_folder(&folder, &record, lists);
    Ok(Part::of_run(record.name.clone(), &folder, &record, verdict))
}

/// The runs that a JSON report names are judged again, and its results of fstests. What ran on the host
/// left nothing to judge.
fn of_json(project: &Project, text: &str, lists: &Lists) -> anyhow::Result<Vec<Part>> {
    let document: serde_json::Value = serde_json::from_str(text).context("not a JSON report")?;
    let parts = document["parts"].as_array().context("no parts in it")?;
    let mut judged = Vec::new();
    for part in parts {
        // All of it is in the report, which may come from another machine.
        if let Ok(results) = serde_json::from_value::<Results>(part["fstests"].clone()) {
            let seconds = part["seconds"].as_f64().unwrap_or_default();
            let repeat = part["repeat"].as_str().unwrap_or_default();
            judged.push(fstests::judge(project, results, seconds, repeat)?);
        } else if let Some(folder) = part["folder"].as_str() {
            judged.push(of_folder(&PathBuf::from(folder), lists)?);
        }
    }
    if judged.is_empty() {
        bail!("no guest's run is named in it, and only those leave something to judge again");
    }
    Ok(judged)
}

/// A log of unknown origin: nothing in it says whether it is whole, so neither
/// plan nor end token is asked for.
fn of_text(name: &str, text: &str, lists: &Lists) -> Part {
    let findings = lists.scan(text);
    let report = ktap::parse(text, None);
    let counts = report.counts();
    let found = |kind| {
        let finding = findings.iter().find(|finding| finding.kind == kind)?;
        Some(finding.text.clone())
    };
    let (exit, reason) = if let Some(line) = found(Kind::Panic) {
        (Exit::Panic, line)
    } else if let Some(line) = found(Kind::Qemu) {
        (Exit::Qemu, line)
    } else if counts.bad() > 0 {
        (
            Exit::TestsFailed,
            format!("{} of {} tests failed", counts.bad(), counts.total()),
        )
    } else if let Some(line) = found(Kind::Splat) {
        (Exit::Splat, line)
    } else if counts.passed == 0 {
        (
            Exit::NothingRan,
            "no test passed in it, and it has no complaint either".to_owned(),
        )
    } else if let Some(error) = report.errors.first() {
        (Exit::TestsFailed, error.clone())
    } else {
        (
            Exit::Good,
            format!("{} tests passed, nothing else stands out", counts.passed),
        )
    };
    Part {
        name: name.to_owned(),
        exit,
        reason: reason.clone(),
        passed: counts.passed,
        failed: counts.bad(),
        skipped: counts.skipped,
        seconds: 0.0,
        folder: None,
        repeat: String::new(),
        cases: Vec::new(),
        verdict: Some(Verdict {
            exit,
            reason,
            counts,
            ktap: Some(report),
            findings,
            status: None,
            boot_ms: None,
        }),
        fstests: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(text: &str) -> Exit {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
        of_text("log", text, &Lists::read(&file).unwrap()).exit
    }

    #[test]
    fn any_log_can_be_judged() {
        let ktap = "KTAP version 1\n1..1\nok 1 a\n";
        for (text, wanted) in [
            (ktap.to_owned(), Exit::Good),
            (ktap.replace("ok 1", "not ok 1"), Exit::TestsFailed),
            (
                format!("{ktap}[  1.0] Kernel panic - not syncing: x\n"),
                Exit::Panic,
            ),
            (
                format!("{ktap}[  1.0] WARNING: CPU: 0 PID: 1 at a\n"),
                Exit::Splat,
            ),
            ("Linux version 6.12\n".to_owned(), Exit::NothingRan),
            (String::new(), Exit::NothingRan),
            // A missing plan is no error of a foreign stream.
            ("TAP version 13\nok 1 a\nok 2 b\n".to_owned(), Exit::Good),
        ] {
            assert_eq!(exit(&text), wanted, "{text}");
        }
    }
}
