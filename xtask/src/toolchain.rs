// SPDX-License-Identifier: GPL-2.0

//! Finds the compilers of a kernel build and says which they are.

use crate::project::{Compiler, Project};
use crate::publish;
use crate::sh::{self, Cmd};
use fs_err as fs;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The oldest LLVM that a base is built and tested with.
pub const OLDEST_LLVM: u32 = 15;

/// The programs of LLVM that the kernel calls, without their suffix.
const LLVM: &[&str] = &[
    "clang",
    "ld.lld",
    "llvm-ar",
    "llvm-nm",
    "llvm-objcopy",
    "llvm-readelf",
    "llvm-strip",
];

/// Where Debian's libraries of one LLVM version are.
const LIBCLANG: &str = "/usr/lib/llvm";

/// A complete set of compilers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// `Some("-19")` for clang-19 and its kin, `Some("")` for plain names, `None` for GCC.
    pub llvm: Option<String>,
    /// rustc with its library sources, on bases with Rust.
    pub rustc: Option<PathBuf>,
    /// bindgen, on bases with Rust.
    pub bindgen: Option<PathBuf>,
    /// Whether ccache is there.
    pub ccache: bool,
    /// One line a tool.
    pub text: Vec<String>,
}

impl Toolchain {
    /// The C compiler's program.
    pub fn cc(&self) -> String {
        match &self.llvm {
            Some(suffix) => format!("clang{suffix}"),
            None => "gcc".to_owned(),
        }
    }

    /// A program of LLVM.
    pub fn llvm_tool(&self, name: &str) -> String {
        format!("{name}{}", self.llvm.as_deref().unwrap_or_default())
    }

    /// make for a kernel tree and a build folder, with everything but the target.
    pub fn make(&self, project: &Project, tree: &Path, build_dir: &Path) -> Cmd {
        let jobs = project
            .opts
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
        let mut make = Cmd::new("make")
            .arg("-C")
            .arg(tree)
            .arg(variable("O", build_dir))
            .arg(format!("-j{jobs}"))
            // Empty: no suffix for a tree that is a git repository.
            .arg("LOCALVERSION=");
        if let Some(suffix) = &self.llvm {
            make = make.arg(format!(
                "LLVM={}",
                if suffix.is_empty() { "1" } else { suffix }
            ));
            let libclang = PathBuf::from(format!("{LIBCLANG}{suffix}/lib"));
            if libclang.is_dir() && std::env::var_os("LIBCLANG_PATH").is_none() {
                make = make.env("LIBCLANG_PATH", libclang);
            }
        }
        if self.ccache {
            make = make
                .arg(format!("CC=ccache {}", self.cc()))
                .env("CCACHE_DIR", project.ccache())
                .env("CCACHE_BASEDIR", &project.cache)
                .env("CCACHE_NOHASHDIR", "1")
                // The compiler's own list of headers instead of a run of the
                // preprocessor, which is a fifth of the work for an object.
                .env("CCACHE_DEPEND", "1");
        }
        if let (Some(rustc), Some(bindgen)) = (&self.rustc, &self.bindgen) {
            // Absolute: a proxy of rustup would choose by folder and environment.
            make = make
                .arg(variable("RUSTC", rustc))
                .arg(variable("BINDGEN", bindgen));
            for (name, program) in [
                ("RUSTDOC", "rustdoc"),
                ("RUSTFMT", "rustfmt"),
                ("CLIPPY_DRIVER", "clippy-driver"),
            ] {
                let beside = rustc.with_file_name(program);
                if beside.is_file() {
                    make = make.arg(variable(name, &beside));
                }
            }
        }
        make.args(&project.make_args)
    }
}

/// What was looked for, with what was found and why it does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// It is here.
    Yes(T),
    /// It is not, or not as it must be: the reason.
    No(String),
}

impl<T> Found<T> {
    /// What is here.
    pub fn ok(self) -> Option<T> {
        match self {
            Found::Yes(value) => Some(value),
            Found::No(_) => None,
        }
    }
}

