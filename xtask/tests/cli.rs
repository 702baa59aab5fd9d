// SPDX-License-Identifier: GPL-2.0

//! The program as a user meets it: exit codes, dry runs, a clean environment.

mod common;

use common::{DIFF_F, Lab, everything};
use std::fs;
use std::process::Command;
use xtask::project::Project;
use xtask::toolchain::Toolchain;

#[test]
fn a_wrong_command_line_is_code_2() {
    let lab = Lab::new();
    lab.fails(2, &["no-such-verb"]);
    lab.fails(2, &["build", "--accel", "magic"]);
    let text = lab.fails(2, &["--base", "linux-2.4", "doctor"]);
    assert!(
        text.contains("error: no kernel base \"linux-2.4\"; --base takes one of: linux-6.12"),
        "{text}"
    );
}

#[test]
fn a_malformed_base_is_named() {
    let lab = Lab::new();
    lab.write("root/patches/linux-6.12/base.toml", "pakage = \"x\"\n");
    let text = lab.fails(3, &["doctor"]);
    assert!(text.contains("base.toml is malformed"), "{text}");
}

#[test]
fn a_bad_patch_is_code_5_and_a_bad_fragment_code_6_before_anything_is_fetched() {
    let lab = Lab::new();
    lab.write("root/patches/linux-6.12/series", "missing.patch\n");
    lab.fails(5, &["build"]);
    lab.write("root/patches/linux-6.12/series", "");
    let text = lab.fails(6, &["build"]);
    assert!(
        text.contains("the fragment qemu/config/base.config is missing"),
        "{text}"
    );
    lab.write("root/qemu/config/base.config", "CONFIG_A=y\n");
    lab.write("root/qemu/config/rust.config", "CONFIG_A=m\n");
    let text = lab.fails(6, &["build"]);
    assert!(
        text.contains("CONFIG_A is y in qemu/config/base.config and m in qemu/config/rust.config"),
        "{text}"
    );
    let text = lab.fails(6, &["build", "--set", "CONFIG_A"]);
    assert!(text.contains("--set"), "{text}");
    assert!(!lab.path("cache/trees").exists());
}

#[test]
fn clean_keeps_work_that_exists_nowhere_else() {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap().path;
    lab.write("cache/build/x", "");
    lab.succeeds(&["clean", "--dry-run", "--all"]);
    assert!(lab.path("cache/build/x").exists());
    fs::write(tree.join("f.c"), "mine\n").unwrap();
    let text = lab.fails(5, &["clean", "--all"]);
    assert!(
        text.contains("work would be lost") && text.contains("f.c"),
        "{text}"
    );
    lab.succeeds(&["clean"]);
    assert!(tree.exists() && !lab.path("cache/build").exists());
    lab.succeeds(&["patch", "apply", "--discard"]);
    lab.succeeds(&["clean", "--all"]);
    assert!(!tree.exists());
    // And all of it can be had again.
    lab.succeeds(&["patch", "apply"]);
}

