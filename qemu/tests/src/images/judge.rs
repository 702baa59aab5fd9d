// SPDX-License-Identifier: GPL-2.0

//! Compares the answers of an image with the table, and what rext2 logged with
//! the rule: one line for each failed call, naming the field; none otherwise.

use super::probe::Answer;
use super::table::Row;
use anyhow::{Result, bail};

/// Errors that say nothing about the image, so that nothing is to be logged.
const QUIET: &[&str] = &["ENOENT", "ENXIO", "ELOOP"];

/// Judges one image.
pub fn judge(row: &Row, answers: &[Answer], rext2: bool) -> Result<()> {
    let right = if rext2 { &row.rext2 } else { &row.ext2 };
    let mut faults = Vec::new();
    for answer in answers {
        let wanted = right.to(&answer.call);
        if answer.value != wanted {
            faults.push(format!(
                "{}: {}, but {wanted} is right",
                answer.call, answer.value
            ));
        }
        if rext2 {
            faults.extend(log_fault(row, answer));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{}", faults.join("\n"))
}

fn log_fault(row: &Row, answer: &Answer) -> Option<String> {
    let error = error_in(&answer.value);
    let lines = answer.log.len();
    let wanted = match error {
        Some(error) if QUIET.contains(&error) || row.log.is_empty() => 0..=0,
        // Readahead meets the fault on its own account, once for each attempt.
        Some(_) if answer.call.starts_with("read.") => 1..=3,
        // What was listed before the fault is handed out first; then again.
        Some(_) if answer.call.starts_with("ls") => 1..=2,
        Some(_) => 1..=1,
        None if answer.call != "mount" => 0..=0,
        None if row.note.is_some() => 1..=1,
        // A driver may greet.
        None => 0..=1,
    };
    let names = |line: &String| match error {
        Some(_) => row.log.iter().any(|field| line.contains(field)),
        None => row.note.iter().all(|note| line.contains(note)),
    };
    if wanted.contains(&lines) && answer.log.iter().all(names) {
        return None;
    }
    let field = match error {
        Some(_) => row.log.join(" or "),
        None => row.note.clone().unwrap_or_default(),
    };
    Some(format!(
        "{}: {lines} log lines; {} to {} that name {field:?} are right\n{}",
        answer.call,
        wanted.start(),
        wanted.end(),
        answer.log.join("\n"),
    ))
}

/// The error in an answer, alone or after a `+`.
fn error_in(value: &str) -> Option<&str> {
    let word = value.rsplit('+').next().unwrap_or(value);
    let looks = word.len() > 2 && word.starts_with('E');
    (looks && word.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(call: &str, value: &str, log: &[&str]) -> Answer {
        Answer {
            call: call.into(),
            value: value.into(),
            log: log.iter().map(|line| line.to_string()).collect(),
        }
    }

    fn row(line: &str) -> Row {
        super::super::table::parse(line).unwrap().remove(0)
    }

    #[test]
    fn a_failed_call_logs_one_line_that_names_the_field() {
        let row = row("c-x\ttree\t1\tbig=EUCLEAN\t=\ti_size\t-");
        let line = "rext2 (vdb1): inode 14: i_size 1 is negative";
        let stat = |log: &[&str]| judge(&row, &[answer("stat.big", "EUCLEAN", log)], true);
        assert!(stat(&[line]).is_ok());
        assert!(stat(&[]).is_err());
        assert!(stat(&[line, line]).is_err());
        assert!(stat(&["rext2 (vdb1): something is wrong"]).is_err());
        let read = answer("read.big", "EUCLEAN", &[line, line, line]);
        assert!(judge(&row, &[read], true).is_ok());
    }

    #[test]
    fn a_good_call_logs_nothing_and_a_mount_at_most_a_greeting() {
        let row = row("a-x\tempty\t1\t-\t=\t-\t-");
        assert!(judge(&row, &[answer("mount", "ok", &["hello"])], true).is_ok());
        assert!(judge(&row, &[answer("ls", "lost+found:d", &["hm"])], true).is_err());
        assert!(judge(&row, &[answer("stat.big", "ENOENT", &[])], true).is_ok());
    }

    #[test]
    fn wrong_answers_are_told() {
        let row = row("a-x\tempty\t1\t-\tmount=EINVAL\t-\tC refuses");
        assert!(judge(&row, &[answer("mount", "ok", &[])], true).is_ok());
        let error = judge(&row, &[answer("mount", "ok", &[])], false).unwrap_err();
        assert_eq!(error.to_string(), "mount: ok, but EINVAL is right");
    }

    #[test]
    fn errors_are_recognised_in_answers() {
        assert_eq!(error_in("EUCLEAN"), Some("EUCLEAN"));
        assert_eq!(error_in("12288/00000000+EIO"), Some("EIO"));
        assert_eq!(error_in("12288/E0000000"), None);
        assert_eq!(error_in("lost+found:d"), None);
    }
}