/// The suffix of the newest complete LLVM.
pub fn llvm() -> Found<String> {
    let mut suffixes: Vec<String> = (OLDEST_LLVM..40)
        .rev()
        .map(|version| format!("-{version}"))
        .collect();
    // What a user calls just clang comes last: its version is not in its name.
    suffixes.push(String::new());
    for suffix in &suffixes {
        let missing = LLVM
            .iter()
            .find(|name| sh::which(&format!("{name}{suffix}")).is_none());
        if missing.is_none()
            && (!suffix.is_empty() || plain_clang().is_some_and(|version| version >= OLDEST_LLVM))
        {
            return Found::Yes(suffix.clone());
        }
    }
    Found::No(format!(
        "no complete LLVM of version {OLDEST_LLVM} or newer ({})",
        LLVM.join(", ")
    ))
}

fn plain_clang() -> Option<u32> {
    let text = Cmd::new("clang").arg("--version").read().ok()?;
    major(&text)
}

fn major(text: &str) -> Option<u32> {
    let (_, version) = text.lines().next()?.split_once("version ")?;
    version.split('.').next()?.parse().ok()
}

/// A rustc that is new enough and has the sources of its library.
pub fn rustc(project: &Project) -> Found<PathBuf> {
    let oldest = project.base.rustc.as_deref().unwrap_or("1.78.0");
    let mut reasons = Vec::new();
    for rustc in rustcs(project) {
        let name = rustc.display();
        let version = version(project, &rustc);
        if !version
            .split(' ')
            .nth(1)
            .is_some_and(|version| at_least(version, oldest))
        {
            reasons.push(format!("{name} is {version}, wanted is {oldest} or newer"));
        } else if !library(&rustc).join("core/src/lib.rs").is_file() {
            reasons.push(format!("{name} has no library sources (rust-src)"));
        } else {
            return Found::Yes(rustc);
        }
    }
    if reasons.is_empty() {
        reasons.push("no rustc".to_owned());
    }
    Found::No(reasons.join("; "))
}

/// The programs beside rustc that judge its sources.
pub const STYLE: &[&str] = &["rustfmt", "clippy-driver", "rustdoc"];

/// The folder with rustc and all of them.
pub fn style(project: &Project) -> Found<PathBuf> {
    let rustc = match rustc(project) {
        Found::Yes(rustc) => rustc,
        Found::No(reason) => return Found::No(reason),
    };
    let missing: Vec<_> = STYLE
        .iter()
        .filter(|name| !rustc.with_file_name(name).is_file())
        .copied()
        .collect();
    match missing.is_empty() {
        true => Found::Yes(rustc.with_file_name("")),
        false => Found::No(format!(
            "{} has no {} beside it",
            rustc.display(),
            missing.join(", ")
        )),
    }
}

/// Candidates: rustup's default toolchain, then what the system has.
fn rustcs(project: &Project) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(rustup) = rustup()
        && let Ok(path) = Cmd::new(rustup)
            .args(["which", "rustc"])
            .dir(&project.root)
            .read()
    {
        found.push(PathBuf::from(path));
    }
    let system = Path::new("/usr/bin/rustc");
    if system.is_file() {
        found.push(system.to_owned());
    }
    found
}

/// rustup's own program.
pub fn rustup() -> Option<PathBuf> {
    sh::which("rustup").or_else(|| {
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        home.map(|home| home.join("bin/rustup"))
            .filter(|path| path.is_file())
    })
}

/// The sources of the standard library that belong to a rustc.
fn library(rustc: &Path) -> PathBuf {
    if let Some(folder) = std::env::var_os("RUST_LIB_SRC") {
        return folder.into();
    }
    let sysroot = rustc
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/usr"));
    sysroot.join("lib/rustlib/src/rust/library")
}

/// The minor version of bindgen that the base wants: `0.71`
pub fn bindgen_minor(project: &Project) -> &str {
    let wanted = project.base.bindgen.as_deref().unwrap_or("0.71.1");
    wanted.rsplit_once('.').map_or(wanted, |(minor, _)| minor)
}

