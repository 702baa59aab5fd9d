// SPDX-License-Identifier: GPL-2.0

//! fstests in guests: each takes as many tests as it survives, and the next one
//! goes on behind the test that ended it.

use anyhow::{Context as _, bail};
use fs_err as fs;
use rext2_init::{Action, Event, Job, Module as GuestModule, Mount, PORT_KTAP, PORT_OUT};
use rext2_tests::fstests::{LIST, ROOT, RUNS, TREE};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::accel::Choice;
use crate::artifact::{Kernel, Module};
use crate::boot;
use crate::console::{Kind, Lists};
use crate::exit::{self, Exit};
use crate::fstests::table::{Row, Verdict};
use crate::guest::{self, Disk, Observer, Plan, Use};
use crate::images;
use crate::ktap::{self, Outcome, Test};
use crate::opts::Format;
use crate::project::Project;
use crate::rundir::Folder;
use crate::step::Step;
use crate::vm::Vm;
use crate::watch::End;

/// MiB: fsstress, dbench and fio in up to a thousand processes.
const MEMORY: u32 = 2048;
/// Tests a guest: a long run leaves traces, and a crash loses the start-up only.
const BATCH: usize = 100;
/// Bytes of the disks that fstests make their file systems on.
const SIZES: &[(&str, u64)] = &[
    ("test", 3 << 30),
    ("scratch", 8 << 30),
    ("logwrites", 4 << 30),
];
/// What a guest may need besides its test: the start of check, the checks after it.
const SLACK: Duration = Duration::from_secs(240);
/// What `check` writes on the kernel's log before a test.
const MARK: &str = "run fstests ";

/// What all guests of a run have in common.
pub struct Setup<'a> {
    /// The checkout.
    pub project: &'a Project,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// rext2, for a run on it.
    pub module: Option<&'a Module>,
    /// The driver under test.
    pub on: &'a str,
    /// Guest root and fstests tree.
    pub disks: [images::Disk; 2],
    /// How long a test may take.
    pub limit: Duration,
    /// The command that repeats the run.
    pub repeat: &'a str,
}

/// What the guests of a run have told.
#[derive(Default)]
pub struct Told {
    /// Results.
    pub rows: Vec<Row>,
    /// What went wrong outside of any test.
    pub troubles: Vec<String>,
    /// The last guest's folder.
    pub folder: Option<PathBuf>,
}

/// Runs all tests, in as many guests as it takes.
pub fn run_all(setup: &Setup, tests: &[String]) -> anyhow::Result<Told> {
    let lists = Lists::load(setup.project)?;
    let mut told = Told::default();
    let mut rest = tests;
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(BATCH)];
        let number = tests.len() - rest.len();
        let step = Step::new(
            "fstests",
            format!(
                "{} on {}, {number} of {} done",
                batch[0],
                setup.on,
                tests.len()
            ),
        );
        let run = once(setup, batch)?;
        let console = run.folder.text(&run.folder.console());
        let ktap = run.folder.text(&run.folder.port(PORT_KTAP));
        let said = read(batch, &ktap, &run.record.end, &console, &lists);
        if said.rows.is_empty() {
            let output = run.folder.text(&run.folder.port(PORT_OUT));
            let errors = run.folder.text(&run.folder.port(rext2_init::PORT_ERR));
            let lines: Vec<_> = output.lines().chain(errors.lines()).collect();
            let last = lines[lines.len().saturating_sub(8)..].join("\n  ");
            bail!(exit::error(
                Exit::NothingRan,
                format!(
                    "no test began in the guest (run {}):\n  {last}",
                    run.folder.path().display()
                )
            ));
        }
        for event in run.folder.events() {
            if let (Event::Failed { what }, true) = (&event, said.whole) {
                told.troubles.push(format!("in the guest: {what}"));
            }
        }
        let bad = said.rows.iter().filter(|row| row.verdict.is_bad()).count();
        step.end(&format!("{} tests, {bad} failed", said.rows.len()));
        rest = &rest[said.rows.len()..];
        told.rows.extend(said.rows);
        told.troubles.extend(said.troubles);
        told.folder = Some(run.folder.path().to_owned());
    }
    Ok(told)
}

