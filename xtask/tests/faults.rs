// SPDX-License-Identifier: GPL-2.0

//! Downloads and builds that are cut short, by the network, a full disk or
//! Ctrl-C: with apt, make and the compilers replaced by scripts, so that each
//! can be stopped where it hurts.

mod common;

use common::{Lab, alive, send};
use rustix::process::Signal;
use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

/// Name of the package's file, as apt would say it.
const DEB: &str = "linux-source-6.12_6.12.7-1_all.deb";

/// A lab whose apt brings the lab's source. The file `mood` says how it goes.
fn with_apt() -> Lab {
    let lab = Lab::new();
    let base = common::BASE.replace(".tar.xz", ".tar.gz");
    lab.write("root/patches/linux-6.12/base.toml", &base);
    lab.write("deb/usr/src/.keep", "");
    let tar = |args: &[&str]| {
        let mut tar = std::process::Command::new("tar");
        assert!(
            tar.current_dir(lab.folder.path())
                .args(args)
                .status()
                .unwrap()
                .success()
        );
    };
    tar(&["-czf", "deb/usr/src/linux-source-6.12.tar.gz", "linux"]);
    // What dpkg-deb would take out of the package.
    tar(&["-cf", DEB, "-C", "deb", "./usr"]);
    lab.fake("dpkg-deb", "exec cat \"$2\"");
    let hash = xtask::hash::file(&lab.path(DEB)).unwrap();
    let size = fs::metadata(lab.path(DEB)).unwrap().len();
    lab.fake(
        "apt-get",
        &format!(
            "case \"$*\" in\n\
             *--print-uris*) echo \"'http://debian/{DEB}' {DEB} {size} SHA256:{hash}\"; exit;;\n\
             *update*) exit;;\n\
             esac\n\
             echo download >> $LAB/downloads\n\
             case $(cat $LAB/mood) in\n\
             cut) head -c 1000 $LAB/{DEB} > {DEB};;\n\
             cut-once) head -c 1000 $LAB/{DEB} > {DEB}; echo whole > $LAB/mood;;\n\
             full) head -c 1000 $LAB/{DEB} > {DEB}\n\
             echo 'E: Write error - write (28: No space left on device)' >&2; exit 100;;\n\
             halt) head -c 1000 $LAB/{DEB} > {DEB}; echo $$ > $LAB/halted; exec sleep 100;;\n\
             whole) cp $LAB/{DEB} {DEB};;\n\
             esac"
        ),
    );
    lab
}

fn fetch(lab: &Lab, mood: &str) -> Output {
    with_mood(lab, mood, &["fetch"])
}

