// SPDX-License-Identifier: GPL-2.0

//! `patch apply` on a small kernel tree: what applies, what is refused, what is kept.

mod common;

use common::{DIFF_F, Lab, MAKEFILE, failure, git_in};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use xtask::{lock, patch};

#[test]
fn an_empty_series_is_the_pristine_source() {
    let lab = Lab::new();
    let tree = lab.apply().unwrap();
    assert_eq!((tree.patches, tree.commit), (0, lab.source().commit));
    assert_eq!(
        fs::read_to_string(tree.path.join("Makefile")).unwrap(),
        MAKEFILE
    );
}

#[test]
fn hunks_and_new_files_become_one_commit_a_patch() {
    let lab = Lab::new();
    lab.write("root/patches/files/rust/new.rs", "// new\n");
    lab.write(
        "root/patches/linux-6.12/files/rust/compat.rs",
        "// compat\n",
    );
    lab.patch(
        "a/one.patch",
        "f: more",
        "New-file: rust/new.rs\nChanges in v2:\n+++ none\n@@ none\n",
        DIFF_F,
    );
    lab.patch(
        "a/two.patch",
        "[ext2] rust: compat",
        "New-file: rust/compat.rs\n",
        "",
    );
    let tree = lab.apply().unwrap();
    assert!(
        fs::read_to_string(tree.path.join("f.c"))
            .unwrap()
            .contains("more();")
    );
    assert_eq!(
        fs::read_to_string(tree.path.join("rust/compat.rs")).unwrap(),
        "// compat\n"
    );
    assert_eq!(
        lab.git(&["log", "--format=%s", "base..HEAD"]),
        "[ext2] rust: compat\nf: more"
    );
    assert_eq!(
        lab.git(&["show", "--format=", "--name-only", "HEAD~1"]),
        "f.c\nrust/new.rs"
    );
    assert_eq!(
        lab.git(&["notes", "--ref=rext2", "show", "HEAD~1"]),
        "Changes in v2:\n+++ none\n@@ none"
    );
    assert_eq!(lab.git(&["status", "--porcelain"]), "");
}

/// What git's own mail tools make of the same files is what we made.
#[test]
fn the_commits_are_those_of_git_am() {
    let lab = Lab::new();
    lab.patch(
        "one.patch",
        "[ext2] f: more",
        "Changes in v2:\n+++ none\n",
        DIFF_F,
    );
    lab.apply().unwrap();
    let (tree, message) = (
        lab.git(&["rev-parse", "HEAD^{tree}"]),
        lab.git(&["log", "-1", "--format=%an %ae %ad %B"]),
    );
    lab.git(&["checkout", "-q", "--detach", "base"]);
    let file = lab.path("root/patches/linux-6.12/one.patch");
    lab.git(&[
        "am",
        "-q",
        "--keep",
        "--no-scissors",
        file.to_str().unwrap(),
    ]);
    assert_eq!(lab.git(&["rev-parse", "HEAD^{tree}"]), tree);
    assert_eq!(lab.git(&["log", "-1", "--format=%an %ae %ad %B"]), message);
}

#[test]
fn the_commits_are_the_same_everywhere() {
    let commit = || {
        let lab = Lab::new();
        lab.patch("one.patch", "f: more", "", DIFF_F);
        lab.apply().unwrap().commit
    };
    assert_eq!(commit(), commit());
}

/// toolkit P1: below another work tree, git apply may change nothing and say nothing.
#[test]
fn a_cache_inside_another_git_tree_does_not_matter() {
    let lab = Lab::new();
    git_in(lab.folder.path(), &["init", "-q"]);
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap();
    assert!(
        fs::read_to_string(tree.path.join("f.c"))
            .unwrap()
            .contains("more();")
    );
}

/// toolkit P2.
#[test]
fn fuzz_is_refused_with_hunk_file_and_line() {
    let lab = Lab::new();
    lab.patch(
        "one.patch",
        "f: more",
        "",
        &DIFF_F.replace(" check();", " old_check();"),
    );
    let (code, text) = failure(lab.apply());
    assert_eq!(code, 5);
    assert!(
        text.contains("one.patch does not apply to linux 6.12.7"),
        "{text}"
    );
    assert!(
        text.contains("hunk 1 of f.c: line 2 is \"check();\", the patch expects \"old_check();\""),
        "{text}"
    );
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), lab.source().commit);
}

