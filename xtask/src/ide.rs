// SPDX-License-Identifier: GPL-2.0

//! `ide`: rust-project.json for rext2, `patches/files` and the kernel crate, and
//! compile_commands.json for the kernel tree. Every path in them exists.
//!
//! The kernel's own generator knows the crates; what it says about two of them is
//! changed, so that an editor finds the files that a developer edits: rext2 in
//! `module/`, not in the build's copy, and new kernel files in `patches/`, not in
//! the tree. For the latter the kernel crate gets a root of our own, in which
//! every module has its place written beside it.

use crate::build;
use crate::exit::{Exit, WithExit as _};
use crate::lock;
use crate::patch::series::Series;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::{self, Step};
use anyhow::{Context as _, ensure};
use fs_err as fs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The verb.
pub fn verb(project: &Project) -> anyhow::Result<()> {
    if project.opts.dry_run {
        return build::dry_run(project, project.base.module);
    }
    let kernel = build::run(project)?;
    let _lock = lock::hold(project)?;
    let wanted = build::wanted(project)?;
    build::build(project, &wanted)?;
    let tree = &wanted.source.git;
    let log = project.new_log("ide")?;
    let step = Step::new("ide", format!("for linux {}", kernel.release)).log(&log);
    let commands = compile_commands(tree, &kernel.build_dir, &log)?;
    let mut lines = vec![commands.display().to_string()];
    if project.base.module {
        // With M= the kernel's own rule does not work for a build outside the tree.
        let make = wanted.toolchain.make(project, tree, &kernel.build_dir);
        make.arg("rust-analyzer").run(&log).exit(Exit::Build)?;
        let generated = fs::read_to_string(kernel.build_dir.join("rust-project.json"))?;
        let mut crates: Value = serde_json::from_str(&generated)?;
        let folder = project.out().join("ide");
        let root = folder.join("kernel.rs");
        let places = places(project, &Series::load(project)?);
        publish::write(&root, kernel_root(tree, &places)?.as_bytes())?;
        redirect(&mut crates, tree, &project.patches(), &root)?;
        add_module(&mut crates, &project.module_sources().join("rext2.rs"))?;
        let missing = missing_paths(&crates);
        ensure!(
            missing.is_empty(),
            "rust-project.json would name what is not there: {}",
            missing.join(", ")
        );
        let file = folder.join("rust-project.json");
        publish::write_json(&file, &crates)?;
        lines.push(file.display().to_string());
        step::note(&format!(
            "tell rust-analyzer about both worlds: \"rust-analyzer.linkedProjects\": [\"Cargo.toml\", {:?}]",
            file.strip_prefix(&project.root).unwrap_or(&file)
        ));
    }
    step.ok();
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Writes compile_commands.json to the top of the tree, where clangd looks for
/// it and git ignores it.
fn compile_commands(tree: &Path, build_dir: &Path, log: &Path) -> anyhow::Result<PathBuf> {
    let file = tree.join("compile_commands.json");
    Cmd::new("python3")
        .arg(tree.join("scripts/clang-tools/gen_compile_commands.py"))
        .arg("-d")
        .arg(build_dir)
        .arg("-o")
        .arg(&file)
        .run(log)
        .exit(Exit::Build)?;
    let commands: Vec<Value> = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let there = |command: &Value| {
        let path = |key| command.get(key).and_then(Value::as_str).map(Path::new);
        matches!((path("directory"), path("file")), (Some(folder), Some(file)) if folder.join(file).is_file())
    };
    // Generated sources of an earlier build may be gone.
    let kept: Vec<&Value> = commands.iter().filter(|command| there(command)).collect();
    ensure!(
        !kept.is_empty(),
        "the build folder {} names no compiled file",
        build_dir.display()
    );
    publish::write_json(&file, &kept)?;
    Ok(file)
}

/// Where the new files of the series lie, by their path in the tree.
fn places(project: &Project, series: &Series) -> BTreeMap<PathBuf, PathBuf> {
    let files = series.entries.iter().flat_map(|entry| &entry.new_files);
    files
        .map(|file| {
            (
                PathBuf::from(&file.path),
                project.patches().join(&file.place),
            )
        })
        .collect()
}

/// Gives the kernel crate the root that leads to the files that are edited.
fn redirect(crates: &mut Value, tree: &Path, patches: &Path, root: &Path) -> anyhow::Result<()> {
    let n = index_of(crates, "kernel")?;
    let entry = &mut crates["crates"][n];
    let mut folders: Vec<Value> = vec![path(patches), path(&tree.join("rust"))];
    folders.extend(root.parent().map(path));
    if let Some(generated) = entry["source"]["include_dirs"].as_array() {
        folders.extend(generated.iter().cloned());
    }
    entry["root_module"] = path(root);
    entry["source"] = json!({ "include_dirs": folders, "exclude_dirs": [] });
    Ok(())
}

/// Adds rext2, with the conditions of the kernel crate and of a module.
fn add_module(crates: &mut Value, root: &Path) -> anyhow::Result<()> {
    let (core, kernel) = (index_of(crates, "core")?, index_of(crates, "kernel")?);
    let mut cfg = crates["crates"][kernel]["cfg"].clone();
    if let Some(list) = cfg.as_array_mut() {
        list.push("MODULE".into());
    }
    let entry = json!({
        "display_name": "rext2",
        "root_module": root,
        "is_workspace_member": true,
        "is_proc_macro": false,
        "edition": "2021",
        "deps": [{ "crate": core, "name": "core" }, { "crate": kernel, "name": "kernel" }],
        "cfg": cfg,
        "env": { "RUST_MODFILE": "rext2" },
    });
    crates["crates"]
        .as_array_mut()
        .context("rust-project.json has no crates")?
        .push(entry);
    Ok(())
}

/// The number of a crate, which is its name for the others.
fn index_of(crates: &Value, name: &str) -> anyhow::Result<usize> {
    let list = crates["crates"]
        .as_array()
        .context("rust-project.json has no crates")?;
    list.iter()
        .position(|entry| entry["display_name"] == name)
        .with_context(|| format!("the kernel's generator names no crate {name}"))
}

fn path(path: &Path) -> Value {
    Value::String(path.display().to_string())
}

/// Absolute paths anywhere in the value that do not exist.
fn missing_paths(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.starts_with('/') && !Path::new(text).exists() => {
            vec![text.clone()]
        }
        Value::Array(values) => values.iter().flat_map(missing_paths).collect(),
        Value::Object(map) => map
            .iter()
            // Environment variables of the build, not paths for the editor.
            .filter(|(key, _)| key.as_str() != "env")
            .flat_map(|(_, value)| missing_paths(value))
            .collect(),
        _ => Vec::new(),
    }
}

