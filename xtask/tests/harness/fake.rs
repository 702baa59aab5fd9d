// SPDX-License-Identifier: GPL-2.0

//! Shell scripts in QEMU's place: what no boot sector can do.

use std::time::{Duration, Instant};
use xtask::exit::Exit;
use xtask::sh::Cmd;
use xtask::verdict::Verdict;
use xtask::vm::Limits;
use xtask::watch::End;

use crate::{Bench, expect, patient, token_line};

/// Runs a script that knows the run's files by name: `$console`, `$ktap`,
/// `$events`.
fn run(script: &str, limits: &Limits) -> (End, Verdict) {
    let bench = Bench::empty();
    let head: String = [
        ("console", "console.log"),
        ("ktap", "ktap"),
        ("events", "events"),
    ]
    .iter()
    .map(|(name, file)| format!("{name}='{}'\n", bench.file(file).display()))
    .collect();
    let cmd = Cmd::new("sh").args(["-c", &format!("{head}{script}")]);
    bench.run(&cmd, limits)
}

/// A script that writes this KTAP stream and ends well.
fn ktap(lines: &str) -> (End, Verdict) {
    run(
        &format!("printf 'KTAP version 1\\n{lines}' >$ktap"),
        &patient(),
    )
}

#[test]
fn a_panic_before_anything_knows_of_tests() {
    for target in ["", ">$console"] {
        let script = format!("echo 'Kernel panic - not syncing: VFS' {target}; exit 0");
        let got = run(&script, &patient());
        expect(target, &got, Exit::Panic, "not syncing: VFS");
    }
}

#[test]
fn qemu_that_cannot_start_is_quoted() {
    let script = "echo 'qemu: could not open disk: No such file' >&2; exit 1";
    let got = run(script, &patient());
    expect("no disk", &got, Exit::Qemu, "could not open disk");
    let got = run("kill -SEGV $$", &patient());
    expect("crash", &got, Exit::Qemu, "signal: 11");
}

#[test]
fn qemu_that_somebody_ends_is_no_failed_test() {
    let script = "printf 'KTAP version 1\\n1..2\\nok 1 a\\n' >$ktap; \
                  echo 'qemu: terminating on signal 15 from pid 7 (bash)' >&2; exit 0";
    let got = run(script, &patient());
    expect("ended", &got, Exit::Qemu, "signal 15 from pid 7 (bash)");
}

#[test]
fn a_machine_that_ignores_sigterm_is_killed() {
    let limits = Limits {
        boot: Some(Duration::from_secs(1)),
        ..patient()
    };
    let begin = Instant::now();
    let got = run("trap '' TERM; while :; do sleep 1; done", &limits);
    expect("stubborn", &got, Exit::BootTimeout, "within 1 s");
    assert!(begin.elapsed() < crate::PATIENCE);
}

#[test]
fn half_a_stream_is_not_enough() {
    let token = token_line();
    for (lines, exit, reason) in [
        (
            "1..3\\nok 1 a\\n",
            Exit::TestsFailed,
            "1 crashed, 1 not run",
        ),
        ("1..1\\nok 1 a", Exit::TestsFailed, "1 crashed"),
        (
            "1..1\\nok 1 a\\n",
            Exit::TestsFailed,
            "end token is missing",
        ),
        ("", Exit::NothingRan, "no test reported anything"),
    ] {
        expect(lines, &ktap(lines), exit, reason);
    }
    for (lines, exit, reason) in [
        ("ok 1 a\\n", Exit::TestsFailed, "no plan"),
        ("1..0\\n", Exit::NothingRan, "no test reported anything"),
        ("", Exit::NothingRan, "no test reported anything"),
        ("1..2\\nok 1 a\\n", Exit::TestsFailed, "1 crashed"),
        (
            "1..2\\nok 1 a\\nok 2 a\\n",
            Exit::TestsFailed,
            "second test named",
        ),
        (
            "1..1\\nok 1 a # SKIP no disk\\n",
            Exit::NothingRan,
            "a was skipped",
        ),
        (
            "1..1\\nok 1 a\\nBail out! disk\\n",
            Exit::TestsFailed,
            "bail out",
        ),
    ] {
        let got = ktap(&format!("{lines}{token}\\n"));
        expect(lines, &got, exit, reason);
    }
}

