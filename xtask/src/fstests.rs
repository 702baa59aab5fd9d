// SPDX-License-Identifier: GPL-2.0

//! `test fstests`: the user's fstests tree on rext2, ext2, ext4 or xfs, held
//! against the stored results.

mod guest;
mod image;
pub mod select;
pub mod table;

use crate::chain;
use crate::exit::{self, Exit};
use crate::opts::TestArgs;
use crate::part::{self, Part};
use crate::project::Project;
use crate::report;
use crate::suites;
use crate::test;
use anyhow::Context as _;
use fs_err as fs;
use std::path::Path;
use std::time::{Duration, Instant};
use table::{Baseline, Change, Results};

/// The name of the suite, and of its fragment.
pub const NAME: &str = "fstests";

/// One line for `--list`.
pub const ABOUT: &str =
    "your fstests tree (--fstests DIR) on rext2, ext2, ext4 or xfs, against stored results";

/// The drivers that it runs on.
const DRIVERS: [&str; 4] = ["rext2", "ext2", "ext4", "xfs"];
/// The group that is meant when nothing is named.
const GROUP: &str = "quick";
/// Seconds that a test may take: some take two minutes on an idle host under TCG.
const LIMIT: u64 = 600;

/// What the suite is asked for: the driver, and the tree.
pub fn check(args: &TestArgs) -> anyhow::Result<(&str, &Path)> {
    let usage = |text: String| exit::error(Exit::Usage, text);
    if args.suites.len() > 1 {
        return Err(usage(format!(
            "suite {NAME} has a kernel of its own; run it alone"
        )));
    }
    let taken = |(option, given): &(&str, bool)| *given && *option != "fs";
    let filter = ("filter", args.filter.is_some());
    if let Some((option, _)) = (suites::options(args).iter())
        .chain([&filter])
        .find(|option| taken(option))
    {
        return Err(usage(format!(
            "suite {NAME} takes no --{option}; -t and -g choose its tests"
        )));
    }
    let on = args.fs.as_deref().unwrap_or(DRIVERS[0]);
    if !DRIVERS.contains(&on) {
        return Err(usage(format!(
            "suite {NAME} takes no --fs {on}; it takes: {}",
            DRIVERS.join(", ")
        )));
    }
    match &args.fstests {
        Some(tree) => Ok((on, tree)),
        None => Err(usage(format!(
            "suite {NAME} needs --fstests DIR, an fstests tree that you have built"
        ))),
    }
}

/// An option that is given and that only this suite takes.
pub fn option(args: &TestArgs) -> Option<&'static str> {
    let options = [
        ("fstests", args.fstests.is_some()),
        ("group", !args.group.is_empty()),
        ("test", !args.test.is_empty()),
        ("shard", args.shard.is_some()),
        ("limit", args.limit.is_some()),
        ("accept", args.accept),
    ];
    options
        .iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| *name)
}

/// Runs the tests that were asked for, prints the result, gives the exit code.
pub fn run(project: &Project, args: &TestArgs) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let (on, tree) = check(args)?;
    let tests = select::of_tree(tree)?;
    let file = project.fstests().join("exclude.tsv");
    let exclusions = select::exclusions(&fs::read_to_string(&file)?)
        .with_context(|| format!("{} is malformed", file.display()))?;
    let mut groups = args.group.clone();
    if groups.is_empty() && args.test.is_empty() {
        groups.push(GROUP.to_owned());
    }
    let chosen = select::choose(&tests, &groups, &args.test, on, &exclusions, args.shard)?;
    if chosen.run.is_empty() {
        return Err(exit::error(Exit::NothingRan, "every test is excluded"));
    }
    let repeat = repeat(project, args);

    // The C driver must not have the name ext2 by itself.
    let own = project.clone().with_fragment(NAME, &["EXT2_FS=m"]);
    let ready = chain::ready(&own)?;
    let kernel = &ready.kernel;
    let setup = guest::Setup {
        project: &own,
        kernel,
        module: ready.module.as_ref().filter(|_| on == "rext2"),
        on,
        disks: [image::root(&own)?, image::tree(&own, tree)?],
        limit: Duration::from_secs(args.limit.unwrap_or(LIMIT)),
        repeat: &repeat,
    };
    if on == "rext2" && setup.module.is_none() {
        return Err(exit::error(
            Exit::NothingRan,
            format!(
                "base {} cannot have rext2.ko; try --fs ext4",
                project.opts.base
            ),
        ));
    }
    let told = guest::run_all(&setup, &chosen.run)?;
    let results = Results {
        on: on.to_owned(),
        kernel: format!("{}, {}", kernel.release, kernel.identity.flavor),
        rows: told.rows,
        excluded: chosen.excluded,
        troubles: told.troubles,
        text: String::new(),
    };
    if args.accept {
        let file = project.fstests_baseline(on);
        let mut baseline = baseline(project, on)?;
        baseline.accept(&results);
        fs::write(&file, baseline.text())?;
    }
    let mut part = judge(project, results, begin.elapsed().as_secs_f64(), &repeat)?;
    part.folder = told.folder;
    let parts = [part];
    report::print(&parts, project.opts.format)?;
    Ok(part::exit(&parts))
}

