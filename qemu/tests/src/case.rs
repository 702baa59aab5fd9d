// SPDX-License-Identifier: GPL-2.0

//! What a suite is made of: groups of cases, each a function with a time limit.

use crate::job::Job;
use anyhow::Result;
use std::fmt;
use std::time::Duration;

/// One test.
pub struct Case {
    /// Its name, unique in its group.
    pub name: String,
    /// How long it may take on a slow guest.
    pub limit: Duration,
    /// The test: an error is a failure, a [`Skip`] in it is not.
    pub run: Box<Test>,
}

/// What a case does.
pub type Test = dyn Fn(&Job) -> Result<()>;

impl Case {
    /// A case with the usual limit.
    pub fn new(name: impl Into<String>, run: impl Fn(&Job) -> Result<()> + 'static) -> Case {
        Case {
            name: name.into(),
            limit: Duration::from_secs(60),
            run: Box::new(run),
        }
    }

    /// The same case with another limit.
    pub fn limit(self, seconds: u64) -> Case {
        Case {
            limit: Duration::from_secs(seconds),
            ..self
        }
    }
}

/// Cases that belong together; a subtest of the suite.
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its cases, run in this order.
    pub cases: Vec<Case>,
}

/// The error of a case that does not apply.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Leaves a case out, with a reason.
pub fn skip<T>(reason: impl Into<String>) -> Result<T> {
    Err(Skip(reason.into()).into())
}
