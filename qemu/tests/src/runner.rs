// SPDX-License-Identifier: GPL-2.0

//! Runs a suite: each case in a process of its own, watched by a clock and by
//! the kernel log, so that neither a crash nor a hang takes the suite along.

use crate::case::{Case, Group, Skip};
use crate::job::Job;
use crate::kernel;
use crate::kmsg::{self, Kmsg};
use crate::ktap::{Ktap, Outcome};
use crate::mount;
use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Exit status of a case that does not apply.
const SKIPPED: u8 = 4;
/// How long a killed process may take to go.
const GRACE: Duration = Duration::from_secs(2);

/// Runs every case of the suite and reports on `out`; whether all passed.
pub fn run(job: &Job, groups: &[Group], out: impl Write) -> Result<bool> {
    let groups = selected(groups, job.get("only"));
    ensure!(!groups.is_empty(), "no case has this name");
    let mut ktap = Ktap::start(out, groups.len())?;
    let mut good = true;
    for (group, cases) in groups {
        let mut failed = 0;
        let mut subtests = ktap.group(&group.name, cases.len())?;
        for case in &cases {
            let start = Instant::now();
            let (outcome, mut notes) = watch(job, group, case)?;
            if outcome.is_failure() {
                failed += 1;
                mount::detach_all()?;
            }
            notes.push_str(&format!("{} ms", start.elapsed().as_millis()));
            subtests.result(&case.name, &outcome, &notes)?;
        }
        let outcome = match failed {
            0 => Outcome::Passed,
            _ => Outcome::Failed(format!("{failed} of {} failed", cases.len())),
        };
        good &= failed == 0;
        ktap.result(&group.name, &outcome, "")?;
    }
    Ok(good)
}

/// The cases whose full names contain `only`, or one of the texts between its
/// commas, and the groups that have any.
fn selected<'a>(groups: &'a [Group], only: Option<&str>) -> Vec<(&'a Group, Vec<&'a Case>)> {
    let of_group = |group: &'a Group| {
        let wanted = |case: &&Case| {
            let name = full_name(group, case);
            only.is_none_or(|only| only.split(',').any(|part| name.contains(part)))
        };
        (group, group.cases.iter().filter(wanted).collect::<Vec<_>>())
    };
    let chosen = groups.iter().map(of_group);
    chosen.filter(|(_, cases)| !cases.is_empty()).collect()
}

/// Runs the one case that the job names, in this process.
pub fn run_case(job: &Job, groups: &[Group], name: &str) -> Result<ExitCode> {
    let case = groups
        .iter()
        .flat_map(|group| group.cases.iter().map(move |case| (group, case)))
        .find(|(group, case)| full_name(group, case) == name)
        .map(|(_, case)| case)
        .context(format!("no case {name:?} in suite {}", job.suite))?;
    match (case.run)(job) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let skipped = error.is::<Skip>();
            println!("{error:#}");
            Ok(ExitCode::from(if skipped { SKIPPED } else { 1 }))
        }
    }
}

fn full_name(group: &Group, case: &Case) -> String {
    format!("{}/{}", group.name, case.name)
}

