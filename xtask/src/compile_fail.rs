// SPDX-License-Identifier: GPL-2.0

//! Programs that the compiler must reject: `patches/compile-fail/*.rs`, compiled
//! against the built kernel crate as a module would be.
//!
//! A case begins with `//@ error: E0277` (a code, or a text of the message) or
//! `//@ pass`, and may ask for `//@ note: text`. `demo.rs` is what they share.

use crate::artifact::Kernel;
use crate::build;
use crate::exit::{self, Exit};
use crate::lock;
use crate::module;
use crate::project::Project;
use crate::sh::Cmd;
use anyhow::{Context as _, bail, ensure};
use fs_err as fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The crate that the cases share.
const SHARED: &str = "demo";

/// How one case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The file's name without its ending.
    pub name: String,
    /// `None` if the compiler did what the case expects, else what it did.
    pub failure: Option<String>,
    /// How long the compiler took.
    pub elapsed: Duration,
}

/// What a case expects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    /// An error code or text; `None` if it must compile.
    error: Option<String>,
    /// Texts that the message must hold.
    notes: Vec<String>,
}

/// Compiles every case against the kernel that the flags ask for.
pub fn run(project: &Project) -> anyhow::Result<Vec<CaseResult>> {
    if !project.base.module || !project.compile_fail().is_dir() {
        return Ok(Vec::new());
    }
    let kernel = build::run(project)?;
    let module = module::run(project, &kernel)?;
    let words = module::rustc_words(&module)?;
    // The metadata of the kernel crate lies in the shared build folder.
    let _lock = lock::hold(project)?;
    build::build(project, &build::wanted(project)?)?;
    cases(&project.compile_fail(), &kernel, &words)
}

fn cases(folder: &Path, kernel: &Kernel, words: &[String]) -> anyhow::Result<Vec<CaseResult>> {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect();
    sources.sort();
    let out = tempfile::tempdir()?;
    let compiler = Compiler {
        kernel,
        words,
        out: out.path(),
    };
    let shared = folder.join(format!("{SHARED}.rs"));
    if sources.contains(&shared) {
        let output = compiler.compile(&shared, false)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(exit::error(
                Exit::Build,
                format!("{} does not compile:\n{text}", shared.display()),
            ));
        }
    }
    let has_shared = sources.contains(&shared);
    sources.retain(|path| *path != shared);
    ensure!(!sources.is_empty(), "{} holds no cases", folder.display());
    let queue = Mutex::new(sources.iter());
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .next();
                    let Some(source) = next else { break };
                    let result = compiler.case(source, has_shared);
                    results
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .push(result);
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(results)
}

struct Compiler<'a> {
    kernel: &'a Kernel,
    words: &'a [String],
    out: &'a Path,
}

impl Compiler<'_> {
    fn compile(&self, source: &Path, with_shared: bool) -> anyhow::Result<std::process::Output> {
        let (rustc, flags) = self
            .words
            .split_first()
            .context("the module's build left no command")?;
        let name = name_of(source);
        let mut cmd = Cmd::new(rustc)
            .args(flags)
            .args(["--emit=metadata", "--crate-name", &name])
            .arg(format!("--out-dir={}", self.out.display()))
            // As in kbuild: the kernel uses features of the nightly compiler.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUST_MODFILE", format!("compile-fail/{name}"))
            .dir(&self.kernel.build_dir);
        if with_shared {
            cmd = cmd.arg(format!(
                "--extern={SHARED}={}",
                self.out.join(format!("lib{SHARED}.rmeta")).display()
            ));
        }
        cmd.arg(source).output()
    }

    fn case(&self, source: &Path, with_shared: bool) -> CaseResult {
        let begin = Instant::now();
        let judged = fs::read_to_string(source)
            .map_err(anyhow::Error::from)
            .and_then(|text| {
                let expected = expected(&text)?;
                let output = self.compile(source, with_shared)?;
                judge(
                    &expected,
                    output.status.success(),
                    &String::from_utf8_lossy(&output.stderr),
                )
            });
        CaseResult {
            name: name_of(source),
            failure: judged.err().map(|error| format!("{error:#}")),
            elapsed: begin.elapsed(),
        }
    }
}

