// SPDX-License-Identifier: GPL-2.0

//! What happens when KVM kills a guest.

use super::*;

/// KVM that passes its probe.
struct Works;

impl Host for Works {
    fn create_vm(&self) -> Result<(), String> {
        Ok(())
    }
    fn run_guest(&self) -> Result<(), String> {
        Ok(())
    }
    fn identity(&self) -> anyhow::Result<String> {
        Ok("host".to_owned())
    }
}

/// The accelerators of the runs, when KVM kills every guest.
fn runs(want: Accel, again: bool, memory: &Path) -> Vec<Kind> {
    let scratch = tempfile::tempdir().unwrap();
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/console.toml");
    let mut kinds = Vec::new();
    with_fallback(
        want,
        again,
        &Works,
        memory,
        &Lists::read(&lists).unwrap(),
        |choice| {
            kinds.push(choice.kind);
            let folder = Folder::open(scratch.path());
            let log = match choice.kind {
                Kind::Kvm => "KVM internal error. Suberror: 1\nemulation failure\n",
                Kind::Tcg => "",
            };
            fs::write(folder.qemu_log(), log)?;
            let record = Record {
                name: "boot".to_owned(),
                repeat: String::new(),
                suite: false,
                token: String::new(),
                may_skip: Vec::new(),
                kernel: None,
                accel: Some(choice),
                end: End::Dead,
                seconds: 0.0,
                disks: Vec::new(),
            };
            Ok(Run { folder, record })
        },
    )
    .unwrap();
    kinds
}

#[test]
fn a_guest_that_kvm_kills_runs_once_more_and_kvm_is_not_trusted_again() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("kvm.json");
    assert_eq!(runs(Accel::Auto, true, &memory), [Kind::Kvm, Kind::Tcg]);
    assert_eq!(runs(Accel::Auto, true, &memory), [Kind::Tcg]);
    let error = accel::choose(Accel::Kvm, &Works, &memory).unwrap_err();
    assert!(format!("{error:#}").contains("killed a guest"), "{error:#}");
}

#[test]
fn who_insists_on_kvm_gets_its_death() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("kvm.json");
    assert_eq!(runs(Accel::Kvm, true, &memory), [Kind::Kvm]);
}

#[test]
fn a_guest_whose_input_is_used_up_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("kvm.json");
    assert_eq!(runs(Accel::Auto, false, &memory), [Kind::Kvm]);
    assert_eq!(runs(Accel::Auto, false, &memory), [Kind::Tcg]);
}