#[test]
fn an_offset_is_no_fuzz() {
    let lab = Lab::new();
    lab.write(
        "linux/f.c",
        "zero\none\ncheck();\nthree\nfour\nfive\nsix\nseven\neight\n",
    );
    let diff = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -2,6 +2,7 @@\n check();\n three\n four\n+more();\n five\n six\n seven\n";
    lab.patch("one.patch", "f: more", "", diff);
    lab.apply().unwrap();
    let checked = patch::check(&lab.project(), &lab.source()).unwrap();
    assert_eq!(
        checked.offsets,
        ["one.patch: Hunk #1 succeeded at 3 (offset 1 line)."]
    );
}

#[test]
fn a_second_patch_sees_the_first() {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let second = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1,6 +1,6 @@\n one\n check();\n-more();\n+most();\n three\n four\n five\n";
    lab.patch("two.patch", "f: most", "", second);
    let tree = lab.apply().unwrap();
    assert!(
        fs::read_to_string(tree.path.join("f.c"))
            .unwrap()
            .contains("check();\nmost();\nthree")
    );
}

#[test]
fn only_files_that_differ_are_touched() {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap();
    let stamp = |name: &str| {
        let meta = fs::metadata(tree.path.join(name)).unwrap();
        (meta.mtime(), meta.mtime_nsec(), meta.ino())
    };
    let before = (stamp("f.c"), stamp("fs/g.c"), stamp("Makefile"));
    let diff = "diff --git a/fs/g.c b/fs/g.c\n--- a/fs/g.c\n+++ b/fs/g.c\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
    lab.patch("two.patch", "g: B", "", diff);
    lab.apply().unwrap();
    let after = (stamp("f.c"), stamp("fs/g.c"), stamp("Makefile"));
    assert_eq!((before.0, before.2), (after.0, after.2));
    assert_ne!(before.1, after.1);
}

