// SPDX-License-Identifier: GPL-2.0

//! Writes a source to `git fast-import` as one commit, and watches what goes by.

use crate::exit::{self, Exit};
use crate::fetch::BASE_BRANCH;
use anyhow::{Context as _, bail};
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

/// One file of a source.
pub enum Content<'a> {
    File {
        size: u64,
        executable: bool,
        data: &'a mut dyn Read,
    },
    Symlink(PathBuf),
    Copy(PathBuf),
}

/// Writes a commit to fast-import and watches what goes by.
pub struct Stream<'a> {
    out: &'a mut dyn Write,
    wanted: &'a str,
    version: Option<String>,
}

impl<'a> Stream<'a> {
    /// A stream into `out` of a source that must be of the version `wanted`.
    pub fn new(out: &'a mut dyn Write, wanted: &'a str) -> Self {
        Stream {
            out,
            wanted,
            version: None,
        }
    }

    /// Begins the commit.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        writeln!(self.out, "feature done\ncommit refs/heads/{BASE_BRANCH}")?;
        // Fixed, so that the same source is the same commit everywhere.
        writeln!(
            self.out,
            "committer rext2 <rext2@rext2.invalid> 1767225600 +0000"
        )?;
        let message = "The pristine kernel source\n";
        writeln!(self.out, "data {}\n{message}", message.len())?;
        Ok(())
    }

    /// Adds a file.
    pub fn add(&mut self, path: &Path, content: Content<'_>) -> anyhow::Result<()> {
        let name = quoted(path)?;
        match content {
            Content::File {
                size,
                executable,
                data,
            } => {
                let mode = if executable { "100755" } else { "100644" };
                write!(self.out, "M {mode} inline {name}\ndata {size}\n")?;
                if path == Path::new("Makefile") {
                    let mut text = Vec::new();
                    data.read_to_end(&mut text)?;
                    self.check_version(&String::from_utf8_lossy(&text))?;
                    self.out.write_all(&text)?;
                } else if std::io::copy(data, self.out)? != size {
                    bail!("{} ends early", path.display());
                }
                writeln!(self.out)?;
            }
            Content::Symlink(target) => {
                let target = target.as_os_str().as_encoded_bytes();
                write!(self.out, "M 120000 inline {name}\ndata {}\n", target.len())?;
                self.out.write_all(target)?;
                writeln!(self.out)?;
            }
            Content::Copy(of) => writeln!(self.out, "C {} {name}", quoted(&of)?)?,
        }
        Ok(())
    }

    /// The first file that says which kernel this is must say the right one.
    fn check_version(&mut self, makefile: &str) -> anyhow::Result<()> {
        let version = version(makefile).context("its Makefile names no kernel version")?;
        let series: Vec<&str> = version.split('.').take(2).collect();
        if series.join(".") != self.wanted {
            return Err(exit::error(
                Exit::Fetch,
                format!(
                    "this is linux {version}, the base wants {}; choose another --base or another source",
                    self.wanted
                ),
            ));
        }
        self.version = Some(version);
        Ok(())
    }

    /// Ends the stream; the version that the source turned out to be.
    pub fn end(self) -> anyhow::Result<String> {
        writeln!(self.out, "done")?;
        self.version
            .context("it holds no kernel source: there is no Makefile at its top")
    }
}

/// VERSION.PATCHLEVEL.SUBLEVEL and EXTRAVERSION of a kernel's Makefile.
fn version(makefile: &str) -> Option<String> {
    let value = |name: &str| {
        makefile.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.trim_start().strip_prefix('=')?;
            Some(rest.trim().to_owned())
        })
    };
    let extra = value("EXTRAVERSION").unwrap_or_default();
    Some(format!(
        "{}.{}.{}{extra}",
        value("VERSION")?,
        value("PATCHLEVEL")?,
        value("SUBLEVEL")?
    ))
}

/// A path as fast-import takes it; refuses what would leave the tree.
fn quoted(path: &Path) -> anyhow::Result<String> {
    for component in path.components() {
        match component {
            Component::Normal(name) if name != ".git" => {}
            _ => bail!("refused the path {}", path.display()),
        }
    }
    let text = path
        .to_str()
        .with_context(|| format!("refused the path {}", path.display()))?;
    if text.is_empty() || text.contains(['"', '\\', '\n']) {
        bail!("refused the path {text:?}");
    }
    Ok(format!("\"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_makefile() {
        let text =
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\nNAME = Baby\n";
        assert_eq!(version(text).as_deref(), Some("6.12.117"));
        assert_eq!(
            version(&text.replace("EXTRAVERSION =", "EXTRAVERSION = -rc1")).as_deref(),
            Some("6.12.117-rc1")
        );
        assert_eq!(version("all:\n\techo"), None);
    }

    #[test]
    fn no_path_leaves_the_tree() {
        for path in [
            "../x",
            "/etc/passwd",
            "a/../../x",
            ".git/config",
            "a/.git/hooks/x",
            "",
            "a\"b",
        ] {
            assert!(quoted(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(quoted(Path::new("a b/c")).unwrap(), "\"a b/c\"");
    }
}