/// Runs one case as a child and judges it; the notes end with a line break.
fn watch(job: &Job, group: &Group, case: &Case) -> Result<(Outcome, String)> {
    let name = full_name(group, case);
    kmsg::mark(&name)?;
    let mut log = Kmsg::now()?;
    let said = memfd_create("case-output", MemfdFlags::CLOEXEC)
        .context("cannot make a file for a case's output")?;
    let mut said = File::from(said);
    let share = |file: &File| file.try_clone().context("cannot share a file");
    let mut child = Command::new("/proc/self/exe")
        .args(job.args_for(&name))
        .stdin(Stdio::null())
        .stdout(share(&said)?)
        .stderr(share(&said)?)
        .spawn()
        .context("cannot start a case")?;
    let limit = case.limit * kernel::slowness();
    let status = wait(&mut child, limit)?;

    let mut text = String::new();
    said.seek(SeekFrom::Start(0))?;
    said.read_to_string(&mut text)
        .context("cannot read a case's output")?;
    let mut outcome = match status {
        None => Outcome::TimedOut(format!(
            "timed out after {} s{}",
            limit.as_secs(),
            end(&mut child)?
        )),
        Some(status) => judge(status, &text),
    };
    let lines = log.lines()?;
    let alarms = kmsg::alarms(&lines);
    if !alarms.is_empty() {
        let alarms = alarms.join("\n");
        outcome = match outcome {
            Outcome::Failed(reason) => Outcome::Failed(format!("{reason}\n{alarms}")),
            Outcome::TimedOut(reason) => Outcome::TimedOut(format!("{reason}\n{alarms}")),
            _ => Outcome::Failed(format!("the kernel complained:\n{alarms}")),
        };
    }
    // The output of a case that failed or did not apply is the reason itself.
    let notes = match outcome {
        Outcome::Passed | Outcome::TimedOut(_) => text,
        _ => String::new(),
    };
    Ok((outcome, notes))
}

/// Waits for the child's end without polling, at most for the limit.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a case")?;
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return child.wait().map(Some).context("cannot wait for a case"),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for a case"),
        }
    }
}

/// Ends a child that is late; if even that fails, where it hangs.
fn end(child: &mut Child) -> Result<String> {
    let proc = format!("/proc/{}", child.id());
    let stack = fs::read_to_string(format!("{proc}/stack")).unwrap_or_default();
    child.kill().context("cannot kill a case")?;
    let stack = stack.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(match wait(child, GRACE)? {
        Some(_) if stack.is_empty() => String::new(),
        Some(_) => format!("; it was in {stack}"),
        None => format!("; it cannot be killed: {stack}"),
    })
}

fn judge(status: ExitStatus, text: &str) -> Outcome {
    let text = text.trim_end().to_owned();
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Passed,
        (Some(code), _) if code == i32::from(SKIPPED) => Outcome::Skipped(text),
        (Some(1), _) => Outcome::Failed(text),
        (_, Some(signal)) => Outcome::Failed(format!("{text}\nended by signal {signal}")),
        _ => Outcome::Failed(format!("{text}\nended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn a_child_is_judged_by_its_end() {
        let judged = |script, text| judge(child(script).wait().unwrap(), text);
        assert_eq!(judged("exit 0", "note"), Outcome::Passed);
        assert_eq!(
            judged("exit 4", "no disk"),
            Outcome::Skipped("no disk".into())
        );
        assert_eq!(judged("exit 1", "bad\n"), Outcome::Failed("bad".into()));
        assert_eq!(
            judged("kill -ABRT $$", "panicked"),
            Outcome::Failed("panicked\nended by signal 6".into())
        );
    }

    #[test]
    fn a_filter_takes_groups_and_cases() {
        let group = |name: &str| Group {
            name: name.into(),
            cases: ["read", "read-direct", "list"]
                .map(|name| Case::new(name, |_| Ok(())))
                .into(),
        };
        let groups = [group("1k"), group("4k")];
        let count = |only| {
            let chosen = selected(&groups, only);
            chosen
                .iter()
                .map(|(_, cases)| cases.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(count(None), [3, 3]);
        assert_eq!(count(Some("4k/")), [3]);
        assert_eq!(count(Some("read")), [2, 2]);
        assert_eq!(count(Some("1k/list")), [1]);
        assert_eq!(count(Some("1k/list,4k/")), [1, 3]);
        assert!(count(Some("none")).is_empty());
    }

    #[test]
    fn a_late_child_is_noticed_and_ended() {
        let mut late = child("exec sleep 60");
        assert!(
            wait(&mut late, Duration::from_millis(50))
                .unwrap()
                .is_none()
        );
        assert!(!end(&mut late).unwrap().contains("cannot be killed"));
        assert!(wait(&mut child("exit 0"), GRACE).unwrap().is_some());
    }
}
