// SPDX-License-Identifier: GPL-2.0

//! `qemu/suites.toml`: the suites that run in a guest.

use anyhow::{Context as _, bail};
use fs_err as fs;
use rext2_init::Module;
use rext2_tests::case::Case;
use rext2_tests::job::Job;
use rext2_tests::{suite, uncached};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

use crate::exit::{self, Exit};
use crate::fsck::Checker;
use crate::guest::{Disk, Use};
use crate::images;
use crate::opts::TestArgs;
use crate::project::Project;

/// A suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// One line for people.
    pub about: String,
    /// The guest program and its arguments.
    pub program: Vec<String>,
    /// Options of `test` that mean something to it.
    #[serde(default)]
    pub takes: Vec<String>,
    /// Kernels that it runs on, by flavour.
    pub flavors: Vec<String>,
    /// Whether rext2 is inserted.
    #[serde(default)]
    pub module: bool,
    /// In-tree modules inserted before.
    #[serde(default)]
    pub modules: Vec<Module>,
    /// Programs of this machine that it needs in the guest.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Its disks.
    #[serde(default)]
    pub disks: Vec<SuiteDisk>,
    /// Seconds from the first sign of life to the power-off.
    pub timeout: u64,
    /// Tests that may be skipped.
    #[serde(default)]
    pub may_skip: Vec<MaySkip>,
}

/// A disk of a suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteDisk {
    /// Its serial, which also names the image.
    pub serial: String,
    /// What must find it whole afterwards.
    pub check: Option<Checker>,
    /// Whether it stays in the run's folder.
    #[serde(default)]
    pub keep: bool,
    /// Whether what is written to it is recorded, for the guest to read.
    #[serde(default)]
    pub record: bool,
}

/// A test that may be skipped.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaySkip {
    /// Its full name.
    pub test: String,
    /// Why.
    pub reason: String,
}

/// Options that a suite may take, and whether they are given.
pub fn options(args: &TestArgs) -> [(&'static str, bool); 9] {
    [
        ("fs", args.fs.is_some()),
        ("seed", args.seed.is_some()),
        ("count", args.count.is_some()),
        ("ops", args.ops.is_some()),
        ("seconds", args.seconds.is_some()),
        ("off", args.off.is_some()),
        ("replay", args.replay.is_some()),
        ("strict", args.strict),
        ("mutants", args.mutants),
    ]
}

impl Suite {
    /// The guest's program and what it is asked for, the filter apart.
    pub fn argv(&self, args: &TestArgs) -> Vec<String> {
        let mut argv = self.program.clone();
        if let Some(fs) = &args.fs {
            argv.extend(["--fs".to_owned(), fs.clone()]);
        }
        argv.extend(args.seed.map(|seed| format!("seed={seed}")));
        argv.extend(args.count.map(|count| format!("count={count}")));
        argv.extend(args.ops.map(|ops| format!("ops={ops}")));
        argv.extend(args.seconds.map(|seconds| format!("seconds={seconds}")));
        argv.extend(args.off.iter().map(|off| format!("off={off}")));
        argv.extend(args.replay.iter().map(|_| "replay=1".to_owned()));
        argv.extend(args.strict.then(|| "strict=1".to_owned()));
        argv
    }

    /// The full names of its tests, `GROUP/TEST`, when it is asked for this.
    pub fn tests(&self, args: &TestArgs) -> anyhow::Result<Vec<String>> {
        // The first word is the program.
        let job = Job::parse(self.argv(args).into_iter().skip(1))?;
        let mut names = Vec::new();
        for group in suite::groups(&job)? {
            let full = |case: &Case| format!("{}/{}", group.name, case.name);
            names.extend(group.cases.iter().map(full));
        }
        Ok(names)
    }

    /// The images of its disks, made where the cache does not have them.
    pub fn images(&self, project: &Project) -> anyhow::Result<Vec<Disk>> {
        self.disks.iter().map(|disk| disk.image(project)).collect()
    }
}

impl SuiteDisk {
    fn image(&self, project: &Project) -> anyhow::Result<Disk> {
        let images::Disk { path, serial } = match self.serial.as_str() {
            "images" => images::suite_images(project)?,
            "smoke" => images::smoke_images(project)?,
            "main" => images::main_image(project)?,
            "fs" => images::work_disk(project)?,
            "dio" => images::large_disk(project)?,
            "fuzz" => images::fuzz_disk(project)?,
            "crash" => images::crash_disk(project)?,
            "crash-work" => images::crash_work_disk(project)?,
            other => match uncached::fs::find(other) {
                Some(fs) => images::empty_image(project, fs)?,
                None => bail!("qemu/suites.toml: nothing makes a disk {other:?}"),
            },
        };
        Ok(Disk {
            file: path,
            serial,
            use_as: match self.check {
                Some(checker) => Use::Checked(checker),
                None if self.record => Use::Recorded,
                None if self.keep => Use::Kept,
                None => Use::Scratch,
            },
        })
    }
}

/// All suites by name.
pub type Suites = BTreeMap<String, Suite>;

/// Reads the suites of the checkout.
pub fn load(project: &Project) -> anyhow::Result<Suites> {
    read(&project.qemu().join("suites.toml"))
}

fn read(file: &Path) -> anyhow::Result<Suites> {
    toml::from_str(&fs::read_to_string(file)?)
        .with_context(|| format!("cannot parse {}", file.display()))
}

/// The suite of this name, or a usage error that names those there are, and
/// what else could have been asked for.
pub fn find<'a>(suites: &'a Suites, name: &str, else_known: &[&str]) -> anyhow::Result<&'a Suite> {
    suites.get(name).ok_or_else(|| {
        let names = suites.keys().map(String::as_str);
        let known: Vec<_> = names.chain(else_known.iter().copied()).collect();
        exit::error(
            Exit::Usage,
            format!("no suite \"{name}\"; known are: {}", known.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_of_the_checkout_is_well_formed() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/suites.toml");
        for (name, suite) in read(&file).unwrap() {
            assert!(!suite.program.is_empty(), "{name}");
            assert!(!suite.flavors.is_empty(), "{name}");
            for flavor in &suite.flavors {
                assert!(
                    ["dev", "debug", "kcsan", "bench"].contains(&flavor.as_str()),
                    "{name}: {flavor}"
                );
            }
            for option in &suite.takes {
                let known = options(&TestArgs::default()).map(|(option, _)| option);
                assert!(known.contains(&option.as_str()), "{name}: {option}");
            }
            let tests = suite.tests(&TestArgs::default()).unwrap();
            assert!(!tests.is_empty(), "{name}");
            for skip in &suite.may_skip {
                assert!(!skip.reason.trim().is_empty(), "{name}: {}", skip.test);
            }
        }
    }

    #[test]
    fn an_unknown_suite_is_a_usage_error() {
        let error = find(&Suites::new(), "nope", &["host"]).unwrap_err();
        assert_eq!(exit::of(&error), Exit::Usage);
        assert!(error.to_string().ends_with("known are: host"), "{error}");
    }
}
