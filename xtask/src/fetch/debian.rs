// SPDX-License-Identifier: GPL-2.0

//! Debian's source package, downloaded and verified by apt.

use crate::exit::{self, Exit};
use crate::hash;
use crate::project::Project;
use crate::sh::{self, Cmd};
use crate::step::Step;
use anyhow::{Context as _, bail};
use fs_err as fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// What apt's signed lists say about the newest package.
pub struct Package {
    /// Version of the package: `6.12.117-1~deb12u1`
    pub version: String,
    /// Hash of its file, from the signed lists.
    pub sha256: String,
    file: String,
    size: u64,
    /// Options for apt: its own lists, or ours if the system has none.
    options: Vec<String>,
}

/// Asks apt for the newest package of the base: by the system's lists, which an
/// administrator keeps fresh, or by lists of our own that are fetched now.
/// Neither needs root.
pub fn newest(project: &Project, fresh: bool) -> anyhow::Result<Package> {
    let name = &project.base.package;
    if sh::which("apt-get").is_none() {
        return Err(exit::error(
            Exit::Fetch,
            format!(
                "cannot get {name}: this is not Debian (no apt-get); \
                 give a source with --linux DIR or --tarball FILE"
            ),
        ));
    }
    let options = vec!["-oAPT::Sandbox::User=root".to_owned()];
    if !fresh && let Some(package) = ask(name, &options)? {
        return Ok(package);
    }
    let options = own_lists(project, options)?;
    ask(name, &options)?.with_context(|| {
        format!(
            "apt knows no package {name} here; give a source with --linux DIR or --tarball FILE"
        )
    })
}

fn ask(name: &str, options: &[String]) -> anyhow::Result<Option<Package>> {
    let output = Cmd::new("apt-get")
        .args(options)
        .args(["--print-uris", "download", name])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().find_map(|line| parse(line, options)))
}

/// Reads a line `'URI' FILE SIZE SHA256:HASH`.
fn parse(line: &str, options: &[String]) -> Option<Package> {
    let [_, file, size, hash]: [&str; 4] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let version = file.split('_').nth(1)?.replace("%3a", ":");
    Some(Package {
        version,
        sha256: hash
            .strip_prefix("SHA256:")
            .filter(|hash| hash.len() == 64)?
            .to_owned(),
        file: file.to_owned(),
        size: size.parse().ok()?,
        options: options.to_vec(),
    })
}

/// Package lists in the cache, updated now.
fn own_lists(project: &Project, mut options: Vec<String>) -> anyhow::Result<Vec<String>> {
    let state = project.cache.join("apt");
    fs::create_dir_all(state.join("lists/partial"))?;
    fs::create_dir_all(state.join("cache/archives/partial"))?;
    options.push(format!(
        "-oDir::State::lists={}",
        state.join("lists").display()
    ));
    options.push(format!("-oDir::Cache={}", state.join("cache").display()));
    options.push("-oDebug::NoLocking=true".to_owned());
    let log = project.new_log("apt-update")?;
    let step = Step::new("fetch", "package lists").log(&log);
    Cmd::new("apt-get").args(&options).arg("update").run(&log)?;
    step.ok();
    Ok(options)
}

/// The archive inside the package, in the cache's scratch folder.
pub fn archive(project: &Project, package: &Package) -> anyhow::Result<PathBuf> {
    let deb = project.downloads().join(&package.file);
    if !deb.is_file() || hash::file(&deb)? != package.sha256 {
        download(project, package, &deb)?;
    }
    let wanted = &project.base.archive;
    let unpacked = project
        .tmp()
        .join(wanted.file_name().context("base.toml names no archive")?);
    let mut reader = Cmd::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(&deb)
        .reader()?;
    let mut found = false;
    for entry in tar::Archive::new(&mut reader).entries()? {
        let mut entry = entry.with_context(|| format!("cannot read {}", deb.display()))?;
        if entry
            .path()?
            .strip_prefix(".")
            .is_ok_and(|path| path == wanted)
        {
            std::io::copy(&mut entry, &mut fs::File::create(&unpacked)?)?;
            found = true;
        }
    }
    std::io::copy(&mut reader, &mut std::io::sink())?;
    reader.finish()?;
    if !found {
        bail!("{} holds no {}", deb.display(), wanted.display());
    }
    Ok(unpacked)
}

fn download(project: &Project, package: &Package, deb: &PathBuf) -> anyhow::Result<()> {
    let log = project.new_log("download")?;
    let scratch = project.tmp().join("download");
    fs::create_dir_all(&scratch)?;
    fs::create_dir_all(project.downloads())?;
    let name = &project.base.package;
    let mut step = Step::new("fetch", format!("download {name} {}", package.version)).log(&log);
    step.total(package.size, true);
    let mut apt = Cmd::new("apt-get")
        .args(&package.options)
        .args(["download", &format!("{name}={}", package.version)])
        .dir(&scratch)
        .spawn(&log)?;
    let file = scratch.join(&package.file);
    let status = loop {
        if let Some(status) = apt.wait_timeout(Duration::from_millis(200))? {
            break status;
        }
        step.at(fs::metadata(&file).map_or(0, |meta| meta.len()));
    };
    if !status.success() {
        bail!(
            "apt-get could not download {name} {} (log {}){}",
            package.version,
            log.display(),
            last_words(&log)
        );
    }
    if hash::file(&file)? != package.sha256 {
        bail!(
            "{} is not what apt's signed lists promise; run the same command again",
            package.file
        );
    }
    fs::rename(&file, deb)?;
    step.what(format!("downloaded {name} {}", package.version));
    step.ok();
    Ok(())
}

/// The errors that apt wrote.
fn last_words(log: &PathBuf) -> String {
    let mut text = String::new();
    if let Ok(mut file) = fs::File::open(log) {
        let _ = file.read_to_string(&mut text);
    }
    text.lines()
        .filter(|line| line.starts_with("E:"))
        .map(|line| format!("\n  {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_apt_is_understood() {
        let hash = "e849faf31ca3555757f3a8877cb01af92122f744f75d1f3102734651c4e14703";
        let line = format!(
            "'http://deb.debian.org/x/linux-source-6.12_6.12.117-1%7edeb12u1_all.deb' \
             linux-source-6.12_6.12.117-1~deb12u1_all.deb 153476148 SHA256:{hash}"
        );
        let package = parse(&line, &[]).unwrap();
        assert_eq!(package.version, "6.12.117-1~deb12u1");
        assert_eq!(package.size, 153476148);
        assert_eq!(package.sha256, hash);
        assert!(parse("E: Unable to locate package linux-source-6.12", &[]).is_none());
    }
}
