// SPDX-License-Identifier: GPL-2.0

//! Complete guests without a kernel: a boot sector that prints its message on
//! the serial port and then ends, or does not, in one of the ways guests have.

use std::time::Duration;
use xtask::exit::Exit;
use xtask::sh::Cmd;
use xtask::verdict::Verdict;
use xtask::vm::Limits;
use xtask::watch::End;

use crate::{Bench, expect, patient, token_line};

/// What the guest does after its message.
#[derive(Clone, Copy)]
enum Tail {
    /// Nothing more: interrupts off, halted.
    Hang,
    /// Reset through the keyboard controller, as a panicking kernel does.
    Reset,
    /// Power off through ACPI.
    PowerOff,
    /// Make QEMU end with `code << 1 | 1`.
    DebugExit(u8),
}

impl Tail {
    fn code(self) -> Vec<u8> {
        let mut code = match self {
            Tail::Hang => vec![0xfa],                                            // cli
            Tail::Reset => vec![0xb0, 0xfe, 0xe6, 0x64], // mov al, 0xfe; out 0x64, al
            Tail::PowerOff => vec![0xb8, 0x00, 0x20, 0xba, 0x04, 0x06, 0xef], // mov ax, 0x2000; mov dx, 0x604; out dx, ax
            Tail::DebugExit(value) => vec![0xb0, value, 0xba, 0xf4, 0x00, 0xee], // mov al, value; mov dx, 0xf4; out dx, al
        };
        code.extend([0xf4, 0xeb, 0xfd]); // hlt; jmp to the hlt
        code
    }
}

