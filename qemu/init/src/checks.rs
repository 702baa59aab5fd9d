// SPDX-License-Identifier: GPL-2.0

//! What the kernel itself has to say about the run.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
/// kmemleak says nothing of objects younger than five seconds.
const MIN_AGE: Duration = Duration::from_millis(5100);
/// As much of the report as an event carries.
const HEAD: usize = 16 << 10;

/// The kernel's taint flags.
pub fn tainted() -> Result<u64> {
    let path = "/proc/sys/kernel/tainted";
    let text = fs::read_to_string(path).context(format!("cannot read {path}"))?;
    text.trim().parse().context(format!("cannot parse {path}"))
}

/// Whether the kernel can look for leaks.
pub fn has_kmemleak() -> bool {
    Path::new(KMEMLEAK).exists()
}

/// Scans for leaks; gives their number and the head of the report if there
/// are any. The second scan drops what the first saw only half released.
pub fn kmemleak() -> Result<Option<(u64, String)>> {
    for _ in 0..2 {
        std::thread::sleep(MIN_AGE / 2);
        fs::write(KMEMLEAK, "scan").context("cannot scan for leaked memory")?;
    }
    let mut report = fs::read_to_string(KMEMLEAK).context("cannot read the leak report")?;
    let count = report
        .lines()
        .filter(|line| line.starts_with("unreferenced object"))
        .count();
    let mut end = HEAD.min(report.len());
    while !report.is_char_boundary(end) {
        end -= 1;
    }
    report.truncate(end);
    Ok((count > 0).then_some((count as u64, report)))
}
