// SPDX-License-Identifier: GPL-2.0

//! The suites by name. The host asks, too: for the names of their cases, and
//! whether a request is one that can be served.

use crate::case::Group;
use crate::job::Job;
use crate::{crash, dio, exercise, fs, fuzz, images, smoke, stress, uncached};
use anyhow::{Result, bail};

/// What the requested suite is made of.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    match job.suite.as_str() {
        "smoke" => smoke::groups(job),
        "images" => images::groups(job),
        "fs" => fs::groups(job),
        "dio" => dio::groups(job),
        "parallel" => dio::times(job),
        "crash" => crash::groups(job),
        "fuzz" => fuzz::groups(job),
        "uncached" => uncached::groups(job),
        "exercise" => exercise::groups(job),
        "stress" => stress::groups(job),
        other => bail!("unknown suite {other:?}; `cargo xtask test --list` shows the known ones"),
    }
}
