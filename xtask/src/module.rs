// SPDX-License-Identifier: GPL-2.0

//! `module`: rext2.ko, built outside its sources against a kernel's build folder.

mod command;
mod kdir;

pub use command::saved as saved_command;

use crate::artifact::{Kernel, Module};
use crate::build;
use crate::exit::{self, Exit};
use crate::hash::Hasher;
use crate::lock;
use crate::opts::Format;
use crate::patch::series::files_below;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::Step;
use anyhow::{Context as _, ensure};
use fs_err as fs;
use std::path::{Path, PathBuf};

/// The module's name.
const NAME: &str = "rext2";

/// The compiler's command, beside the published module.
const COMMAND: &str = "rustc.json";

/// Builds the module for the kernel that the flags ask for.
pub fn run(project: &Project, kernel: &Kernel) -> anyhow::Result<Module> {
    let sources = sources(project)?;
    let hash = hash(project, kernel, &sources)?;
    let place = project.module(&hash);
    if let Some(module) = published(&place) {
        return Ok(module);
    }
    let _lock = lock::hold(project)?;
    // Another run may have built it while we waited.
    if let Some(module) = published(&place) {
        return Ok(module);
    }
    let wanted = build::wanted(project)?;
    ensure!(
        wanted.identity == kernel.identity,
        "the patches or the configuration changed during the run; start it again"
    );
    // Another checkout may have built another kernel in the folder since.
    build::build(project, &wanted)?;
    let kdir = &kernel.build_dir;
    let rustc_text = match &wanted.toolchain.rustc {
        Some(rustc) => crate::toolchain::version(project, rustc),
        None => String::new(),
    };
    kdir::check(kdir, &rustc_text)?;

    let folder = project.module_build(&wanted.source);
    copy_sources(&project.module_sources(), &sources, &folder)?;
    let log = project.new_log("module")?;
    let step = Step::new("module", format!("{NAME}.ko for {}", kernel.release)).log(&log);
    let make = wanted.toolchain.make(project, &wanted.source.git, kdir);
    make_command(make, &folder).run(&log).map_err(|_| {
        exit::error(
            Exit::Build,
            format!(
                "{NAME}.ko does not build (log {}){}",
                log.display(),
                build::first_errors(&log)
            ),
        )
    })?;
    let built = folder.join(format!("{NAME}.ko"));
    ensure!(
        built.is_file(),
        "make ended well but made no {}; its Kbuild must say obj-m := {NAME}.o",
        built.display()
    );
    let module = publish_module(
        project,
        &wanted.toolchain.llvm_tool("llvm-strip"),
        &built,
        hash,
        &place,
    )?;
    step.ok();
    Ok(module)
}

/// Lets `make` make the module in `folder`.
pub fn make_command(make: Cmd, folder: &Path) -> Cmd {
    make.arg(format!("M={}", folder.display()))
        // Its Kbuild is written for a home in the kernel tree, too.
        .arg("CONFIG_REXT2_FS=m")
        .arg("modules")
}

/// The source files of the module, by name.
fn sources(project: &Project) -> anyhow::Result<Vec<PathBuf>> {
    if !project.base.module {
        return Err(exit::error(
            Exit::Usage,
            format!(
                "the base {} has no rext2: its kernel has no Rust for it",
                project.opts.base
            ),
        ));
    }
    let folder = project.module_sources();
    if !folder.join("Kbuild").is_file() {
        return Err(exit::error(
            Exit::Build,
            format!("{} has no Kbuild", folder.display()),
        ));
    }
    // Not what an editor or a make inside the sources has left.
    let wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.')
            && (name == "Kbuild"
                || [".rs", ".c", ".h", ".S"]
                    .iter()
                    .any(|end| name.ends_with(end))
                    && !name.ends_with(".mod.c"))
    };
    Ok(files_below(&folder)?.into_iter().filter(wanted).collect())
}

fn hash(project: &Project, kernel: &Kernel, sources: &[PathBuf]) -> anyhow::Result<String> {
    let mut hasher = Hasher::default();
    hasher.part(kernel.identity.hash().as_bytes());
    for path in sources {
        hasher
            .part(path.as_os_str().as_encoded_bytes())
            .part(&fs::read(project.module_sources().join(path))?);
    }
    Ok(hasher.short())
}

fn published(place: &Path) -> Option<Module> {
    let module: Module = publish::read_json(&place.join("module.json"))?;
    module.ko.is_file().then_some(module)
}

/// Brings the build's copy of the sources up to date; equal files keep their
/// times, so that make does only what is needed.
fn copy_sources(from: &Path, sources: &[PathBuf], to: &Path) -> anyhow::Result<()> {
    for path in sources {
        publish::write(&to.join(path), &fs::read(from.join(path))?)?;
    }
    for path in files_below(to)? {
        let is_source = path
            .extension()
            .is_some_and(|end| end == "rs" || end == "h" || end == "S");
        if is_source && !sources.contains(&path) {
            fs::remove_file(to.join(path))?;
        }
    }
    Ok(())
}

fn publish_module(
    project: &Project,
    strip: &str,
    built: &Path,
    hash: String,
    place: &Path,
) -> anyhow::Result<Module> {
    let half = project.tmp().join("module");
    fs::create_dir_all(&half)?;
    let (ko, debug_ko) = (format!("{NAME}.ko"), format!("{NAME}.debug.ko"));
    fs::copy(built, half.join(&debug_ko))?;
    // Every boot unpacks it: without debug information it is a tenth.
    Cmd::new(strip)
        .arg("--strip-debug")
        .arg("-o")
        .arg(half.join(&ko))
        .arg(built)
        .read()?;
    let module = Module {
        ko: place.join(&ko),
        debug_ko: place.join(&debug_ko),
        hash,
    };
    publish::write_json(&half.join(COMMAND), &command::saved(NAME, built)?)?;
    publish::write_json(&half.join("module.json"), &module)?;
    publish::folder(&half, place)?;
    Ok(module)
}

/// The compiler and its flags of the module's build, without what belongs to one
/// crate: everything that another crate needs to be compiled as a module is.
pub fn rustc_words(module: &Module) -> anyhow::Result<Vec<String>> {
    let place = module.ko.with_file_name(COMMAND);
    publish::read_json(&place).with_context(|| {
        format!(
            "{} is gone; \"cargo xtask clean\" and build again",
            place.display()
        )
    })
}

/// The verb.
pub fn verb(project: &Project) -> anyhow::Result<()> {
    // A wrong base is refused before an hour of building.
    sources(project)?;
    if project.opts.dry_run {
        return build::dry_run(project, true);
    }
    let kernel = build::run(project)?;
    let module = run(project, &kernel)?;
    match project.opts.format {
        Format::Json => println!("{}", serde_json::to_string(&module)?),
        _ => println!("{}", module.ko.display()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_copied_only_when_they_change_and_removed_when_they_go() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["Kbuild", "a.rs", "b.rs"] {
            fs::write(from.path().join(name), name).unwrap();
        }
        let list = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        copy_sources(from.path(), &list(&["Kbuild", "a.rs", "b.rs"]), to.path()).unwrap();
        let time = |name: &str| {
            fs::metadata(to.path().join(name))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = time("a.rs");
        fs::write(to.path().join("a.o"), "").unwrap();
        copy_sources(from.path(), &list(&["Kbuild", "a.rs"]), to.path()).unwrap();
        assert_eq!(time("a.rs"), before);
        assert!(!to.path().join("b.rs").exists() && to.path().join("a.o").exists());
    }
}
