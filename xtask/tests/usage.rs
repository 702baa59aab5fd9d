// SPDX-License-Identifier: GPL-2.0

//! Mistakes on the command line, on this checkout: each is told before anything
//! is done, with the name of the option, and what to do instead.

mod common;

use common::Lab;
use std::path::Path;
use std::process::{Command, Output};

/// The program on this checkout, with an empty cache.
fn xtask(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.bare(args);
    command.env(
        "REXT2_ROOT",
        Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
    );
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_dry_run_judges_its_arguments_first() {
    let lab = Lab::new();
    for (line, code, wanted) in [
        ("test nosuch", 2, "no suite \"nosuch\""),
        ("test smoke --filter xyzzy", 15, "--filter xyzzy"),
        ("test smoke --count 3", 2, "takes no --count"),
        (
            "test parallel --flavor kcsan",
            15,
            "does not run on flavor kcsan",
        ),
        (
            "test crash --replay /nonexistent",
            2,
            "--replay /nonexistent",
        ),
        (
            "test fstests --fstests /dev/null",
            2,
            "is no folder; give that of an fstests tree",
        ),
        ("boot --image /nonexistent", 2, "--image /nonexistent"),
        ("boot --image /", 2, "--image / is no file"),
        (
            "build-and-boot --image /nonexistent",
            2,
            "--image /nonexistent",
        ),
        ("bench cost --on ext5", 2, "--on ext5"),
        ("bench uncached --on ext5", 2, "--on ext5"),
        ("bench cost --check", 2, "add --flavor dev"),
        ("bench cost --accel kvm", 2, "--accel kvm"),
        ("build --linux /nonexistent", 2, "--linux /nonexistent"),
        (
            "patch status --linux /dev/null",
            2,
            "--linux /dev/null is no folder",
        ),
        ("fetch --tarball /nonexistent", 2, "--tarball /nonexistent"),
        (
            "exec --linux /nonexistent -- true",
            2,
            "--linux /nonexistent",
        ),
        ("exec --format json -- true", 2, "exec has no --format json"),
        ("clean --format junit", 2, "clean has no --format junit"),
        ("build --format json", 2, "--dry-run prints commands"),
        ("build --without nosuch", 5, "--without nosuch"),
        ("build --set CONFIG_A", 6, "--set CONFIG_A"),
    ] {
        let args: Vec<&str> = ["--dry-run", "--no-install"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        let output = xtask(&lab, &args).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        assert!(
            text.contains("error: ") && text.contains(wanted),
            "{line}: {text}"
        );
        assert!(output.stdout.is_empty(), "{line}");
    }
    assert!(!lab.path("cache").exists());
}

#[test]
fn of_two_forms_one_has_to_go() {
    let lab = Lab::new();
    for line in [
        "bench cost --markdown --format json",
        "bench uncached --markdown --format json",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let output = xtask(&lab, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(said(&output).contains("--markdown"), "{line}");
    }
}

#[test]
fn a_folder_that_is_no_source_is_named_with_its_option() {
    let lab = Lab::new();
    for (option, path) in [
        ("--linux", lab.path("root")),
        ("--tarball", lab.path("linux/f.c")),
    ] {
        let output = xtask(&lab, &[option, path.to_str().unwrap(), "fetch"])
            .output()
            .unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(
            text.contains(&format!("cannot use {option} {}", path.display())),
            "{text}"
        );
    }
}

#[test]
fn the_list_has_every_test_and_its_forms() {
    let lab = Lab::new();
    let list = |args: &[&str]| {
        let output = xtask(&lab, &[&["test", "--list"], args].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = list(&[]);
    assert!(
        all.contains("uncached-stock") && all.contains("compile-fail"),
        "{all}"
    );
    assert!(all.contains(" tests: module "), "{all}");
    let smoke = list(&["smoke", "--filter", "module/"]);
    assert!(smoke.lines().count() > 1, "{smoke}");
    assert!(
        smoke.lines().all(|line| line.starts_with("smoke module/")),
        "{smoke}"
    );
    let json: serde_json::Value = serde_json::from_str(&list(&["--format", "json"])).unwrap();
    let suites = json["suites"].as_array().unwrap();
    assert!(
        suites
            .iter()
            .all(|suite| !suite["tests"].as_array().unwrap().is_empty())
    );
}

/// As `| head -1` does to us.
#[test]
fn a_reader_that_leaves_ends_us_quietly() {
    let lab = Lab::new();
    for args in [&["test", "--list"][..], &["patch", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = xtask(&lab, args).stdout(writer).output().unwrap();
        assert_eq!(said(&output), "", "{args:?}");
        assert!(
            output.status.code().is_some_and(|code| code != 101),
            "{args:?}"
        );
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = xtask(&lab, &["test", "--list"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(141));
}

/// Whoever may not let us install things wants one command for all of them.
#[test]
fn everything_that_is_missing_is_told_at_once() {
    let lab = Lab::new();
    lab.fake("rustup", "exit 1");
    for line in [
        "exec -- true",
        "boot",
        "test smoke",
        "test uncached",
        "bench cost --flavor dev",
    ] {
        let args: Vec<&str> = ["--no-install"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        let output = xtask(&lab, &args)
            .env("PATH", lab.path("fakes"))
            .output()
            .unwrap();
        // A suite that cannot run is a part of the result.
        let text = said(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{line}: {text}");
        let command = text
            .lines()
            .find(|line| line.contains("apt-get install"))
            .unwrap();
        for wanted in [
            "qemu-system-x86",
            "flex",
            "clang-",
            "git",
            "&& rustup component add rust-src",
            "cargo install",
            "bindgen-cli@",
        ] {
            assert!(
                command.contains(wanted),
                "{line}: {wanted} is not in: {command}"
            );
        }
    }
}