fn once(setup: &Setup, batch: &[String]) -> anyhow::Result<guest::Run> {
    let project = setup.project;
    let scratch = tempfile::tempdir().context("cannot make a scratch folder")?;
    let list = scratch.path().join("list");
    fs::write(&list, batch.join("\n") + "\n")?;
    let (mut modules, mut files) = boot::module_files(setup.module);
    // The C driver is a module of its own here: it must not have the name by itself.
    if setup.on == "ext2" {
        modules.push(GuestModule {
            name: "ext2".to_owned(),
            params: String::new(),
        });
    }
    files.push((list, LIST.to_owned()));
    let mounts = [
        ("/dev/vda", ROOT.to_owned()),
        ("/dev/vdb", format!("{ROOT}{TREE}")),
    ];
    let image = |disk: &images::Disk| Disk {
        file: disk.path.clone(),
        serial: disk.serial.clone(),
        use_as: Use::Scratch,
    };
    let blank = |(serial, size): &(&str, u64)| Disk {
        file: PathBuf::new(),
        serial: serial.to_string(),
        use_as: Use::Blank(*size),
    };
    let mut limits = Vm::load(project)?.limits(&project.opts, None);
    limits.run = None;
    let plan = Plan {
        name: super::NAME,
        repeat: setup.repeat.to_owned(),
        job: Job {
            token: guest::token()?,
            modules,
            mounts: mounts
                .map(|(source, target)| Mount {
                    source: source.to_owned(),
                    target,
                    fstype: "ext4".to_owned(),
                    read_only: false,
                    data: String::new(),
                })
                .to_vec(),
            action: Action::Suite {
                argv: [
                    "/bin/rext2-tests",
                    "fstests",
                    "--fs",
                    setup.on,
                    &format!("limit={}", setup.limit.as_secs()),
                ]
                .map(str::to_owned)
                .to_vec(),
            },
            kmemleak: true,
            debugger: false,
        },
        disks: (setup.disks.iter().map(image))
            .chain(SIZES.iter().map(blank))
            .collect(),
        files,
        replay: None,
        may_skip: Vec::new(),
        limits,
        gdb: false,
        counting: None,
        memory: Some(MEMORY),
        extra: Vec::new(),
    };
    let mut watch = Watch {
        limit: setup.limit + SLACK,
        quiet: project.opts.format != Format::Human,
        file: PathBuf::new(),
        seen: 0,
        since: Instant::now(),
    };
    guest::run(project, setup.kernel, &plan, &mut watch)
}

/// Ends a guest in which no test has begun or ended for too long, or which has
/// said that it cannot go on.
struct Watch {
    limit: Duration,
    quiet: bool,
    file: PathBuf,
    seen: u64,
    since: Instant,
}

impl Observer for Watch {
    fn starts(&mut self, folder: &Folder, choice: &Choice) -> anyhow::Result<()> {
        if !self.quiet {
            boot::announce(choice);
        }
        self.file = folder.port(PORT_KTAP);
        self.since = Instant::now();
        self.seen = 0;
        Ok(())
    }

