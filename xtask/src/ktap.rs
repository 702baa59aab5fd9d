// SPDX-License-Identifier: GPL-2.0

//! Reads KTAP version 1 and TAP 13: nested subtests, printk prefixes, foreign
//! lines between results, and streams that end too early.
//!
//! The parser never guesses in favour of a test: what was promised and not
//! seen is crashed or not run, what contradicts itself is an error.

mod line;

use line::{Line, Prefix};
use rext2_init::end_token;
use serde::Serialize;

/// How a test ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It reported success.
    Passed,
    /// It reported failure, or one of its subtests did.
    Failed,
    /// It reported that it could not run, with the reason.
    Skipped(String),
    /// It was the next to report when the reports ended.
    Crashed,
    /// Its turn never came.
    NotRun,
}

/// One test and its subtests.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    /// Its name within its parent.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The `#` lines before its result, and the data behind its name.
    pub diagnostics: Vec<String>,
    /// Its subtests, in order.
    pub subtests: Vec<Test>,
}

/// Number of tests by outcome. A test with subtests counts only through them,
/// unless it failed by itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that were skipped.
    pub skipped: usize,
    /// Tests whose result is missing.
    pub crashed: usize,
    /// Tests whose turn never came.
    pub not_run: usize,
}

impl Counts {
    /// Everything that was seen or promised.
    pub fn total(&self) -> usize {
        self.passed + self.failed + self.skipped + self.crashed + self.not_run
    }

    /// Everything that is neither passed nor skipped.
    pub fn bad(&self) -> usize {
        self.failed + self.crashed + self.not_run
    }

    fn add(&mut self, test: &Test) {
        let before = self.bad();
        for subtest in &test.subtests {
            self.add(subtest);
        }
        let own = test.subtests.is_empty() || (test.is_bad() && self.bad() == before);
        if own {
            match test.outcome {
                Outcome::Passed => self.passed += 1,
                Outcome::Failed => self.failed += 1,
                Outcome::Skipped(_) => self.skipped += 1,
                Outcome::Crashed => self.crashed += 1,
                Outcome::NotRun => self.not_run += 1,
            }
        }
    }
}

impl Test {
    /// Whether it is neither passed nor skipped.
    pub fn is_bad(&self) -> bool {
        !matches!(self.outcome, Outcome::Passed | Outcome::Skipped(_))
    }
}

/// What a stream said.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The tests of the outermost level.
    pub tests: Vec<Test>,
    /// Number of tests that the outermost plan promised.
    pub plan: Option<usize>,
    /// Whether the end token was seen.
    pub ended: bool,
    /// Contradictions in the stream; a report with one is never a success.
    pub errors: Vec<String>,
}

impl Report {
    /// Number of tests by outcome.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.tests.iter().for_each(|test| counts.add(test));
        counts
    }

    /// Every leaf test, and every test that failed by itself, with its full
    /// name: `parent/child`.
    pub fn leaves(&self) -> Vec<(String, &Test)> {
        fn walk<'a>(prefix: &str, test: &'a Test, all: &mut Vec<(String, &'a Test)>) {
            let name = format!("{prefix}{}", test.name);
            let (before, inner) = (all.len(), format!("{name}/"));
            for subtest in &test.subtests {
                walk(&inner, subtest, all);
            }
            let told = all[before..].iter().any(|(_, test)| test.is_bad());
            if test.subtests.is_empty() || (test.is_bad() && !told) {
                all.push((name, test));
            }
        }
        let mut all = Vec::new();
        self.tests.iter().for_each(|test| walk("", test, &mut all));
        all
    }
}

