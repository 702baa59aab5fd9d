// SPDX-License-Identifier: GPL-2.0

//! The tools: what proves that they are here, and their Debian packages.

use crate::project::{Compiler, Project};
use crate::sh::{self, Cmd};
use crate::toolchain::{self, Found};
use std::path::Path;

/// One thing that a step needs on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// A program in PATH and its package.
    Program(&'static str, &'static str),
    /// A header file and its package.
    Header(&'static str, &'static str),
    /// clang, lld and LLVM's binary tools.
    Llvm,
    /// GCC and binutils.
    Gcc,
    /// rustc with rust-src.
    Rust,
    /// rustfmt and clippy of that rustc, and its rustdoc.
    RustStyle,
    /// bindgen.
    Bindgen,
}

/// To unpack a source.
pub const SOURCE: &[Tool] = &[Tool::Program("git", "git"), Tool::Program("xz", "xz-utils")];

/// To build a kernel, besides the compilers of its base.
pub const BUILD: &[Tool] = &[
    Tool::Program("make", "make"),
    Tool::Program("flex", "flex"),
    Tool::Program("bison", "bison"),
    Tool::Program("bc", "bc"),
    Tool::Program("perl", "perl"),
    Tool::Program("python3", "python3"),
    Tool::Program("ccache", "ccache"),
    Tool::Header("stdlib.h", "libc6-dev"),
    Tool::Header("libelf.h", "libelf-dev"),
    Tool::Header("openssl/evp.h", "libssl-dev"),
];

/// To run a guest and to make and check its images.
pub const GUEST: &[Tool] = &[
    Tool::Program("qemu-system-x86_64", "qemu-system-x86"),
    Tool::Program("busybox", "busybox-static"),
    Tool::Program("mke2fs", "e2fsprogs"),
    Tool::Program("e2fsck", "e2fsprogs"),
    Tool::Program("debugfs", "e2fsprogs"),
    Tool::Program("mkfs.xfs", "xfsprogs"),
    Tool::Program("xfs_repair", "xfsprogs"),
    Tool::Program("dmsetup", "dmsetup"),
];

/// The compilers of a base.
pub fn compilers(project: &Project) -> Vec<Tool> {
    let mut tools = match project.base.compiler {
        Compiler::Clang => vec![Tool::Llvm],
        Compiler::Gcc => vec![Tool::Gcc],
    };
    if project.base.module {
        tools.extend([Tool::Rust, Tool::Bindgen]);
    }
    tools
}

/// What a kernel build of the base needs.
pub fn for_build(project: &Project) -> Vec<Tool> {
    [SOURCE, BUILD, &compilers(project)].concat()
}

/// What the tests of the base need, besides a guest.
pub fn for_tests(project: &Project) -> Vec<Tool> {
    let mut tools = for_build(project);
    if project.base.module {
        tools.push(Tool::RustStyle);
    }
    tools
}