fn name_of(source: &Path) -> String {
    source
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Reads the head of a case.
fn expected(text: &str) -> anyhow::Result<Expected> {
    let mut head = text.lines().map_while(|line| line.strip_prefix("//@ "));
    let error = match head.next() {
        Some("pass") => None,
        Some(line) => match line.strip_prefix("error: ") {
            Some(error) => Some(error.trim().to_owned()),
            None => bail!("its first line is neither \"//@ error: …\" nor \"//@ pass\""),
        },
        None => bail!("its first line is neither \"//@ error: …\" nor \"//@ pass\""),
    };
    let note = |line: &str| {
        line.strip_prefix("note: ")
            .map(|note| note.trim().to_owned())
            .with_context(|| format!("unknown line //@ {line}"))
    };
    Ok(Expected {
        error,
        notes: head.map(note).collect::<anyhow::Result<_>>()?,
    })
}

/// Compares what the compiler said with what it must say.
fn judge(expected: &Expected, compiled: bool, said: &str) -> anyhow::Result<()> {
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| {
            line.starts_with("error")
                && !line.starts_with("error: aborting")
                && !line.starts_with("error: could not")
        })
        .collect();
    match &expected.error {
        None if compiled => {}
        None => bail!(
            "it must compile, but: {}",
            errors.first().unwrap_or(&said.trim())
        ),
        Some(error) if compiled => bail!("the compiler accepts it; expected {error}"),
        Some(error) => {
            let is_code = error.len() == 5
                && error.starts_with('E')
                && error[1..].chars().all(|c| c.is_ascii_digit());
            let wanted = if is_code {
                format!("error[{error}]")
            } else {
                error.clone()
            };
            // Every error must be the expected one: a typing mistake beside it
            // would hide that the rule under test no longer holds.
            for line in &errors {
                ensure!(
                    line.contains(&wanted),
                    "expected {error}, but the compiler says: {line}"
                );
            }
            ensure!(
                !errors.is_empty(),
                "it fails without an error: {}",
                said.trim()
            );
        }
    }
    for note in &expected.notes {
        ensure!(said.contains(note), "the message does not say {note:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(head: &str, compiled: bool, said: &str) -> Result<(), String> {
        expected(head)
            .and_then(|expected| judge(&expected, compiled, said))
            .map_err(|error| format!("{error:#}"))
    }

    const E0277: &str = "error[E0277]: the trait bound `Grow: Overwrite` is not satisfied\nerror: aborting due to 1 previous error\n";

    #[test]
    fn only_the_expected_error_passes() {
        assert_eq!(verdict("//@ error: E0277\n", false, E0277), Ok(()));
        assert_eq!(
            verdict("//@ error: trait bound `Grow\n", false, E0277),
            Ok(())
        );
        assert_eq!(
            verdict("//@ error: E0277\n//@ note: Overwrite\n", false, E0277),
            Ok(())
        );
        assert_eq!(verdict("//@ pass\n", true, ""), Ok(()));
    }

    #[test]
    fn every_other_outcome_fails() {
        for (head, compiled, said, reason) in [
            ("//@ error: E0277\n", true, "", "accepts it"),
            (
                "//@ error: E0277\n",
                false,
                "error[E0425]: cannot find `x`\n",
                "expected E0277",
            ),
            (
                "//@ error: E0277\n",
                false,
                "error[E0277]: a\nerror[E0425]: b\n",
                "E0425",
            ),
            (
                "//@ error: E0277\n",
                false,
                "could not start",
                "without an error",
            ),
            (
                "//@ error: E0277\n//@ note: Missing\n",
                false,
                E0277,
                "does not say",
            ),
            ("//@ pass\n", false, E0277, "must compile"),
            ("// nothing\n", true, "", "first line"),
            ("//@ error: E0277\n//@ nope\n", false, E0277, "unknown line"),
        ] {
            let text = verdict(head, compiled, said).unwrap_err();
            assert!(text.contains(reason), "{text} / {reason}");
        }
    }
}
