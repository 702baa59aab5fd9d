// SPDX-License-Identifier: GPL-2.0

//! The tools that the steps need: whether they are here, their Debian packages,
//! and installing them.

use crate::exit::{self, Exit};
use crate::project::{Compiler, Project};
use crate::sh::{self, Cmd};
use crate::step::{self, Step};
use crate::toolchain::{self, Found};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
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

impl Tool {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Program(name, _) | Tool::Header(name, _) => name,
            Tool::Llvm => "clang, lld, llvm",
            Tool::Gcc => "gcc",
            Tool::Rust => "rustc with rust-src",
            Tool::Bindgen => "bindgen",
        }
    }

    /// What must be there.
    pub fn wanted(self, project: &Project) -> String {
        match self {
            Tool::Program(..) | Tool::Header(..) | Tool::Gcc => "any".to_owned(),
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
            Tool::Bindgen => match toolchain::bindgen(project) {
                Found::Yes(bindgen) => Found::Yes(toolchain::version(project, &bindgen)),
                Found::No(reason) => Found::No(reason),
            },
        }
    }

    /// The Debian packages that bring it; none if it does not come from Debian.
    pub fn packages(self, _project: &Project) -> Vec<String> {
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
            Tool::Bindgen => Vec::new(),
        }
    }
}