/// toolkit B4: what cargo, rustup and make set for us does not reach the kernel's
/// make; what stands behind `--` does.
#[test]
fn the_toolchain_of_the_wrapper_does_not_leak() {
    const CHILD: &str = "REXT2_TEST_CHILD";
    if let Some(folder) = std::env::var_os(CHILD) {
        // The inner run, with the leaky environment around it.
        let lab = Lab::new();
        let mut project: Project = lab.project();
        project.make_args = vec!["RUSTC=/from/the/user".to_owned()];
        let toolchain = Toolchain {
            llvm: Some("-19".to_owned()),
            rustc: Some("/opt/rust/bin/rustc".into()),
            bindgen: Some("/opt/bindgen".into()),
            ccache: true,
            text: Vec::new(),
        };
        let log = std::path::Path::new(&folder).join("log");
        toolchain
            .make(&project, &lab.path("linux"), &lab.path("build"))
            .arg("bzImage")
            .run(&log)
            .unwrap();
        return;
    }
    let lab = Lab::new();
    lab.fake("make", "env; echo \"ARGS $*\"");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_toolchain_of_the_wrapper_does_not_leak"])
        .env(CHILD, lab.folder.path())
        .env("PATH", lab.path_with_fakes())
        .envs([
            ("RUSTC", "/bin/false"),
            ("RUSTUP_TOOLCHAIN", "nope"),
            ("MAKEFLAGS", "-n"),
            ("CARGO_ENCODED_RUSTFLAGS", "x"),
        ])
        .envs([
            ("RUSTFLAGS", "-Cx"),
            ("KBUILD_BUILD_TIMESTAMP", "now"),
            ("KCFLAGS", "-Wuser"),
            ("LC_ALL", "de_DE.UTF-8"),
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let log = lab.read("log");
    let said: Vec<&str> = log.lines().collect();
    for leaked in [
        "RUSTC=",
        "RUSTUP_TOOLCHAIN=",
        "MAKEFLAGS=",
        "RUSTFLAGS=",
        "CARGO_ENCODED_RUSTFLAGS=",
        "CARGO_MANIFEST_DIR=",
    ] {
        assert!(
            !said.iter().any(|line| line.starts_with(leaked)),
            "{leaked} leaked:\n{log}"
        );
    }
    for wanted in [
        "KBUILD_BUILD_TIMESTAMP=2026-01-01 00:00:00 UTC",
        "KCFLAGS=-Wuser",
        "LC_ALL=C",
    ] {
        assert!(said.contains(&wanted), "{wanted} is missing:\n{log}");
    }
    // The log says what was kept away.
    let kept_away = said[0];
    assert!(
        kept_away.starts_with("# not passed on: ")
            && kept_away.contains("RUSTC")
            && kept_away.contains("MAKEFLAGS"),
        "{log}"
    );
    let args = said.iter().find(|line| line.starts_with("ARGS ")).unwrap();
    let (ours, users) = (
        args.find("RUSTC=/opt/rust/bin/rustc").unwrap(),
        args.find("RUSTC=/from/the/user").unwrap(),
    );
    assert!(ours < users, "make takes the last: {args}");
    for word in [
        "LLVM=-19",
        "CC=ccache clang-19",
        "BINDGEN=/opt/bindgen",
        "LOCALVERSION=",
    ] {
        assert!(args.contains(word), "{word}: {args}");
    }
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let lab = Lab::new();
    let text = lab.fails(4, &["fetch", "--dry-run"]);
    assert!(text.contains("a dry run ends here"), "{text}");
    assert!(!lab.path("cache").exists());
    lab.patch("one.patch", "f: more", "", DIFF_F);
    let tree = lab.apply().unwrap().path;
    lab.git(&["commit", "-q", "--amend", "-m", "f: reworded"]);
    let before = everything(lab.folder.path());
    let output = lab
        .command(&["patch", "export", "--dry-run"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "write patches/linux-6.12/one.patch\n");
    lab.fails(5, &["patch", "apply", "--dry-run"]);
    let output = lab
        .command(&["patch", "apply", "--discard", "--dry-run"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains(&format!("cd {} && git checkout --force", tree.display())),
        "{text}"
    );
    let after = everything(lab.folder.path());
    let changed: Vec<_> = after
        .iter()
        .filter(|entry| !before.contains(entry))
        .map(|entry| &entry.0)
        .collect();
    assert!(
        changed.is_empty() && before.len() == after.len(),
        "{changed:?}"
    );
}

#[test]
fn doctor_names_what_is_missing_and_how_to_get_it() {
    let lab = Lab::new();
    // A PATH with nothing in it but what xtask itself must find.
    let output = lab
        .command(&["--no-install", "doctor"])
        .env("PATH", lab.path("nothing"))
        .output()
        .unwrap();
    let (table, hint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(3), "{table}{hint}");
    for row in ["no   flex", "no   qemu-system-x86_64"] {
        assert!(table.contains(row), "{row}: {table}");
    }
    assert!(
        hint.contains("apt-get install")
            && hint.contains("flex")
            && hint.contains("qemu-system-x86"),
        "{hint}"
    );
}

#[test]
fn nothing_is_installed_when_that_is_forbidden() {
    let lab = Lab::new();
    lab.write("root/qemu/config/base.config", "CONFIG_A=y\n");
    lab.write("root/qemu/config/rust.config", "CONFIG_B=y\n");
    lab.fake("apt-get", "echo called > \"$0.called\"");
    let path = lab.path("fakes");
    let output = lab
        .command(&["--no-install", "build"])
        .env("PATH", &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("error: missing: ")
            && text.contains("sudo apt-get update && sudo apt-get install"),
        "{text}"
    );
    assert!(!path.join("apt-get.called").exists());
}
