// SPDX-License-Identifier: GPL-2.0

//! Suite `fstests`: runs fstests' own `check` in the guest root that the job has
//! mounted, and reports on each test as it ends. A test that takes too long ends
//! the suite: what it leaves behind would spoil the next one, so the host goes on
//! in a fresh guest.
//!
//! Values: `limit=` seconds that a test may take. `--fs` is the driver: `rext2`
//! goes by the name `ext2` there, for fstests know file systems by their names.

pub mod stream;

use crate::disk;
use crate::job::Job;
use crate::ktap::{Ktap, Outcome};
use crate::mount;
use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change};
use std::fs;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stream::{Step, Stream};

/// Where the host puts the names of the tests, a line each.
pub const LIST: &str = "/fstests.list";
/// Where the job mounts the guest root.
pub const ROOT: &str = "/mnt/root";
/// Where it mounts the fstests tree, seen from the guest root.
pub const TREE: &str = "/var/lib/xfstests";
/// What `check` leaves behind, seen from the guest root.
const RESULTS: &str = "/results";
/// In front of the name of a test that runs, in the KTAP stream.
pub const RUNS: &str = "run ";
/// Disks by serial, and what fstests call them.
pub const DISKS: &[(&str, &str)] = &[
    ("test", "TEST_DEV"),
    ("scratch", "SCRATCH_DEV"),
    ("logwrites", "LOGWRITES_DEV"),
];
/// What is shown of a file that a failed test has left.
const SHOWN: usize = 48 << 10;

/// Programs of the guest root for rext2 under the name ext2: `mount` calls the
/// first for everything that is to be mounted as ext2; the others translate back
/// what fstests look at to see that it was.
const NAMES: &[(&str, &str)] = &[
    (
        "/sbin/mount.ext2",
        "#!/bin/sh\nexec /bin/mount -t rext2 \"$@\"\n",
    ),
    (
        "/usr/local/bin/df",
        "#!/bin/bash\nset -o pipefail\n\
         /bin/df \"$@\" | sed -E 's/^([^ ]+ +)rext2 /\\1ext2 /'\n",
    ),
    (
        "/usr/local/bin/findmnt",
        "#!/bin/bash\nwords=()\nfor word; do\n\
         [ \"$before\" = -t ] && [ \"$word\" = ext2 ] && word=rext2\n\
         words+=(\"$word\"); before=$word\ndone\nexec /bin/findmnt \"${words[@]}\"\n",
    ),
];

/// Runs the tests of the list; whether all of them were run.
pub fn run(job: &Job, out: impl Write) -> Result<bool> {
    let limit = Duration::from_secs(job.get_or("limit", 600)?);
    let text = fs::read_to_string(LIST).context(format!("cannot read {LIST}"))?;
    let tests: Vec<String> = text.lines().map(str::to_owned).collect();
    ensure!(!tests.is_empty(), "no test in {LIST}");
    let mut ktap = Ktap::start(out, tests.len())?;
    prepare(job)?;
    let (mut check, mut said) = check(&tests)?;
    let mut stream = Stream::new(&tests);
    let mut clock = Instant::now();
    loop {
        let text = read(&mut said)?;
        print!("{text}");
        for step in stream.feed(&text) {
            report(&mut ktap, &step, &mut clock)?;
        }
        // Somebody who holds the pipe open may outlive check.
        let ended = check.try_wait().context("cannot wait for check")?;
        if let (Some(status), true) = (ended, text.is_empty()) {
            for step in stream.finish() {
                report(&mut ktap, &step, &mut clock)?;
            }
            println!("check ended with {status}");
            // The job's own mounts are init's to end.
            mount::detach_below(Path::new(ROOT), &[Path::new(&inside(TREE))])?;
            return Ok(true);
        }
        if let Some(test) = stream.current()
            && clock.elapsed() > limit
        {
            println!("=== {test}: processes\n{}", processes()?);
            let reason = format!("timed out after {} s", limit.as_secs());
            show(test);
            let notes = format!("{} ms", clock.elapsed().as_millis());
            ktap.result(test, &Outcome::TimedOut(reason), &notes)?;
            return Ok(false);
        }
    }
}

