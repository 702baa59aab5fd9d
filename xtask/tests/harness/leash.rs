// SPDX-License-Identifier: GPL-2.0

//! Nobody survives us: QEMU dies with xtask, whatever kills it, and an image
//! that a killed guest has written to is what it was.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::guest::leashed;
use xtask::sh::Cmd;

/// Names the child's role to a copy of this test program.
const ROLE: &str = "REXT2_HARNESS_LOG";

/// Not a test: the process that the next test kills. It starts a "QEMU" that
/// ignores everything and tells its id.
#[test]
fn role_of_the_killed_process() {
    let Some(log) = std::env::var_os(ROLE) else {
        return;
    };
    let script = "trap '' TERM INT HUP; echo $$; exec sleep 1000";
    let mut machine = leashed(Path::new("sh"))
        .args(["-c", script])
        .spawn(Path::new(&log))
        .unwrap();
    machine.wait().unwrap();
}

#[test]
fn qemu_dies_when_xtask_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut xtask = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leash::role_of_the_killed_process"])
        .env(ROLE, &log)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let pid: u32 = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        // The first line is the command.
        if let Some(pid) = text.lines().find_map(|line| line.parse().ok()) {
            break pid;
        }
        assert!(begin.elapsed() < crate::PATIENCE, "no child: {text}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(alive(pid));
    xtask.kill().unwrap();
    xtask.wait().unwrap();
    while alive(pid) {
        assert!(begin.elapsed() < crate::PATIENCE, "{pid} is still alive");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the process runs; one that only waits to be reaped does not.
fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit(')').next().unwrap_or_default();
    !state.trim_start().starts_with(['Z', 'X'])
}

/// A guest that overwrites the first sector of its disk and then hangs:
/// INT 13h, function 3, drive 0x81 (the disk after the boot disk).
#[rustfmt::skip]
const WRITER: &[u8] = &[
    0x31, 0xc0,       // xor ax, ax
    0x8e, 0xd8,       // mov ds, ax
    0x8e, 0xc0,       // mov es, ax
    0xbb, 0x00, 0x7c, // mov bx, 0x7c00
    0xb8, 0x01, 0x03, // mov ax, 0x0301
    0xb9, 0x01, 0x00, // mov cx, 1
    0xba, 0x81, 0x00, // mov dx, 0x81
    0xcd, 0x13,       // int 0x13
    0xb0, 0x4e,       // mov al, 'N'
    0x72, 0x02,       // jc over the next
    0xb0, 0x59,       // mov al, 'Y'
    0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xee,             // out dx, al
    0xb0, 0x0a,       // mov al, '\n'
    0xee,             // out dx, al
    0xfa,             // cli
    0xf4,             // hlt
    0xeb, 0xfd,       // jmp to the hlt
];

#[test]
fn the_image_of_a_killed_guest_is_unchanged() {
    for (access, changed) in [("snapshot=on", false), ("snapshot=off", true)] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let mut sector = [0; 512];
        sector[..WRITER.len()].copy_from_slice(WRITER);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(file("boot.img"), sector).unwrap();
        std::fs::write(file("data.img"), vec![0; 1 << 20]).unwrap();
        let before = xtask::hash::file(&file("data.img")).unwrap();

        let log = file("log");
        let drive = |name: &str, access: &str| {
            format!("if=ide,format=raw,{access},file={}", file(name).display())
        };
        let mut machine = Cmd::new(xtask::accel::qemu().unwrap())
            .args([
                "-machine",
                "pc,accel=tcg",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args(["-serial", "stdio"])
            .args(["-drive", &drive("boot.img", "snapshot=on")])
            .args(["-drive", &drive("data.img", access)])
            .spawn(&log)
            .unwrap();
        let begin = Instant::now();
        let wrote = loop {
            let lines = BufReader::new(std::fs::File::open(&log).unwrap()).lines();
            let answer = lines
                .map_while(Result::ok)
                .find(|line| matches!(line.trim(), "Y" | "N"));
            if let Some(answer) = answer {
                break answer;
            }
            assert!(begin.elapsed() < crate::PATIENCE, "the guest said nothing");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(wrote.trim(), "Y", "the guest could not write");
        machine.kill();
        machine.wait().unwrap();
        let after = xtask::hash::file(&file("data.img")).unwrap();
        assert_eq!(before != after, changed, "{access}");
    }
}