    fn tick(&mut self, _events: &[Event]) -> anyhow::Result<ControlFlow<()>> {
        let length = fs::metadata(&self.file).map_or(0, |meta| meta.len());
        if length != self.seen {
            self.seen = length;
            self.since = Instant::now();
            if timed_out(&fs::read_to_string(&self.file)?) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(match self.since.elapsed() > self.limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }
}

/// Whether the last thing said is that a test was not done in time.
fn timed_out(ktap: &str) -> bool {
    let last = ktap.lines().last();
    last.is_some_and(|line| line.starts_with("not ok ") && line.contains(" # TIMEOUT "))
}

/// What one guest has said.
struct Said {
    /// A row for each test that has begun, in order.
    rows: Vec<Row>,
    /// What the kernel complained about outside of any test.
    troubles: Vec<String>,
    /// Whether it came to its end.
    whole: bool,
}

/// Reads what a guest has said about the tests of its batch.
fn read(batch: &[String], ktap: &str, end: &End, console: &str, lists: &Lists) -> Said {
    let report = ktap::parse(ktap, None);
    let whole = !timed_out(ktap) && matches!(end, End::Down { .. });
    let complaints = complaints(console, lists);
    let mut said = Said {
        rows: Vec::new(),
        troubles: Vec::new(),
        whole,
    };
    for test in batch {
        let found = report.tests.iter().find(|found| found.name == *test);
        let begun = ktap.lines().any(|line| line == format!("# {RUNS}{test}"));
        let mut row = match found {
            Some(found) => of_test(test, found),
            None if begun => crashed(test, end, &complaints),
            None => break,
        };
        for complaint in complaints.iter().filter(|one| one.test == *test) {
            if row.verdict < Verdict::Fail {
                row.verdict = Verdict::Fail;
                row.notes.clear();
            }
            row.notes.push(format!("console: {}", complaint.text));
        }
        said.rows.push(row);
    }
    for complaint in complaints {
        // What the end of a guest in mid-work brings is no news.
        if !batch.contains(&complaint.test) && whole {
            said.troubles.push(format!("console: {}", complaint.text));
        }
    }
    said
}

fn of_test(name: &str, test: &Test) -> Row {
    let mut seconds = 0.0;
    let mut notes = Vec::new();
    for line in &test.diagnostics {
        let millis = line
            .strip_suffix(" ms")
            .and_then(|text| text.parse::<f64>().ok());
        match millis {
            Some(millis) => seconds = millis / 1000.0,
            None if line.starts_with(RUNS) => {}
            None => notes.push(line.clone()),
        }
    }
    let late = notes.iter().any(|line| line.starts_with("TIMEOUT "));
    let verdict = match &test.outcome {
        Outcome::Passed => Verdict::Pass,
        Outcome::Skipped(reason) => {
            notes = vec![reason.clone()];
            Verdict::Notrun
        }
        Outcome::Failed if late => Verdict::Timeout,
        _ => Verdict::Fail,
    };
    Row {
        test: name.to_owned(),
        verdict,
        seconds,
        notes,
    }
}

fn crashed(name: &str, end: &End, complaints: &[Complaint]) -> Row {
    let mine = |one: &&Complaint| one.test == name && one.kind == Kind::Panic;
    let note = match (complaints.iter().find(mine), end) {
        (Some(complaint), _) => complaint.text.clone(),
        (None, End::Left) => "the guest hung".to_owned(),
        (None, end) => format!("the guest ended: {end:?}"),
    };
    Row {
        test: name.to_owned(),
        verdict: Verdict::Crashed,
        seconds: 0.0,
        notes: vec![note],
    }
}

/// A line of the console that spoils a test.
struct Complaint {
    /// The test that ran; none before the first and after the last.
    test: String,
    kind: Kind,
    text: String,
}

fn complaints(console: &str, lists: &Lists) -> Vec<Complaint> {
    let mut marks = Vec::new();
    for (index, line) in console.lines().enumerate() {
        if let Some((_, rest)) = line.split_once(MARK) {
            let test = rest.split(' ').next().unwrap_or_default();
            marks.push((index + 1, test.to_owned()));
        }
    }
    let complaint = |finding: crate::console::Finding| {
        let before = marks.iter().rev().find(|(line, _)| *line < finding.line);
        Complaint {
            test: before.map_or(String::new(), |(_, test)| test.clone()),
            kind: finding.kind,
            text: finding.text,
        }
    };
    lists.scan(console).into_iter().map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const BATCH: [&str; 4] = ["generic/001", "generic/002", "generic/018", "generic/037"];
    const HEAD: &str = "KTAP version 1\n1..4\n# run generic/001\n# 5120 ms\nok 1 generic/001\n";
    const CONSOLE: &str = "[    1.0] rext2: loading out-of-tree module taints kernel.\n\
        [    9.0] run fstests generic/001 at 2026-01-01 00:00:00\n\
        [   20.0] run fstests generic/002 at 2026-01-01 00:00:05\n";

    fn down() -> End {
        End::Down {
            status: "exit status: 0".to_owned(),
            success: true,
        }
    }

    fn read(ktap: &str, end: End, console: &str) -> Said {
        let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
        let batch = BATCH.map(str::to_owned);
        super::read(&batch, ktap, &end, console, &Lists::read(&lists).unwrap())
    }

    fn verdicts(said: &Said) -> Vec<Verdict> {
        said.rows.iter().map(|row| row.verdict).collect()
    }

    #[test]
    fn a_whole_run_has_a_row_for_each_test() {
        let ktap = format!(
            "{HEAD}# run generic/002\n# 80 ms\n# [failed, exit status 1]\nnot ok 2 generic/002\n\
             # run generic/018\n# 10 ms\nok 3 generic/018 # SKIP no defragmentation\n\
             # run generic/037\n# 20 ms\nok 4 generic/037\n"
        );
        let said = read(&ktap, down(), CONSOLE);
        assert!(said.whole && said.troubles.is_empty());
        assert_eq!(
            verdicts(&said),
            [Verdict::Pass, Verdict::Fail, Verdict::Notrun, Verdict::Pass]
        );
        assert_eq!(said.rows[0].seconds, 5.12);
        assert_eq!(said.rows[1].notes, ["[failed, exit status 1]"]);
        assert_eq!(said.rows[2].notes, ["no defragmentation"]);
    }

    #[test]
    fn a_test_that_takes_the_guest_along_has_crashed_and_the_rest_is_open() {
        let ktap = format!("{HEAD}# run generic/002\n");
        let console = format!("{CONSOLE}[   21.0] kernel BUG at fs/inode.c:600!\n");
        let said = read(&ktap, End::Dead, &console);
        assert_eq!(verdicts(&said), [Verdict::Pass, Verdict::Crashed]);
        assert_eq!(said.rows[1].notes[0], "kernel BUG at fs/inode.c:600!");
        let said = read(&ktap, End::Left, CONSOLE);
        assert_eq!(said.rows[1].notes, ["the guest hung"]);
    }

    #[test]
    fn a_late_test_ends_its_guest() {
        let ktap = format!(
            "{HEAD}# run generic/002\nnot ok 2 generic/002 # TIMEOUT timed out after 600 s\n"
        );
        assert!(timed_out(&ktap) && !timed_out(HEAD));
        let said = read(&ktap, End::Left, CONSOLE);
        assert_eq!(verdicts(&said), [Verdict::Pass, Verdict::Timeout]);
        assert!(!said.whole);
    }

    #[test]
    fn a_complaint_spoils_the_test_that_ran() {
        let ktap = format!("{HEAD}# run generic/002\nok 2 generic/002\n");
        let warning = "WARNING: CPU: 0 PID: 1 at fs/inode.c:330 drop_nlink+0x1/0x2";
        let console = format!("{CONSOLE}[   21.0] {warning}\n");
        let said = read(&ktap, down(), &console);
        assert_eq!(verdicts(&said), [Verdict::Pass, Verdict::Fail]);
        assert_eq!(said.rows[1].notes, [format!("console: {warning}")]);
        let console = format!("[    1.0] {warning}\n{CONSOLE}");
        let said = read(&ktap, down(), &console);
        assert_eq!(verdicts(&said), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(said.troubles, [format!("console: {warning}")]);
    }

    #[test]
    fn a_guest_that_began_no_test_has_no_rows() {
        assert!(read("KTAP version 1\n1..4\n", down(), "").rows.is_empty());
        assert!(read("", End::Dead, "").rows.is_empty());
    }
}
