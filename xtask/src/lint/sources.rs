// SPDX-License-Identifier: GPL-2.0

//! Checks that read source files one by one.

use super::Checks;
use crate::ktap::Outcome;
use crate::part::Case;
use crate::patch::hunk;
use crate::patch::series::{Series, files_below};
use crate::project::Project;
use crate::sh::Cmd;
use fs_err as fs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A case that passes if there is nothing to complain about.
pub fn case(name: String, complaints: Vec<String>, begin: Instant) -> Case {
    Case {
        name,
        outcome: match complaints.is_empty() {
            true => Outcome::Passed,
            false => Outcome::Failed,
        },
        output: complaints,
        seconds: Some(begin.elapsed().as_secs_f64()),
    }
}

/// The Rust files of the kernel tree that the series adds or changes.
pub fn of_series(series: &Series) -> Vec<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = changed(series);
    for entry in &series.entries {
        paths.extend(entry.new_files.iter().map(|file| PathBuf::from(&file.path)));
    }
    paths.into_iter().filter(|path| is_rust(path)).collect()
}

/// The files that the series changes by hunks.
fn changed(series: &Series) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for entry in &series.entries {
        // A patch that does not parse does not apply either.
        for file in hunk::parse(&entry.mail.diff).unwrap_or_default() {
            paths.insert(PathBuf::from(file.path()));
        }
    }
    paths
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "rs")
}

/// rustfmt, as the kernel wants it, on every file that we add, change or have
/// the compiler refuse; on `module/`, too.
pub fn formatted(project: &Project, checks: &Checks, series: &Series) -> anyhow::Result<Vec<Case>> {
    let tree = &checks.wanted.source.git;
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for path in changed(series).into_iter().filter(|path| is_rust(path)) {
        files.push((format!("linux/{}", path.display()), tree.join(&path)));
    }
    for entry in &series.entries {
        for file in &entry.new_files {
            files.push((
                format!("patches/{}", file.place.display()),
                project.patches().join(&file.place),
            ));
        }
    }
    for folder in [project.module_sources(), project.compile_fail()] {
        let name = folder.strip_prefix(&project.root).unwrap_or(&folder);
        for path in files_below(&folder)? {
            let name = name.join(&path).display().to_string();
            files.push((name, folder.join(path)));
        }
    }
    files.retain(|(_, path)| is_rust(path));
    let rustfmt = checks.beside_rustc("rustfmt")?;
    let one = |(name, path): (String, PathBuf)| {
        let begin = Instant::now();
        let complaints = differences(&rustfmt, tree, &path)?;
        Ok(case(format!("rustfmt {name}"), complaints, begin))
    };
    files.into_iter().map(one).collect()
}

/// Where rustfmt would write a file otherwise.
fn differences(rustfmt: &Path, tree: &Path, file: &Path) -> anyhow::Result<Vec<String>> {
    // As its input, so that it does not look for the modules below it: in the
    // kernel tree they are, in our folders some lie elsewhere.
    let output = Cmd::new(rustfmt)
        .args(["--check", "--color", "never", "--edition", "2021"])
        .arg("--config-path")
        .arg(tree.join(".rustfmt.toml"))
        .stdin(fs::read(file)?)
        .output()?;
    // Its status says nothing of a difference in its input; its output does.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut lines: Vec<_> = said.lines().take(40).map(str::to_owned).collect();
    if !output.status.success() && lines.is_empty() {
        lines.push(format!("rustfmt ended with {}", output.status));
    }
    Ok(lines)
}

/// The module goes through the abstractions: it names no C binding.
pub fn bindings(project: &Project) -> anyhow::Result<Case> {
    let begin = Instant::now();
    let folder = project.module_sources();
    let mut complaints = Vec::new();
    for path in files_below(&folder)?
        .into_iter()
        .filter(|path| is_rust(path))
    {
        let text = fs::read_to_string(folder.join(&path))?;
        for (n, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("bindings::") {
                complaints.push(format!("module/{}:{}: {line}", path.display(), n + 1));
            }
        }
    }
    Ok(case("rext2 names no binding".to_owned(), complaints, begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badly_formatted_file_is_quoted() {
        let Some(rustfmt) = crate::sh::which("rustfmt") else {
            panic!("rustfmt is missing; run \"rustup component add rustfmt\"");
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.rs");
        fs::write(folder.path().join(".rustfmt.toml"), "edition = \"2021\"\n").unwrap();
        fs::write(&file, "mod elsewhere;\n\nfn a() {}\n").unwrap();
        let none: &[String] = &[];
        assert_eq!(differences(&rustfmt, folder.path(), &file).unwrap(), none);
        fs::write(&file, "fn  a( ) { }\n").unwrap();
        let found = differences(&rustfmt, folder.path(), &file).unwrap();
        assert!(found.iter().any(|line| line == "+fn a() {}"), "{found:?}");
    }
}
