// SPDX-License-Identifier: GPL-2.0

//! The guest's root: a cached base (init, test programs, busybox, in-tree
//! modules) and, behind it, the job and the module of one run.

use anyhow::Context as _;
use cpio::NewcBuilder;
use fs_err as fs;
use rext2_init::{JOB_PATH, Job, MODULE_DIR};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::artifact::Kernel;
use crate::exit::{self, Exit, WithExit as _};
use crate::hash::Hasher;
use crate::project::Project;
use crate::publish;
use crate::sh::{self, Cmd};
use crate::step::Step;

/// The guest programs: package, file in the guest. Init must be `/init`.
const PROGRAMS: &[(&str, &str)] = &[("rext2-init", "init"), ("rext2-tests", "bin/rext2-tests")];
/// Static, so that a guest needs no dynamic linker and no library.
const RUSTFLAGS: &str = "-C target-feature=+crt-static";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Writes the initramfs of one run to `file`.
pub fn write(
    project: &Project,
    kernel: &Kernel,
    job: &Job,
    extra: &[(PathBuf, String)],
    file: &Path,
) -> anyhow::Result<()> {
    fs::copy(base(project, kernel)?, file)?;
    let mut archive = Archive::default();
    let job = serde_json::to_vec_pretty(job).context("cannot encode the job")?;
    archive.file(JOB_PATH, 0o644, &job)?;
    for (source, name) in extra {
        let is_program = fs::metadata(source)?.permissions().mode() & 0o111 != 0;
        let permissions = if is_program { 0o755 } else { 0o644 };
        archive.file(name, permissions, &fs::read(source)?)?;
    }
    let mut out = fs::OpenOptions::new().append(true).open(file)?;
    out.write_all(&archive.finish()?)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Where the module `name` lies in the guest.
pub fn module_path(name: &str) -> String {
    format!("{MODULE_DIR}/{name}.ko")
}

/// The base for this kernel, made when the cache does not have it.
fn base(project: &Project, kernel: &Kernel) -> anyhow::Result<PathBuf> {
    let programs = programs(project)?;
    let busybox = busybox()?;
    let mut hasher = Hasher::default();
    for file in [&busybox].into_iter().chain(&kernel.modules) {
        let meta = fs::metadata(file)?;
        let time = meta.modified().context("no modification time")?;
        hasher.part(format!("{} {} {time:?}", file.display(), meta.len()).as_bytes());
    }
    hasher.part(programs.as_os_str().as_encoded_bytes());
    let file = project.initramfs(&hasher.short());
    if file.is_file() {
        return Ok(file);
    }

    let mut archive = Archive::default();
    for (package, name) in PROGRAMS {
        archive.file(name, 0o755, &fs::read(programs.join(package))?)?;
    }
    // One program under both names: every boot unpacks it.
    archive.symlink("bin/rwf", "rext2-tests")?;
    archive.file("bin/busybox", 0o755, &fs::read(&busybox)?)?;
    for applet in Cmd::new(&busybox).arg("--list").read()?.lines() {
        if applet != "busybox" {
            archive.symlink(&format!("bin/{applet}"), "busybox")?;
        }
    }
    for module in &kernel.modules {
        let name = module.file_stem().unwrap_or_default().to_string_lossy();
        archive.file(&module_path(&name), 0o644, &fs::read(module)?)?;
    }
    publish::write(&file, &archive.finish()?)?;
    Ok(file)
}

/// Debian's static busybox: the guest's shell and tools.
fn busybox() -> anyhow::Result<PathBuf> {
    let hint = "no static busybox; install busybox-static";
    let file = sh::which("busybox").ok_or_else(|| exit::error(Exit::Environment, hint))?;
    let bytes = fs::read(&file)?;
    let linker = b"/ld-linux".as_slice();
    match bytes.windows(linker.len()).any(|window| window == linker) {
        true => Err(exit::error(Exit::Environment, hint)),
        false => Ok(file),
    }
}

/// The folder with the guest programs of this checkout's sources. Asking cargo
/// takes longer than hashing the sources, and every boot comes by here.
fn programs(project: &Project) -> anyhow::Result<PathBuf> {
    let mut hasher = Hasher::default();
    for name in ["Cargo.toml", "Cargo.lock"] {
        hasher.part(&fs::read(project.root.join(name))?);
    }
    // The table of right answers is built in from the images' folder.
    for name in ["init", "tests", "images"] {
        hash_sources(&project.qemu().join(name), &mut hasher)?;
    }
    let folder = project.guest_programs(&hasher.short());
    if folder.is_dir() {
        return Ok(folder);
    }
    let log = project.new_log("guest")?;
    let step = Step::new("guest", "programs").log(&log);
    let target = project.out().join("guest");
    let mut cargo = Cmd::new("cargo")
        .dir(&project.root)
        .env("RUSTFLAGS", RUSTFLAGS)
        .env("CARGO_TARGET_DIR", &target)
        .args([
            "build",
            "--locked",
            "--profile",
            "guest",
            "--target",
            TARGET,
        ]);
    for (package, _) in PROGRAMS {
        cargo = cargo.args(["--package", package]);
    }
    cargo
        .run(&log)
        .context("cannot build the guest programs")
        .exit(Exit::Build)?;
    let parent = folder
        .parent()
        .context("a folder of the cache has a parent")?;
    fs::create_dir_all(parent)?;
    let temporary = tempfile::tempdir_in(parent)?;
    for (package, _) in PROGRAMS {
        let built = target.join(TARGET).join("guest").join(package);
        fs::copy(built, temporary.path().join(package))?;
    }
    // Another run may have been faster; its result is the same.
    if let Err(error) = fs::rename(temporary.path(), &folder)
        && !folder.is_dir()
    {
        return Err(error.into());
    }
    step.ok();
    Ok(folder)
}

fn hash_sources(folder: &Path, hasher: &mut Hasher) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        if entry.file_type()?.is_dir() {
            hash_sources(&entry.path(), hasher)?;
        } else {
            hasher.part(entry.path().as_os_str().as_encoded_bytes());
            hasher.part(&fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// A cpio archive as the kernel unpacks it: folders before their files.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: BTreeSet<PathBuf>,
}

impl Archive {
    fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> anyhow::Result<()> {
        self.parents(name)?;
        self.entry(name, 0o100_000 | permissions, content)
    }

    fn symlink(&mut self, name: &str, target: &str) -> anyhow::Result<()> {
        self.parents(name)?;
        self.entry(name, 0o120_777, target.as_bytes())
    }

    fn parents(&mut self, name: &str) -> anyhow::Result<()> {
        let name = Path::new(name.trim_start_matches('/'));
        let mut parents: Vec<_> = name.ancestors().skip(1).collect();
        parents.reverse();
        for parent in parents {
            if !parent.as_os_str().is_empty() && self.folders.insert(parent.to_owned()) {
                self.entry(&parent.to_string_lossy(), 0o040_755, &[])?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.inode += 1;
        let entry = NewcBuilder::new(name.trim_start_matches('/'))
            .ino(self.inode)
            .nlink(1)
            .mode(mode);
        let size = u32::try_from(content.len()).context("a file of more than 4 GiB")?;
        let mut writer = entry.write(&mut self.bytes, size);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        cpio::newc::trailer(&mut self.bytes).context("cannot end the archive")?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents, in order.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            let mut reader = cpio::NewcReader::new(bytes).unwrap();
            if reader.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
            entries.push((name, mode, content));
            bytes = reader.finish().unwrap();
        }
    }

    #[test]
    fn folders_stand_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.file("/lib/modules/a.ko", 0o644, b"elf").unwrap();
        archive.symlink("lib/b", "modules").unwrap();
        archive.file("/init", 0o755, b"").unwrap();
        assert_eq!(
            entries(&archive.finish().unwrap()),
            [
                ("lib".to_owned(), 0o040_755, vec![]),
                ("lib/modules".to_owned(), 0o040_755, vec![]),
                ("lib/modules/a.ko".to_owned(), 0o100_644, b"elf".to_vec()),
                ("lib/b".to_owned(), 0o120_777, b"modules".to_vec()),
                ("init".to_owned(), 0o100_755, vec![]),
            ]
        );
    }

    #[test]
    fn archives_may_be_strung_together() {
        let mut archive = Archive::default();
        archive.file("job.json", 0o644, b"x").unwrap();
        assert_eq!(archive.finish().unwrap().len() % 4, 0);
    }
}