/// Parses a whole stream. With a `token`, only its line ends the stream and
/// nothing may follow it.
pub fn parse(text: &str, token: Option<&str>) -> Report {
    let token = token.map(end_token);
    let mut parser = Parser::default();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(raw) = lines.next() {
        let line = raw.trim_end_matches(['\n', '\r']);
        if parser.report.ended {
            if !line.trim().is_empty() {
                parser.error(format!("output after the end token: {line:?}"));
                break;
            }
        } else if token.as_deref() == Some(line) && raw.ends_with('\n') {
            parser.report.ended = true;
        } else if lines.peek().is_none() && !raw.ends_with('\n') {
            parser.error(format!("the last line is truncated: {line:?}"));
        } else {
            parser.line(line);
        }
    }
    parser.finish()
}

/// One level of tests: the lines between a version line and the parent's result.
#[derive(Default)]
struct Scope {
    indent: usize,
    subject: Option<String>,
    plan: Option<usize>,
    skipped: Option<String>,
    late_plan: bool,
    tests: Vec<Test>,
    numbers: Vec<usize>,
    diagnostics: Vec<String>,
}

impl Scope {
    fn path(&self) -> &str {
        self.subject.as_deref().unwrap_or("top level")
    }

    /// Takes the tests of a closed inner level that got no result.
    fn adopt(&mut self, (subject, subtests): Closed) {
        self.numbers.push(self.tests.len() + 1);
        self.tests.push(Test {
            name: subject.unwrap_or_else(|| "unnamed".to_owned()),
            outcome: Outcome::Crashed,
            diagnostics: std::mem::take(&mut self.diagnostics),
            subtests,
        });
    }

    /// The tests of the level; a promised one without a result is crashed if
    /// it was the next in turn, else not run.
    fn close(mut self) -> Vec<Test> {
        let crashed = |test: &Test| test.outcome == Outcome::Crashed;
        let plan = self.plan.unwrap_or(0);
        let missing = plan.saturating_sub(self.tests.len());
        let numbers = (1..=plan).filter(|number| !self.numbers.contains(number));
        for number in numbers.take(missing) {
            let outcome = match self.tests.iter().any(crashed) {
                true => Outcome::NotRun,
                false => Outcome::Crashed,
            };
            self.tests.push(Test {
                name: format!("test {number}"),
                outcome,
                diagnostics: std::mem::take(&mut self.diagnostics),
                subtests: Vec::new(),
            });
        }
        self.tests
    }
}

/// The subject and the tests of an inner level, waiting for their result.
type Closed = (Option<String>, Vec<Test>);

#[derive(Default)]
struct Parser {
    prefix: Option<Prefix>,
    scopes: Vec<Scope>,
    closed: Option<Closed>,
    report: Report,
}

impl Parser {
    fn error(&mut self, text: String) {
        self.report.errors.push(text);
    }

