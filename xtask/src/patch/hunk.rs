// SPDX-License-Identifier: GPL-2.0

//! Reads hunks: which files a patch touches, and why a hunk does not apply.

use anyhow::{Context as _, bail, ensure};

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The path before; `None` if the patch creates the file.
    pub old: Option<String>,
    /// The path after; `None` if the patch deletes the file.
    pub new: Option<String>,
    /// Its hunks.
    pub hunks: Vec<Hunk>,
}

/// One hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The line of the old file at which it should begin, from 1.
    pub line: usize,
    /// Context and removed lines.
    pub old: Vec<String>,
}

impl FilePatch {
    /// The path that names it.
    pub fn path(&self) -> &str {
        self.new
            .as_deref()
            .or(self.old.as_deref())
            .unwrap_or_default()
    }
}

/// Takes the hunks of a patch apart.
pub fn parse(diff: &str) -> anyhow::Result<Vec<FilePatch>> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut lines = diff.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = both_names(names).with_context(|| format!("cannot read {line:?}"))?;
            files.push(FilePatch {
                old: Some(path.clone()),
                new: Some(path),
                hunks: Vec::new(),
            });
            continue;
        }
        let file = files
            .last_mut()
            .context("hunks begin without \"diff --git\"")?;
        if line.starts_with("new file mode") {
            file.old = None;
        } else if line.starts_with("deleted file mode") {
            file.new = None;
        } else if line.starts_with("rename ")
            || line.starts_with("copy ")
            || line.starts_with("similarity ")
        {
            bail!(
                "{} is renamed or copied; the series keeps a removal and a new file instead (git diff --no-renames)",
                file.path()
            );
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            bail!(
                "{} is binary; name it with \"New-file:\" instead",
                file.path()
            );
        } else if line.starts_with("@@ ") {
            let (line, mut old, mut new) = header(line)?;
            let mut hunk = Hunk {
                line,
                old: Vec::new(),
            };
            while old > 0 || new > 0 {
                let text = lines
                    .next()
                    .with_context(|| format!("a hunk of {} ends early", file.path()))?;
                match text.as_bytes().first() {
                    Some(b' ') | None => {
                        (old, new) = (
                            old.checked_sub(1).context("a hunk is too long")?,
                            new.checked_sub(1).context("a hunk is too long")?,
                        )
                    }
                    Some(b'-') => old = old.checked_sub(1).context("a hunk is too long")?,
                    Some(b'+') => new = new.checked_sub(1).context("a hunk is too long")?,
                    Some(b'\\') => continue,
                    _ => bail!("a hunk of {} has the line {text:?}", file.path()),
                }
                if !text.starts_with('+') {
                    hunk.old.push(text.get(1..).unwrap_or_default().to_owned());
                }
            }
            lines.next_if(|line| line.starts_with('\\'));
            file.hunks.push(hunk);
        }
    }
    Ok(files)
}

/// The one path in `a/PATH b/PATH`.
fn both_names(names: &str) -> anyhow::Result<String> {
    ensure!(!names.contains('"'), "paths with quotes are not supported");
    let half = names.len() / 2;
    let (a, b) = (names.get(..half), names.get(half + 1..));
    let path = a.and_then(|a| a.strip_prefix("a/"));
    ensure!(
        path.is_some() && path == b.and_then(|b| b.strip_prefix("b/")),
        "it must name one file as a/PATH b/PATH"
    );
    Ok(path.unwrap_or_default().to_owned())
}

/// Old line, old count and new count of `@@ -l,n +l,n @@`.
fn header(line: &str) -> anyhow::Result<(usize, usize, usize)> {
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((line, count)) => Some((line.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let parsed = (|| {
        let mut words = line.split(' ').skip(1);
        let (line, old) = range(words.next()?.strip_prefix('-')?)?;
        let (_, new) = range(words.next()?.strip_prefix('+')?)?;
        Some((line, old, new))
    })();
    parsed.with_context(|| format!("cannot read {line:?}"))
}

/// Why the first hunk that does not fit does not fit, for a person.
pub fn explain(file: &FilePatch, content: Option<&str>) -> Option<String> {
    let Some(content) = content else {
        return Some(format!("the source has no file {}", file.path()));
    };
    if file.old.is_none() {
        return Some(format!("the source already has a file {}", file.path()));
    }
    let have: Vec<&str> = content.lines().collect();
    for (n, hunk) in file.hunks.iter().enumerate() {
        let fits = |at: usize| {
            hunk.old
                .iter()
                .zip(&have[at..])
                .filter(|(want, have)| want == have)
                .count()
        };
        let last = have.len().saturating_sub(hunk.old.len());
        if hunk.old.len() <= have.len() && (0..=last).any(|at| fits(at) == hunk.old.len()) {
            continue;
        }
        // The place that fits best, and the one nearest to where it should be.
        let wanted = hunk.line.saturating_sub(1);
        let best = (0..=last).max_by_key(|&at| (fits(at), usize::MAX - at.abs_diff(wanted)))?;
        let differs =
            (0..hunk.old.len()).find(|&k| have.get(best + k) != Some(&hunk.old[k].as_str()))?;
        let there = match have.get(best + differs) {
            Some(line) => format!("line {} is {:?}", best + differs + 1, line.trim()),
            None => format!("the file ends at line {}", have.len()),
        };
        return Some(format!(
            "hunk {} of {}: {there}, the patch expects {:?}",
            n + 1,
            file.path(),
            hunk.old[differs].trim()
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1,3 +1,4 @@ int f\n one\n old_check();\n+new\n three\n\
                        diff --git a/g b/g\nnew file mode 100644\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n";

    #[test]
    fn a_patch_is_taken_apart() {
        let files = parse(DIFF).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(
            files[0].hunks,
            [Hunk {
                line: 1,
                old: vec!["one".into(), "old_check();".into(), "three".into()]
            }]
        );
        assert_eq!(
            (files[1].old.as_deref(), files[1].new.as_deref()),
            (None, Some("g"))
        );
    }

    #[test]
    fn a_misfit_names_hunk_line_and_both_texts() {
        let files = parse(DIFF).unwrap();
        let text = explain(&files[0], Some("zero\none\ncheck();\nthree\n")).unwrap();
        assert_eq!(
            text,
            "hunk 1 of f.c: line 3 is \"check();\", the patch expects \"old_check();\""
        );
        assert!(explain(&files[0], Some("x\none\nold_check();\nthree\n")).is_none());
        assert_eq!(
            explain(&files[0], None).unwrap(),
            "the source has no file f.c"
        );
        assert!(
            explain(&files[1], Some(""))
                .unwrap()
                .contains("already has")
        );
        assert!(
            explain(&files[0], Some("one"))
                .unwrap()
                .contains("file ends at line 1")
        );
    }

    #[test]
    fn renames_binaries_and_torn_hunks_are_refused() {
        for (diff, reason) in [
            (
                "diff --git a/f b/f\nrename from f\nrename to g\n",
                "renamed",
            ),
            ("diff --git a/f b/f\nGIT binary patch\n", "binary"),
            ("diff --git a/f b/f\n@@ -1,2 +1,2 @@\n a\n", "ends early"),
            ("diff --git a/f b/g\n", "one file"),
            ("@@ -1 +1 @@\n", "without"),
        ] {
            let error = format!("{:#}", parse(diff).unwrap_err());
            assert!(error.contains(reason), "{error} / {reason}");
        }
    }
}
