// SPDX-License-Identifier: GPL-2.0

//! The kernel's own checks on everything that we add to it: `rustavailable`,
//! rustfmt, rustdoc and clippy, with the flags of the kernel's build.
//!
//! rustdoc and clippy take the command that kbuild has saved for the crate, so
//! the build folder stays as it is. Their answers are kept in the cache by the
//! hash of the kernel and the module that were asked about.

mod sources;

use crate::artifact::{Kernel, Module};
use crate::build::{self, Wanted};
use crate::hash::Hasher;
use crate::lock;
use crate::module;
use crate::part::{Case, Part};
use crate::patch::series::Series;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::Step;
use crate::toolchain;
use anyhow::Context as _;
use fs_err as fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The part's name.
pub const NAME: &str = "kernel style";

/// What `module/` may not do beyond what the kernel's own flags forbid.
const MODULE_LINTS: &[&str] = &[
    "-Dunsafe_code",
    "-Dclippy::unwrap_used",
    "-Dclippy::expect_used",
    "-Dclippy::panic",
];

/// Nothing of a module is public, so all of it is documented for its readers.
const MODULE_DOCS: &[&str] = &[
    "--document-private-items",
    "-Arustdoc::private_intra_doc_links",
];

/// Runs all checks on the kernel that the flags ask for, and on its rext2.
pub fn run(project: &Project, repeat: &str) -> anyhow::Result<Part> {
    let begin = Instant::now();
    let kernel = build::run(project)?;
    let module = module::run(project, &kernel)?;
    let wanted = build::wanted(project)?;
    // The metadata of the kernel crate lies in the shared build folder.
    let _lock = lock::hold(project)?;
    build::build(project, &wanted)?;
    let step = Step::new("test", NAME);
    let series = Series::load(project)?;
    let checks = Checks {
        project,
        kernel: &kernel,
        module: &module,
        wanted: &wanted,
        ours: sources::of_series(&series),
    };
    let mut cases = vec![checks.rustavailable()?];
    cases.extend(sources::formatted(project, &checks, &series)?);
    cases.push(sources::bindings(project)?);
    for what in [What::Rustdoc, What::Clippy] {
        cases.push(checks.kernel_crate(what)?);
        cases.push(checks.module_crate(what)?);
    }
    let part = Part::of_cases(NAME, repeat, begin.elapsed().as_secs_f64(), cases);
    step.end(part.word());
    Ok(part)
}

/// A program that reads a crate and complains.
#[derive(Clone, Copy)]
enum What {
    Rustdoc,
    Clippy,
}

impl What {
    fn program(self) -> &'static str {
        match self {
            What::Rustdoc => "rustdoc",
            What::Clippy => "clippy-driver",
        }
    }
}

struct Checks<'a> {
    project: &'a Project,
    kernel: &'a Kernel,
    module: &'a Module,
    wanted: &'a Wanted,
    /// Files of the kernel tree that we add or change.
    ours: Vec<PathBuf>,
}

