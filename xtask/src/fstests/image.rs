// SPDX-License-Identifier: GPL-2.0

//! The disks that fstests need: a guest root made of Debian's packages, and the
//! user's fstests tree. Both are kept in the cache under a hash of what they are
//! made from.

use crate::exit::{self, Exit, WithExit as _};
use crate::hash::Hasher;
use crate::images::{self, Disk};
use crate::install::{self, Tool};
use crate::project::Project;
use crate::sh::Cmd;
use anyhow::{Context as _, ensure};
use fs_err as fs;
use std::path::Path;

/// Makes a folder with a Debian system in it.
const MMDEBSTRAP: Tool = Tool::Program("mmdebstrap", "mmdebstrap");

/// What fstests call, besides what every Debian has. No init: PID 1 is ours.
const PACKAGES: &[&str] = &[
    "acct",
    "acl",
    "attr",
    "bc",
    "bsdextrautils",
    "dbench",
    "dmsetup",
    "e2fsprogs",
    "fdisk",
    "file",
    "fio",
    "gawk",
    "gettext-base",
    "hostname",
    "keyutils",
    "kmod",
    "libaio1",
    "libcap2-bin",
    "libgdbm-compat4",
    "libgdbm6",
    "liburing2",
    "lvm2",
    "mount",
    "passwd",
    "perl",
    "procps",
    "psmisc",
    "python3",
    "quota",
    "strace",
    "thin-provisioning-tools",
    "util-linux",
    "util-linux-extra",
    "uuid-runtime",
    "xfsdump",
    "xfsprogs",
    "xxd",
];

/// Packages whose names carry a version of a library, under their newer names.
const RENAMED: &[(&str, &str)] = &[
    ("libaio1", "libaio1t64"),
    ("libgdbm6", "libgdbm6t64"),
    ("libgdbm-compat4", "libgdbm-compat4t64"),
];

/// The users that fstests switch to.
const USERS: &[&str] = &["fsgqa", "123456-fsgqa", "fsgqa2"];

/// Sizes of the disks; what is not written takes no room.
const ROOT_SIZE: &str = "3G";
const TREE_SIZE: &str = "2G";

/// The guest root.
pub fn root(project: &Project) -> anyhow::Result<Disk> {
    install::ensure(project, &[MMDEBSTRAP])?;
    let sources = sources()?;
    let suite = sources.suite.clone();
    let packages = packages().join(",");
    let mut key = images::key("fstests-root")?;
    key.part(include_bytes!("image.rs"))
        .part(suite.as_bytes())
        .part(packages.as_bytes());
    images::disk(project, "root", key, |folder, log| {
        ensure!(
            rustix::process::geteuid().is_root(),
            "only root can make a guest root with all its owners; run this once as root"
        );
        let root = folder.join("root");
        let mut command = Cmd::new("mmdebstrap")
            .args(["--mode=root", "--variant=essential", "--format=directory"])
            .arg(format!("--include={packages}"));
        for user in USERS {
            // The second has a name that only --badname takes.
            command = command.arg(format!(
                "--customize-hook=chroot \"$1\" useradd --badname --create-home {user}"
            ));
        }
        command
            .arg(&suite)
            .arg(&root)
            .arg("-")
            .stdin(sources.lines.as_bytes())
            .run(log)?;
        filesystem(&root, &folder.join("disk"), ROOT_SIZE, log)
    })
}

/// The fstests tree.
pub fn tree(project: &Project, tree: &Path) -> anyhow::Result<Disk> {
    let mut key = images::key("fstests-tree")?;
    key.part(TREE_SIZE.as_bytes());
    hash(tree, tree, &mut key)?;
    images::disk(project, "tree", key, |folder, log| {
        let stage = folder.join("tree");
        fs::create_dir(&stage)?;
        let mut copy = Cmd::new("cp").arg("-a");
        for entry in fs::read_dir(tree)? {
            let entry = entry?;
            if entry.file_name() != ".git" {
                copy = copy.arg(entry.path());
            }
        }
        copy.arg(&stage).run(log)?;
        filesystem(&stage, &folder.join("disk"), TREE_SIZE, log)
    })
}

/// Names, sizes and times of everything below a folder, but git's.
fn hash(root: &Path, folder: &Path, key: &mut Hasher) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let (path, meta) = (entry.path(), entry.metadata()?);
        if meta.is_dir() {
            if path != root.join(".git") {
                hash(root, &path, key)?;
            }
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path);
        let time = meta.modified().context("no modification time")?;
        key.part(format!("{} {} {time:?}", name.display(), meta.len()).as_bytes());
    }
    Ok(())
}

/// An ext4 file system with the folder's contents.
fn filesystem(folder: &Path, image: &Path, size: &str, log: &Path) -> anyhow::Result<()> {
    Cmd::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(folder)
        .arg(image)
        .arg(size)
        .run(log)
}

/// Where this machine's apt gets Debian's packages from.
struct Sources {
    /// Lines of a sources.list.
    lines: String,
    /// The release.
    suite: String,
}

fn sources() -> anyhow::Result<Sources> {
    let output = Cmd::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(SITE) $(RELEASE) $(COMPONENT)",
        ])
        .args(["Created-By: Packages", "Origin: Debian"])
        .read()
        .context("cannot ask apt for its sources")
        .exit(Exit::Environment)?;
    parse(&output).ok_or_else(|| {
        exit::error(
            Exit::Environment,
            "apt knows no Debian release here, and the guest root is made of one; \
             run this on Debian, with fresh lists (apt-get update)",
        )
    })
}

/// Reads lines `SITE RELEASE COMPONENT`; the release without a suffix is the main one.
fn parse(targets: &str) -> Option<Sources> {
    let mut lines = String::new();
    let mut suite: Option<&str> = None;
    for line in targets.lines() {
        let [site, release, component] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        lines.push_str(&format!("deb {site} {release} {component}\n"));
        if suite.is_none_or(|suite| release.len() < suite.len()) {
            suite = Some(release);
        }
    }
    Some(Sources {
        lines,
        suite: suite?.to_owned(),
    })
}

/// The packages by the names that they have in this release.
fn packages() -> Vec<&'static str> {
    let mut packages = PACKAGES.to_vec();
    for package in &mut packages {
        let renamed = RENAMED.iter().find(|(old, _)| old == package);
        if let Some((_, new)) = renamed.filter(|(_, new)| install::known(new)) {
            *package = new;
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_machines_own() {
        let sources = parse(
            "http://mirror/debian trixie-updates main\nhttp://mirror/debian trixie main\n\
             http://mirror/security trixie-security main\n",
        )
        .unwrap();
        assert_eq!(sources.suite, "trixie");
        assert!(
            sources
                .lines
                .starts_with("deb http://mirror/debian trixie-updates main\n")
        );
        assert_eq!(sources.lines.lines().count(), 3);
        assert!(parse("").is_none());
        assert!(parse("nonsense\n").is_none());
    }

    #[test]
    fn a_tree_is_known_by_its_files_and_not_by_its_git() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let key = || {
            let mut key = Hasher::default();
            hash(path, path, &mut key).unwrap();
            key.short()
        };
        fs::create_dir_all(path.join("tests/generic")).unwrap();
        fs::write(path.join("tests/generic/001"), "one").unwrap();
        let first = key();
        fs::create_dir(path.join(".git")).unwrap();
        fs::write(path.join(".git/HEAD"), "x").unwrap();
        assert_eq!(key(), first);
        fs::write(path.join("tests/generic/001"), "other").unwrap();
        assert_ne!(key(), first);
    }
}