    fn line(&mut self, raw: &str) {
        let Some(prefix) = &self.prefix else {
            if let Some(prefix) = Prefix::find(raw) {
                self.prefix = Some(prefix);
                self.scopes.push(Scope::default());
            }
            return;
        };
        let Some((indent, line)) = prefix.strip(raw).and_then(line::parse) else {
            return;
        };
        match line {
            Line::Version => self.open(indent, None),
            Line::Subtest(name) => self.open(indent, Some(name)),
            Line::Plan(count, skip) => self.plan(indent, count, skip),
            Line::Result(result) => self.result(indent, result),
            Line::Diagnostic(text) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.diagnostics.push(text);
                }
            }
            Line::BailOut(reason) => self.error(format!("bail out: {reason}")),
        }
    }

    fn depth(&self) -> usize {
        self.scopes.last().map_or(0, |scope| scope.indent)
    }

    /// A version or subtest line: the head of a level, in one line or two.
    fn open(&mut self, indent: usize, subject: Option<String>) {
        if let Some(scope) = self.scopes.last_mut()
            && scope.indent == indent
            && scope.tests.is_empty()
            && scope.plan.is_none()
            && scope.subject.is_none()
            && subject.is_some()
        {
            scope.subject = subject;
            return;
        }
        if indent <= self.depth() {
            return self.error("a level of tests starts inside another one".to_owned());
        }
        if let (Some(scope), Some(closed)) = (self.scopes.last_mut(), self.closed.take()) {
            scope.adopt(closed);
        }
        self.scopes.push(Scope {
            indent,
            subject,
            ..Scope::default()
        });
    }

    fn plan(&mut self, indent: usize, count: usize, skip: Option<String>) {
        if indent > self.depth() {
            self.open(indent, None);
        }
        self.unwind(indent);
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        let path = scope.path().to_owned();
        if scope.plan.is_some() {
            return self.error(format!("{path}: second plan"));
        }
        scope.plan = Some(count);
        scope.late_plan = !scope.tests.is_empty();
        if let Some(reason) = skip {
            scope.skipped = Some(reason);
        }
        if scope.late_plan {
            self.error(format!("{path}: plan after the first result"));
        }
    }

    fn result(&mut self, indent: usize, result: line::TestResult) {
        if indent > self.depth() {
            return self.error(format!(
                "result outside of any level of tests: {:?}",
                result.name
            ));
        }
        self.unwind(indent);
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        let path = scope.path().to_owned();
        let mut errors = Vec::new();
        let (subject, subtests) = self.closed.take().unwrap_or_default();
        if let Some(subject) = subject.filter(|subject| *subject != result.name) {
            errors.push(format!(
                "{path}: result of {:?} after the subtests of {subject:?}",
                result.name
            ));
        }
        let expected = scope.tests.len() + 1;
        let number = result.number.unwrap_or(expected);
        if scope.numbers.contains(&number) {
            errors.push(format!("{path}: second result number {number}"));
        } else if scope.plan.is_some() && number != expected {
            errors.push(format!("{path}: result {number}, expected {expected}"));
        }
        if scope.plan.is_some_and(|plan| number > plan) {
            errors.push(format!("{path}: result {number} is beyond the plan"));
        }
        if scope.tests.iter().any(|test| test.name == result.name) {
            errors.push(format!("{path}: second test named {:?}", result.name));
        }
        let mut diagnostics = std::mem::take(&mut scope.diagnostics);
        diagnostics.extend(result.data);
        let failed_below = subtests.iter().any(Test::is_bad);
        scope.numbers.push(number);
        scope.tests.push(Test {
            name: result.name,
            outcome: match result.outcome {
                Outcome::Passed if failed_below => Outcome::Failed,
                outcome => outcome,
            },
            diagnostics,
            subtests,
        });
        self.report.errors.append(&mut errors);
    }

    /// Closes the levels that are deeper than `indent`.
    fn unwind(&mut self, indent: usize) {
        while self.scopes.len() > 1 && self.depth() > indent {
            let Some(scope) = self.scopes.pop() else {
                return;
            };
            self.hand_up(scope, false);
        }
    }

    /// Makes a closed level the subtests of the next result.
    fn hand_up(&mut self, mut scope: Scope, ended: bool) {
        if let Some(closed) = self.closed.take() {
            scope.adopt(closed);
        }
        let empty = scope.tests.is_empty() && scope.plan.unwrap_or(0) == 0;
        if empty && scope.skipped.is_none() && !ended {
            self.error(format!("{}: no tests", scope.path()));
        }
        self.closed = Some((scope.subject.clone(), scope.close()));
    }

    fn finish(mut self) -> Report {
        while let Some(scope) = self.scopes.pop() {
            if self.scopes.is_empty() {
                self.report.plan = scope.plan;
                if let (Some(0), Some(reason)) = (scope.plan, &scope.skipped) {
                    self.report.tests.push(Test {
                        name: "all".to_owned(),
                        outcome: Outcome::Skipped(reason.clone()),
                        diagnostics: Vec::new(),
                        subtests: Vec::new(),
                    });
                }
            }
            self.hand_up(scope, true);
        }
        if let Some((_, tests)) = self.closed.take() {
            self.report.tests.extend(tests);
        }
        if self.report.tests.is_empty() {
            self.error("no tests".to_owned());
        }
        self.report
    }
}

#[cfg(test)]
mod tests;