/// Makes the guest root a system, and its configuration ours.
fn prepare(job: &Job) -> Result<()> {
    // What a test does to its mounts must not reach ours.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .context("cannot make mounts private")?;
    for folder in ["proc", "sys", "dev"] {
        mount_bind_recursive(format!("/{folder}"), format!("{ROOT}/{folder}"))
            .context(format!("cannot show /{folder} to the guest root"))?;
    }
    // Shells open /dev/fd/N for a process substitution; no udev makes it here.
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        match std::os::unix::fs::symlink(target, format!("/dev/{name}")) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).context(format!("cannot make /dev/{name}"));
            }
            _ => {}
        }
    }
    mount_tmpfs("tmp")?;
    mount_tmpfs("run")?;
    for folder in ["/mnt/test", "/mnt/scratch", RESULTS] {
        fs::create_dir_all(inside(folder)).context(format!("cannot make {folder}"))?;
    }
    let name = match job.is_rext2() {
        true => "ext2",
        false => &job.fs,
    };
    if job.is_rext2() {
        for (file, text) in NAMES {
            program(file, text)?;
        }
    }
    let mut config = format!(
        "export FSTYP={name}\nexport TEST_DIR=/mnt/test\nexport SCRATCH_MNT=/mnt/scratch\n\
         export RESULT_BASE={RESULTS}\nexport DIFF_LENGTH=40\n"
    );
    for (serial, variable) in DISKS {
        config.push_str(&format!("export {variable}=/dev/{}\n", disk::find(serial)?));
    }
    let file = inside(&format!("{TREE}/local.config"));
    fs::write(&file, config).context(format!("cannot write {file}"))?;
    let device = format!("/dev/{}", disk::find("test")?);
    let made = match name {
        "xfs" => guest(&["mkfs.xfs", "-q", "-f", &device]),
        _ => guest(&[&format!("mkfs.{name}"), "-q", "-F", &device]),
    }
    .status()
    .context("cannot run mkfs")?;
    ensure!(made.success(), "mkfs of {device} ended with {made}");
    Ok(())
}

fn mount_tmpfs(folder: &str) -> Result<()> {
    let target = format!("{ROOT}/{folder}");
    rustix::mount::mount("tmpfs", &target, "tmpfs", MountFlags::empty(), None)
        .context(format!("cannot mount a tmpfs on {target}"))
}

/// A path of the guest root as we see it.
fn inside(path: &str) -> String {
    format!("{ROOT}{path}")
}

fn program(path: &str, text: &str) -> Result<()> {
    let file = inside(path);
    fs::write(&file, text).context(format!("cannot write {file}"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
        .context(format!("cannot make {file} a program"))
}

/// A command in the guest root.
fn guest(argv: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command
        .arg(ROOT)
        .args(argv)
        .stdin(Stdio::null())
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        .env("USER", "root")
        .env("LOGNAME", "root")
        .env("LC_ALL", "C")
        .env("TERM", "linux")
        // Nobody else makes the nodes of /dev/mapper.
        .env("DM_DISABLE_UDEV", "1");
    command
}

/// Starts `check`; its output and its errors in one.
fn check(tests: &[String]) -> Result<(Child, PipeReader)> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let script = format!("cd {TREE} && exec ./check --exact-order \"$@\"");
    let mut argv = vec!["/bin/bash", "-c", &script, "check"];
    argv.extend(tests.iter().map(String::as_str));
    let child = guest(&argv)
        .stdout(writer.try_clone().context("cannot share a pipe")?)
        .stderr(writer)
        .spawn()
        .context("cannot start check")?;
    Ok((child, reader))
}

/// What was said within the last second.
fn read(said: &mut PipeReader) -> Result<String> {
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(said, PollFlags::IN)], Some(&second));
    if ready.context("cannot wait for check's output")? == 0 {
        return Ok(String::new());
    }
    let mut bytes = vec![0; 64 << 10];
    let count = said
        .read(&mut bytes)
        .context("cannot read check's output")?;
    if count == 0 {
        // Closed: nothing more will come, and poll would not wait.
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

fn report<W: Write>(ktap: &mut Ktap<W>, step: &Step, clock: &mut Instant) -> Result<()> {
    match step {
        Step::Begun(test) => {
            *clock = Instant::now();
            ktap.note(&format!("{RUNS}{test}"))?;
        }
        Step::Ended(test, outcome) => {
            if outcome.is_failure() {
                show(test);
            }
            let notes = format!("{} ms", clock.elapsed().as_millis());
            ktap.result(test, outcome, &notes)?;
        }
    }
    Ok(())
}

/// Prints the ends of the files that a failed test has left.
fn show(test: &str) {
    for ending in ["out.bad", "full", "dmesg"] {
        let file = inside(&format!("{RESULTS}/{test}.{ending}"));
        if let Ok(bytes) = fs::read(&file) {
            let from = bytes.len().saturating_sub(SHOWN);
            let text = String::from_utf8_lossy(&bytes[from..]);
            println!("=== {test}.{ending}\n{text}\n===");
        }
    }
}

/// Every process of the guest root: what it is and where it waits.
fn processes() -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let path = entry.context("cannot list /proc")?.path();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        let line = read("cmdline").replace('\0', " ");
        // Kernel threads have none.
        if !line.is_empty()
            && fs::read_link(path.join("root")).is_ok_and(|root| root == Path::new(ROOT))
        {
            let stack = read("stack");
            let stack: Vec<_> = stack
                .split_whitespace()
                .filter(|word| word.contains('+'))
                .collect();
            text.push_str(&format!("{line}: {}\n", stack.join(" ")));
        }
    }
    Ok(text)
}
