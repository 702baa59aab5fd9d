// SPDX-License-Identifier: GPL-2.0

//! What fstests' `check` says while it runs: which test has begun, and how the
//! one before it has ended. Nothing is taken for a success that does not look
//! exactly like one.

use crate::ktap::Outcome;
use std::collections::VecDeque;

/// Something that `check` has said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// This test runs.
    Begun(String),
    /// This test has ended.
    Ended(String, Outcome),
}

/// The reader of the stream.
pub struct Stream {
    /// Tests that have not begun, in their order.
    expected: VecDeque<String>,
    /// The test that runs, and what was said about it.
    current: Option<(String, String)>,
    /// The line that is not complete.
    line: String,
}

impl Stream {
    /// Of a `check` that runs these tests in this order.
    pub fn new(tests: &[String]) -> Self {
        Stream {
            expected: tests.iter().cloned().collect(),
            current: None,
            line: String::new(),
        }
    }

    /// The test that runs.
    pub fn current(&self) -> Option<&str> {
        self.current.as_ref().map(|(name, _)| name.as_str())
    }

    /// Takes what was said since the last call.
    pub fn feed(&mut self, text: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece);
            // A test's name comes without a line break, and before the test.
            if let Some(name) = self.begins() {
                steps.extend(self.end());
                self.expected.retain(|expected| *expected != name);
                self.line.drain(..name.len());
                self.current = Some((name.clone(), String::new()));
                steps.push(Step::Begun(name));
            }
            if self.line.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                if line.starts_with("Ran:") || line.starts_with("Interrupted!") {
                    steps.extend(self.end());
                } else if let Some((_, said)) = &mut self.current {
                    said.push_str(&line);
                }
            }
        }
        steps
    }

    /// The end of the stream: a test that still ran has no result.
    pub fn finish(mut self) -> Vec<Step> {
        let rest = std::mem::take(&mut self.line);
        if let Some((_, said)) = &mut self.current {
            said.push_str(&rest);
        }
        self.end().into_iter().collect()
    }

    /// The expected test whose name the line starts with. Tests may be left out
    /// by `check`, so it need not be the next one.
    fn begins(&self) -> Option<String> {
        let (word, _) = self.line.split_once([' ', '\n'])?;
        let found = self.expected.iter().find(|name| *name == word)?;
        Some(found.clone())
    }

    fn end(&mut self) -> Option<Step> {
        let (name, said) = self.current.take()?;
        let outcome = judge(&said);
        Some(Step::Ended(name, outcome))
    }
}

/// What the words behind a test's name mean.
fn judge(said: &str) -> Outcome {
    // ` 12s ... ` is how long it took the last time.
    let now = match said.split_once("s ... ") {
        Some((last, now)) if is_number(last) => now,
        _ => said,
    };
    if now.trim().strip_suffix('s').is_some_and(is_number) {
        return Outcome::Passed;
    }
    match now.trim_start().strip_prefix("[not run] ") {
        Some(reason) => Outcome::Skipped(reason.trim().to_owned()),
        None => Outcome::Failed(match now.trim() {
            "" => "check said nothing about it".to_owned(),
            said => said.to_owned(),
        }),
    }
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run as `check` shows it.
    const RUN: &str = "FSTYP         -- ext2\n\
        PLATFORM      -- Linux/x86_64 rext2 6.12.117 #1 SMP PREEMPT\n\
        MKFS_OPTIONS  -- /dev/vdd\n\
        MOUNT_OPTIONS -- -o acl,user_xattr /dev/vdd /mnt/scratch\n\
        \n\
        generic/001        5s\n\
        generic/002 12s ...  4s\n\
        generic/018        [not run] defragmentation not supported for fstype \"ext2\"\n\
        generic/037        [failed, exit status 1]- output mismatch (see /results/generic/037.out.bad)\n\
        \u{20}   --- tests/generic/037.out\t2026-01-01\n\
        \u{20}   @@ -1,2 +1 @@\n\
        generic/068       _check_generic_filesystem: filesystem on /dev/vdd is inconsistent\n\
        (see /results/generic/068.full for details)\n\
        \n\
        Ran: generic/001 generic/002 generic/018 generic/037 generic/068\n\
        Not run: generic/018\n\
        Failures: generic/037 generic/068\n\
        Failed 2 of 5 tests\n";

    fn names() -> Vec<String> {
        ["001", "002", "018", "037", "068"]
            .map(|number| format!("generic/{number}"))
            .to_vec()
    }

    fn outcomes(steps: Vec<Step>) -> Vec<(String, Outcome)> {
        steps
            .into_iter()
            .filter_map(|step| match step {
                Step::Ended(name, outcome) => Some((name, outcome)),
                Step::Begun(_) => None,
            })
            .collect()
    }

    #[test]
    fn every_kind_of_end_is_told_apart() {
        let mut stream = Stream::new(&names());
        let mut steps = stream.feed(RUN);
        steps.extend(stream.finish());
        let ended = outcomes(steps);
        let ended: Vec<_> = ended
            .iter()
            .map(|(name, end)| (name.as_str(), end))
            .collect();
        assert_eq!(ended.len(), 5);
        assert_eq!(ended[0], ("generic/001", &Outcome::Passed));
        assert_eq!(ended[1], ("generic/002", &Outcome::Passed));
        let reason = "defragmentation not supported for fstype \"ext2\"";
        assert_eq!(ended[2], ("generic/018", &Outcome::Skipped(reason.into())));
        let Outcome::Failed(said) = ended[3].1 else {
            panic!("{:?}", ended[3]);
        };
        assert!(said.starts_with("[failed, exit status 1]") && said.ends_with("@@ -1,2 +1 @@"));
        let Outcome::Failed(said) = ended[4].1 else {
            panic!("{:?}", ended[4]);
        };
        assert!(said.contains("is inconsistent"), "{said}");
    }

    #[test]
    fn a_test_begins_before_its_line_ends() {
        let mut stream = Stream::new(&names());
        assert_eq!(stream.feed("\ngeneric/0"), []);
        let begun = Step::Begun("generic/001".to_owned());
        assert_eq!(stream.feed("01       "), [begun]);
        assert_eq!(stream.current(), Some("generic/001"));
        assert_eq!(stream.feed(" 5"), []);
        let ended = Step::Ended("generic/001".to_owned(), Outcome::Passed);
        let begun = Step::Begun("generic/002".to_owned());
        assert_eq!(stream.feed("s\ngeneric/002 "), [ended, begun]);
    }

    #[test]
    fn what_was_cut_off_is_no_success() {
        let mut stream = Stream::new(&names());
        stream.feed("generic/001        12s ... ");
        assert!(matches!(
            outcomes(stream.finish())[..],
            [(_, Outcome::Failed(_))]
        ));
        for said in ["", " 5", " 5s\nsomething else\n", "[dumped core] 5s"] {
            assert!(matches!(judge(said), Outcome::Failed(_)), "{said:?}");
        }
    }

    #[test]
    fn other_names_are_not_taken_for_tests() {
        let mut stream = Stream::new(&names());
        assert_eq!(stream.feed("generic/0011 x\ngeneric/999  5s\n"), []);
    }
}
