// SPDX-License-Identifier: GPL-2.0

//! Kernel sources of every kind, whole and broken, imported through the program itself.

mod common;

use common::{Lab, MAKEFILE, everything, git_in};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// A tar archive of the laboratory's source, packed by gzip.
fn tarball(lab: &Lab) -> PathBuf {
    let file = lab.path("linux.tar.gz");
    let status = std::process::Command::new("tar")
        .arg("-czf")
        .arg(&file)
        .arg("-C")
        .arg(lab.folder.path())
        .arg("linux")
        .status();
    assert!(status.unwrap().success());
    file
}

#[test]
fn an_unpacked_source_is_imported_and_never_changed() {
    let lab = Lab::new();
    symlink("f.c", lab.path("linux/link.c")).unwrap();
    lab.write("linux/scripts/run.sh", "#!/bin/sh\n");
    fs::set_permissions(
        lab.path("linux/scripts/run.sh"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    // What a kernel's own .gitignore would hide belongs to the source all the same.
    lab.write("linux/.gitignore", "*.o\n.*\n");
    lab.write("linux/hidden.o", "object");
    let before = everything(&lab.path("linux"));
    let source = lab.source();
    assert_eq!(everything(&lab.path("linux")), before);
    assert_eq!(source.version, "6.12.7");
    let at = |name: &str| source.git.join(name);
    assert_eq!(fs::read_to_string(at("Makefile")).unwrap(), MAKEFILE);
    assert_eq!(fs::read_to_string(at("hidden.o")).unwrap(), "object");
    assert_eq!(fs::read_link(at("link.c")).unwrap(), Path::new("f.c"));
    assert!(fs::metadata(at("scripts/run.sh")).unwrap().mode() & 0o100 != 0);
    assert_eq!(git_in(&source.git, &["status", "--porcelain"]), "");
    assert_eq!(git_in(&source.git, &["rev-list", "--count", "HEAD"]), "1");
}

#[test]
fn the_same_content_is_the_same_source_wherever_it_comes_from() {
    let lab = Lab::new();
    let from_folder = lab.source();
    let file = tarball(&lab);
    lab.succeeds(&["--tarball", file.to_str().unwrap(), "patch", "apply"]);
    git_in(&lab.path("linux"), &["init", "-q"]);
    git_in(&lab.path("linux"), &["add", "-A"]);
    git_in(&lab.path("linux"), &["commit", "-qm", "mine"]);
    let before = everything(&lab.path("linux"));
    let from_git = lab.source();
    assert_eq!(everything(&lab.path("linux")), before);
    assert_eq!(
        (&from_git.key, &from_git.commit),
        (&from_folder.key, &from_folder.commit)
    );
    assert_eq!(fs::read_dir(lab.path("cache/trees")).unwrap().count(), 1);
}

#[test]
fn a_changed_source_is_another_one() {
    let lab = Lab::new();
    let first = lab.source();
    lab.write("linux/f.c", "changed\n");
    let second = lab.source();
    assert_ne!(first.key, second.key);
    assert_eq!(lab.source(), second);
}

#[test]
fn changes_in_a_git_tree_must_be_committed() {
    let lab = Lab::new();
    let linux = lab.path("linux");
    git_in(&linux, &["init", "-q"]);
    git_in(&linux, &["add", "-A"]);
    git_in(&linux, &["commit", "-qm", "mine"]);
    lab.write("linux/f.c", "changed\n");
    let text = lab.fails(4, &["fetch"]);
    assert!(
        text.contains("not committed") && text.contains("f.c"),
        "{text}"
    );
}

#[test]
fn what_is_no_source_of_the_base_is_refused() {
    let lab = Lab::new();
    lab.write(
        "linux/Makefile",
        &MAKEFILE.replace("PATCHLEVEL = 12", "PATCHLEVEL = 13"),
    );
    let text = lab.fails(4, &["fetch"]);
    assert!(
        text.contains("this is linux 6.13.7, the base wants 6.12"),
        "{text}"
    );
    lab.write("linux/Makefile", MAKEFILE);
    lab.write("linux/.config", "");
    let text = lab.fails(4, &["fetch"]);
    assert!(
        text.contains("has been built in") && text.contains("mrproper"),
        "{text}"
    );
    fs::remove_file(lab.path("linux/.config")).unwrap();
    fs::remove_file(lab.path("linux/Makefile")).unwrap();
    let text = lab.fails(4, &["fetch"]);
    assert!(text.contains("holds no kernel source"), "{text}");
    assert!(!lab.path("cache/trees").exists());
}

#[test]
fn a_truncated_archive_is_refused_and_a_whole_one_works_after_it() {
    let lab = Lab::new();
    let file = tarball(&lab);
    let whole = fs::read(&file).unwrap();
    let archive = file.to_str().unwrap();
    for length in [0, 5, whole.len() / 2, whole.len() - 9] {
        fs::write(&file, &whole[..length]).unwrap();
        let text = lab.fails(4, &["--tarball", archive, "fetch"]);
        assert!(
            text.contains("cannot import") && text.contains(archive),
            "{length}: {text}"
        );
        assert!(!lab.path("cache/trees").exists());
    }
    fs::write(&file, &whole).unwrap();
    lab.succeeds(&["--tarball", archive, "fetch"]);
}

#[test]
fn an_archive_that_leaves_its_folder_is_refused() {
    for path in ["linux/../../evil", "other/file", "linux/.git/config"] {
        let lab = Lab::new();
        let mut tar = tar::Builder::new(Vec::new());
        for (path, text) in [("linux/Makefile", MAKEFILE), (path, "evil")] {
            let mut header = tar::Header::new_gnu();
            // `set_path` would itself refuse what this test is about.
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_entry_type(tar::EntryType::Regular);
            header.set_cksum();
            tar.append(&header, text.as_bytes()).unwrap();
        }
        fs::write(lab.path("evil.tar"), tar.into_inner().unwrap()).unwrap();
        let text = lab.fails(
            4,
            &["--tarball", lab.path("evil.tar").to_str().unwrap(), "fetch"],
        );
        assert!(
            text.contains("refused the path") || text.contains("exactly one folder"),
            "{path}: {text}"
        );
        assert!(!lab.path("cache/trees").exists() && !lab.path("cache/evil").exists());
    }
}

/// A disk that fills up: git says so, and the next run begins anew.
#[test]
fn a_full_disk_leaves_a_usable_cache() {
    let lab = Lab::new();
    lab.fake("git", "case \"$*\" in *fast-import*) cat >/dev/null & echo half > half; echo 'fatal: write error: No space left on device' >&2; exit 128;; esac\nexec \"$REAL\" \"$@\"");
    let output = lab.run_with_fakes(&["fetch"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    lab.succeeds(&["fetch"]);
}
