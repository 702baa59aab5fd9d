// SPDX-License-Identifier: GPL-2.0

//! A small project with a small kernel source, for tests of the patch verbs.

#![allow(dead_code, reason = "each test binary uses its part")]

use clap::Parser as _;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use xtask::artifact::Source;
use xtask::opts::{Cli, Opts};
use xtask::project::Project;
use xtask::{exit, fetch, patch};

/// A checkout, a cache and a kernel source in a scratch folder.
pub struct Lab {
    pub folder: TempDir,
}

pub const BASE: &str = r#"
package = "linux-source-6.12"
archive = "usr/src/linux-source-6.12.tar.xz"
version = "6.12"
module = true
compiler = "clang"
rustc = "1.78.0"
bindgen = "0.71.1"
"#;

pub const MAKEFILE: &str = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 7\nEXTRAVERSION =\n";

impl Lab {
    pub fn new() -> Self {
        let lab = Lab {
            folder: tempfile::tempdir().unwrap(),
        };
        lab.write("root/patches/linux-6.12/base.toml", BASE);
        lab.write("root/patches/linux-6.12/series", "");
        lab.write("linux/Makefile", MAKEFILE);
        lab.write("linux/Kconfig", "config X\n\tbool\n");
        lab.write(
            "linux/f.c",
            "one\ncheck();\nthree\nfour\nfive\nsix\nseven\neight\n",
        );
        lab.write("linux/fs/g.c", "a\nb\nc\n");
        lab
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Adds a patch file with this message, new files and hunks, and lists it.
    pub fn patch(&self, name: &str, subject: &str, below: &str, diff: &str) {
        self.write(
            &format!("root/patches/linux-6.12/{name}"),
            &format!(
                "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n\
                 From: rext2 <rext2@rext2.invalid>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n\
                 Subject: {subject}\n\nWhy {subject}.\n\n---\n{below}\n{diff}"
            ),
        );
        let series = self.read("root/patches/linux-6.12/series");
        self.write(
            "root/patches/linux-6.12/series",
            &format!("{series}{name}\n"),
        );
    }

    pub fn opts(&self) -> Opts {
        let linux = self.path("linux");
        Cli::try_parse_from(["xtask", "--linux", linux.to_str().unwrap(), "fetch"])
            .unwrap()
            .opts
    }

    pub fn project(&self) -> Project {
        Project::at(&self.path("root"), &self.path("cache"), &self.opts()).unwrap()
    }

    pub fn source(&self) -> Source {
        fetch::run(&self.project()).unwrap()
    }

    pub fn apply(&self) -> anyhow::Result<xtask::artifact::Tree> {
        patch::apply(&self.project(), &self.source(), false)
    }

    /// git as the user runs it in the kernel tree, with an identity of the user's own.
    pub fn git(&self, args: &[&str]) -> String {
        let tree = self.source().git;
        git_in(&tree, args)
    }
}

pub fn git_in(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args([
            "-c",
            "user.name=A User",
            "-c",
            "user.email=user@example.com",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_EDITOR", "true")
        .env("GIT_SEQUENCE_EDITOR", "true")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

impl Lab {
    /// The program itself on this lab, with the lab's own source, unless the
    /// test names another.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bare(args);
        if !args.contains(&"--tarball") {
            command.arg("--linux").arg(self.path("linux"));
        }
        command
    }

    /// The program, which has to find its source.
    pub fn bare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(args)
            .env("REXT2_ROOT", self.path("root"))
            .env("REXT2_CACHE", self.path("cache"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env_remove("CI")
            .stdin(std::process::Stdio::null());
        command
    }

    /// Runs the program; it must end well. Returns what it said on stderr.
    pub fn succeeds(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {text}");
        text
    }

    /// Runs the program; it must end with this code. Returns what it said on stderr.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        text
    }

    /// Puts a shell script before the program of the same name, which it finds as $REAL.
    pub fn fake(&self, name: &str, script: &str) {
        let real = xtask::sh::which(name).unwrap_or_default();
        let file = self.path("fakes").join(name);
        self.write(
            &format!("fakes/{name}"),
            &format!(
                "#!/bin/sh\nREAL={}\nLAB={}\n{script}\n",
                real.display(),
                self.folder.path().display()
            ),
        );
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// PATH with the fakes first.
    pub fn path_with_fakes(&self) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(
            std::iter::once(self.path("fakes")).chain(std::env::split_paths(&path)),
        )
        .unwrap()
    }

    /// Runs the program with the fakes.
    pub fn run_with_fakes(&self, args: &[&str]) -> std::process::Output {
        self.command(args)
            .env("PATH", self.path_with_fakes())
            .output()
            .unwrap()
    }

    /// A shell with the fakes and the lab's folders.
    pub fn shell_with_fakes(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .env("PATH", self.path_with_fakes())
            .env("REXT2_ROOT", self.path("root"))
            .env("REXT2_CACHE", self.path("cache"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .stdout(std::process::Stdio::null());
        shell
    }

    /// Waits until a fake has written its process number to `halted`.
    pub fn wait_until_halted(&self, child: &mut Child) -> u32 {
        let begin = Instant::now();
        loop {
            if let Some(pid) = fs::read_to_string(self.path("halted"))
                .ok()
                .and_then(|text| text.trim().parse().ok())
            {
                return pid;
            }
            assert!(
                child.try_wait().unwrap().is_none(),
                "the run ended before it could be stopped"
            );
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the run never came to the step"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the program with the fakes.
    pub fn spawn_with_fakes(&self, args: &[&str]) -> std::process::Child {
        self.command(args)
            .env("PATH", self.path_with_fakes())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// Sends a signal to the program.
pub fn send(child: &Child, signal: Signal) {
    kill_process(
        Pid::from_raw(child.id().try_into().unwrap()).unwrap(),
        signal,
    )
    .unwrap();
}

/// Whether a process runs.
pub fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

/// Names, contents and times of everything below a folder.
pub fn everything(folder: &Path) -> Vec<(PathBuf, u64, i64, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, meta.len(), meta.mtime(), meta.mtime_nsec(), content));
        }
    }
    found.sort();
    found
}

/// The code and text of an error.
pub fn failure<T>(result: anyhow::Result<T>) -> (u8, String) {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => (exit::of(&error).code(), format!("{error:#}")),
    }
}

pub const DIFF_F: &str = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1,5 +1,6 @@\n one\n check();\n+more();\n three\n four\n five\n";
