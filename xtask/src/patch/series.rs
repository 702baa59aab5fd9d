// SPDX-License-Identifier: GPL-2.0

//! The series of a base on disk: `series`, its patch files, its new files.

use super::mail::Mail;
use crate::exit::{self, Exit};
use crate::hash::Hasher;
use crate::project::Project;
use fs_err as fs;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// A file that a patch adds to the kernel; kept as a file, not as a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Its path in the kernel tree.
    pub path: String,
    /// Where it lies below `patches/`.
    pub place: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
    /// Whether it is a program.
    pub executable: bool,
}

/// One patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its line in `series`: a path below the base's folder.
    pub name: String,
    /// The patch file.
    pub mail: Mail,
    /// The files that it brings.
    pub new_files: Vec<NewFile>,
}

/// The patches of a base in the order of application.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Series {
    /// In order.
    pub entries: Vec<Entry>,
}

impl Series {
    /// Reads the series; all mistakes are reported together.
    pub fn load(project: &Project) -> anyhow::Result<Self> {
        let mut mistakes = Vec::new();
        let series = Series::read(project, &mut mistakes)?;
        if mistakes.is_empty() {
            return Ok(series);
        }
        let text = mistakes.join("\n  ");
        Err(exit::error(
            Exit::Patch,
            format!(
                "the series of {} is malformed:\n  {text}",
                project.opts.base
            ),
        ))
    }

    /// Reads what can be read of the series, as the export needs it.
    pub fn load_what_is_good(project: &Project) -> anyhow::Result<Self> {
        Series::read(project, &mut Vec::new())
    }

    fn read(project: &Project, mistakes: &mut Vec<String>) -> anyhow::Result<Self> {
        let folder = project.base_patches();
        let text = fs::read_to_string(folder.join("series"))?;
        let names = names(&text, mistakes);
        let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for file in files_below(&folder)? {
            let name = file.to_string_lossy();
            // What breaks the kernel on purpose belongs to no series.
            let apart = ["files/", "mutants/"]
                .iter()
                .any(|folder| name.starts_with(folder));
            if name.ends_with(".patch") && !apart && !listed.contains(&*name) {
                mistakes.push(format!(
                    "{name} is not listed in series; list it or remove it"
                ));
            }
        }
        let mut series = Series::default();
        for name in names {
            let path = folder.join(&name);
            if !path.is_file() {
                mistakes.push(format!(
                    "{name} is listed in series, but there is no such file"
                ));
                continue;
            }
            let bytes = fs::read(&path)?;
            match String::from_utf8(bytes)
                .map_err(anyhow::Error::from)
                .and_then(|text| Mail::parse(&text))
            {
                Ok(mail) => series.entries.push(Entry {
                    name,
                    mail,
                    new_files: Vec::new(),
                }),
                Err(error) => mistakes.push(format!("{name}: {error:#}")),
            }
        }
        series.load_new_files(project, mistakes)?;
        series.check_subjects(mistakes);
        for folder in &project.opts.without {
            let below = format!("{}/", folder.trim_end_matches('/'));
            let before = series.entries.len();
            series
                .entries
                .retain(|entry| !entry.name.starts_with(&below));
            if series.entries.len() == before {
                mistakes.push(format!("--without {folder}: series lists nothing below it"));
            }
        }
        Ok(series)
    }

    /// A subject is how a commit finds its patch file again.
    fn check_subjects(&self, mistakes: &mut Vec<String>) {
        let mut seen = BTreeMap::new();
        for entry in &self.entries {
            if let Some(first) = seen.insert(&entry.mail.subject, &entry.name) {
                mistakes.push(format!("{} has the same subject as {first}", entry.name));
            }
        }
    }

