// SPDX-License-Identifier: GPL-2.0

//! One patch file: a mail as `git format-patch` writes it, kept to the part that
//! survives being sent and applied again.

use anyhow::{Context as _, bail, ensure};
use std::fmt::Write as _;

/// The neutral author of every patch file; `upstream mbox` puts the sender there.
pub const AUTHOR: &str = "rext2 <rext2@rext2.invalid>";
/// The fixed date of every patch file, in the mail's form.
pub const DATE: &str = "Thu, 1 Jan 2026 00:00:00 +0000";
/// The same for git.
pub const GIT_DATE: &str = "1767225600 +0000";

const FIRST_LINE: &str = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001";
const NEW_FILE: &str = "New-file: ";

/// A patch file, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Name and address.
    pub author: String,
    /// As the mail says it.
    pub date: String,
    /// The first line of the commit message.
    pub subject: String,
    /// The rest of the commit message, without blank lines around it; may be empty.
    pub body: String,
    /// Paths of new files that the patch brings.
    pub new_files: Vec<String>,
    /// What else stands between `---` and the first hunk: changes between versions, links.
    pub notes: String,
    /// The hunks, from the first `diff --git`; may be empty if there are new files.
    pub diff: String,
}

impl Mail {
    /// Takes a patch file apart; refuses what mail would lose or change.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        ensure!(!text.contains('\r'), "it has lines that end in CR LF");
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line))
            .peekable();
        if lines
            .peek()
            .is_some_and(|(_, line)| line.starts_with("From "))
        {
            lines.next();
        }
        let (mut author, mut date, mut subject) = (None, None, None);
        while let Some((n, line)) = lines.next() {
            if line.is_empty() {
                break;
            }
            let (name, value) = line
                .split_once(": ")
                .with_context(|| format!("line {n} is no mail header: {line:?}"))?;
            let mut value = value.to_owned();
            while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with([' ', '\t'])) {
                value.push(' ');
                value.push_str(more.trim_start());
            }
            ensure!(
                !value.contains("=?"),
                "line {n} is encoded for mail; write {name} in plain UTF-8"
            );
            match name.to_ascii_lowercase().as_str() {
                "from" => author = Some(value),
                "date" => date = Some(value),
                "subject" => subject = Some(value),
                "content-transfer-encoding" => ensure!(
                    value.eq_ignore_ascii_case("8bit") || value.eq_ignore_ascii_case("7bit"),
                    "line {n}: the encoding {value} hides the text; write it as plain UTF-8"
                ),
                _ => {}
            }
        }
        let (mut message, mut below, mut diff) = (Vec::new(), Vec::new(), String::new());
        let mut separated = false;
        for (n, line) in lines {
            if separated && (!diff.is_empty() || line.starts_with("diff --git ")) {
                diff.push_str(line);
                diff.push('\n');
            } else if separated {
                ensure!(
                    !ends_message(line),
                    "line {n} is a second line \"---\": mail drops everything between the first one and the hunks from the commit message"
                );
                below.push(line);
            } else if line == "---" {
                separated = true;
            } else {
                check_message_line(line).with_context(|| format!("line {n}"))?;
                message.push(line);
            }
        }
        ensure!(
            separated,
            "there is no line \"---\" between the message and the hunks"
        );
        let mail = Mail {
            author: author.context("it has no header From")?,
            date: date.context("it has no header Date")?,
            subject: subject
                .context("it has no header Subject")?
                .trim()
                .to_owned(),
            body: tidy(&message),
            new_files: below
                .iter()
                .filter_map(|line| line.strip_prefix(NEW_FILE))
                .map(str::to_owned)
                .collect(),
            notes: tidy(
                &below
                    .iter()
                    .filter(|line| !line.starts_with(NEW_FILE))
                    .copied()
                    .collect::<Vec<_>>(),
            ),
            diff: without_signature(diff),
        };
        mail.check()?;
        Ok(mail)
    }

    /// What `parse` cannot see line by line; also for messages that come from commits.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.subject.is_empty(), "its subject is empty");
        if self.subject.to_ascii_uppercase().starts_with("[PATCH") {
            bail!(
                "its subject begins with [PATCH…]: that is added when the series is sent; remove it"
            );
        }
        check_message_line(&self.subject).context("subject")?;
        for (n, line) in self.body.lines().enumerate() {
            check_message_line(line).with_context(|| format!("message line {}", n + 3))?;
        }
        let first = self.body.lines().next().unwrap_or_default();
        for header in ["From:", "Date:", "Subject:", "[PATCH"] {
            ensure!(
                !first
                    .to_ascii_lowercase()
                    .starts_with(&header.to_ascii_lowercase()),
                "its message begins with \"{header}\": git am takes that line for a header and drops it"
            );
        }
        for line in self.notes.lines() {
            ensure!(
                !ends_message(line) && !line.starts_with("diff --git "),
                "the text below \"---\" has the line {line:?}: everything from there would be taken for hunks"
            );
        }
        ensure!(
            !self.diff.is_empty() || !self.new_files.is_empty(),
            "it changes nothing; a cover text is no patch: remove it from the series"
        );
        Ok(())
    }

    /// The patch file: the same bytes whatever the version of git.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nFrom: {}\nDate: {}\nSubject: {}\n\n",
            self.author, self.date, self.subject
        );
        if !self.body.is_empty() {
            let _ = writeln!(text, "{}\n", self.body);
        }
        text.push_str("---\n");
        for path in &self.new_files {
            let _ = writeln!(text, "{NEW_FILE}{path}");
        }
        if !self.notes.is_empty() {
            let _ = writeln!(text, "{}", self.notes);
        }
        text.push('\n');
        text.push_str(&self.diff);
        text
    }

    /// The commit message.
    pub fn message(&self) -> String {
        if self.body.is_empty() {
            format!("{}\n", self.subject)
        } else {
            format!("{}\n\n{}\n", self.subject, self.body)
        }
    }

    /// Splits a commit message.
    pub fn split_message(message: &str) -> (String, String) {
        let lines: Vec<&str> = message.trim_start_matches('\n').lines().collect();
        let subject = lines
            .first()
            .map(|line| line.trim().to_owned())
            .unwrap_or_default();
        (subject, tidy(lines.get(1..).unwrap_or_default()))
    }
}

