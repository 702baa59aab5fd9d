// SPDX-License-Identifier: GPL-2.0

//! Which tests are run: groups and names, less what is excluded, one shard of it.

use crate::exit::{self, Exit};
use anyhow::{Context as _, bail, ensure};
use fs_err as fs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The folder of tests that run on every file system.
const GENERIC: &str = "generic";

/// The tests of an fstests tree with their groups, by full name.
pub type Tests = BTreeMap<String, BTreeSet<String>>;

/// Reads the tests of a built tree.
pub fn of_tree(tree: &Path) -> anyhow::Result<Tests> {
    let file = tree.join("tests").join(GENERIC).join("group.list");
    let built = tree.join("check").is_file() && tree.join("ltp/fsx").is_file();
    if !built || !file.is_file() {
        return Err(exit::error(
            Exit::Usage,
            format!(
                "{} is no fstests tree that has been built; build it as its README says",
                tree.display()
            ),
        ));
    }
    Ok(groups(&fs::read_to_string(&file)?))
}

/// Reads lines `001 auto quick`.
fn groups(text: &str) -> Tests {
    let line = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = format!("{GENERIC}/{}", words.next()?);
        Some((name, words.map(str::to_owned).collect()))
    };
    text.lines().filter_map(line).collect()
}

/// A line of `qemu/fstests/exclude.tsv`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exclusion {
    /// The driver, or `*`.
    pub on: String,
    /// A test, or `group:` and a group.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Reads the exclusions.
pub fn exclusions(text: &str) -> anyhow::Result<Vec<Exclusion>> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<_> = line.split('\t').map(str::trim).collect();
        let [on, what, reason] = fields[..] else {
            bail!(
                "line {}: a driver, a test and a reason are wanted",
                number + 1
            );
        };
        ensure!(!reason.is_empty(), "line {}: no reason", number + 1);
        all.push(Exclusion {
            on: on.to_owned(),
            what: what.to_owned(),
            reason: reason.to_owned(),
        });
    }
    Ok(all)
}

/// A part of a run that several machines share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl std::str::FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parse = || {
            let (index, count) = text.split_once('/')?;
            let (index, count) = (index.parse().ok()?, count.parse().ok()?);
            (1..=count)
                .contains(&index)
                .then_some(Shard { index, count })
        };
        parse().with_context(|| format!("{text:?} is no shard; the second of four is 2/4"))
    }
}

/// What was chosen.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Tests to run, in order.
    pub run: Vec<String>,
    /// Tests of the groups that are left out, and why.
    pub excluded: Vec<(String, String)>,
}

/// Chooses: what is named is run whatever the exclusions say.
pub fn choose(
    tests: &Tests,
    groups: &[String],
    names: &[String],
    on: &str,
    exclusions: &[Exclusion],
    shard: Option<Shard>,
) -> anyhow::Result<Chosen> {
    let usage = |text: String| Err(exit::error(Exit::Usage, text));
    for name in names {
        if !tests.contains_key(name) {
            return usage(format!("no test {name:?}; names are such as generic/001"));
        }
    }
    for group in groups {
        if !tests.values().any(|of| of.contains(group)) {
            return usage(format!("no test is of group {group:?}; try quick or auto"));
        }
    }
    let mut chosen = Chosen::default();
    for (test, of) in tests {
        if names.contains(test) {
            chosen.run.push(test.clone());
            continue;
        }
        if !groups.iter().any(|group| of.contains(group)) {
            continue;
        }
        let hit = exclusions.iter().find(|exclusion| {
            let what = exclusion.what.as_str();
            let group = what.strip_prefix("group:");
            ["*", on].contains(&exclusion.on.as_str())
                && (what == test || group.is_some_and(|group| of.contains(group)))
        });
        match hit {
            Some(exclusion) => {
                (chosen.excluded).push((test.clone(), exclusion.reason.clone()));
            }
            None => chosen.run.push(test.clone()),
        }
    }
    if let Some(Shard { index, count }) = shard {
        // Neighbours are alike; every shard gets some of each kind.
        let mut number = 0;
        chosen.run.retain(|_| {
            number += 1;
            number % count == index % count
        });
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# QA groups control file, automatically generated.\n\n\
                        001 rw dir auto quick\n002 auto\n003 auto quick quota\n\
                        004 quick punch # slow\n";

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn run(groups: &str, names: &str, on: &str, shard: Option<&str>) -> anyhow::Result<Chosen> {
        let exclusions = exclusions(
            "# a comment\n\nrext2\tgroup:quota\tno quota\n*\tgeneric/002\ttakes hours\n",
        )
        .unwrap();
        let shard = shard.map(|text| text.parse().unwrap());
        choose(
            &super::groups(LIST),
            &words(groups),
            &words(names),
            on,
            &exclusions,
            shard,
        )
    }

    #[test]
    fn groups_less_exclusions_and_names_whatever_they_say() {
        let chosen = run("quick auto", "", "rext2", None).unwrap();
        assert_eq!(chosen.run, ["generic/001", "generic/004"]);
        let left_out: Vec<_> = chosen
            .excluded
            .iter()
            .map(|(test, _)| test.as_str())
            .collect();
        assert_eq!(left_out, ["generic/002", "generic/003"]);
        assert_eq!(chosen.excluded[1].1, "no quota");
        let chosen = run("quick", "", "ext2", None).unwrap();
        assert_eq!(chosen.run, ["generic/001", "generic/003", "generic/004"]);
        let chosen = run("", "generic/003", "rext2", None).unwrap();
        assert_eq!(chosen.run, ["generic/003"]);
    }

    #[test]
    fn shards_are_disjoint_and_together_the_whole() {
        let mut all = Vec::new();
        for shard in ["1/2", "2/2"] {
            all.extend(run("quick", "", "ext2", Some(shard)).unwrap().run);
        }
        all.sort();
        assert_eq!(all, ["generic/001", "generic/003", "generic/004"]);
        for text in ["0/2", "3/2", "1", "a/b", "1/0"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_exist_is_wrong_use() {
        for (groups, names) in [("nope", ""), ("", "generic/999")] {
            let error = run(groups, names, "rext2", None).unwrap_err();
            assert_eq!(exit::of(&error), Exit::Usage);
        }
        for text in ["rext2\tgeneric/001\n", "rext2\tgeneric/001\t \n"] {
            assert!(exclusions(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_exclusions_of_the_checkout_are_well_formed() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/fstests/exclude.tsv");
        let all = exclusions(&fs::read_to_string(file).unwrap()).unwrap();
        assert!(!all.is_empty());
    }
}