#[test]
fn nothing_may_follow_the_token() {
    let token = token_line();
    let got = ktap(&format!("1..1\\nok 1 a\\n{token}\\nok 2 b\\n"));
    expect(
        "late result",
        &got,
        Exit::TestsFailed,
        "after the end token",
    );
    let got = ktap("1..1\\nok 1 a\\n# rext2-end feedfacefeedface\\n");
    expect(
        "another token",
        &got,
        Exit::TestsFailed,
        "end token is missing",
    );
}

const STARTED: &str = r#"{"event":"started","release":"6.12","uptime_ms":1}"#;
const EXIT: &str = r#"{"event":"exit","status":0}"#;

fn guest(events: &[&str], lines: &str) -> (End, Verdict) {
    let mut script = String::new();
    for event in events {
        script.push_str(&format!("echo '{event}' >>$events\n"));
    }
    let token = token_line();
    script.push_str(&format!(
        "printf 'KTAP version 1\\n{lines}{token}\\n' >$ktap"
    ));
    run(&script, &patient())
}

#[test]
fn what_init_reports_counts() {
    let good = "1..1\\nok 1 a\\n";
    let end = |tainted: u32| {
        format!(r#"{{"event":"end","tainted":{tainted},"kmemleak":true,"uptime_ms":2}}"#)
    };
    let clean = end(4096);
    let got = guest(&[STARTED, EXIT, &clean], good);
    expect("good", &got, Exit::Good, "all tests passed");
    let got = guest(&[STARTED, EXIT, &end(512)], good);
    expect("tainted", &got, Exit::Splat, "tainted: W");
    let leak = r#"{"event":"leaks","count":2,"report":"unreferenced object"}"#;
    let got = guest(&[STARTED, EXIT, leak, &clean], good);
    expect("leak", &got, Exit::Splat, "2 leaked objects");
    let failed = r#"{"event":"failed","what":"cannot unmount /mnt: EBUSY"}"#;
    let got = guest(&[STARTED, EXIT, failed], good);
    expect("busy", &got, Exit::TestsFailed, "cannot unmount /mnt");
    let crashed = r#"{"event":"exit","status":139}"#;
    let got = guest(&[STARTED, crashed, &clean], good);
    expect("crashed", &got, Exit::TestsFailed, "ended with status 139");
    let got = guest(&[STARTED, &clean], good);
    expect(
        "no status",
        &got,
        Exit::TestsFailed,
        "did not report its end",
    );
}

#[test]
fn kvm_that_gives_up_is_qemus_fault() {
    let script = "echo 'KVM internal error. Suberror: 1' >&2; echo 'emulation failure' >&2; \
                  while :; do sleep 1; done";
    let got = run(script, &patient());
    expect("kvm", &got, Exit::Qemu, "KVM internal error");
    assert_eq!(got.0, End::Dead);
}

#[test]
fn a_guest_that_stays_up_after_its_work_is_ended() {
    let end = r#"{"event":"end","tainted":0,"kmemleak":false,"uptime_ms":2}"#;
    let script = format!(
        "printf '%s\\n' '{STARTED}' '{EXIT}' '{end}' >$events; \
         printf 'KTAP version 1\\n1..1\\nok 1 a\\n{}\\n' >$ktap; \
         while :; do sleep 1; done",
        token_line()
    );
    let limits = Limits {
        power_off: Duration::from_secs(1),
        ..patient()
    };
    let got = run(&script, &limits);
    expect("up", &got, Exit::TestTimeout, "power did not go off");
    assert_eq!(got.0, End::StayedUp);
}