/// Whether `git am` ends the message at this line.
fn ends_message(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// Refuses a line of a message that would not come back from a mail.
fn check_message_line(line: &str) -> anyhow::Result<()> {
    let reason = if ends_message(line) {
        "git am drops everything below it"
    } else if line.starts_with("diff -") || line.starts_with("Index: ") {
        "git am takes it for the beginning of the hunks; indent what is only quoted"
    } else if line.starts_with("From ") {
        "a mail box takes it for the next mail; indent it or wrap the text elsewhere"
    } else if line.contains(">8") || line.contains("8<") {
        "it is a scissors line, which drops all above it"
    } else if line.starts_with("New-file:") {
        "it belongs below the line \"---\""
    } else if line.contains('\0') {
        "it holds a zero byte"
    } else {
        return Ok(());
    };
    bail!("{line:?} would not survive as mail: {reason}")
}

/// Lines without blanks at their ends, without blank lines around and doubled ones between.
fn tidy(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut blank = false;
    for line in lines.iter().map(|line| line.trim_end()) {
        if line.is_empty() {
            blank = true;
            continue;
        }
        if blank && !text.is_empty() {
            text.push('\n');
        }
        blank = false;
        text.push_str(line);
        text.push('\n');
    }
    text.pop();
    text
}

/// Cuts off the version of git that `format-patch` puts below the hunks.
fn without_signature(mut diff: String) -> String {
    if let Some(at) = diff.rfind("\n-- \n") {
        let rest = &diff[at + 5..];
        if !rest.contains("\n@@") && rest.trim().lines().count() <= 1 {
            diff.truncate(at + 1);
        }
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";

    fn mail(message: &str, below: &str) -> String {
        format!(
            "{FIRST_LINE}\nFrom: {AUTHOR}\nDate: {DATE}\nSubject: [ext2] fix x\n\n{message}\n---\n{below}\n{DIFF}"
        )
    }

    fn refused(message: &str, below: &str) -> String {
        format!("{:#}", Mail::parse(&mail(message, below)).unwrap_err())
    }

    #[test]
    fn a_mail_comes_back_byte_for_byte() {
        let text = mail(
            "Why.\n\n  indented\n",
            "New-file: a/b.rs\nChanges in v2:\n+++ plus\n@@ at\n",
        );
        let parsed = Mail::parse(&text).unwrap();
        assert_eq!(parsed.subject, "[ext2] fix x");
        assert_eq!(parsed.body, "Why.\n\n  indented");
        assert_eq!(parsed.new_files, ["a/b.rs"]);
        assert_eq!(parsed.notes, "Changes in v2:\n+++ plus\n@@ at");
        assert_eq!(parsed.diff, DIFF);
        assert_eq!(parsed.render(), text);
        assert_eq!(Mail::parse(&parsed.render()).unwrap(), parsed);
    }

    #[test]
    fn the_signature_of_git_is_not_part_of_a_patch() {
        let parsed = Mail::parse(&format!("{}-- \n2.39.5\n\n", mail("Why.\n", ""))).unwrap();
        assert_eq!(parsed.diff, DIFF);
    }

    #[test]
    fn what_mail_loses_is_refused_with_its_line() {
        // The message begins at line 6.
        assert!(refused("Why.\n---\nlost\n", "").contains("line 10 is a second line"));
        assert!(
            refused("Why.\ndiff --git a/f b/f\n", "").contains("line 7: \"diff --git a/f b/f\"")
        );
        assert!(refused("From abc Mon Sep 17 00:00:00 2001\n", "").contains("line 6: \"From abc"));
        assert!(refused("Why.\n-- >8 --\n", "").contains("scissors"));
        assert!(
            refused("From: someone <a@b>\n\nWhy.\n", "").contains("takes that line for a header")
        );
        assert!(refused("Index: f\n", "").contains("beginning of the hunks"));
    }

    #[test]
    fn a_patch_that_changes_nothing_is_refused() {
        let text = format!(
            "{FIRST_LINE}\nFrom: {AUTHOR}\nDate: {DATE}\nSubject: cover\n\nText.\n\n---\n\n"
        );
        assert!(format!("{:#}", Mail::parse(&text).unwrap_err()).contains("changes nothing"));
    }

    #[test]
    fn encoded_headers_and_patch_tags_are_refused() {
        let text = mail("Why.\n", "");
        let encoded = text.replace("[ext2] fix x", "=?UTF-8?q?fix?=");
        assert!(format!("{:#}", Mail::parse(&encoded).unwrap_err()).contains("encoded for mail"));
        let tagged = text.replace("[ext2]", "[PATCH v2 3/9]");
        assert!(format!("{:#}", Mail::parse(&tagged).unwrap_err()).contains("remove it"));
    }

    #[test]
    fn a_folded_subject_is_one_line() {
        let text = mail("Why.\n", "").replace("[ext2] fix x", "rust: fs:\n add x");
        assert_eq!(Mail::parse(&text).unwrap().subject, "rust: fs: add x");
    }
}