fn with_mood(lab: &Lab, mood: &str, args: &[&str]) -> Output {
    lab.write("mood", mood);
    lab.bare(args)
        .env("PATH", lab.path_with_fakes())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn downloads(lab: &Lab) -> usize {
    fs::read_to_string(lab.path("downloads")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_download_that_is_cut_short_is_refused_and_nothing_of_it_is_kept() {
    for (mood, wanted) in [
        ("cut", "is not what apt's signed lists promise"),
        ("full", "No space left on device"),
    ] {
        let lab = with_apt();
        let output = fetch(&lab, mood);
        assert_eq!(output.status.code(), Some(4), "{mood}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{mood}: {}", said(&output));
        assert!(!lab.path("cache/downloads").join(DEB).exists(), "{mood}");
        assert!(!lab.path("cache/trees").exists(), "{mood}");
        let output = fetch(&lab, "whole");
        assert!(output.status.success(), "{mood}: {}", said(&output));
        // Once fetched, the network is not asked again.
        let before = downloads(&lab);
        assert!(fetch(&lab, "cut").status.success(), "{mood}");
        assert_eq!(downloads(&lab), before, "{mood}");
    }
}

#[test]
fn a_mirror_that_fails_once_is_asked_again() {
    let lab = with_apt();
    let output = with_mood(&lab, "cut-once", &["patch", "apply"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("trying with fresh package lists"));
    assert_eq!(downloads(&lab), 2);
}

#[test]
fn a_downloaded_package_that_rots_is_downloaded_again() {
    let lab = with_apt();
    assert!(fetch(&lab, "whole").status.success());
    let deb = lab.path("cache/downloads").join(DEB);
    fs::write(&deb, "rotten").unwrap();
    fs::remove_dir_all(lab.path("cache/trees")).unwrap();
    fs::remove_dir_all(lab.path("cache/sources")).unwrap();
    let output = fetch(&lab, "whole");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(downloads(&lab), 2);
    assert_eq!(fs::read(&deb).unwrap(), fs::read(lab.path(DEB)).unwrap());
}

#[test]
fn ctrl_c_in_a_download_leaves_nothing_half() {
    let lab = with_apt();
    lab.write("mood", "halt");
    let mut child = lab
        .bare(&["fetch"])
        .env("PATH", lab.path_with_fakes())
        .spawn()
        .unwrap();
    let halted = lab.wait_until_halted(&mut child);
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!alive(halted));
    assert!(!lab.path("cache/downloads").join(DEB).exists());
    let output = fetch(&lab, "whole");
    assert!(output.status.success(), "{}", said(&output));
}

/// What the fake make does for each target. It halts once at the step that the
/// file `halt` names, for as long as it says, with a half-made result; it fails
/// as on a full disk at the one that `full` names.
const MAKE: &str = r#"
for arg; do case $arg in
O=*) out=${arg#O=};; M=*) mod=${arg#M=};; KCONFIG_ALLCONFIG=*) all=${arg#*=};;
*config) step=config;; bzImage) step=build;; modules) step=${step:-module};;
esac; done
echo $step >> $LAB/steps
case $step in
config) results=$out/.config;;
build) results="$out/vmlinux $out/arch/x86/boot/bzImage $out/modules.order";;
module) results="$mod/rext2.ko $mod/.rext2.o.cmd";;
esac
for result in $results; do mkdir -p $(dirname $result); echo half > $result; done
if [ "$(cut -d' ' -f1 $LAB/halt)" = $step ]; then
	seconds=$(cut -d' ' -f2 $LAB/halt); echo > $LAB/halt
	echo $$ > $LAB/halted; sleep $seconds
fi
if [ "$(cat $LAB/full)" = $step ]; then
	echo 'fatal error: error in backend: IO failure on output stream: No space left on device' >&2
	exit 2
fi
case $step in
config) cp $all $out/.config;;
build)
	rm -f $out/vmlinux
	if [ -e $LAB/big ]; then ln $LAB/big $out/vmlinux; else echo whole > $out/vmlinux; fi
	echo whole > $out/arch/x86/boot/bzImage; : > $out/modules.order
	mkdir -p $out/include/config $out/rust
	echo 6.12.7 > $out/include/config/kernel.release
	printf 'CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT="rustc 1.95.0 (fake)"\n' > $out/include/config/auto.conf
	: > $out/rust/libcore.rmeta; : > $out/rust/libkernel.rmeta
	printf '\177ELF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\076\0' > $out/rust/libmacros.so;;
module)
	echo whole > $mod/rext2.ko
	echo 'savedcmd_rext2.o := rustc --edition=2021 --crate-name rext2 rext2.rs' > $mod/.rext2.o.cmd;;
esac
"#;

/// A lab in which everything up to rext2.ko can be "built".
fn with_compilers() -> Lab {
    let lab = Lab::new();
    lab.write("root/qemu/config/base.config", "CONFIG_A=y\n");
    lab.write("root/qemu/config/rust.config", "CONFIG_B=y\n");
    lab.write("root/module/Kbuild", "obj-m := rext2.o\n");
    lab.write("root/module/rext2.rs", "// rext2\n");
    lab.write("halt", "\n");
    lab.write("full", "\n");
    lab.fake("make", MAKE);
    lab.fake("rustup", "echo $LAB/rust/bin/rustc");
    let version = |text: &str| format!("echo '{text}'");
    for (name, script) in [
        ("../rust/bin/rustc", version("rustc 1.95.0 (fake)")),
        ("../cache/tools/bin/bindgen", version("bindgen 0.71.1")),
        ("clang-39", version("clang version 39.0.0")),
        ("ld.lld-39", version("LLD 39.0.0")),
        ("llvm-strip-39", "cp \"$4\" \"$3\"".to_owned()),
    ] {
        lab.fake(name, &script);
    }
    for name in [
        "llvm-ar-39",
        "llvm-nm-39",
        "llvm-objcopy-39",
        "llvm-readelf-39",
    ] {
        lab.fake(name, "exit 0");
    }
    lab.write("rust/lib/rustlib/src/rust/library/core/src/lib.rs", "");
    lab
}

