// SPDX-License-Identifier: GPL-2.0

//! `patch export` and `patch check`: commits become the same files again.

mod common;

use common::{DIFF_F, Lab, failure};
use std::fs;
use xtask::patch;

fn lab_with_two_patches() -> Lab {
    let lab = Lab::new();
    lab.write("root/patches/files/rust/new.rs", "// new\n");
    lab.patch(
        "a/one.patch",
        "f: more",
        "New-file: rust/new.rs\nChanges in v2: none\n",
        DIFF_F,
    );
    let second = "diff --git a/fs/g.c b/fs/g.c\n--- a/fs/g.c\n+++ b/fs/g.c\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
    lab.patch("b/two.patch", "[ext2] g: B", "", second);
    let series = lab.read("root/patches/linux-6.12/series");
    lab.write(
        "root/patches/linux-6.12/series",
        &format!("# The series.\n\n{series}"),
    );
    lab
}

/// All files below patches/, by name.
fn snapshot(lab: &Lab) -> Vec<(String, String)> {
    let root = lab.path("root/patches");
    let files = patch::series::files_below(&root).unwrap();
    files
        .into_iter()
        .map(|file| {
            (
                file.display().to_string(),
                fs::read_to_string(root.join(file)).unwrap(),
            )
        })
        .collect()
}

fn export(lab: &Lab) -> anyhow::Result<()> {
    patch::export(&lab.project(), &lab.source()).map(|_| ())
}

fn check(lab: &Lab) -> anyhow::Result<patch::Checked> {
    patch::check(&lab.project(), &lab.source())
}

#[test]
fn apply_and_export_is_the_identity() {
    let lab = lab_with_two_patches();
    let before = snapshot(&lab);
    lab.apply().unwrap();
    export(&lab).unwrap();
    assert_eq!(snapshot(&lab), before);
    assert_eq!(check(&lab).unwrap().patches, 2);
}

#[test]
fn an_amended_commit_goes_to_its_own_patch_file() {
    let lab = lab_with_two_patches();
    let tree = lab.apply().unwrap();
    fs::write(tree.path.join("fs/g.c"), "a\nBB\nc\n").unwrap();
    let (code, text) = failure(export(&lab));
    assert!(
        code == 5 && text.contains("fs/g.c") && text.contains("not committed"),
        "{text}"
    );
    lab.git(&["commit", "-qa", "--amend", "--no-edit"]);
    export(&lab).unwrap();
    assert!(
        lab.read("root/patches/linux-6.12/b/two.patch")
            .contains("\n+BB\n")
    );
    // The user's identity stays out of the files.
    assert!(
        snapshot(&lab)
            .iter()
            .all(|(_, text)| !text.contains("A User") && !text.contains("example.com"))
    );
    assert_eq!(check(&lab).unwrap().patches, 2);
    // The tree is at the series: the next apply has nothing to do and nothing to refuse.
    let head = lab.git(&["rev-parse", "HEAD"]);
    assert_eq!(lab.apply().unwrap().commit, head);
}

#[test]
fn new_reworded_and_dropped_commits_are_followed() {
    let lab = lab_with_two_patches();
    let tree = lab.apply().unwrap();
    // Reworded: keeps its file name, and the note below the dashes.
    lab.git(&["reset", "-q", "--hard", "HEAD~1"]);
    lab.git(&["commit", "-q", "--amend", "-m", "f: still more\n\nBecause."]);
    fs::create_dir_all(tree.path.join("rust")).unwrap();
    fs::write(tree.path.join("rust/other.rs"), "// other\n").unwrap();
    lab.git(&["add", "."]);
    lab.git(&["commit", "-qm", "rust: add other\n\nWhy."]);
    export(&lab).unwrap();
    assert_eq!(
        lab.read("root/patches/linux-6.12/series"),
        "# The series.\n\na/one.patch\na/rust-add-other.patch\n"
    );
    let one = lab.read("root/patches/linux-6.12/a/one.patch");
    assert!(one.contains("Subject: f: still more\n\nBecause.\n\n---\nNew-file: rust/new.rs\nChanges in v2: none\n"), "{one}");
    assert!(!lab.path("root/patches/linux-6.12/b/two.patch").exists());
    // Beside its sibling.
    assert_eq!(lab.read("root/patches/files/rust/other.rs"), "// other\n");
    check(&lab).unwrap();
}

#[test]
fn a_dropped_new_file_goes_away() {
    let lab = lab_with_two_patches();
    lab.apply().unwrap();
    lab.git(&["rm", "-q", "rust/new.rs"]);
    lab.git(&["commit", "-q", "--fixup", "HEAD~1"]);
    lab.git(&["rebase", "-qi", "--autosquash", "base"]);
    export(&lab).unwrap();
    assert!(!lab.path("root/patches/files/rust/new.rs").exists());
    check(&lab).unwrap();
}

#[test]
fn a_change_of_an_earlier_new_file_must_be_squashed() {
    let lab = lab_with_two_patches();
    let tree = lab.apply().unwrap();
    let before = snapshot(&lab);
    fs::write(tree.path.join("rust/new.rs"), "// newer\n").unwrap();
    lab.git(&["commit", "-qam", "change new"]);
    let (code, text) = failure(export(&lab));
    assert!(
        code == 5 && text.contains("changes rust/new.rs, which \"f: more\" brings"),
        "{text}"
    );
    assert_eq!(snapshot(&lab), before);
}

