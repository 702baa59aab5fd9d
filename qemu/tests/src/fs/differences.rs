// SPDX-License-Identifier: GPL-2.0

//! Where other drivers are known to answer otherwise, and why. A case that is
//! listed must fail with the error it is listed with: a driver that has become
//! right must leave the table.

use super::env::Layout;
use crate::job::Job;
use anyhow::{Result, bail};

/// One wrong answer that is known.
struct Difference {
    fs: &'static str,
    test: &'static str,
    /// Layouts where it shows; none means all of them.
    layouts: &'static [&'static str],
    /// A part of the error.
    error: &'static str,
    reason: &'static str,
}

const fn of(
    fs: &'static str,
    test: &'static str,
    error: &'static str,
    reason: &'static str,
) -> Difference {
    Difference {
        fs,
        test,
        layouts: &[],
        error,
        reason,
    }
}

const TABLE: &[Difference] = &[];

/// The cases with differences.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|difference| difference.test)
}

/// Runs a case; with a driver that is known to fail it, it must.
pub fn judge(
    job: &Job,
    test: &str,
    layout: &Layout,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let known = TABLE.iter().find(|known| {
        known.fs == job.fs
            && known.test == test
            && (known.layouts.is_empty() || known.layouts.contains(&layout.name))
    });
    let Some(known) = known else {
        return run();
    };
    match run() {
        Ok(()) => bail!("{} is right here now: {}", job.fs, known.reason),
        Err(error) if format!("{error:#}").contains(known.error) => {
            println!("expected of {}: {error:#}; {}", job.fs, known.reason);
            Ok(())
        }
        Err(error) => Err(error.context(format!("another error than \"{}\"", known.error))),
    }
}