#[test]
fn work_in_the_tree_is_refused_kept_or_dropped() {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap();
    let head = lab.git(&["rev-parse", "HEAD"]);
    // A changed file.
    fs::write(tree.path.join("f.c"), "mine\n").unwrap();
    let (code, text) = failure(lab.apply());
    assert_eq!(code, 5);
    for part in [
        "holds 1 changed",
        "f.c",
        "patch export",
        "patch apply --discard",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // A commit.
    lab.git(&["commit", "-qam", "mine"]);
    fs::write(tree.path.join("unknown.c"), "unknown\n").unwrap();
    let (code, text) = failure(lab.apply());
    assert!(code == 5 && text.contains("unknown files"), "{text}");
    fs::remove_file(tree.path.join("unknown.c")).unwrap();
    let (code, text) = failure(lab.apply());
    assert!(
        code == 5 && text.contains("the last of 2 is") && text.contains("mine"),
        "{text}"
    );
    // Discarding loses nothing.
    fs::write(tree.path.join("unknown.c"), "unknown\n").unwrap();
    patch::apply(&lab.project(), &lab.source(), true).unwrap();
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(lab.git(&["status", "--porcelain", "--ignored"]), "");
    let kept = lab.git(&[
        "for-each-ref",
        "--format=%(refname)",
        "refs/rext2/discarded",
    ]);
    assert_eq!(lab.git(&["show", &format!("{kept}:f.c")]), "mine");
    assert_eq!(lab.git(&["show", &format!("{kept}:unknown.c")]), "unknown");
}

#[test]
fn a_new_file_that_exists_or_belongs_to_two_is_refused() {
    let lab = Lab::new();
    lab.write("root/patches/files/fs/g.c", "mine\n");
    lab.patch("one.patch", "g", "New-file: fs/g.c\n", "");
    let (code, text) = failure(lab.apply());
    assert!(
        code == 5 && text.contains("fs/g.c exists already"),
        "{text}"
    );

    let lab = Lab::new();
    lab.write("root/patches/files/n.rs", "");
    lab.write("root/patches/linux-6.12/files/n.rs", "");
    lab.write("root/patches/files/orphan.rs", "");
    lab.patch(
        "one.patch",
        "one",
        "New-file: n.rs\nNew-file: ../x\nNew-file: none.rs\n",
        "",
    );
    lab.patch("two.patch", "two", "New-file: n.rs\n", "");
    let (code, text) = failure(lab.apply());
    assert_eq!(code, 5);
    for part in [
        "n.rs lies in patches/linux-6.12/files and in patches/files",
        "n.rs is named by two patches: one.patch and two.patch",
        "../x leaves the kernel tree",
        "none.rs is neither in",
        "files/orphan.rs is named by no patch",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_new_file_of_another_base_is_not_missed_here() {
    let lab = Lab::new();
    lab.write("root/patches/files/n.rs", "");
    lab.write("root/patches/linux-7.3/base.toml", common::BASE);
    lab.write("root/patches/linux-7.3/one.patch", "New-file: n.rs\n");
    lab.apply().unwrap();
}

/// toolkit P10: each oddity has its own answer.
#[test]
fn a_malformed_series_names_every_mistake() {
    let lab = Lab::new();
    for name in [
        "01-a.patch",
        "02-b.patch",
        "03-c.patch",
        "05-unlisted.patch",
    ] {
        lab.patch(name, name, "", DIFF_F);
    }
    lab.write(
        "root/patches/linux-6.12/series",
        "# comment\n\n01-a.patch\n 02-b.patch\n03-c.patch -p0\n01-a.patch\n04-missing.patch",
    );
    let (code, text) = failure(lab.apply());
    assert_eq!(code, 5);
    for part in [
        "line 4 is indented",
        "03-c.patch has the option \"-p0\"",
        "01-a.patch is listed twice",
        "04-missing.patch is listed in series, but there is no such file",
        "05-unlisted.patch is not listed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn paths_outside_the_tree_are_refused() {
    let lab = Lab::new();
    lab.patch(
        "one.patch",
        "escape",
        "",
        &DIFF_F.replace("f.c", "../../f.c"),
    );
    let (code, _) = failure(lab.apply());
    assert_eq!(code, 5);
    let lab = Lab::new();
    let created = "diff --git a/../evil b/../evil\nnew file mode 100644\n--- /dev/null\n+++ b/../evil\n@@ -0,0 +1 @@\n+x\n";
    lab.patch("one.patch", "escape", "", created);
    let (code, _) = failure(lab.apply());
    assert_eq!(code, 5);
    assert!(!lab.path("cache/tmp/evil").exists());
}

/// Whoever moves our branches by hand loses neither them nor the source.
#[test]
fn a_moved_base_branch_is_put_right_without_a_new_import() {
    let lab = Lab::new();
    let source = lab.source();
    let tree = lab.apply().unwrap();
    lab.git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    git_in(&tree.path, &["branch", "-f", "base", "HEAD"]);
    assert_eq!(lab.source(), source);
    assert_eq!(
        git_in(&tree.path, &["log", "-1", "--format=%s", "HEAD"]),
        "mine"
    );
    assert_eq!(git_in(&tree.path, &["rev-parse", "base"]), source.commit);
}

/// A tree that is no longer a repository is set aside, never removed.
#[test]
fn a_damaged_tree_is_kept_aside() {
    let lab = Lab::new();
    let source = lab.source();
    fs::write(source.git.join("mine.c"), "mine").unwrap();
    fs::remove_dir_all(source.git.join(".git/objects")).unwrap();
    assert_eq!(lab.source(), source);
    assert_eq!(
        lab.read("cache/trees/linux-6.12.7-a9609022.damaged/mine.c"),
        "mine"
    );
    lab.apply().unwrap();
}

/// A run that was stopped in the middle of the move is finished by the next one.
#[test]
fn an_interrupted_move_is_repaired() {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap();
    fs::write(tree.path.join(".git/rext2-moving"), &tree.commit).unwrap();
    fs::write(tree.path.join(".git/index.lock"), "").unwrap();
    fs::write(tree.path.join("f.c"), "half").unwrap();
    assert_eq!(lab.apply().unwrap(), tree);
    assert!(
        fs::read_to_string(tree.path.join("f.c"))
            .unwrap()
            .contains("more();")
    );
    assert_eq!(lab.git(&["status", "--porcelain"]), "");
}

#[test]
fn the_lock_may_be_taken_again_inside() {
    let lab = Lab::new();
    let project = lab.project();
    let outer = lock::hold(&project).unwrap();
    let inner = lock::hold(&project).unwrap();
    drop(outer);
    drop(inner);
    assert!(lock::try_hold(&project).unwrap().is_some());
}
