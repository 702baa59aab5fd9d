// SPDX-License-Identifier: GPL-2.0

//! Tests with real children.

use super::environment::inherited;
use super::running::runs;
use super::*;
use std::time::Duration;

#[test]
fn the_command_line_can_be_pasted_into_a_shell() {
    let cmd = Cmd::new("make")
        .arg("CC=ccache clang-19")
        .arg("it's")
        .arg("")
        .env("A", "b c")
        .dir("/x y");
    assert_eq!(
        cmd.dry(),
        r"cd '/x y' && A='b c' make 'CC=ccache clang-19' 'it'\''s' ''"
    );
}

#[test]
fn a_failing_command_quotes_its_own_output_only() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("sub/log");
    Cmd::new("echo").arg("before").run(&log).unwrap();
    let error = Cmd::new("sh")
        .args(["-c", "echo out; echo err >&2; exit 3"])
        .run(&log)
        .unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("exit status: 3") && text.contains("\n  out\n  err"),
        "{text}"
    );
    assert!(!text.contains("before"), "{text}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("$ echo before\nbefore\n"), "{log}");
}

#[test]
fn a_missing_program_is_named() {
    let error = Cmd::new("no-such-program-of-rext2").read().unwrap_err();
    assert!(format!("{error:#}").contains("cannot start no-such-program-of-rext2"));
}

#[test]
fn toolchain_variables_do_not_pass() {
    for name in [
        "RUSTC",
        "RUSTUP_TOOLCHAIN",
        "MAKEFLAGS",
        "CARGO_MANIFEST_DIR",
        "CARGO",
        "RUSTFLAGS",
        "LD_LIBRARY_PATH",
        "ARCH",
    ] {
        assert!(!inherited(name), "{name}");
    }
    for name in [
        "PATH",
        "CCACHE_DIR",
        "SSL_CERT_FILE",
        "https_proxy",
        "CARGO_HOME",
    ] {
        assert!(inherited(name), "{name}");
    }
}

#[test]
fn a_child_is_ended_with_its_own_children() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // The grandchild does not hear the polite signal.
    let script = "sh -c 'trap \"\" TERM; echo $$; sleep 100; sleep 100' & wait";
    let mut child = Cmd::new("sh").args(["-c", script]).spawn(&log).unwrap();
    let grandchild: u32 = loop {
        assert!(
            child
                .wait_timeout(Duration::from_millis(20))
                .unwrap()
                .is_none()
        );
        let text = std::fs::read_to_string(&log).unwrap();
        if let Some(pid) = text.lines().last().and_then(|line| line.parse().ok()) {
            break pid;
        }
    };
    assert!(runs(grandchild));
    child.end();
    for _ in 0..100 {
        if !runs(grandchild) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("process {grandchild} is still there");
}

#[test]
fn a_child_is_fed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let feed = |pipe: &mut dyn std::io::Write| Ok(pipe.write_all(b"one two")?);
    Cmd::new("wc").arg("-w").feed(&log, feed).unwrap();
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("\n2\n"));
    assert_eq!(Cmd::new("cat").stdin("x\n").read().unwrap(), "x");
    assert_eq!(Cmd::new("cat").read().unwrap(), "");
}

#[test]
fn feeding_a_child_that_dies_reports_the_child() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let error = Cmd::new("sh")
        .args(["-c", "echo broken; exit 9"])
        .feed(&log, |pipe| {
            // More than a pipe holds.
            for _ in 0..64 {
                pipe.write_all(&[0; 1 << 16])?;
            }
            Ok(())
        })
        .unwrap_err();
    assert!(format!("{error:#}").contains("exit status: 9"), "{error:#}");
}