/// The modules of the kernel crate: where their files really are.
struct Modules<'a> {
    tree: &'a Path,
    places: &'a BTreeMap<PathBuf, PathBuf>,
}

/// One module that a file declares.
struct Module {
    /// Its path in the kernel tree.
    path: PathBuf,
    /// Its file.
    file: PathBuf,
    text: String,
}

impl Modules<'_> {
    /// The module `name` of `folder`; `None` behind a condition that this kernel
    /// does not fulfil, where there may be no file.
    fn find(&self, folder: &Path, name: &str) -> Option<Module> {
        let candidates = [
            folder.join(format!("{name}.rs")),
            folder.join(name).join("mod.rs"),
        ];
        candidates.into_iter().find_map(|path| {
            let file = self
                .places
                .get(&path)
                .cloned()
                .unwrap_or_else(|| self.tree.join(&path));
            let text = fs::read_to_string(&file).ok()?;
            Some(Module { path, file, text })
        })
    }

    /// Whether the compiler finds all modules of `text` below `real` by itself.
    fn are_at_home(&self, text: &str, folder: &Path, real: &Path) -> bool {
        text.lines().filter_map(module_line).all(|(_, name)| {
            self.find(folder, name).is_none_or(|module| {
                let home = real.join(module.path.strip_prefix(folder).unwrap_or(&module.path));
                module.file == home
                    && self.are_at_home(&module.text, &folder.join(name), &real.join(name))
            })
        })
    }

    /// Writes its place beside every `mod name;` of a file that the compiler
    /// would not find by itself. A module with files of its own is written out:
    /// only then can be said where those are.
    fn placed(&self, text: &str, folder: &Path, real: Option<&Path>) -> String {
        let mut out = String::new();
        for line in text.lines() {
            let declared = module_line(line)
                .and_then(|(visibility, name)| Some((visibility, name, self.find(folder, name)?)));
            let Some((visibility, name, module)) = declared else {
                let _ = writeln!(out, "{line}");
                continue;
            };
            let (below, parent) = (
                folder.join(name),
                module.file.parent().unwrap_or(&module.file),
            );
            let children = if module.file.ends_with("mod.rs") {
                parent.to_owned()
            } else {
                parent.join(name)
            };
            if real.is_some_and(|real| self.are_at_home(&format!("mod {name};\n"), folder, real)) {
                let _ = writeln!(out, "{line}");
            } else if module.text.lines().any(|line| module_line(line).is_some()) {
                let inner = self.placed(&module.text, &below, Some(&children));
                let _ = writeln!(
                    out,
                    "#[path = {children:?}]\n{visibility}mod {name} {{\n{inner}}}"
                );
            } else {
                let _ = writeln!(out, "#[path = {:?}]\n{visibility}mod {name};", module.file);
            }
        }
        out
    }
}

/// The root of the kernel crate with the place of every module.
fn kernel_root(tree: &Path, places: &BTreeMap<PathBuf, PathBuf>) -> anyhow::Result<String> {
    let text = fs::read_to_string(tree.join("rust/kernel/lib.rs"))?;
    Ok(Modules { tree, places }.placed(&text, Path::new("rust/kernel"), None))
}

