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

const TAIL: &str = "it clears nothing behind the end of a file when the file grows (generic/363)";
const NO_FLUSH: &str = "it flushes the device for fsync only";
const NO_PUNCH: &str = "it has no fallocate";
const NO_EXCHANGE: &str = "it has no RENAME_EXCHANGE";

const TABLE: &[Difference] = &[
    of("ext2", "rename-exchange", "Invalid argument", NO_EXCHANGE),
    of(
        "ext2",
        "rename-exchange-of-directories",
        "Invalid argument",
        NO_EXCHANGE,
    ),
    of("ext2", "tail-after-write", "in a hole", TAIL),
    of("ext2", "tail-after-append-at-the-end", "in a hole", TAIL),
    of("ext2", "tail-after-truncate", "in a hole", TAIL),
    of("ext2", "tail-after-direct-write", "in a hole", TAIL),
    of("ext2", "tail-after-zero-range", "not supported", NO_PUNCH),
    of(
        "ext2",
        "tail-on-disk-before-truncate",
        "in a hole",
        "it shows what the disk had behind the end of a file",
    ),
    Difference {
        layouts: &["1k", "2k"],
        ..of(
            "ext2",
            "largest-file",
            "block is too big",
            "it complains of readahead behind the largest block",
        )
    },
    of(
        "ext2",
        "seek-to-data-and-holes",
        "data: [0..",
        "its only hole is the end of the file",
    ),
    of("ext2", "punch-whole-blocks", "not supported", NO_PUNCH),
    of("ext2", "punch-parts-of-blocks", "not supported", NO_PUNCH),
    of(
        "ext2",
        "punch-frees-pointer-blocks",
        "not supported",
        NO_PUNCH,
    ),
    of("ext2", "punch-beyond-the-end", "not supported", NO_PUNCH),
    of("ext2", "punch-under-a-mapping", "not supported", NO_PUNCH),
    of(
        "ext2",
        "times-with-nanoseconds",
        "on disk: (0, 0)",
        "it stores seconds, whatever room the inode has",
    ),
    of(
        "ext2",
        "mount-time-is-set",
        "mounted at 0",
        "it sets the time of the last mount at the unmount only",
    ),
    of(
        "ext2",
        "unmount-flushes-the-device",
        "not flushed",
        NO_FLUSH,
    ),
    of("ext2", "sync-flushes-the-device", "not flushed", NO_FLUSH),
    of("ext2", "zero-range", "not supported", NO_PUNCH),
];

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
