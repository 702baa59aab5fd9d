// SPDX-License-Identifier: GPL-2.0

//! One line of KTAP: the printk prefix off, the indentation counted, the rest
//! recognised.

use super::Outcome;

/// What stands before every line of a stream that went through the kernel's
/// log: `[    0.060000][    T1] `.
pub struct Prefix(usize);

impl Prefix {
    /// The prefix of the version line, which starts every stream.
    pub fn find(raw: &str) -> Option<Self> {
        let start = raw
            .find("KTAP version ")
            .or_else(|| raw.find("TAP version "))?;
        let (before, line) = raw.split_at(start);
        let log = before.starts_with('[') && before.trim_end().ends_with(']');
        let alone = before.is_empty() || log;
        (alone && is_version(line)).then_some(Self(start))
    }

    /// The line without the prefix; `None` for a line without one.
    pub fn strip<'a>(&self, raw: &'a str) -> Option<&'a str> {
        match self.0 {
            0 => Some(raw),
            width => {
                let (before, line) = raw.split_at_checked(width)?;
                (before.starts_with('[') && before.ends_with(' ')).then_some(line)
            }
        }
    }
}

/// A recognised line.
pub enum Line {
    /// `KTAP version 1`
    Version,
    /// `# Subtest: name`
    Subtest(String),
    /// `1..N`, perhaps with the reason why there is nothing to run.
    Plan(usize, Option<String>),
    /// `ok 1 name # DIRECTIVE data`
    Result(TestResult),
    /// `# text`
    Diagnostic(String),
    /// `Bail out! reason`
    BailOut(String),
}

/// A result line.
pub struct TestResult {
    pub number: Option<usize>,
    pub name: String,
    pub outcome: Outcome,
    pub data: Option<String>,
}

/// The indentation and the meaning of a line; `None` for foreign text.
pub fn parse(raw: &str) -> Option<(usize, Line)> {
    let line = raw.trim_start_matches(' ');
    let indent = raw.len() - line.len();
    let line = line.trim_end();
    let parsed = if is_version(line) {
        Line::Version
    } else if let Some(name) = line.strip_prefix("# Subtest:") {
        Line::Subtest(name.trim().to_owned())
    } else if let Some(text) = line.strip_prefix('#') {
        Line::Diagnostic(text.trim().to_owned())
    } else if let Some(reason) = line.strip_prefix("Bail out!") {
        Line::BailOut(reason.trim().to_owned())
    } else {
        plan(line).or_else(|| result(line).map(Line::Result))?
    };
    Some((indent, parsed))
}

fn is_version(line: &str) -> bool {
    matches!(
        line.trim_end(),
        "KTAP version 1" | "TAP version 13" | "TAP version 14"
    )
}

fn plan(line: &str) -> Option<Line> {
    let (count, rest) = match line.strip_prefix("1..")?.split_once('#') {
        Some((count, rest)) => (count.trim(), Some(rest.trim())),
        None => (line.strip_prefix("1..")?, None),
    };
    let skip = rest.and_then(|rest| word(rest, "SKIP"));
    Some(Line::Plan(count.parse().ok()?, skip.map(str::to_owned)))
}

/// The text after the word that starts `text`, whatever its case.
fn word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(word.len())?;
    let whole = !tail.starts_with(|c: char| c.is_alphanumeric());
    (head.eq_ignore_ascii_case(word) && whole).then(|| tail.trim_start_matches([':', ' ']))
}

fn result(line: &str) -> Option<TestResult> {
    let (ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let rest = rest.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits);
    let (text, data) = split_directive(rest.trim_start());
    let name = text.strip_prefix("- ").unwrap_or(text).trim();
    let plain = if ok { Outcome::Passed } else { Outcome::Failed };
    let (outcome, data) = match data {
        None => (plain, None),
        Some(data) => directive(plain, data),
    };
    Some(TestResult {
        number: number.parse().ok(),
        name: match (name, number) {
            ("", "") => "unnamed".to_owned(),
            ("", number) => format!("test {number}"),
            _ => name.replace("\\#", "#"),
        },
        outcome,
        data,
    })
}

/// The name, and what follows the first `#` that is not escaped.
fn split_directive(text: &str) -> (&str, Option<&str>) {
    let hash = text
        .match_indices('#')
        .find(|(at, _)| !text[..*at].ends_with('\\'));
    match hash {
        Some((at, _)) => (&text[..at], Some(text[at + 1..].trim())),
        None => (text, None),
    }
}

fn directive(plain: Outcome, data: &str) -> (Outcome, Option<String>) {
    // Either result word may carry SKIP; a known failure (TODO) says nothing
    // about the code under test either.
    for name in ["SKIP", "TODO"] {
        if let Some(reason) = word(data, name) {
            return (Outcome::Skipped(reason.to_owned()), None);
        }
    }
    let outcome = match data {
        _ if word(data, "TIMEOUT").is_some() || word(data, "ERROR").is_some() => Outcome::Failed,
        _ => plain,
    };
    (outcome, Some(data.to_owned()))
}
