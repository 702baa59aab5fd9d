// SPDX-License-Identifier: GPL-2.0

//! `module`: rext2.ko, built outside its sources against a kernel's build folder.

use crate::artifact::{Kernel, Module};
use crate::build;
use crate::exit::{self, Exit, WithExit as _};
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
    check_kdir(kdir, &rustc_text)?;

    let folder = project.module_build(&wanted.source);
    copy_sources(&project.module_sources(), &sources, &folder)?;
    let log = project.new_log("module")?;
    let step = Step::new("module", format!("{NAME}.ko for {}", kernel.release)).log(&log);
    let make = wanted.toolchain.make(project, &wanted.source.git, kdir);
    command(make, &folder).run(&log).map_err(|_| {
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
pub fn command(make: Cmd, folder: &Path) -> Cmd {
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

/// Why a build folder cannot build a Rust module: each reason before make and
/// in a sentence of its own, for rustc would only say that it can't find `core`.
pub fn check_kdir(kdir: &Path, rustc_text: &str) -> anyhow::Result<()> {
    let name = kdir.display();
    let auto_conf = fs::read_to_string(kdir.join("include/config/auto.conf"))
        .with_context(|| {
            format!("{name} is no build folder of a kernel; build one with \"cargo xtask build\"")
        })
        .exit(Exit::Environment)?;
    let value = |symbol: &str| {
        auto_conf
            .lines()
            .find_map(|line| line.strip_prefix(symbol)?.strip_prefix('='))
    };
    if value("CONFIG_RUST") != Some("y") {
        let more = match value("CONFIG_RUST_IS_AVAILABLE") {
            Some("y") => " (CONFIG_RUST_IS_AVAILABLE=y only says that it could be)",
            _ => "",
        };
        return Err(exit::error(
            Exit::Config,
            format!(
                "the kernel of {name} was built without CONFIG_RUST=y{more}; build one with \"cargo xtask build\""
            ),
        ));
    }
    let built_with = value("CONFIG_RUSTC_VERSION_TEXT")
        .unwrap_or_default()
        .trim_matches('"');
    if built_with != rustc_text {
        return Err(exit::error(
            Exit::Environment,
            format!(
                "the kernel of {name} was built with \"{built_with}\", this is \"{rustc_text}\"; metadata of one rustc is unreadable to another: build the kernel again"
            ),
        ));
    }
    for metadata in ["libcore.rmeta", "libkernel.rmeta"] {
        if !kdir.join("rust").join(metadata).is_file() {
            return Err(exit::error(
                Exit::Environment,
                format!(
                    "{name} has no rust/{metadata}: it was cleaned, or packaged without Rust's metadata; build the kernel again"
                ),
            ));
        }
    }
    let macros = kdir.join("rust/libmacros.so");
    match elf_machine(&macros) {
        Some(machine) if machine == HOST_MACHINE => Ok(()),
        Some(machine) => Err(exit::error(
            Exit::Environment,
            format!(
                "{} was built for another machine (ELF machine {machine}, here {HOST_MACHINE}): rustc cannot load the macros; build the kernel on this machine",
                macros.display()
            ),
        )),
        None => Err(exit::error(
            Exit::Environment,
            format!(
                "{} is missing or no library; build the kernel again",
                macros.display()
            ),
        )),
    }
}

/// ELF's number for x86-64, the only host and guest so far.
const HOST_MACHINE: u16 = 62;

fn elf_machine(file: &Path) -> Option<u16> {
    let bytes = fs::read(file).ok()?;
    let machine = bytes
        .get(18..20)
        .filter(|_| bytes.starts_with(b"\x7fELF"))?;
    Some(u16::from_le_bytes([machine[0], machine[1]]))
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
    publish::write_json(&half.join(COMMAND), &saved_command(built)?)?;
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

/// Reads the command that kbuild has saved for the crate.
fn saved_command(built: &Path) -> anyhow::Result<Vec<String>> {
    let file = built.with_file_name(format!(".{NAME}.o.cmd"));
    let text = fs::read_to_string(&file)?;
    let line = text.lines().next().unwrap_or_default();
    let (_, command) = line
        .split_once(":= ")
        .with_context(|| format!("{} holds no command", file.display()))?;
    let command = command.split(" ; ").next().unwrap_or_default();
    crate_free(shell_words(command))
        .with_context(|| format!("{} holds no call of rustc", file.display()))
}

/// Drops the variables before the compiler, and the names and outputs of the crate.
fn crate_free(words: Vec<String>) -> Option<Vec<String>> {
    let is_variable = |word: &String| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let mut words = words.into_iter().skip_while(is_variable);
    let mut kept = vec![words.next()?];
    while let Some(word) = words.next() {
        match word.as_str() {
            "--crate-name" | "--out-dir" => {
                words.next()?;
            }
            word if word.starts_with("--emit=")
                || (word.ends_with(".rs") && !word.starts_with('-')) => {}
            _ => kept.push(word),
        }
    }
    Some(kept)
}

/// Splits a command line as the shell does, as far as kbuild's lines go.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
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

    const TEXT: &str = "rustc 1.95.0 (59807616e 2026-04-14)";

    /// A build folder as a complete Rust kernel leaves it.
    fn kdir() -> tempfile::TempDir {
        let kdir = tempfile::tempdir().unwrap();
        fs::create_dir_all(kdir.path().join("include/config")).unwrap();
        fs::create_dir_all(kdir.path().join("rust")).unwrap();
        conf(
            &kdir,
            &format!("CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT=\"{TEXT}\"\n"),
        );
        fs::write(kdir.path().join("rust/libcore.rmeta"), "").unwrap();
        fs::write(kdir.path().join("rust/libkernel.rmeta"), "").unwrap();
        macros(&kdir, HOST_MACHINE);
        kdir
    }

    fn conf(kdir: &tempfile::TempDir, text: &str) {
        fs::write(kdir.path().join("include/config/auto.conf"), text).unwrap();
    }

    fn macros(kdir: &tempfile::TempDir, machine: u16) {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(18, 0);
        elf.extend(machine.to_le_bytes());
        fs::write(kdir.path().join("rust/libmacros.so"), elf).unwrap();
    }

    fn refused(kdir: &tempfile::TempDir) -> (u8, String) {
        let error = check_kdir(kdir.path(), TEXT).unwrap_err();
        (exit::of(&error).code(), format!("{error:#}"))
    }

    #[test]
    fn a_whole_build_folder_is_accepted() {
        check_kdir(kdir().path(), TEXT).unwrap();
    }

    /// toolkit B1: four ways to have no Rust, four sentences.
    #[test]
    fn a_build_folder_without_rust_is_refused_with_its_reason() {
        let dir = kdir();
        conf(&dir, "CONFIG_RUST_IS_AVAILABLE=y\n");
        let (code, text) = refused(&dir);
        assert!(
            code == 6
                && text.contains("without CONFIG_RUST=y (CONFIG_RUST_IS_AVAILABLE=y only says"),
            "{text}"
        );

        let dir = kdir();
        fs::remove_file(dir.path().join("rust/libcore.rmeta")).unwrap();
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("has no rust/libcore.rmeta"),
            "{text}"
        );

        let dir = kdir();
        macros(&dir, 183);
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("for another machine (ELF machine 183"),
            "{text}"
        );

        let dir = kdir();
        conf(
            &dir,
            "CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT=\"rustc 1.78.0\"\n",
        );
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("built with \"rustc 1.78.0\""),
            "{text}"
        );
    }

    #[test]
    fn a_folder_that_is_no_build_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (code, text) = refused(&dir);
        assert!(
            code == 3 && text.contains("no build folder of a kernel"),
            "{text}"
        );
    }

    #[test]
    fn the_saved_command_serves_other_crates() {
        let line = "RUST_MODFILE=/m/rext2 rustc --edition=2021 -Zcrate-attr='feature(a, b)' @./include/generated/rustc_cfg \
                    --extern kernel --crate-type rlib -L ./rust/ --crate-name rext2 --sysroot=/dev/null --out-dir /m/ \
                    --emit=dep-info=/m/.rext2.o.d --emit=obj=/m/rext2.o /m/rext2.rs ";
        assert_eq!(
            crate_free(shell_words(line)).unwrap().join("|"),
            "rustc|--edition=2021|-Zcrate-attr=feature(a, b)|@./include/generated/rustc_cfg|--extern|kernel|--crate-type|rlib|-L|./rust/|--sysroot=/dev/null"
        );
    }

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