    fn load_new_files(
        &mut self,
        project: &Project,
        mistakes: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let places = [
            project.base_patches().join("files"),
            project.patches().join("files"),
        ];
        let mut owner: BTreeMap<String, String> = BTreeMap::new();
        for entry in &mut self.entries {
            for path in &entry.mail.new_files {
                if !is_plain(path) {
                    mistakes.push(format!(
                        "{}: the new file {path} leaves the kernel tree",
                        entry.name
                    ));
                    continue;
                }
                if let Some(first) = owner.insert(path.clone(), entry.name.clone()) {
                    mistakes.push(format!(
                        "{path} is named by two patches: {first} and {}",
                        entry.name
                    ));
                    continue;
                }
                let found: Vec<PathBuf> = places
                    .iter()
                    .map(|place| place.join(path))
                    .filter(|file| file.symlink_metadata().is_ok())
                    .collect();
                match found.as_slice() {
                    [file] if file.symlink_metadata()?.is_file() => entry.new_files.push(NewFile {
                        path: path.clone(),
                        place: file.strip_prefix(project.patches())?.to_owned(),
                        content: fs::read(file)?,
                        executable: fs::metadata(file)?.permissions().mode() & 0o100 != 0,
                    }),
                    [file] => mistakes.push(format!("{} is not a plain file", file.display())),
                    [] => mistakes.push(format!("{}: the new file {path} is neither in patches/{}/files nor in patches/files", entry.name, project.opts.base)),
                    _ => mistakes.push(format!("{path} lies in patches/{}/files and in patches/files; one must go", project.opts.base)),
                }
            }
        }
        for path in files_below(&places[0])? {
            let path = path.to_string_lossy();
            if !owner.contains_key(&*path) {
                mistakes.push(format!(
                    "{}/files/{path} is named by no patch",
                    project.opts.base
                ));
            }
        }
        let elsewhere = named_by_other_bases(project)?;
        for path in files_below(&places[1])? {
            let path = path.to_string_lossy();
            if !owner.contains_key(&*path) && !elsewhere.contains(&*path) {
                mistakes.push(format!("files/{path} is named by no patch of any base"));
            }
        }
        Ok(())
    }

    /// A hash over everything that application depends on.
    pub fn hash(&self) -> String {
        let mut hasher = Hasher::default();
        for entry in &self.entries {
            hasher.part(entry.mail.render().as_bytes());
            for file in &entry.new_files {
                hasher
                    .part(file.path.as_bytes())
                    .part(&[u8::from(file.executable)])
                    .part(&file.content);
            }
        }
        hasher.short()
    }
}

/// The names in a `series` file.
fn names(text: &str, mistakes: &mut Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let n = n + 1;
        let name = line.trim_end();
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        if name.starts_with([' ', '\t']) {
            mistakes.push(format!(
                "series line {n} is indented: {name:?}; some tools would skip it"
            ));
        } else if let Some((name, options)) = name.split_once([' ', '\t']) {
            mistakes.push(format!(
                "series line {n}: {name} has the option {:?}; every patch is applied with -p1",
                options.trim()
            ));
        } else if !is_plain(name) {
            mistakes.push(format!(
                "series line {n}: {name} leaves the folder of the base"
            ));
        } else if !name.ends_with(".patch") {
            mistakes.push(format!("series line {n}: {name} does not end in .patch"));
        } else if names.iter().any(|other| other == name) {
            mistakes.push(format!("series line {n}: {name} is listed twice"));
        } else {
            names.push(name.to_owned());
        }
    }
    names
}

/// A relative path that stays where it is.
fn is_plain(path: &str) -> bool {
    !path.is_empty()
        && !path.ends_with('/')
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(name) if name != ".git"))
}

/// All files below a folder, as paths inside it; none if there is no folder.
pub fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fn below(folder: &Path, inside: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        for entry in fs::read_dir(folder.join(inside))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                below(folder, &path, found)?;
            } else {
                found.push(path);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    if folder.is_dir() {
        below(folder, Path::new(""), &mut found)?;
    }
    found.sort();
    Ok(found)
}

/// New files that the patches of other bases name.
pub fn named_by_other_bases(project: &Project) -> anyhow::Result<BTreeSet<String>> {
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(project.patches())? {
        let folder = entry?.path();
        if folder == project.base_patches() || !folder.join("base.toml").is_file() {
            continue;
        }
        for file in files_below(&folder)? {
            if file
                .extension()
                .is_some_and(|extension| extension == "patch")
            {
                let text = fs::read(folder.join(file))?;
                let text = String::from_utf8_lossy(&text);
                named.extend(
                    text.lines()
                        .filter_map(|line| line.strip_prefix("New-file: "))
                        .map(str::to_owned),
                );
            }
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_odd_line_of_a_series_has_its_own_answer() {
        let mut mistakes = Vec::new();
        let text = "# head\n\n01-a.patch\n 02-b.patch\n03-c.patch -p0\n01-a.patch\n../x.patch\n/y.patch\nz.diff\nlast.patch";
        assert_eq!(names(text, &mut mistakes), ["01-a.patch", "last.patch"]);
        let expected = [
            "line 4 is indented",
            "option \"-p0\"",
            "listed twice",
            "../x.patch leaves",
            "/y.patch leaves",
            "z.diff does not end",
        ];
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:?}");
        for (mistake, expected) in mistakes.iter().zip(expected) {
            assert!(mistake.contains(expected), "{mistake} / {expected}");
        }
    }

    #[test]
    fn plain_paths_stay_inside() {
        for path in ["a", "rust/kernel/fs.rs"] {
            assert!(is_plain(path), "{path}");
        }
        for path in ["", "/a", "../a", "a/../b", "./a", "a/.git/b", "a/"] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