/// Visibility and name of a line `pub mod name;`.
fn module_line(line: &str) -> Option<(&str, &str)> {
    let declared = line.strip_suffix(';')?;
    let at = declared.find("mod ")?;
    let (visibility, name) = (&declared[..at], &declared[at + 4..]);
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (plain && matches!(visibility, "" | "pub " | "pub(crate) ")).then_some((visibility, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_gets_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let tree = folder.path().join("tree");
        let lib =
            "//! Kernel.\n#[cfg(x)]\npub mod absent;\npub mod error;\nmod alloc;\npub mod fs;\n";
        write("tree/rust/kernel/lib.rs", lib);
        write("tree/rust/kernel/error.rs", "");
        write(
            "tree/rust/kernel/alloc/mod.rs",
            "//! Alloc.\npub mod layout;\n",
        );
        write("tree/rust/kernel/alloc/layout.rs", "");
        // The tree has copies of the new files, too; they are not what is edited.
        let mut places = BTreeMap::new();
        for (path, place, text) in [
            (
                "fs.rs",
                "patches/files",
                "//! Fs.\npub mod file;\nmod compat;\n",
            ),
            ("fs/file.rs", "patches/files", "mod write;\n"),
            ("fs/file/write.rs", "patches/files", ""),
            ("fs/compat.rs", "patches/base/files", ""),
        ] {
            write(&format!("tree/rust/kernel/{path}"), "mod wrong;\n");
            let file = write(&format!("{place}/rust/kernel/{path}"), text);
            places.insert(Path::new("rust/kernel").join(path), file);
        }
        let kernel = tree.join("rust/kernel");
        let expected = format!(
            "//! Kernel.\n#[cfg(x)]\npub mod absent;\n#[path = {:?}]\npub mod error;\n\
             #[path = {:?}]\nmod alloc {{\n//! Alloc.\npub mod layout;\n}}\n\
             #[path = {:?}]\npub mod fs {{\n//! Fs.\npub mod file;\n#[path = {:?}]\nmod compat;\n}}\n",
            kernel.join("error.rs"),
            kernel.join("alloc"),
            folder.path().join("patches/files/rust/kernel/fs"),
            folder
                .path()
                .join("patches/base/files/rust/kernel/fs/compat.rs"),
        );
        assert_eq!(kernel_root(&tree, &places).unwrap(), expected);
        // And the compiler agrees: every file is found.
        let root = write(
            "root.rs",
            &expected.replace("#[cfg(x)]\npub mod absent;\n", ""),
        );
        let out = folder.path().join("root.rmeta");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = std::process::Command::new(rustc)
            .args([
                "--edition=2021",
                "--crate-type=lib",
                "--emit=metadata",
                "-o",
            ])
            .args([&out, &root])
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn the_module_depends_on_the_redirected_kernel_crate() {
        let mut crates = json!({ "crates": [
            { "display_name": "core", "root_module": "/c" },
            { "display_name": "kernel", "root_module": "/t/rust/kernel/lib.rs", "cfg": ["A"], "source": { "include_dirs": ["/o"] } },
        ]});
        redirect(
            &mut crates,
            Path::new("/t"),
            Path::new("/p"),
            Path::new("/out/kernel.rs"),
        )
        .unwrap();
        add_module(&mut crates, Path::new("/m/rext2.rs")).unwrap();
        let [_, kernel, module] = crates["crates"].as_array().unwrap().as_slice() else {
            panic!("{crates}");
        };
        assert_eq!(kernel["root_module"], "/out/kernel.rs");
        assert_eq!(
            kernel["source"]["include_dirs"],
            json!(["/p", "/t/rust", "/out", "/o"])
        );
        assert_eq!(module["root_module"], "/m/rext2.rs");
        assert_eq!(module["deps"][1], json!({ "crate": 1, "name": "kernel" }));
        assert_eq!(module["cfg"], json!(["A", "MODULE"]));
        assert!(add_module(&mut json!({ "crates": [] }), Path::new("/m")).is_err());
    }

    #[test]
    fn only_declarations_are_module_lines() {
        assert_eq!(module_line("pub mod fs;"), Some(("pub ", "fs")));
        assert_eq!(module_line("mod a_b;"), Some(("", "a_b")));
        assert_eq!(module_line("pub(crate) mod x;"), Some(("pub(crate) ", "x")));
        for line in [
            "use x::mod y;",
            "// mod x;",
            "mod x {",
            "    pub mod nested;",
            "pub mod r#x;",
        ] {
            assert_eq!(module_line(line), None, "{line}");
        }
    }

    #[test]
    fn paths_that_do_not_exist_are_found_wherever_they_stand() {
        let value = serde_json::json!({"crates": [{"root_module": "/no/such/file", "env": {"X": "/no/env"}, "source": {"include_dirs": ["/", "/no/dir"]}}]});
        assert_eq!(missing_paths(&value), ["/no/such/file", "/no/dir"]);
    }
}
