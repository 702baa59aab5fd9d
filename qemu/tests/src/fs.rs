// SPDX-License-Identifier: GPL-2.0

//! Suite `fs`: what POSIX and Linux say of a file system that is written, a case
//! per operation and error, each on a fresh file system of each layout.
//!
//! After each case nothing may be in use, the driver must not have complained,
//! e2fsck must find nothing, and C ext2 must see the same names, metadata,
//! attributes and contents. `--fs ext2` and `--fs ext4` run the same cases on
//! those drivers, as the control that the cases are right; where C ext2 is known
//! to be wrong or lacks something, the table in `differences.rs` says why.

mod access;
mod acls;
mod attributes;
pub mod check;
pub mod differences;
pub mod direct;
mod directories;
pub mod env;
mod exchange;
mod handles;
mod holes;
pub mod manifest;
mod mapped;
mod mounts;
mod names;
mod nodes;
mod renames;
mod sizes;
pub mod space;
mod stale;
mod times;
mod xattrs;

use crate::case::{Case, Group};
use crate::job::Job;
use anyhow::Result;
use env::{Env, Layout, Recipe, USUAL};

const fn layout(name: &'static str, block: u64, inode: u64) -> Layout {
    Layout { name, block, inode }
}

/// Each block size, with either inode size.
pub const LAYOUTS: [Layout; 3] = [
    layout("1k", 1024, 128),
    layout("2k", 2048, 256),
    layout("4k", 4096, 256),
];

/// The other inode size, for what depends on it.
const MORE_LAYOUTS: [Layout; 2] = [layout("1k-256", 1024, 256), layout("4k-128", 4096, 128)];

/// A case before it is bound to a layout.
pub struct Test {
    name: &'static str,
    run: fn(&mut Env) -> Result<()>,
    recipe: Recipe,
    /// Whether it matters how large inodes are.
    inodes: bool,
    limit: u64,
}

impl Test {
    const fn new(name: &'static str, run: fn(&mut Env) -> Result<()>) -> Test {
        Test {
            name,
            run,
            recipe: USUAL,
            inodes: false,
            limit: 60,
        }
    }

    /// The same, on a file system made with these arguments.
    const fn make(mut self, make: &'static [&'static str]) -> Test {
        self.recipe.make = make;
        self
    }

    /// The same, on a file system of this size.
    const fn mib(mut self, mib: u64) -> Test {
        self.recipe.mib = mib;
        self
    }

    /// The same, mounted with these options.
    const fn options(mut self, options: &'static str) -> Test {
        self.recipe.options = options;
        self
    }

    /// The same, for inodes of both sizes.
    const fn inodes(mut self) -> Test {
        self.inodes = true;
        self
    }

    /// The same, with another limit in seconds.
    const fn limit(mut self, limit: u64) -> Test {
        self.limit = limit;
        self
    }

    fn case(&'static self, layout: &'static Layout) -> Case {
        let case = Case::new(self.name, move |job| {
            differences::judge(job, self.name, layout, || {
                let mut env = Env::new(job, layout, &self.recipe)?;
                (self.run)(&mut env)?;
                env.finish()
            })
        });
        case.limit(self.limit)
    }
}

/// All cases, by topic.
const TOPICS: &[(&str, &[Test])] = &[
    ("names", names::TESTS),
    ("directories", directories::TESTS),
    ("renames", renames::TESTS),
    ("nodes", nodes::TESTS),
    ("sizes", sizes::TESTS),
    ("space", space::TESTS),
    ("holes", holes::TESTS),
    ("mapped", mapped::TESTS),
    ("direct", direct::TESTS),
    ("stale", stale::TESTS),
    ("access", access::TESTS),
    ("times", times::TESTS),
    ("attributes", attributes::TESTS),
    ("xattrs", xattrs::TESTS),
    ("acls", acls::TESTS),
    ("handles", handles::TESTS),
    ("mounts", mounts::TESTS),
    ("exchange", exchange::TESTS),
];

/// A group for each topic and layout.
pub fn groups(_: &Job) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (topic, tests) in TOPICS {
        for layout in LAYOUTS.iter().chain(&MORE_LAYOUTS) {
            let usual = LAYOUTS.contains(layout);
            let chosen = tests.iter().filter(|test| usual || test.inodes);
            let cases: Vec<_> = chosen.map(|test| test.case(layout)).collect();
            if !cases.is_empty() {
                let name = format!("{topic}-{}", layout.name);
                groups.push(Group { name, cases });
            }
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names = TOPICS.iter().flat_map(|(_, tests)| *tests);
        let unique: BTreeSet<_> = names.clone().map(|test| test.name).collect();
        assert_eq!(unique.len(), names.count());
    }

    #[test]
    fn every_difference_is_of_a_case() {
        let names: BTreeSet<_> = TOPICS
            .iter()
            .flat_map(|(_, tests)| tests.iter().map(|test| test.name))
            .chain(crate::dio::names())
            .collect();
        for name in differences::names() {
            assert!(names.contains(name), "{name}");
        }
    }
}