/// toolkit P4 and P5: what mail would lose never reaches a file.
#[test]
fn messages_that_mail_would_lose_are_refused() {
    for (message, reason) in [
        (
            "x: y\n\nWhy.\n\n---\nlost",
            "git am drops everything below it",
        ),
        ("x: y\n\ndiff --git a/f b/f", "beginning of the hunks"),
        ("x: y\n\nFrom abc Mon Sep 17 00:00:00 2001", "next mail"),
        ("x: y\n\nWhy.\n-- >8 --", "scissors"),
        ("[PATCH] x: y\n\nWhy.", "[PATCH"),
    ] {
        let lab = lab_with_two_patches();
        let tree = lab.apply().unwrap();
        let before = snapshot(&lab);
        fs::write(tree.path.join("f.c"), "mine\n").unwrap();
        lab.git(&["commit", "-qam", message, "--cleanup=verbatim"]);
        let (code, text) = failure(export(&lab));
        assert!(code == 5 && text.contains(reason), "{message:?}: {text}");
        assert_eq!(snapshot(&lab), before, "{message:?}");
    }
}

/// toolkit P6: an empty commit is refused before any file is touched.
#[test]
fn an_empty_commit_is_refused() {
    let lab = lab_with_two_patches();
    lab.apply().unwrap();
    let before = snapshot(&lab);
    lab.git(&[
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "cover: letter\n\nText.",
    ]);
    let (code, text) = failure(export(&lab));
    assert!(code == 5 && text.contains("changes nothing"), "{text}");
    assert_eq!(snapshot(&lab), before);
}

#[test]
fn a_merge_is_refused() {
    let lab = lab_with_two_patches();
    lab.apply().unwrap();
    lab.git(&["checkout", "-qb", "side", "base"]);
    lab.git(&["commit", "-q", "--allow-empty", "-m", "side"]);
    lab.git(&["checkout", "-q", "rext2"]);
    lab.git(&["merge", "-q", "-m", "merge", "side"]);
    let (code, text) = failure(export(&lab));
    assert!(
        code == 5 && text.contains("make the history straight"),
        "{text}"
    );
}

/// toolkit P6/P11: patches of other making are brought to the one form.
#[test]
fn a_foreign_patch_is_applied_and_normalised_by_export() {
    let lab = Lab::new();
    let foreign = format!(
        "{DIFF_F}diff --git a/rust/own.rs b/rust/own.rs\nnew file mode 100644\nindex 000..111\n--- /dev/null\n+++ b/rust/own.rs\n@@ -0,0 +1 @@\n+// own\n-- \n2.39.5\n\n"
    );
    lab.patch(
        "one.patch",
        "f: more",
        " f.c | 1 +\n 1 file changed, 1 insertion(+)\n",
        &foreign,
    );
    lab.apply().unwrap();
    let (code, text) = failure(check(&lab));
    assert!(
        code == 5 && text.contains("one.patch comes back with another line"),
        "{text}"
    );
    export(&lab).unwrap();
    check(&lab).unwrap();
    let text = lab.read("root/patches/linux-6.12/one.patch");
    assert!(
        text.contains("---\nNew-file: rust/own.rs\n")
            && !text.contains("index ")
            && !text.contains("2.39"),
        "{text}"
    );
    assert_eq!(
        lab.read("root/patches/linux-6.12/files/rust/own.rs"),
        "// own\n"
    );
}

/// toolkit P7: text below the dashes that looks like hunks.
#[test]
fn a_changelog_with_plus_and_at_signs_is_kept() {
    let lab = Lab::new();
    lab.patch(
        "one.patch",
        "f: more",
        "Changes in v2:\n+++ b/f.c\n@@ -1 +1 @@\n- less\n",
        DIFF_F,
    );
    lab.apply().unwrap();
    check(&lab).unwrap();
}

#[test]
fn a_removed_and_a_made_executable_file_come_back() {
    let lab = Lab::new();
    let diff = "diff --git a/f.c b/f.c\nold mode 100644\nnew mode 100755\ndiff --git a/fs/g.c b/fs/g.c\ndeleted file mode 100644\n--- a/fs/g.c\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n";
    lab.patch("one.patch", "modes", "", diff);
    let tree = lab.apply().unwrap();
    assert!(!tree.path.join("fs/g.c").exists());
    check(&lab).unwrap();
}

/// What stands behind @@ is the function, for C and for Rust, and never a label.
#[test]
fn hunks_name_their_function() {
    let lab = Lab::new();
    let body = "\ta;\n\tb;\n\tc;\n\td;\n\te;\nretry:\n\tf;\n\tg;\n\th;\n\ti;\n";
    lab.write("linux/fs/h.c", &format!("int name(void)\n{{\n{body}}}\n"));
    lab.write(
        "linux/rust/i.rs",
        &format!("impl X {{\n    pub(crate) unsafe fn name() {{\n{body}    }}\n}}\n"),
    );
    let tree = lab.apply().unwrap().path;
    for file in ["fs/h.c", "rust/i.rs"] {
        let text = fs::read_to_string(tree.join(file)).unwrap();
        fs::write(tree.join(file), text.replace("\ti;", "\tii;")).unwrap();
    }
    lab.git(&["commit", "-qam", "change: both"]);
    export(&lab).unwrap();
    let patch = lab.read("root/patches/linux-6.12/change-both.patch");
    for heading in ["@@ int name(void)\n", "@@ pub(crate) unsafe fn name() {\n"] {
        assert!(patch.contains(heading), "{heading}: {patch}");
    }
    check(&lab).unwrap();
}
