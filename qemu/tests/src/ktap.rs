// SPDX-License-Identifier: GPL-2.0

//! Writes KTAP version 1: plans, results with directives, diagnostics, and
//! subtests one level down.

use std::io::{self, Write};

/// What came of a test.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It did not apply, for this reason.
    Skipped(String),
    /// It failed, for this reason.
    Failed(String),
    /// It did not end in time.
    TimedOut(String),
}

impl Outcome {
    /// Whether a suite with this outcome has failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::TimedOut(_))
    }
}

/// One stream, or one group of subtests in it.
pub struct Ktap<W> {
    out: W,
    indent: &'static str,
    number: usize,
}

impl<W: Write> Ktap<W> {
    /// Starts a stream of `plan` tests.
    pub fn start(mut out: W, plan: usize) -> io::Result<Self> {
        write!(out, "KTAP version 1\n1..{plan}\n")?;
        out.flush()?;
        Ok(Ktap {
            out,
            indent: "",
            number: 0,
        })
    }

    /// Starts the next test, `name`, as a group of `plan` subtests; its own
    /// result follows with [`Ktap::result`] on `self`.
    pub fn group(&mut self, name: &str, plan: usize) -> io::Result<Ktap<&mut W>> {
        let mut group = Ktap {
            out: &mut self.out,
            indent: "    ",
            number: 0,
        };
        group.line("KTAP version 1")?;
        group.line(&format!("# Subtest: {name}"))?;
        group.line(&format!("1..{plan}"))?;
        Ok(group)
    }

    /// Reports the next test. Its notes go in front of its result, as ktap.rst
    /// has it; so does a reason that does not fit in the line.
    pub fn result(&mut self, name: &str, outcome: &Outcome, notes: &str) -> io::Result<()> {
        self.number += 1;
        self.notes(notes)?;
        let (word, directive) = match outcome {
            Outcome::Passed => ("ok", String::new()),
            Outcome::Skipped(reason) => ("ok", format!(" # SKIP {}", one_line(reason))),
            Outcome::Failed(reason) => {
                self.notes(reason)?;
                ("not ok", String::new())
            }
            Outcome::TimedOut(reason) => ("not ok", format!(" # TIMEOUT {}", one_line(reason))),
        };
        // In a name, '#' would start a directive.
        let name = one_line(name).replace('#', "_");
        self.line(&format!("{word} {} {name}{directive}", self.number))
    }

    /// Says something about the next test, before it has a result.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.notes(text)
    }

    fn notes(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            self.line(&format!("# {line}"))?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}{text}", self.indent)?;
        self.out.flush()
    }
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(write: impl Fn(&mut Ktap<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        write(&mut Ktap::start(&mut out, 2).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn results_are_numbered_and_carry_directives() {
        let text = stream(|ktap| {
            ktap.result("read", &Outcome::Passed, "").unwrap();
            let skipped = Outcome::Skipped("no device\nfound".into());
            ktap.result("direct", &skipped, "").unwrap();
            let late = Outcome::TimedOut("timed out after 5 s".into());
            ktap.result("hang", &late, "").unwrap();
        });
        assert_eq!(
            text,
            "KTAP version 1\n1..2\nok 1 read\nok 2 direct # SKIP no device; found\n\
             not ok 3 hang # TIMEOUT timed out after 5 s\n"
        );
    }

    #[test]
    fn reasons_and_notes_are_diagnostics_before_the_result() {
        let text = stream(|ktap| {
            let failed = Outcome::Failed("size: 1\nwanted: 2".into());
            ktap.result("a # b", &failed, "12 ms").unwrap();
        });
        assert_eq!(
            text,
            "KTAP version 1\n1..2\n# 12 ms\n# size: 1\n# wanted: 2\nnot ok 1 a _ b\n"
        );
    }

    #[test]
    fn a_group_is_indented_and_its_result_is_not() {
        let text = stream(|ktap| {
            let mut group = ktap.group("mount", 1).unwrap();
            group.result("ro", &Outcome::Passed, "").unwrap();
            ktap.result("mount", &Outcome::Passed, "").unwrap();
        });
        assert_eq!(
            text,
            "KTAP version 1\n1..2\n    KTAP version 1\n    # Subtest: mount\n    1..1\n    \
             ok 1 ro\nok 1 mount\n"
        );
    }
}
