// SPDX-License-Identifier: GPL-2.0

//! Names of exported patches, and the `series` file that lists them.

use crate::patch::series::{Entry, Series};
use std::collections::{BTreeMap, BTreeSet};

/// Finds each commit's patch file again: by its subject, else by its hunks.
pub fn give(series: &mut Series, old: &Series) {
    let mut free: Vec<Option<&Entry>> = old.entries.iter().map(Some).collect();
    for entry in &mut series.entries {
        if let Some(slot) = free
            .iter_mut()
            .find(|slot| slot.is_some_and(|old| old.mail.subject == entry.mail.subject))
        {
            entry.name = slot.take().map(|old| old.name.clone()).unwrap_or_default();
        }
    }
    let mut taken: BTreeSet<String> = series
        .entries
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    let mut folder = old
        .entries
        .first()
        .map(|entry| folder_of(&entry.name))
        .unwrap_or_default();
    for entry in &mut series.entries {
        if entry.name.is_empty() {
            let reworded = free.iter().flatten().find(|old| {
                old.mail.diff == entry.mail.diff && old.mail.new_files == entry.mail.new_files
            });
            entry.name = match reworded {
                Some(old) => old.name.clone(),
                None => fresh_name(&folder, &entry.mail.subject, &taken),
            };
            taken.insert(entry.name.clone());
        }
        folder = folder_of(&entry.name);
    }
}

fn folder_of(name: &str) -> String {
    name.rsplit_once('/')
        .map(|(folder, _)| format!("{folder}/"))
        .unwrap_or_default()
}

/// A file name from a subject; without a number: the order is in `series`.
fn fresh_name(folder: &str, subject: &str, taken: &BTreeSet<String>) -> String {
    let mut slug = String::new();
    for c in subject.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.truncate(60);
    let slug = slug.trim_end_matches('-');
    let candidates = std::iter::once(format!("{folder}{slug}.patch"))
        .chain((2..).map(|n| format!("{folder}{slug}-{n}.patch")));
    candidates
        .into_iter()
        .find(|name| !taken.contains(name))
        .unwrap_or_default()
}

/// The `series` file with the new names; comments stay before the entry they stood before.
pub fn series_text(old: &str, series: &Series) -> String {
    let mut comments: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut pending = Vec::new();
    let mut first = None;
    for line in old.lines() {
        let name = line.trim_end();
        if name.is_empty() || name.starts_with('#') {
            pending.push(line);
        } else {
            first.get_or_insert(name);
            comments.insert(name, std::mem::take(&mut pending));
        }
    }
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    // The head of the file stays its head, whichever patch comes first now.
    if let Some(first) = first {
        comments
            .remove(first)
            .unwrap_or_default()
            .into_iter()
            .for_each(&mut line);
    } else {
        std::mem::take(&mut pending).into_iter().for_each(&mut line);
    }
    for entry in &series.entries {
        comments
            .remove(entry.name.as_str())
            .unwrap_or_default()
            .into_iter()
            .for_each(&mut line);
        line(&entry.name);
    }
    pending.into_iter().for_each(&mut line);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::mail::Mail;

    #[test]
    fn names_come_from_subjects_and_do_not_collide() {
        let taken = BTreeSet::from(["fs/rust-add-x.patch".to_owned()]);
        assert_eq!(
            fresh_name("fs/", "rust: add x", &taken),
            "fs/rust-add-x-2.patch"
        );
        assert_eq!(
            fresh_name("", "[ext2] Fix `a/b`!", &taken),
            "ext2-fix-a-b.patch"
        );
    }

    #[test]
    fn comments_of_a_series_stay_in_place() {
        let entry = |name: &str| Entry {
            name: name.into(),
            mail: Mail {
                author: String::new(),
                date: String::new(),
                subject: name.into(),
                body: String::new(),
                new_files: vec![],
                notes: String::new(),
                diff: String::new(),
            },
            new_files: vec![],
        };
        let series = Series {
            entries: ["a.patch", "new.patch", "b.patch"].map(entry).to_vec(),
        };
        let text = series_text(
            "# head\na.patch\n\n# second part\nb.patch\nc.patch\n# end\n",
            &series,
        );
        assert_eq!(
            text,
            "# head\na.patch\nnew.patch\n\n# second part\nb.patch\n# end\n"
        );
        assert_eq!(
            series_text("# head\n", &series),
            "# head\na.patch\nnew.patch\nb.patch\n"
        );
    }
}
