// SPDX-License-Identifier: GPL-2.0

//! Every kind of `/dev/kvm` that is known to lie, and the answer to it.

use super::*;
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt as _;

/// A host made to measure.
struct Fake {
    device: Result<(), &'static str>,
    guest: Result<(), &'static str>,
    boot: &'static str,
    guests: Cell<u32>,
}

impl Fake {
    fn new(device: Result<(), &'static str>, guest: Result<(), &'static str>) -> Self {
        Fake {
            device,
            guest,
            boot: "first boot",
            guests: Cell::new(0),
        }
    }
}

impl Host for Fake {
    fn create_vm(&self) -> Result<(), String> {
        self.device.map_err(str::to_owned)
    }
    fn run_guest(&self) -> Result<(), String> {
        self.guests.set(self.guests.get() + 1);
        self.guest.map_err(str::to_owned)
    }
    fn identity(&self) -> anyhow::Result<String> {
        Ok(self.boot.to_owned())
    }
}

fn memory() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache/kvm.json");
    (folder, file)
}

#[test]
fn unusable_devices_mean_tcg_or_exit_3() {
    for (host, reason) in [
        (
            Fake::new(Err("permission denied"), Ok(())),
            "permission denied",
        ),
        (Fake::new(Err("cannot create a VM: EBUSY"), Ok(())), "EBUSY"),
        (Fake::new(Ok(()), Err("dies on a test guest")), "dies on"),
    ] {
        let (_folder, memory) = memory();
        let choice = choose(Accel::Auto, &host, &memory).unwrap();
        assert_eq!(choice.kind, Kind::Tcg);
        assert!(
            choice.to_string().starts_with("accel=tcg (kvm: "),
            "{choice}"
        );
        assert!(choice.to_string().contains(reason), "{choice}");
        let error = choose(Accel::Kvm, &host, &memory).unwrap_err();
        assert_eq!(exit::of(&error), Exit::Environment);
        assert!(format!("{error:#}").contains(reason));
        let choice = choose(Accel::Tcg, &host, &memory).unwrap();
        assert_eq!(choice.to_string(), "accel=tcg (asked for)");
    }
}

#[test]
fn the_guest_runs_once_per_host_boot() {
    let (_folder, memory) = memory();
    let mut host = Fake::new(Ok(()), Ok(()));
    for _ in 0..3 {
        let choice = choose(Accel::Auto, &host, &memory).unwrap();
        assert_eq!(choice.kind, Kind::Kvm);
    }
    assert_eq!(host.guests.get(), 1);
    host.boot = "second boot";
    choose(Accel::Auto, &host, &memory).unwrap();
    assert_eq!(host.guests.get(), 2);
}

#[test]
fn a_later_death_is_remembered_until_the_next_boot() {
    let (_folder, memory) = memory();
    let mut host = Fake::new(Ok(()), Ok(()));
    choose(Accel::Auto, &host, &memory).unwrap();
    distrust(&host, &memory, "KVM internal error in a guest").unwrap();
    let choice = choose(Accel::Auto, &host, &memory).unwrap();
    assert_eq!(choice.kind, Kind::Tcg);
    assert!(choice.why.contains("internal error"), "{choice}");
    host.boot = "second boot";
    let choice = choose(Accel::Auto, &host, &memory).unwrap();
    assert_eq!(choice.kind, Kind::Kvm);
}

#[test]
fn a_damaged_memory_is_asked_again() {
    let (folder, memory) = memory();
    std::fs::create_dir(folder.path().join("cache")).unwrap();
    std::fs::write(&memory, "{\"identity\":").unwrap();
    let host = Fake::new(Ok(()), Ok(()));
    choose(Accel::Auto, &host, &memory).unwrap();
    assert_eq!(host.guests.get(), 1);
}

fn machine(folder: &Path, device: &Path, script: &str) -> Machine {
    let qemu = folder.join("qemu");
    std::fs::write(&qemu, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    Machine {
        device: device.to_owned(),
        qemu,
        scratch: folder.join("scratch"),
    }
}

#[test]
fn a_device_that_is_not_kvm_is_named_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("kvm");
    let host = machine(folder.path(), &missing, "exit 0");
    let why = host.create_vm().unwrap_err();
    assert!(why.contains("No such file"), "{why}");

    std::fs::write(&missing, "").unwrap();
    let why = host.create_vm().unwrap_err();
    assert!(why.contains("cannot create a VM: "), "{why}");

    // Root may open anything, so only others see the third answer.
    std::fs::set_permissions(&missing, std::fs::Permissions::from_mode(0o0)).unwrap();
    if !rustix::process::geteuid().is_root() {
        let why = host.create_vm().unwrap_err();
        assert!(why.contains("add yourself to group kvm"), "{why}");
    }
}

/// A QEMU that finds its serial file as ours does.
const SERIAL: &str = "for arg; do case $arg in file:*) serial=${arg#file:};; esac; done";

#[test]
fn the_probe_reads_the_guest_and_not_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let device = Path::new("/dev/null");
    for (script, answer) in [
        ("printf 'rext2: KVM runs\\n' >$serial", Ok(())),
        ("printf 'rext2: KVM runs\\n' >$serial; exit 1", Ok(())),
        ("exit 0", Err("message did not arrive")),
        (
            "printf 'rext2: KVM rnus\\n' >$serial",
            Err("did not arrive"),
        ),
        (
            "echo 'qemu: failed to set MSR 0x10a' >&2; exit 134",
            Err("failed to set MSR"),
        ),
        (
            "echo 'KVM internal error. Suberror: 1' >&2; echo 'emulation failure'; sleep 1000",
            Err("KVM internal error (emulation failure)"),
        ),
    ] {
        let host = machine(folder.path(), device, &format!("{SERIAL}\n{script}"));
        match (host.run_guest(), answer) {
            (Ok(()), Ok(())) => {}
            (Err(why), Err(part)) if why.contains(part) => {}
            (got, wanted) => panic!("{script}: got {got:?}, wanted {wanted:?}"),
        }
    }
}

/// The sector is right if a translator runs it; whether this machine's KVM
/// does is for `choose` to say, and both answers are good here.
#[test]
fn this_machine_gets_an_answer() {
    let Ok(qemu) = qemu() else {
        panic!("the harness tests need qemu-system-x86_64");
    };
    let folder = tempfile::tempdir().unwrap();
    let wrapper = machine(
        folder.path(),
        Path::new("/dev/null"),
        &format!(
            "for arg; do shift; case $arg in pc,accel=kvm) arg=pc,accel=tcg;; host) arg=max;; esac\n\
             set -- \"$@\" \"$arg\"; done; exec {} \"$@\"",
            qemu.display()
        ),
    );
    assert_eq!(wrapper.run_guest(), Ok(()));

    let (_folder, memory) = memory();
    let host = Machine {
        device: "/dev/kvm".into(),
        qemu,
        scratch: folder.path().to_owned(),
    };
    let first = choose(Accel::Auto, &host, &memory).unwrap();
    let second = choose(Accel::Auto, &host, &memory).unwrap();
    assert_eq!(first.kind, second.kind, "{first}, then {second}");
    if first.kind == Kind::Tcg {
        assert!(first.why.starts_with("kvm: /dev/kvm"), "{first}");
    }
}
