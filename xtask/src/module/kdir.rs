// SPDX-License-Identifier: GPL-2.0

//! Whether a kernel's build folder can build a Rust module.

use crate::exit::{self, Exit, WithExit as _};
use anyhow::Context as _;
use fs_err as fs;
use std::path::Path;

/// Why a build folder cannot build a Rust module: each reason before make and
/// in a sentence of its own, for rustc would only say that it can't find `core`.
pub fn check(kdir: &Path, rustc_text: &str) -> anyhow::Result<()> {
    let name = kdir.display();
    let auto_conf = fs::read_to_string(kdir.join("include/config/auto.conf"))
        .with_context(|| {
            format!("{name} is no build folder of a kernel; build one with \"cargo xtask build\"")
        })
        .exit(Exit::Environment)?;
    let value = |symbol: &str| {
        auto_conf
            .lines()
            .find_map(|line| line.strip_prefix(symbol)?.strip_prefix('='))
    };
    if value("CONFIG_RUST") != Some("y") {
        let more = match value("CONFIG_RUST_IS_AVAILABLE") {
            Some("y") => " (CONFIG_RUST_IS_AVAILABLE=y only says that it could be)",
            _ => "",
        };
        return Err(exit::error(
            Exit::Config,
            format!(
                "the kernel of {name} was built without CONFIG_RUST=y{more}; build one with \"cargo xtask build\""
            ),
        ));
    }
    let built_with = value("CONFIG_RUSTC_VERSION_TEXT")
        .unwrap_or_default()
        .trim_matches('"');
    if built_with != rustc_text {
        return Err(exit::error(
            Exit::Environment,
            format!(
                "the kernel of {name} was built with \"{built_with}\", this is \"{rustc_text}\"; metadata of one rustc is unreadable to another: build the kernel again"
            ),
        ));
    }
    for metadata in ["libcore.rmeta", "libkernel.rmeta"] {
        if !kdir.join("rust").join(metadata).is_file() {
            return Err(exit::error(
                Exit::Environment,
                format!(
                    "{name} has no rust/{metadata}: it was cleaned, or packaged without Rust's metadata; build the kernel again"
                ),
            ));
        }
    }
    let macros = kdir.join("rust/libmacros.so");
    match elf_machine(&macros) {
        Some(machine) if machine == HOST_MACHINE => Ok(()),
        Some(machine) => Err(exit::error(
            Exit::Environment,
            format!(
                "{} was built for another machine (ELF machine {machine}, here {HOST_MACHINE}): rustc cannot load the macros; build the kernel on this machine",
                macros.display()
            ),
        )),
        None => Err(exit::error(
            Exit::Environment,
            format!(
                "{} is missing or no library; build the kernel again",
                macros.display()
            ),
        )),
    }
}

/// ELF's number for x86-64, the only host and guest so far.
const HOST_MACHINE: u16 = 62;

fn elf_machine(file: &Path) -> Option<u16> {
    let bytes = fs::read(file).ok()?;
    let machine = bytes
        .get(18..20)
        .filter(|_| bytes.starts_with(b"\x7fELF"))?;
    Some(u16::from_le_bytes([machine[0], machine[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rustc 1.95.0 (59807616e 2026-04-14)";

    /// A build folder as a complete Rust kernel leaves it.
    fn kdir() -> tempfile::TempDir {
        let kdir = tempfile::tempdir().unwrap();
        fs::create_dir_all(kdir.path().join("include/config")).unwrap();
        fs::create_dir_all(kdir.path().join("rust")).unwrap();
        conf(
            &kdir,
            &format!("CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT=\"{TEXT}\"\n"),
        );
        fs::write(kdir.path().join("rust/libcore.rmeta"), "").unwrap();
        fs::write(kdir.path().join("rust/libkernel.rmeta"), "").unwrap();
        macros(&kdir, HOST_MACHINE);
        kdir
    }

    fn conf(kdir: &tempfile::TempDir, text: &str) {
        fs::write(kdir.path().join("include/config/auto.conf"), text).unwrap();
    }

    fn macros(kdir: &tempfile::TempDir, machine: u16) {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(18, 0);
        elf.extend(machine.to_le_bytes());
        fs::write(kdir.path().join("rust/libmacros.so"), elf).unwrap();
    }

    fn refused(kdir: &tempfile::TempDir) -> (u8, String) {
        let error = check(kdir.path(), TEXT).unwrap_err();
        (exit::of(&error).code(), format!("{error:#}"))
    }

    #[test]
    fn a_whole_build_folder_is_accepted() {
        check(kdir().path(), TEXT).unwrap();
    }

    /// toolkit B1: four ways to have no Rust, four sentences.
    #[test]
    fn a_build_folder_without_rust_is_refused_with_its_reason() {
        let dir = kdir();
        conf(&dir, "CONFIG_RUST_IS_AVAILABLE=y\n");
        let (code, text) = refused(&dir);
        assert!(
            code == 6
                && text.contains("without CONFIG_RUST=y (CONFIG_RUST_IS_AVAILABLE=y only says"),
            "{text}"
        );

        let dir = kdir();
        fs::remove_file(dir.path().join("rust/libcore.rmeta")).unwrap();
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("has no rust/libcore.rmeta"),
            "{text}"
        );

        let dir = kdir();
        macros(&dir, 183);
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("for another machine (ELF machine 183"),
            "{text}"
        );

        let dir = kdir();
        conf(
            &dir,
            "CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT=\"rustc 1.78.0\"\n",
        );
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("built with \"rustc 1.78.0\""),
            "{text}"
        );
    }

    #[test]
    fn a_folder_that_is_no_build_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("no build folder of a kernel"),
            "{text}"
        );
    }
}
