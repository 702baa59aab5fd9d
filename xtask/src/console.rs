// SPDX-License-Identifier: GPL-2.0

//! The guest's console: which lines spoil a run, by `qemu/console.toml`.

use anyhow::Context as _;
use fs_err as fs;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use std::path::Path;

use crate::project::Project;

/// What a line means.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The kernel stopped.
    Panic,
    /// The machine below the kernel gave up.
    Qemu,
    /// A report that does not stop the kernel.
    Splat,
}

/// A line that spoils the run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What it means.
    pub kind: Kind,
    /// Its number in the console's file, from 1.
    pub line: usize,
    /// The line, without its time stamp.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    deny: Vec<Deny>,
    #[serde(default)]
    allow: Vec<Allow>,
    #[serde(default)]
    taint: Vec<Taint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    kind: Kind,
    pattern: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    pattern: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Taint {
    flag: char,
    reason: String,
}

/// The kernel's taint flags in the order of their bits.
const TAINTS: &str = "PFSRMBUDAWCIOELKXTNJ";

/// The lists, ready for use.
pub struct Lists {
    deny: Vec<(Kind, Regex)>,
    allow: Vec<Regex>,
    taint: Vec<char>,
}

impl Lists {
    /// Reads the lists of the checkout.
    pub fn load(project: &Project) -> anyhow::Result<Self> {
        Self::read(&project.qemu().join("console.toml"))
    }

    /// Reads the lists.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file)?;
        let lists = toml::from_str(&text)
            .map_err(anyhow::Error::from)
            .and_then(Self::compile);
        lists.with_context(|| format!("cannot read {}", file.display()))
    }

    fn compile(file: File) -> anyhow::Result<Self> {
        let reasons = (file.deny.iter().map(|entry| &entry.reason))
            .chain(file.allow.iter().map(|entry| &entry.reason))
            .chain(file.taint.iter().map(|entry| &entry.reason));
        if reasons.into_iter().any(|reason| reason.trim().is_empty()) {
            anyhow::bail!("an entry has no reason");
        }
        let regex = |pattern: &str| Regex::new(pattern).context(format!("pattern {pattern:?}"));
        Ok(Lists {
            deny: (file.deny.iter())
                .map(|entry| Ok((entry.kind, regex(&entry.pattern)?)))
                .collect::<anyhow::Result<_>>()?,
            allow: (file.allow.iter())
                .map(|entry| regex(&entry.pattern))
                .collect::<anyhow::Result<_>>()?,
            taint: file.taint.iter().map(|entry| entry.flag).collect(),
        })
    }

    /// What one line means, if it spoils the run.
    pub fn line(&self, raw: &str) -> Option<Kind> {
        let text = strip(raw);
        let (kind, _) = self.deny.iter().find(|(_, regex)| regex.is_match(text))?;
        let allowed = self.allow.iter().any(|regex| regex.is_match(text));
        (!allowed).then_some(*kind)
    }

    /// Everything in a console that spoils the run.
    pub fn scan(&self, console: &str) -> Vec<Finding> {
        let finding = |(index, raw)| {
            Some(Finding {
                kind: self.line(raw)?,
                line: index + 1,
                text: strip(raw).to_owned(),
            })
        };
        console.lines().enumerate().filter_map(finding).collect()
    }

    /// The letters of the taint flags that spoil the run.
    pub fn taint(&self, flags: u64) -> String {
        let bit = |(bit, letter): (usize, char)| {
            (flags >> bit & 1 == 1 && !self.taint.contains(&letter)).then_some(letter)
        };
        let mut letters: String = TAINTS.chars().enumerate().filter_map(bit).collect();
        if flags >> TAINTS.len() != 0 {
            letters.push('?');
        }
        letters
    }
}

