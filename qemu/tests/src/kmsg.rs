// SPDX-License-Identifier: GPL-2.0

//! The kernel log as a stream of lines: what was said since a given moment.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, read};
use std::fs;
use std::os::fd::OwnedFd;

const KMSG: &str = "/dev/kmsg";

/// What no kernel says that is well.
const ALARMS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "Oops",
    "KASAN:",
    "KCSAN:",
    "UBSAN:",
    "general protection fault",
    "Kernel panic",
    "possible circular locking",
    "possible recursive locking",
    "inconsistent lock state",
    "suspicious RCU usage",
    "sleeping function called from invalid context",
    "blocked for more than",
    "self-detected stall",
    "detected stalls on",
    "soft lockup",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    "Objects remaining in",
];

/// A position in the kernel log.
pub struct Kmsg(OwnedFd);

impl Kmsg {
    /// The end of the log as it is now.
    pub fn now() -> Result<Kmsg> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(KMSG, flags, Mode::empty()).context(format!("cannot open {KMSG}"))?;
        seek(&fd, SeekFrom::End(0)).context(format!("cannot seek in {KMSG}"))?;
        Ok(Kmsg(fd))
    }

    /// The lines since the last call, without their prefixes.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        loop {
            match read(&self.0, &mut record[..]) {
                Ok(length) => lines.extend(message(&record[..length])),
                Err(Errno::AGAIN) => return Ok(lines),
                // Overwritten before we came: go on with the oldest that is left.
                Err(Errno::PIPE) => lines.push("(kernel messages were lost)".into()),
                Err(error) => return Err(error).context(format!("cannot read {KMSG}")),
            }
        }
    }
}

/// Puts a line of ours into the kernel log, so that the console tells which
/// test the kernel's lines belong to.
pub fn mark(text: &str) -> Result<()> {
    fs::write(KMSG, format!("<6>rext2-tests: {text}\n")).context(format!("cannot write to {KMSG}"))
}

/// The lines among `lines` that report a fault of the kernel.
pub fn alarms(lines: &[String]) -> Vec<&str> {
    let alarming = |line: &&String| ALARMS.iter().any(|alarm| line.contains(alarm));
    lines.iter().filter(alarming).map(String::as_str).collect()
}

/// The text of a record: `PRIORITY,SEQUENCE,TIME,FLAGS;TEXT\n KEY=VALUE\n`.
fn message(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (_, text) = record.split_once(';')?;
    let line = text.lines().next()?;
    (!line.starts_with("rext2-tests: ")).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_reduced_to_its_text() {
        let record = b"3,339,5140900,-;rext2 (vdb1): bad s_inode_size 100\n SUBSYSTEM=block\n";
        assert_eq!(
            message(record).as_deref(),
            Some("rext2 (vdb1): bad s_inode_size 100")
        );
        assert_eq!(message(b"6,1,1,-;rext2-tests: a mark\n"), None);
    }

    #[test]
    fn alarms_are_found_among_harmless_lines() {
        let lines = [
            "loop0: detected capacity change",
            "BUG: KASAN: use-after-free",
        ];
        let lines = lines.map(String::from);
        assert_eq!(alarms(&lines), ["BUG: KASAN: use-after-free"]);
    }
}
