// SPDX-License-Identifier: GPL-2.0

//! Checks on the host what a guest has left on its disks.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::Path;

use crate::exit::{Exit, WithExit as _};
use crate::sh::Cmd;

/// The file system that must be whole on a disk after the run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checker {
    /// ext2, ext3, ext4
    E2fsck,
    /// xfs
    XfsRepair,
}

/// What a check said.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Checked {
    /// The disk, as the guest sees it.
    pub disk: String,
    /// Whether nothing was found.
    pub clean: bool,
    /// What was found.
    pub output: String,
}

/// Checks an image of which nothing is mounted; never changes it. Of a disk with
/// partitions, each must be whole.
pub fn check(checker: Checker, disk: &str, image: &Path) -> anyhow::Result<Checked> {
    let mut all = Checked {
        disk: disk.to_owned(),
        clean: true,
        output: String::new(),
    };
    for offset in starts(image) {
        let one = check_at(checker, disk, image, offset)?;
        all.clean &= one.clean;
        all.output.push_str(&one.output);
    }
    Ok(all)
}

/// Where the file systems of an image start: with its partitions, or with itself.
fn starts(image: &Path) -> Vec<u64> {
    let block = gpt::disk::LogicalBlockSize::Lb512;
    let Ok(table) = gpt::GptConfig::new().logical_block_size(block).open(image) else {
        return vec![0];
    };
    let partitions = table.partitions().values();
    partitions
        .filter_map(|partition| partition.bytes_start(block).ok())
        .collect()
}

fn check_at(checker: Checker, disk: &str, image: &Path, offset: u64) -> anyhow::Result<Checked> {
    let cmd = match checker {
        // -f: also what is marked clean; -n: change nothing, answer no.
        Checker::E2fsck if offset > 0 => {
            let mut place = image.as_os_str().to_owned();
            place.push(format!("?offset={offset}"));
            Cmd::new("e2fsck").args(["-f", "-n"]).arg(place)
        }
        Checker::E2fsck => Cmd::new("e2fsck").args(["-f", "-n"]).arg(image),
        Checker::XfsRepair => Cmd::new("xfs_repair").args(["-n", "-f"]).arg(image),
    };
    let output = cmd
        .output()
        .with_context(|| format!("cannot check {disk}"))
        .exit(Exit::Environment)?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Checked {
        disk: disk.to_owned(),
        clean: output.status.success(),
        output: text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::pack;

    #[test]
    fn every_partition_of_a_disk_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["good", "bad"] {
            Cmd::new("mke2fs")
                .args(["-q", "-t", "ext2", "-b", "1024"])
                .arg(path(name))
                .arg("1M")
                .run(&path("log"))
                .unwrap();
        }
        let parts = |names: &[&str]| -> Vec<_> {
            let part = |name: &&str| (name.to_string(), path(name));
            names.iter().map(part).collect()
        };
        pack::pack(&path("good-disk"), &parts(&["good", "good"])).unwrap();
        let checked = check(Checker::E2fsck, "vda", &path("good-disk")).unwrap();
        assert!(checked.clean, "{}", checked.output);

        Cmd::new("debugfs")
            .args(["-w", "-R", "freeb 5 20"])
            .arg(path("bad"))
            .run(&path("log"))
            .unwrap();
        pack::pack(&path("bad-disk"), &parts(&["good", "bad"])).unwrap();
        let checked = check(Checker::E2fsck, "vda", &path("bad-disk")).unwrap();
        assert!(!checked.clean, "{}", checked.output);
        assert!(checked.output.contains("Block bitmap differences"));
    }

    #[test]
    fn a_damaged_image_is_not_clean() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let log = folder.path().join("log");
        Cmd::new("mke2fs")
            .args(["-q", "-t", "ext2", "-b", "1024"])
            .arg(&image)
            .arg("1M")
            .run(&log)
            .unwrap();
        let checked = check(Checker::E2fsck, "vda", &image).unwrap();
        assert!(checked.clean, "{}", checked.output);
        // The block bitmap says that everything is free.
        Cmd::new("debugfs")
            .args(["-w", "-R", "freeb 5 20"])
            .arg(&image)
            .run(&log)
            .unwrap();
        let checked = check(Checker::E2fsck, "vda", &image).unwrap();
        assert!(!checked.clean, "{}", checked.output);
        assert!(
            checked.output.contains("Block bitmap differences"),
            "{}",
            checked.output
        );
        let checked = check(Checker::E2fsck, "vda", &folder.path().join("none")).unwrap();
        assert!(!checked.clean);
    }
}