/// The line without printk's time and caller: `[    0.060000][    T1] `.
fn strip(raw: &str) -> &str {
    let mut text = raw.trim_end_matches('\r');
    // A level prefix, as /dev/kmsg and early consoles show it.
    if let Some((level, rest)) = text.split_once('>')
        && let Some(digits) = level.strip_prefix('<')
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        text = rest;
    }
    while let Some((stamp, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let stamp = stamp.trim();
        let digits = stamp.trim_start_matches(['T', 'C']);
        let number = |c: char| c.is_ascii_digit() || c == '.';
        if digits.is_empty() || !digits.chars().all(number) {
            break;
        }
        text = rest.strip_prefix(' ').unwrap_or(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> Lists {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
        Lists::read(&file).unwrap()
    }

    #[test]
    fn reports_are_found_with_and_without_time_stamps() {
        let lists = lists();
        for (kind, line) in [
            (
                Kind::Panic,
                "Kernel panic - not syncing: VFS: Unable to mount root",
            ),
            (Kind::Panic, "Oops: 0000 [#1] PREEMPT SMP"),
            (
                Kind::Panic,
                "Oops: general protection fault, probably for address 0xdead: 0000 [#1]",
            ),
            (
                Kind::Panic,
                "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            ),
            (
                Kind::Panic,
                "BUG: unable to handle page fault for address: ffffffffdeadbeef",
            ),
            (Kind::Panic, "kernel BUG at fs/ext2/inode.c:42!"),
            (Kind::Panic, "rust_kernel: panicked at module/dir.rs:7:9:"),
            (
                Kind::Splat,
                "WARNING: CPU: 1 PID: 33 at fs/iomap/buffered-io.c:99 iomap_iter+0x1/0x2",
            ),
            (
                Kind::Splat,
                "WARNING: possible circular locking dependency detected",
            ),
            (Kind::Splat, "WARNING: suspicious RCU usage"),
            (
                Kind::Splat,
                "BUG: KASAN: slab-use-after-free in rext2_get_block+0x1/0x2",
            ),
            (Kind::Splat, "BUG: KCSAN: data-race in a / b"),
            (
                Kind::Splat,
                "UBSAN: shift-out-of-bounds in fs/ext2/super.c:1:2",
            ),
            (
                Kind::Splat,
                "BUG: sleeping function called from invalid context at mm/slab.h:1",
            ),
            (
                Kind::Splat,
                "BUG: scheduling while atomic: rext2-tests/33/0x00000002",
            ),
            (Kind::Splat, "BUG: Bad page state in process rm  pfn:01234"),
            (
                Kind::Splat,
                "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [rm:33]",
            ),
            (
                Kind::Splat,
                "INFO: task rm:33 blocked for more than 60 seconds.",
            ),
            (
                Kind::Splat,
                "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            ),
            (Kind::Splat, "------------[ cut here ]------------"),
            (Kind::Splat, "rext2-init: error: cannot open port rext2.ctl"),
            (Kind::Qemu, "KVM internal error. Suberror: 1"),
        ] {
            for prefix in [
                "",
                "[    1.234567] ",
                "[    1.234567][   T33] ",
                "<4>[  123.4] ",
            ] {
                assert_eq!(
                    lists.line(&format!("{prefix}{line}\r")),
                    Some(kind),
                    "{prefix}{line}"
                );
            }
        }
    }

    #[test]
    fn ordinary_lines_are_not() {
        let lists = lists();
        for line in [
            "Linux version 6.12.117 (rext2@rext2) (clang version 19.1.7) #1 SMP PREEMPT",
            "EXT4-fs (vda): warning: mounting unchecked fs, running e2fsck is recommended",
            "rext2: loading out-of-tree module taints kernel.",
            "EXT2-fs (vda): error: dir: bad entry in directory #12: rec_len is too small",
            "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
            "[drm] BUG list is empty",
        ] {
            assert_eq!(
                lists.line(&format!("[    1.000000] {line}")),
                None,
                "{line}"
            );
        }
    }

    #[test]
    fn an_allowed_line_is_no_finding() {
        let file = toml::from_str(
            "deny = [{ kind = 'splat', pattern = '^WARNING: ', reason = 'x' }]\n\
             allow = [{ pattern = 'known', reason = 'y' }]",
        );
        let lists = Lists::compile(file.unwrap()).unwrap();
        assert_eq!(lists.line("WARNING: a known one"), None);
        assert_eq!(lists.line("WARNING: another"), Some(Kind::Splat));
        let file = toml::from_str("deny = []\nallow = [{ pattern = 'x', reason = ' ' }]");
        assert!(Lists::compile(file.unwrap()).is_err(), "no reason");
    }

    #[test]
    fn findings_carry_their_place() {
        let findings = lists().scan("ok\n[    1.0] WARNING: CPU: 0 PID: 1 at a.c:1 f\nok\n");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        assert_eq!(findings[0].text, "WARNING: CPU: 0 PID: 1 at a.c:1 f");
    }

    #[test]
    fn taints_of_an_out_of_tree_module_are_fine() {
        let lists = lists();
        assert_eq!(lists.taint(0), "");
        assert_eq!(lists.taint(1 << 12 | 1 << 13), "");
        assert_eq!(lists.taint(1 << 12 | 1 << 9), "W");
        assert_eq!(lists.taint(1 << 7 | 1 << 14), "DL");
        assert_eq!(lists.taint(1 << 40), "?");
    }
}
