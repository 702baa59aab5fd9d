// SPDX-License-Identifier: GPL-2.0

//! Programs of this machine for a guest, with the libraries that they need.

use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::exit::{self, Exit, WithExit as _};
use crate::install;
use crate::sh::Cmd;

/// Where the guest finds them.
const FOLDER: &str = "tools";

/// The programs and their libraries: where they are, where they go.
pub fn files(names: &[String]) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = BTreeSet::new();
    for name in names {
        let program = install::program(name).ok_or_else(|| {
            let text = format!("no program {name}; cargo xtask install shows what is missing");
            exit::error(Exit::Environment, text)
        })?;
        let listed = Cmd::new("ldd")
            .arg(&program)
            .read()
            .with_context(|| format!("cannot list the libraries of {}", program.display()))
            .exit(Exit::Environment)?;
        // The loader looks for them in the same places in the guest.
        let libraries = libraries(&listed).map(|path| (path.into(), path.to_owned()));
        files.extend(libraries);
        files.insert((program, format!("{FOLDER}/{name}")));
    }
    Ok(files.into_iter().collect())
}

/// The paths in what ldd prints: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)`
/// for the loader.
fn libraries(listed: &str) -> impl Iterator<Item = &str> {
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_every_library_are_listed() {
        let listed =
            "\tlinux-vdso.so.1 (0x0)\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\t/lib64/ld.so (0x2)\n";
        let found: Vec<_> = libraries(listed).collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld.so"]);
    }

    #[test]
    fn a_program_that_is_not_here_is_named() {
        let error = files(&["no-such-program".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error:#}");
    }
}