fn steps(lab: &Lab) -> Vec<String> {
    let text = fs::read_to_string(lab.path("steps")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Builds the module; everything that is published must be whole.
fn builds(lab: &Lab) {
    let output = lab.run_with_fakes(&["module"]);
    assert!(output.status.success(), "{}", said(&output));
    let ko = String::from_utf8(output.stdout).unwrap();
    assert_eq!(fs::read_to_string(ko.trim_end()).unwrap(), "whole\n");
    for kernel in fs::read_dir(lab.path("cache/kernels")).unwrap() {
        for name in ["vmlinux", "bzImage"] {
            let file = kernel.as_ref().unwrap().path().join(name);
            assert_eq!(fs::read_to_string(file).unwrap(), "whole\n");
        }
    }
    assert_eq!(fs::read_dir(lab.path("cache/tmp")).unwrap().count(), 0);
}

#[test]
fn ctrl_c_in_a_build_is_taken_up_by_the_next_run() {
    for step in ["config", "build", "module"] {
        let lab = with_compilers();
        lab.write("halt", &format!("{step} 100\n"));
        let mut child = lab.spawn_with_fakes(&["module"]);
        let halted = lab.wait_until_halted(&mut child);
        let begin = Instant::now();
        send(&child, Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{step}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{step}");
        assert!(!alive(halted), "{step}: make stayed behind");
        builds(&lab);
        let twice = steps(&lab).iter().filter(|done| *done == step).count();
        assert_eq!(twice, 2, "{step}: {:?}", steps(&lab));
    }
}

#[test]
fn a_full_disk_in_a_build_is_said_and_taken_up_by_the_next_run() {
    for (step, code) in [("config", 6), ("build", 7), ("module", 7)] {
        let lab = with_compilers();
        lab.write("full", step);
        let output = lab.run_with_fakes(&["module"]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{step}: {}",
            said(&output)
        );
        let text = said(&output);
        assert!(text.contains("No space left on device"), "{step}: {text}");
        lab.write("full", "");
        builds(&lab);
    }
}

/// No room for what xtask itself writes: here a limit on the size of a file,
/// which fails its writes as a full disk does.
#[test]
fn a_kernel_that_finds_no_room_is_not_half_published() {
    let lab = with_compilers();
    fs::write(lab.path("big"), vec![1; 4 << 20]).unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 2048; exec {} --linux {} module",
        env!("CARGO_BIN_EXE_xtask"),
        lab.path("linux").display()
    );
    let output = lab.shell_with_fakes(&script).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("vmlinux") && text.contains("File too large"),
        "{text}"
    );
    assert!(!lab.path("cache/kernels").exists());
    fs::remove_file(lab.path("big")).unwrap();
    builds(&lab);
}

#[test]
fn a_tree_that_is_up_to_date_is_not_built_again() {
    let lab = with_compilers();
    builds(&lab);
    let before = steps(&lab);
    assert_eq!(before, ["config", "build", "module"]);
    builds(&lab);
    assert_eq!(steps(&lab), before);
    lab.write("root/module/rext2.rs", "// another rext2\n");
    builds(&lab);
    assert_eq!(steps(&lab).len(), before.len() + 1);
}

#[test]
fn of_two_builds_at_once_one_builds() {
    let lab = with_compilers();
    lab.write("halt", "build 2\n");
    let mut first = lab.spawn_with_fakes(&["module"]);
    lab.wait_until_halted(&mut first);
    builds(&lab);
    assert!(first.wait().unwrap().success());
    assert_eq!(steps(&lab), ["config", "build", "module"]);
}

/// Who deletes things in the cache by hand gets them back.
#[test]
fn whatever_is_missing_in_the_cache_is_made_again() {
    for gone in [
        "kernels",
        "modules",
        "build",
        "module-build",
        "trees",
        "sources",
    ] {
        let lab = with_compilers();
        builds(&lab);
        fs::remove_dir_all(lab.path("cache").join(gone)).unwrap();
        builds(&lab);
    }
}