impl Checks<'_> {
    /// A program that belongs to the compiler.
    fn beside_rustc(&self, name: &str) -> anyhow::Result<PathBuf> {
        let rustc = self.wanted.toolchain.rustc.as_ref();
        let rustc = rustc.context("the base has no rustc")?;
        Ok(rustc.with_file_name(name))
    }

    /// The kernel's own look at the toolchain.
    fn rustavailable(&self) -> anyhow::Result<Case> {
        let begin = Instant::now();
        let log = self.project.new_log("rustavailable")?;
        let tree = &self.wanted.source.git;
        let make = self
            .wanted
            .toolchain
            .make(self.project, tree, &self.kernel.build_dir)
            .arg("rustavailable");
        let mut complaints = Vec::new();
        if let Err(error) = make.run(&log) {
            complaints.push(format!("{error:#}"));
        }
        // A version that the script does not know is a warning, and no failure.
        complaints.extend(warnings(&fs::read_to_string(&log)?, |_| true));
        Ok(sources::case(
            "make rustavailable".to_owned(),
            complaints,
            begin,
        ))
    }

    fn kernel_crate(&self, what: What) -> anyhow::Result<Case> {
        let key = self.kernel.identity.hash();
        self.case(what, "the kernel crate", &key, || {
            let build_dir = &self.kernel.build_dir;
            let words = module::saved_command("kernel", &build_dir.join("rust/kernel.o"))?;
            let root = self.wanted.source.git.join("rust/kernel/lib.rs");
            let said = self.ask(what, &words, "kernel", &root, &[])?;
            // What upstream's own files have is upstream's.
            Ok(warnings(&said, |path| {
                self.ours.iter().any(|ours| path.ends_with(ours))
            }))
        })
    }

    fn module_crate(&self, what: What) -> anyhow::Result<Case> {
        self.case(what, "rext2", &self.module.hash, || {
            let words = module::rustc_words(self.module)?;
            let root = self.project.module_sources().join("rext2.rs");
            let more = match what {
                What::Rustdoc => MODULE_DOCS,
                What::Clippy => MODULE_LINTS,
            };
            let said = self.ask(what, &words, "rext2", &root, more)?;
            Ok(warnings(&said, |_| true))
        })
    }

    /// A case whose complaints are remembered.
    fn case(
        &self,
        what: What,
        about: &str,
        of: &str,
        ask: impl FnOnce() -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<Case> {
        let begin = Instant::now();
        let program = self.beside_rustc(what.program())?;
        let mut key = Hasher::default();
        key.part(of.as_bytes())
            .part(toolchain::version(self.project, &program).as_bytes())
            .part(about.as_bytes())
            .part(include_bytes!("lint.rs"));
        let place = self.project.lint(&key.short());
        let complaints = match publish::read_json(&place) {
            Some(known) => known,
            None => {
                let found = ask()?;
                publish::write_json(&place, &found)?;
                found
            }
        };
        Ok(sources::case(
            format!("{} of {about}", what.program()),
            complaints,
            begin,
        ))
    }

    /// What the program says about a crate, a line each.
    fn ask(
        &self,
        what: What,
        words: &[String],
        name: &str,
        root: &Path,
        more: &[&str],
    ) -> anyhow::Result<String> {
        let out = tempfile::tempdir_in(self.project.tmp())?;
        let flags = words.get(1..).unwrap_or_default();
        let cmd = Cmd::new(self.beside_rustc(what.program())?)
            .args(flags)
            .args(["--crate-name", name, "--error-format=short"])
            .args(["-Zunstable-options", "--out-dir"])
            .arg(out.path())
            .args(more);
        let cmd = match what {
            What::Rustdoc => cmd,
            What::Clippy => cmd.arg("--emit=metadata"),
        };
        let output = cmd
            .arg(root)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUST_MODFILE", format!("lint/{name}"))
            .env("OBJTREE", &self.kernel.build_dir)
            .env("CLIPPY_CONF_DIR", &self.wanted.source.git)
            .dir(&self.kernel.build_dir)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // An error in a file of ours is a complaint; one elsewhere stops the check.
        if !output.status.success() && warnings(&said, |_| true).is_empty() {
            anyhow::bail!("{} ended with {}: {said}", what.program(), output.status);
        }
        Ok(said)
    }
}

/// The lines `PATH:LINE:COLUMN: warning: TEXT`, and errors, of files that count.
/// Lines without a place count always.
fn warnings(said: &str, counts: impl Fn(&Path) -> bool) -> Vec<String> {
    let is_complaint = |line: &&str| {
        let mut words = line.split(": ");
        words.any(|word| {
            ["warning", "error"].contains(&word)
                || word.starts_with("error[")
                || word.starts_with("warning[")
        })
    };
    let mut found = Vec::new();
    for line in said.lines().filter(is_complaint) {
        let place = line.split_once(": ").map_or("", |(place, _)| place);
        let path = place.split(':').next().unwrap_or_default();
        let has_place = place.contains(':') && !path.is_empty();
        let is_summary = line.contains(" emitted") || line.contains("aborting due to");
        if !is_summary && (!has_place || counts(Path::new(path))) {
            found.push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complaints_about_files_that_count_are_taken() {
        let said = "/t/rust/kernel/fs.rs:3:5: warning: missing documentation\n\
                    /t/rust/kernel/list.rs:1:1: warning: upstream's\n\
                    /t/rust/kernel/fs.rs:9:1: error[E0425]: cannot find value `x`\n\
                    warning: unknown lint: `a`\n\
                    warning: 3 warnings emitted\n\
                    error: aborting due to 1 previous error\n\
                    note: run with more\n";
        let ours = |path: &Path| path.ends_with("rust/kernel/fs.rs");
        assert_eq!(
            warnings(said, ours),
            [
                "/t/rust/kernel/fs.rs:3:5: warning: missing documentation",
                "/t/rust/kernel/fs.rs:9:1: error[E0425]: cannot find value `x`",
                "warning: unknown lint: `a`",
            ]
        );
    }
}