/// A bindgen of the base's minor version.
pub fn bindgen(project: &Project) -> Found<PathBuf> {
    let minor = bindgen_minor(project);
    let mut candidates: Vec<PathBuf> = Vec::new();
    candidates.extend(
        std::env::var_os("BINDGEN")
            .and_then(|name| sh::which(&name.to_string_lossy()).or(Some(name.into()))),
    );
    candidates.push(project.tools().join("bin/bindgen"));
    candidates.extend(sh::which("bindgen"));
    let mut reasons = Vec::new();
    for path in candidates.into_iter().filter(|path| path.is_file()) {
        let version = version(project, &path);
        if version
            .strip_prefix("bindgen ")
            .is_some_and(|version| version.starts_with(&format!("{minor}.")))
        {
            return Found::Yes(path);
        }
        reasons.push(format!(
            "{} is {version}, wanted is {minor}",
            path.display()
        ));
    }
    Found::No(if reasons.is_empty() {
        "no bindgen".to_owned()
    } else {
        reasons.join("; ")
    })
}

/// All compilers that the base needs, or what is missing.
pub fn find(project: &Project) -> Result<Toolchain, Vec<String>> {
    let mut missing = Vec::new();
    let mut take = |found: Found<PathBuf>| match found {
        Found::Yes(path) => Some(path),
        Found::No(reason) => {
            missing.push(reason);
            None
        }
    };
    let with_rust = project.base.module;
    let rustc = if with_rust {
        take(rustc(project))
    } else {
        None
    };
    let bindgen = if with_rust {
        take(bindgen(project))
    } else {
        None
    };
    let llvm = match project.base.compiler {
        Compiler::Gcc => None,
        Compiler::Clang => match llvm() {
            Found::Yes(suffix) => Some(suffix),
            Found::No(reason) => {
                missing.push(reason);
                None
            }
        },
    };
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut toolchain = Toolchain {
        llvm,
        rustc,
        bindgen,
        ccache: sh::which("ccache").is_some(),
        text: Vec::new(),
    };
    let linker = match &toolchain.llvm {
        Some(suffix) => format!("ld.lld{suffix}"),
        None => "ld".to_owned(),
    };
    let mut programs: Vec<PathBuf> = [toolchain.cc(), linker]
        .iter()
        .filter_map(|name| sh::which(name))
        .collect();
    programs.extend(toolchain.rustc.clone());
    programs.extend(toolchain.bindgen.clone());
    let mut text: Vec<String> = programs
        .iter()
        .map(|program| version(project, program))
        .collect();
    for name in ["KCFLAGS", "KAFLAGS", "KRUSTFLAGS"] {
        if let Some(value) = std::env::var_os(name) {
            text.push(format!("{name}={}", value.to_string_lossy()));
        }
    }
    text.extend(project.make_args.iter().cloned());
    toolchain.text = text;
    Ok(toolchain)
}

/// The first line of `PROGRAM --version`, remembered by the program's file:
/// asking four compilers takes longer than a warm run may.
pub fn version(project: &Project, program: &Path) -> String {
    let Ok(meta) = fs::metadata(program) else {
        return "not there".to_owned();
    };
    let key = format!(
        "{} {} {} {}",
        program.display(),
        meta.len(),
        meta.mtime(),
        meta.ino()
    );
    let file = project.cache.join("versions.json");
    let mut known: BTreeMap<String, String> = publish::read_json(&file).unwrap_or_default();
    if let Some(version) = known.get(&key) {
        return version.clone();
    }
    let output = Cmd::new(program).arg("--version").output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let Some(line) = text.lines().next().map(str::to_owned) else {
        return "broken: it does not answer to --version".to_owned();
    };
    known.insert(key, line.clone());
    if !project.opts.dry_run {
        // Only a memory: it works without, too.
        let _ = publish::write_json(&file, &known);
    }
    line
}

/// Whether one dotted version is not older than another.
fn at_least(have: &str, want: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split(['.', '-', '+'])
            .map_while(|part| part.parse().ok())
            .collect()
    };
    numbers(have) >= numbers(want)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_numbers() {
        assert!(at_least("1.95.0", "1.78.0"));
        assert!(at_least("1.100.0", "1.78.0"));
        assert!(at_least("1.78.0-nightly", "1.78.0"));
        assert!(!at_least("1.77.9", "1.78.0"));
        assert!(!at_least("", "1.78.0"));
    }

    #[test]
    fn the_major_version_of_clang_is_read() {
        assert_eq!(
            major("Debian clang version 19.1.7 (3~deb12u1)\nTarget: x"),
            Some(19)
        );
        assert_eq!(major("Ubuntu clang version 14.0.0-1ubuntu1"), Some(14));
        assert_eq!(major("gcc (Debian 12.2.0-14) 12.2.0"), None);
    }
}