/// A program in PATH or in the folders that only root has there.
fn program(name: &str) -> Option<std::path::PathBuf> {
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
fn known(package: &str) -> bool {
    let text = Cmd::new("apt-cache")
        .args(["policy", package])
        .read()
        .unwrap_or_default();
    text.lines()
        .any(|line| line.trim().starts_with("Candidate:") && !line.contains("(none)"))
}

/// The commands that bring what is missing.
struct Plan {
    missing: Vec<String>,
    packages: Vec<String>,
    rust_src: bool,
    bindgen: bool,
}

fn plan(project: &Project, tools: &[Tool]) -> Plan {
    let mut plan = Plan {
        missing: Vec::new(),
        packages: Vec::new(),
        rust_src: false,
        bindgen: false,
    };
    let mut packages = BTreeSet::new();
    for &tool in tools {
        if let Found::No(reason) = tool.found(project) {
            plan.missing.push(if reason == "missing" {
                tool.name().to_owned()
            } else {
                reason
            });
            packages.extend(tool.packages(project));
            plan.rust_src |= tool == Tool::Rust && toolchain::rustup().is_some();
            plan.bindgen |= tool == Tool::Bindgen;
        }
    }
    plan.packages = packages.into_iter().collect();
    plan
}

impl Plan {
    fn apt(&self) -> String {
        format!(
            "apt-get install --yes --no-install-recommends {}",
            self.packages.join(" ")
        )
    }

    /// One line that a user can paste.
    fn line(&self, project: &Project) -> String {
        let mut parts = Vec::new();
        if !self.packages.is_empty() {
            parts.push(format!("sudo apt-get update && sudo {}", self.apt()));
        }
        if self.rust_src {
            parts.push("rustup component add rust-src".to_owned());
        }
        if self.bindgen {
            parts.push(bindgen_install(project).dry());
        }
        parts.join(" && ")
    }
}

/// The line that brings everything in `tools` that is missing; `None` if nothing is.
pub fn line(project: &Project, tools: &[Tool]) -> Option<String> {
    let plan = plan(project, tools);
    (!plan.missing.is_empty()).then(|| plan.line(project))
}

/// Makes sure that the tools are here: installs what is missing if we may,
/// asks first on a terminal, else prints the one command that does it.
pub fn ensure(project: &Project, tools: &[Tool]) -> anyhow::Result<()> {
    let plan = plan(project, tools);
    if plan.missing.is_empty() {
        return Ok(());
    }
    let missing = plan.missing.join(", ");
    let refuse = |why: &str| {
        Err(exit::error(
            Exit::Environment,
            format!(
                "missing: {missing}; {why}install with:\n  {}",
                plan.line(project)
            ),
        ))
    };
    if project.opts.no_install || project.opts.dry_run {
        return refuse("");
    }
    if !plan.packages.is_empty() && sh::which("apt-get").is_none() {
        return refuse("this is not Debian or Ubuntu, so by its package names there, ");
    }
    let root = rustix::process::geteuid().is_root();
    if !plan.packages.is_empty() && !root && !passwordless_sudo() {
        return refuse("only root can install packages; ");
    }
    step::note(&format!("missing: {missing}"));
    step::note(&format!("about to run: {}", plan.line(project)));
    if terminal() && !agreed()? {
        return refuse("nothing was installed; ");
    }
    install(project, &plan, root)?;
    let left = plan_left(project, tools);
    if left.is_empty() {
        return Ok(());
    }
    Err(exit::error(
        Exit::Environment,
        format!(
            "still missing after installing: {}; \"cargo xtask doctor\" shows all",
            left.join(", ")
        ),
    ))
}

fn plan_left(project: &Project, tools: &[Tool]) -> Vec<String> {
    plan(project, tools).missing
}

fn install(project: &Project, plan: &Plan, root: bool) -> anyhow::Result<()> {
    let log = project.new_log("install")?;
    if !plan.packages.is_empty() {
        let step = Step::new("install", plan.packages.join(" ")).log(&log);
        let apt = |args: &[&str]| {
            let cmd = if root {
                Cmd::new("env")
            } else {
                Cmd::new("sudo").args(["-n", "env"])
            };
            cmd.args([
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-oDPkg::Lock::Timeout=600",
                "--quiet",
            ])
            .args(args)
        };
        let packages: Vec<&str> = plan.packages.iter().map(String::as_str).collect();
        let install = apt(&[
            &["install", "--yes", "--no-install-recommends"],
            packages.as_slice(),
        ]
        .concat());
        // Old lists name files that mirrors no longer have: then once more with new ones.
        if packages.iter().any(|package| !known(package)) || install.run(&log).is_err() {
            apt(&["update"])
                .run(&log)
                .context("cannot update apt's lists")?;
            install
                .run(&log)
                .with_context(|| format!("cannot install {}", plan.packages.join(" ")))?;
        }
        step.ok();
    }
    if plan.rust_src {
        rust_src(project, &log, root)?;
    }
    if plan.bindgen {
        let version = project.base.bindgen.as_deref().unwrap_or_default();
        let step = Step::new("install", format!("bindgen {version} into the cache")).log(&log);
        bindgen_install(project)
            .run(&log)
            .context("cannot build bindgen")?;
        fs_err::remove_dir_all(project.tools_target())?;
        step.ok();
    }
    Ok(())
}

/// The library sources of rustup's rustc; where rustup cannot get them, Debian's pair.
fn rust_src(project: &Project, log: &Path, root: bool) -> anyhow::Result<()> {
    let step = Step::new("install", "rust-src").log(log);
    let rustup = toolchain::rustup().context("rustup is gone")?;
    let added = Cmd::new(rustup)
        .args(["component", "add", "rust-src"])
        .dir(&project.root)
        .run(log);
    if added.is_err() && known("rustc-web") {
        let apt = if root {
            Cmd::new("apt-get")
        } else {
            Cmd::new("sudo").args(["-n", "apt-get"])
        };
        apt.args([
            "install",
            "--yes",
            "--no-install-recommends",
            "rustc-web",
            "rust-web-src",
        ])
        .run(log)?;
    } else {
        added.context("cannot get the library sources of rustc")?;
    }
    step.ok();
    Ok(())
}

fn bindgen_install(project: &Project) -> Cmd {
    let version = project.base.bindgen.as_deref().unwrap_or_default();
    Cmd::new("cargo")
        .args([
            "install",
            "--locked",
            "--quiet",
            &format!("bindgen-cli@{version}"),
            "--root",
        ])
        .arg(project.tools())
        .env("CARGO_TARGET_DIR", project.tools_target())
        // It runs for seconds and is compiled for minutes.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .dir(&project.root)
}

fn passwordless_sudo() -> bool {
    sh::which("sudo").is_some() && Cmd::new("sudo").args(["-n", "true"]).read().is_ok()
}

fn terminal() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && std::env::var_os("CI").is_none()
}

fn agreed() -> anyhow::Result<bool> {
    eprint!("install now? [Y/n] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "" | "y" | "Y" | "yes"))
}
