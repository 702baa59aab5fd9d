// SPDX-License-Identifier: GPL-2.0

//! Runs that are stopped, killed or met by another one leave a cache that the
//! next run uses.

mod common;

use common::{DIFF_F, Lab, alive, git_in, send};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

/// A lab whose git halts at one of its commands, and says so in a file.
fn lab(halts_at: &str, seconds: u32) -> Lab {
    let lab = Lab::new();
    lab.patch("one.patch", "f: more", "", DIFF_F);
    lab.fake(
        "git",
        &format!(
            "case \"$*\" in {halts_at}*) echo $$ > {}; sleep {seconds};; esac\nexec \"$REAL\" \"$@\"",
            lab.path("halted").display()
        ),
    );
    lab
}

/// Ctrl-C in each step: no child stays behind, and the next run ends well.
#[test]
fn a_run_that_is_stopped_in_any_step_is_taken_up() {
    for step in ["init", "fast-import", "reset", "apply", "checkout"] {
        let lab = lab(step, 100);
        let mut child = lab.spawn_with_fakes(&["patch", "apply"]);
        let halted = lab.wait_until_halted(&mut child);
        let begin = Instant::now();
        send(&child, Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{step}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{step}");
        assert!(!alive(halted), "{step}: git stayed behind");
        lab.succeeds(&["patch", "apply"]);
        let tree = lab.source().git;
        assert!(
            fs::read_to_string(tree.join("f.c"))
                .unwrap()
                .contains("more();"),
            "{step}"
        );
        assert_eq!(git_in(&tree, &["status", "--porcelain"]), "", "{step}");
    }
}

/// kill -9 leaves a child that still works: the next run waits for it, and says so.
#[test]
fn a_killed_run_keeps_the_lock_until_its_child_has_ended() {
    let lab = lab("fast-import", 3);
    let mut child = lab.spawn_with_fakes(&["patch", "apply"]);
    let halted = lab.wait_until_halted(&mut child);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(alive(halted));
    let said = lab.succeeds(&["patch", "apply"]);
    assert!(
        said.contains(&format!("waiting for process {} (xtask", child.id())),
        "{said}"
    );
    assert!(!alive(halted));
}

#[test]
fn two_runs_at_once_take_turns() {
    let lab = lab("fast-import", 1);
    let mut first = lab.spawn_with_fakes(&["patch", "apply"]);
    lab.wait_until_halted(&mut first);
    let said = lab.succeeds(&["patch", "apply"]);
    assert!(said.contains("waiting for process"), "{said}");
    assert!(first.wait().unwrap().success());
}

/// Under nohup, a closed terminal ends nothing.
#[test]
fn an_ignored_signal_stays_ignored() {
    let lab = lab("fast-import", 2);
    let nohup = format!(
        "trap '' HUP; exec {} --linux {} fetch",
        env!("CARGO_BIN_EXE_xtask"),
        lab.path("linux").display()
    );
    let mut child = lab
        .shell_with_fakes(&nohup)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    lab.wait_until_halted(&mut child);
    send(&child, Signal::HUP);
    assert!(child.wait().unwrap().success());
}