impl Tool {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Program(name, _) | Tool::Header(name, _) => name,
            Tool::Llvm => "clang, lld, llvm",
            Tool::Gcc => "gcc",
            Tool::Rust => "rustc with rust-src",
            Tool::RustStyle => "rustfmt, clippy",
            Tool::Bindgen => "bindgen",
        }
    }

    /// What must be there.
    pub fn wanted(self, project: &Project) -> String {
        match self {
            Tool::Program(..) | Tool::Header(..) | Tool::Gcc => "any".to_owned(),
            Tool::RustStyle => "rustc's".to_owned(),
            Tool::Llvm => format!(">= {}", toolchain::OLDEST_LLVM),
            Tool::Rust => format!(">= {}", project.base.rustc.as_deref().unwrap_or("?")),
            Tool::Bindgen => project.base.bindgen.clone().unwrap_or_default(),
        }
    }

    /// What is there.
    pub fn found(self, project: &Project) -> Found<String> {
        let path = |path: std::path::PathBuf| path.display().to_string();
        match self {
            Tool::Program(name, _) => match program(name) {
                Some(found) => Found::Yes(path(found)),
                None => Found::No("missing".to_owned()),
            },
            Tool::Header(name, _) => match header(name) {
                Some(found) => Found::Yes(path(found)),
                None => Found::No("missing".to_owned()),
            },
            Tool::Llvm => match toolchain::llvm() {
                Found::Yes(suffix) => Found::Yes(version(project, &format!("clang{suffix}"))),
                Found::No(reason) => Found::No(reason),
            },
            Tool::Gcc => match sh::which("gcc").and(sh::which("ld")) {
                Some(_) => Found::Yes(version(project, "gcc")),
                None => Found::No("missing".to_owned()),
            },
            Tool::Rust => match toolchain::rustc(project) {
                Found::Yes(rustc) => Found::Yes(toolchain::version(project, &rustc)),
                Found::No(reason) => Found::No(reason),
            },
            Tool::RustStyle => match toolchain::style(project) {
                Found::Yes(folder) => Found::Yes(path(folder)),
                Found::No(reason) => Found::No(reason),
            },
            Tool::Bindgen => match toolchain::bindgen(project) {
                Found::Yes(bindgen) => Found::Yes(toolchain::version(project, &bindgen)),
                Found::No(reason) => Found::No(reason),
            },
        }
    }

    /// The components of a rustup toolchain that bring it.
    pub fn components(self) -> &'static [&'static str] {
        match self {
            Tool::Rust => &["rust-src"],
            Tool::RustStyle => &["rustfmt", "clippy"],
            _ => &[],
        }
    }

    /// The Debian packages that bring it; none if it does not come from Debian.
    pub fn packages(self, project: &Project) -> Vec<String> {
        match self {
            Tool::Program(_, package) | Tool::Header(_, package) => vec![package.to_owned()],
            Tool::Gcc => vec!["gcc".to_owned(), "binutils".to_owned()],
            Tool::Llvm => {
                let newest = (toolchain::OLDEST_LLVM..=19)
                    .rev()
                    .find(|version| known(&format!("clang-{version}")));
                let version = newest.unwrap_or(19);
                ["clang", "lld", "llvm"]
                    .map(|name| format!("{name}-{version}"))
                    .to_vec()
            }
            // rustup brings its own; see `plan`.
            Tool::Rust if toolchain::rustup().is_some() => Vec::new(),
            // Debian's browser toolchain is newer than the release's own.
            Tool::Rust if known("rustc-web") => {
                vec!["rustc-web".to_owned(), "rust-web-src".to_owned()]
            }
            Tool::Rust => vec!["rustc".to_owned(), "rust-src".to_owned()],
            Tool::RustStyle if toolchain::rustup().is_some() => Vec::new(),
            Tool::RustStyle if known("rustfmt-web") => {
                vec!["rustfmt-web".to_owned(), "rust-clippy-web".to_owned()]
            }
            Tool::RustStyle => vec!["rustfmt".to_owned(), "rust-clippy".to_owned()],
            // Debian 13 has the one that fits linux-6.12: a minute saved.
            Tool::Bindgen if fits(project, candidate("bindgen").as_deref()) => {
                vec!["bindgen".to_owned()]
            }
            Tool::Bindgen => Vec::new(),
        }
    }
}

/// Whether a packaged bindgen is of the minor version that the base wants.
fn fits(project: &Project, version: Option<&str>) -> bool {
    let minor = toolchain::bindgen_minor(project);
    version.is_some_and(|version| version.starts_with(&format!("{minor}.")))
}

/// A program in PATH or in the folders that only root has there.
pub fn program(name: &str) -> Option<std::path::PathBuf> {
    let more = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name));
    sh::which(name).or_else(|| more.into_iter().find(|path| path.is_file()))
}

fn header(name: &str) -> Option<std::path::PathBuf> {
    [
        "/usr/include",
        "/usr/include/x86_64-linux-gnu",
        "/usr/local/include",
    ]
    .iter()
    .map(|folder| Path::new(folder).join(name))
    .find(|path| path.is_file())
}

fn version(project: &Project, program: &str) -> String {
    sh::which(program)
        .map(|path| toolchain::version(project, &path))
        .unwrap_or_default()
}

/// Whether apt knows a package that it could install.
pub fn known(package: &str) -> bool {
    candidate(package).is_some()
}

/// The version of a package that apt would install.
fn candidate(package: &str) -> Option<String> {
    let text = Cmd::new("apt-cache").args(["policy", package]).read();
    candidate_in(&text.unwrap_or_default())
}

fn candidate_in(policy: &str) -> Option<String> {
    let mut lines = policy.lines().map(str::trim);
    let version = lines.find_map(|line| line.strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_of_apt_is_read() {
        let policy = "bindgen:\n  Installed: (none)\n  Candidate: 0.71.1-4\n  Version table:\n";
        assert_eq!(candidate_in(policy).as_deref(), Some("0.71.1-4"));
        let none = "bindgen:\n  Installed: (none)\n  Candidate: (none)\n";
        assert_eq!(candidate_in(none), None);
        assert_eq!(candidate_in(""), None);
    }
}