/// The sector: set up, print the message, end.
fn sector(message: &str, tail: Tail) -> [u8; 512] {
    const ORIGIN: u16 = 0x7c00;
    let setup: &[u8] = &[0x31, 0xc0, 0x8e, 0xd8]; // xor ax, ax; mov ds, ax
    let print: &[u8] = &[
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xac, // lodsb
        0x84, 0xc0, // test al, al
        0x74, 0x03, // jz over the loop
        0xee, // out dx, al
        0xeb, 0xf8, // jmp to the lodsb
    ];
    let tail = tail.code();
    let at = setup.len() + 3 + print.len() + tail.len();
    let address = ORIGIN + u16::try_from(at).unwrap();
    let mut code = setup.to_vec();
    code.push(0xbe); // mov si, message
    code.extend(address.to_le_bytes());
    code.extend(print);
    code.extend(tail);
    code.extend(message.as_bytes());
    code.push(0);
    assert!(code.len() <= 510, "the message is too long for a sector");
    let mut sector = [0; 512];
    sector[..code.len()].copy_from_slice(&code);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Boots the sector under TCG. Its one serial port is console and KTAP at once.
fn boot(message: &str, tail: Tail, limits: &Limits) -> (End, Verdict) {
    let bench = Bench::empty();
    let image = bench.file("sector.img");
    std::fs::write(&image, sector(message, tail)).unwrap();
    let (console, ktap) = (bench.file("console.log"), bench.file("ktap"));
    std::fs::write(&console, "").unwrap();
    std::os::unix::fs::symlink(&console, &ktap).unwrap();
    let cmd = Cmd::new(xtask::accel::qemu().unwrap())
        .args(["-machine", "pc,accel=tcg", "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-no-reboot"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
        .args(["-serial", &format!("file:{}", console.display())])
        .args([
            "-drive",
            &format!("if=ide,format=raw,snapshot=on,file={}", image.display()),
        ]);
    bench.run(&cmd, limits)
}

fn stream(lines: &str) -> String {
    format!("KTAP version 1\r\n{}", lines.replace('\n', "\r\n"))
}

/// A good stream. The serial line ends are those of a console, so the token
/// must be found behind a carriage return, too.
fn good() -> String {
    stream(&format!("1..1\nok 1 a\n{}\n", token_line()))
}

#[test]
fn good_runs_pass_whatever_qemu_returns() {
    for (name, tail) in [
        ("debug exit 33", Tail::DebugExit(0x10)),
        ("debug exit 1", Tail::DebugExit(0)),
        ("power off", Tail::PowerOff),
        ("reset", Tail::Reset),
    ] {
        expect(name, &boot(&good(), tail, &patient()), Exit::Good, "");
    }
}

#[test]
fn without_the_token_nothing_passes() {
    let message = stream("1..1\nok 1 a\n");
    let got = boot(&message, Tail::PowerOff, &patient());
    expect("power off", &got, Exit::TestsFailed, "end token is missing");
    let got = boot(&message, Tail::DebugExit(0x10), &patient());
    expect("debug exit", &got, Exit::Qemu, "in the middle of the run");
}

#[test]
fn failed_tests_fail() {
    let message = stream(&format!("1..2\nok 1 a\nnot ok 2 b\n{}\n", token_line()));
    for tail in [Tail::DebugExit(0), Tail::PowerOff] {
        let got = boot(&message, tail, &patient());
        expect("not ok", &got, Exit::TestsFailed, "1 failed");
    }
}

#[test]
fn a_panic_is_a_panic_even_if_qemu_is_content() {
    let panic = "[    1.000000] Kernel panic - not syncing: VFS\r\n";
    for (name, tail) in [("reset", Tail::Reset), ("power off", Tail::PowerOff)] {
        let got = boot(panic, tail, &patient());
        expect(name, &got, Exit::Panic, "not syncing: VFS");
    }
    let late = format!("{}{panic}", good());
    let got = boot(&late, Tail::PowerOff, &patient());
    expect("after the token", &got, Exit::Panic, "not syncing");
}

#[test]
fn a_panic_ends_a_hanging_guest_at_once() {
    let begin = std::time::Instant::now();
    let limits = Limits {
        boot: Some(Duration::from_secs(600)),
        run: Some(Duration::from_secs(600)),
        ..patient()
    };
    let got = boot("Kernel panic - not syncing: VFS\r\n", Tail::Hang, &limits);
    expect("hang", &got, Exit::Panic, "not syncing: VFS");
    assert!(begin.elapsed() < crate::PATIENCE);
}

#[test]
fn oopses_and_splats_are_told_apart() {
    let run = |line: &str| {
        let message = stream(&format!("1..1\n{line}\nok 1 a\n{}\n", token_line()));
        boot(&message, Tail::PowerOff, &patient())
    };
    let got = run("BUG: kernel NULL pointer dereference, address: 8");
    expect("oops", &got, Exit::Panic, "NULL pointer");
    for line in [
        "BUG: sleeping function called from invalid context",
        "WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2",
        "BUG: KASAN: use-after-free in f",
        "INFO: task a:1 blocked for more than 60 seconds.",
    ] {
        expect(line, &run(line), Exit::Splat, line);
    }
}

#[test]
fn a_hanging_suite_is_stopped_and_counted() {
    let limits = Limits {
        run: Some(Duration::from_secs(2)),
        ..patient()
    };
    let got = boot(&stream("1..2\nok 1 a\n"), Tail::Hang, &limits);
    expect("hang", &got, Exit::TestTimeout, "1 of 2 results seen");
    assert_eq!(got.0, End::RunTimeout(2));
}

#[test]
fn a_silent_guest_is_a_boot_timeout() {
    let limits = Limits {
        boot: Some(Duration::from_secs(2)),
        ..patient()
    };
    let got = boot("", Tail::Hang, &limits);
    expect("silent", &got, Exit::BootTimeout, "within 2 s");
}

#[test]
fn a_guest_that_goes_down_silently_is_no_success() {
    let got = boot("", Tail::PowerOff, &patient());
    expect(
        "power off",
        &got,
        Exit::Panic,
        "before its first sign of life",
    );
    let got = boot("", Tail::DebugExit(0x10), &patient());
    expect("debug exit", &got, Exit::Qemu, "QEMU ended with");
}
