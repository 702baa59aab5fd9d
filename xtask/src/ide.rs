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
use crate::module;
use crate::patch::series::Series;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::{self, Step};
use anyhow::{Context as _, ensure};
use fs_err as fs;
use serde_json::Value;
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
        module::run(project, &kernel)?;
        let build_copy = project.module_build(&wanted.source);
        let make = wanted.toolchain.make(project, tree, &kernel.build_dir);
        make.arg(format!("M={}", build_copy.display()))
            .arg("rust-analyzer")
            .run(&log)
            .exit(Exit::Build)?;
        let mut crates: Value =
            serde_json::from_str(&fs::read_to_string(build_copy.join("rust-project.json"))?)?;
        let folder = project.out().join("ide");
        let root = folder.join("kernel.rs");
        let places = places(project, &Series::load(project)?);
        publish::write(&root, kernel_root(tree, &places)?.as_bytes())?;
        redirect(
            &mut crates,
            &build_copy,
            &project.module_sources(),
            &tree.join("rust/kernel/lib.rs"),
            &root,
        )?;
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

/// Points the crates at the files that are edited.
fn redirect(
    crates: &mut Value,
    copy: &Path,
    module: &Path,
    lib: &Path,
    root: &Path,
) -> anyhow::Result<()> {
    let crates = crates
        .get_mut("crates")
        .and_then(Value::as_array_mut)
        .context("rust-project.json has no crates")?;
    let mut found = false;
    for entry in crates {
        let Some(path) = entry
            .get("root_module")
            .and_then(Value::as_str)
            .map(PathBuf::from)
        else {
            continue;
        };
        if let Ok(inside) = path.strip_prefix(copy) {
            entry["root_module"] = text(&module.join(inside));
            entry["source"] = serde_json::json!({ "include_dirs": [module], "exclude_dirs": [] });
        } else if path == lib {
            found = true;
            entry["root_module"] = text(root);
            // What the generated root leads to.
            let folder = lib
                .parent()
                .and_then(Path::parent)
                .and_then(Path::parent)
                .unwrap_or(lib);
            let patches = module.with_file_name("patches");
            entry["source"] = serde_json::json!({ "include_dirs": [folder.join("rust"), patches, root.parent()], "exclude_dirs": [] });
        }
    }
    ensure!(
        found,
        "the kernel's generator names no crate at {}",
        lib.display()
    );
    Ok(())
}

fn text(path: &Path) -> Value {
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

/// The root of the kernel crate with the place of every module.
fn kernel_root(tree: &Path, places: &BTreeMap<PathBuf, PathBuf>) -> anyhow::Result<String> {
    let text = fs::read_to_string(tree.join("rust/kernel/lib.rs"))?;
    with_places(&text, Path::new("rust/kernel"), tree, places)
}

/// Writes its place beside every `mod name;` of a file. A module with files of
/// its own is written out in full, for only then do paths hold further down.
fn with_places(
    text: &str,
    folder: &Path,
    tree: &Path,
    places: &BTreeMap<PathBuf, PathBuf>,
) -> anyhow::Result<String> {
    let mut out = String::new();
    for line in text.lines() {
        let Some((visibility, name)) = module_line(line) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let beside = folder.join(format!("{name}.rs"));
        let inside = folder.join(name).join("mod.rs");
        let place = |path: &Path| places.get(path).cloned().unwrap_or_else(|| tree.join(path));
        let (file, children) = match [beside, inside]
            .into_iter()
            .find(|path| place(path).is_file())
        {
            Some(path) => (place(&path), folder.join(name)),
            // Behind a condition that this kernel does not fulfil.
            None => {
                let _ = writeln!(out, "{line}");
                continue;
            }
        };
        let content = fs::read_to_string(&file)?;
        if content.lines().any(|line| module_line(line).is_some()) {
            let inner = with_places(&content, &children, tree, places)?;
            let _ = writeln!(out, "{visibility}mod {name} {{\n{inner}}}");
        } else {
            let _ = writeln!(
                out,
                "#[path = {:?}]\n{visibility}mod {name};",
                file.display().to_string()
            );
        }
    }
    Ok(out)
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
        write(
            "tree/rust/kernel/lib.rs",
            "//! Kernel.\n#[cfg(x)]\npub mod absent;\npub mod error;\nmod alloc;\npub mod fs;\n",
        );
        write("tree/rust/kernel/error.rs", "");
        write("tree/rust/kernel/alloc.rs", "//! Alloc.\npub mod layout;\n");
        write("tree/rust/kernel/alloc/layout.rs", "");
        // The tree has copies of the new files, too; they are not what is edited.
        for path in ["fs.rs", "fs/inode.rs", "fs/compat.rs"] {
            write(&format!("tree/rust/kernel/{path}"), "mod wrong;\n");
        }
        let fs = write(
            "patches/files/rust/kernel/fs.rs",
            "//! Fs.\npub mod inode;\nmod compat;\n",
        );
        let inode = write("patches/files/rust/kernel/fs/inode.rs", "");
        let compat = write("patches/base/files/rust/kernel/fs/compat.rs", "");
        let places = BTreeMap::from([
            (PathBuf::from("rust/kernel/fs.rs"), fs),
            (PathBuf::from("rust/kernel/fs/inode.rs"), inode.clone()),
            (PathBuf::from("rust/kernel/fs/compat.rs"), compat.clone()),
        ]);
        let text = kernel_root(&tree, &places).unwrap();
        let kernel = tree.join("rust/kernel");
        assert_eq!(
            text,
            format!(
                "//! Kernel.\n#[cfg(x)]\npub mod absent;\n#[path = {:?}]\npub mod error;\nmod alloc {{\n//! Alloc.\n#[path = {:?}]\npub mod layout;\n}}\n\
                 pub mod fs {{\n//! Fs.\n#[path = {:?}]\npub mod inode;\n#[path = {:?}]\nmod compat;\n}}\n",
                kernel.join("error.rs"),
                kernel.join("alloc/layout.rs"),
                inode,
                compat
            )
        );
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
