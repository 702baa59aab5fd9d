// SPDX-License-Identifier: GPL-2.0

//! `report` on whatever `test` tells of: folders of runs, their files, JSON.

mod common;

use common::Lab;
use rext2_init::{PORT_CTL, PORT_KTAP, end_token};
use std::path::Path;
use std::process::Output;
use xtask::rundir::{Folder, Record};
use xtask::watch::End;

const TOKEN: &str = "0123456789abcdef";

/// A run of a suite whose second test failed.
fn run(lab: &Lab) -> Folder {
    let folder = Folder::open(&lab.path("runs/smoke.x"));
    std::fs::create_dir_all(folder.path()).unwrap();
    let end = end_token(TOKEN);
    let ktap = format!("KTAP version 1\n1..2\nok 1 a\nnot ok 2 b\n{end}\n");
    std::fs::write(folder.port(PORT_KTAP), ktap).unwrap();
    std::fs::write(folder.console(), "[    0.0] Linux version 6.12\n").unwrap();
    std::fs::write(folder.qemu_log(), "").unwrap();
    std::fs::write(
        folder.port(PORT_CTL),
        "{\"event\":\"started\",\"release\":\"6.12\",\"uptime_ms\":1}\n\
         {\"event\":\"exit\",\"status\":1}\n\
         {\"event\":\"end\",\"tainted\":0,\"kmemleak\":false,\"uptime_ms\":2}\n",
    )
    .unwrap();
    let record = Record {
        name: "smoke".to_owned(),
        repeat: "cargo xtask test smoke".to_owned(),
        suite: true,
        token: TOKEN.to_owned(),
        may_skip: Vec::new(),
        kernel: None,
        accel: None,
        end: End::Down {
            status: "exit status: 0".to_owned(),
            success: true,
        },
        seconds: 1.0,
        disks: Vec::new(),
    };
    folder.finish(&record, true).unwrap();
    folder
}

fn report(lab: &Lab, file: &Path, more: &[&str]) -> Output {
    lab.bare(&[&["report", file.to_str().unwrap()], more].concat())
        .env(
            "REXT2_ROOT",
            Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        )
        .current_dir(lab.folder.path())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_is_judged_whichever_of_its_paths_is_given() {
    let lab = Lab::new();
    let folder = run(&lab);
    let mut files = vec![
        folder.path().to_owned(),
        Path::new("runs/smoke.x").to_owned(),
        Path::new("runs/smoke.x/").to_owned(),
        Path::new("runs/smoke.x/console.log").to_owned(),
    ];
    for name in ["console.log", "ktap", "events", "qemu.log", "run.json"] {
        files.push(folder.path().join(name));
    }
    let json = report(&lab, folder.path(), &["--format", "json"]);
    lab.write("report.json", &text(&json.stdout));
    files.push(lab.path("report.json"));
    for file in files {
        let output = report(&lab, &file, &[]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{}: {said}", file.display());
        assert!(
            said.contains("smoke: FAILED (exit code 1)") && said.contains("1 passed, 1 failed"),
            "{}: {said}{}",
            file.display(),
            text(&output.stderr)
        );
    }
}

#[test]
fn what_cannot_be_judged_says_what_can() {
    let lab = Lab::new();
    let junit = report(&lab, run(&lab).path(), &["--format", "junit"]);
    lab.write("report.xml", &text(&junit.stdout));
    lab.write("unfinished/console.log", "[    0.0] Linux version 6.12\n");
    lab.write("target/rext2/log/build.log", "$ make\n");
    for (name, code, wanted) in [
        (
            "nosuch",
            2,
            "it is not there; \"cargo xtask test\" tells the log of each run",
        ),
        ("report.xml", 2, "--format json"),
        ("unfinished", 2, "console.log"),
        ("target/rext2/log/build.log", 2, "it is the log of a step"),
        (
            "root/patches/linux-6.12/base.toml",
            15,
            "no test passed in it",
        ),
    ] {
        let output = report(&lab, &lab.path(name), &[]);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.contains(wanted), "{name}: {said}");
    }
    assert_eq!(
        report(&lab, &lab.path("unfinished/console.log"), &[])
            .status
            .code(),
        Some(15)
    );
}

#[test]
fn the_log_of_the_host_tests_is_judged() {
    let lab = Lab::new();
    let line = "        PASS [   0.007s] xtask a\n        FAIL [   0.007s] xtask b\n";
    lab.write("target/rext2/log/host-tests.log", line);
    let output = report(&lab, &lab.path("target/rext2/log/host-tests.log"), &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("1 passed, 1 failed") && said.contains("xtask/b"),
        "{said}"
    );
}