/// The stored results of a driver; none yet is none.
pub fn baseline(project: &Project, on: &str) -> anyhow::Result<Baseline> {
    let file = project.fstests_baseline(on);
    if !file.is_file() {
        return Ok(Baseline::default());
    }
    Baseline::parse(&fs::read_to_string(&file)?)
        .with_context(|| format!("{} is malformed", file.display()))
}

/// Holds results against the baseline.
pub fn judge(
    project: &Project,
    results: Results,
    seconds: f64,
    repeat: &str,
) -> anyhow::Result<Part> {
    let baseline = baseline(project, &results.on)?;
    Ok(judged(results, &baseline, seconds, repeat))
}

fn judged(mut results: Results, baseline: &Baseline, seconds: f64, repeat: &str) -> Part {
    let count = |wanted: Change| {
        let rows = results.rows.iter();
        rows.filter(|row| table::change(row, baseline.get(&row.test)) == wanted)
            .count()
    };
    let name = format!("{NAME} on {}", results.on);
    let cases = table::cases(&results, baseline);
    let mut part = Part::of_cases(&name, repeat, seconds, cases);
    let counts = format!(
        "{} tests: {} new failures, {} lost, {} new passes, {} known failures",
        results.rows.len(),
        count(Change::NewFailure),
        count(Change::Lost),
        count(Change::NewPass),
        count(Change::Known)
    );
    if part.exit != Exit::NothingRan {
        part.reason = counts;
    }
    if part.exit == Exit::Good
        && let Some(trouble) = results.troubles.first()
    {
        part.exit = Exit::Splat;
        part.reason = trouble.clone();
        part.failed += 1;
    }
    results.text = table::text(&results, baseline);
    part.fstests = Some(results);
    part
}

/// The command that runs the same tests again, on the same kernel.
fn repeat(project: &Project, args: &TestArgs) -> String {
    let mut line = format!("cargo xtask {} test {NAME}", test::flags(project).join(" "));
    line.extend(args.fs.iter().map(|on| format!(" --fs {on}")));
    line.extend((args.fstests.iter()).map(|folder| format!(" --fstests {}", folder.display())));
    line.extend(args.group.iter().map(|group| format!(" -g {group}")));
    line.extend(args.test.iter().map(|test| format!(" -t {test}")));
    line.extend(
        (args.shard.iter()).map(|shard| format!(" --shard {}/{}", shard.index, shard.count)),
    );
    line.extend(args.limit.map(|limit| format!(" --limit {limit}")));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::{Row, Verdict};

    fn part(rows: &[(&str, Verdict)], troubles: &[&str]) -> Part {
        let baseline = Baseline::parse(
            "generic/001\tpass\t1\t\ngeneric/363\tfail\t1\tdirty bytes behind the end\n",
        );
        let row = |(test, verdict): &(&str, Verdict)| Row {
            test: format!("generic/{test}"),
            verdict: *verdict,
            seconds: 1.0,
            notes: vec!["it said".to_owned()],
        };
        let results = Results {
            on: "rext2".to_owned(),
            kernel: "6.12".to_owned(),
            rows: rows.iter().map(row).collect(),
            excluded: Vec::new(),
            troubles: troubles.iter().map(|text| text.to_string()).collect(),
            text: String::new(),
        };
        judged(results, &baseline.unwrap(), 1.0, "cargo xtask test fstests")
    }

    #[test]
    fn only_what_differs_from_the_baseline_is_a_failure() {
        let exit = |rows: &[(&str, Verdict)]| part(rows, &[]).exit;
        let known = ("363", Verdict::Fail);
        assert_eq!(exit(&[("001", Verdict::Pass), known]), Exit::Good);
        assert_eq!(exit(&[("001", Verdict::Fail), known]), Exit::TestsFailed);
        assert_eq!(exit(&[("001", Verdict::Crashed)]), Exit::TestsFailed);
        assert_eq!(
            exit(&[("001", Verdict::Notrun), ("002", Verdict::Pass)]),
            Exit::TestsFailed
        );
        assert_eq!(
            exit(&[("001", Verdict::Pass), ("002", Verdict::Timeout)]),
            Exit::TestsFailed
        );
        assert_eq!(exit(&[("018", Verdict::Notrun)]), Exit::NothingRan);
    }

    #[test]
    fn a_complaint_outside_of_any_test_spoils_the_run() {
        let part = part(&[("001", Verdict::Pass)], &["console: WARNING: x"]);
        assert_eq!(part.exit, Exit::Splat);
        assert_eq!((part.passed, part.failed), (1, 1));
    }

    #[test]
    fn the_counts_are_in_the_reason_and_the_table_beside() {
        let part = part(&[("001", Verdict::Pass), ("363", Verdict::Pass)], &[]);
        assert_eq!(
            part.reason,
            "2 tests: 0 new failures, 0 lost, 1 new passes, 0 known failures"
        );
        let text = part.fstests.unwrap().text;
        assert!(text.contains("new pass     generic/363"), "{text}");
    }
}
