// SPDX-License-Identifier: GPL-2.0

//! The checkout, its kernel base and its folders. The only file that builds paths.

use crate::artifact::Source;
use crate::exit::{self, Exit, WithExit as _};
use crate::opts::{Flavor, Opts};
use anyhow::Context as _;
use fs_err as fs;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A kernel base, as `patches/<base>/base.toml` describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// Debian's source package.
    pub package: String,
    /// The archive in that package.
    pub archive: PathBuf,
    /// VERSION.PATCHLEVEL that the source must have.
    pub version: String,
    /// Whether rext2 is built for it; then the kernel has Rust.
    pub module: bool,
    /// `clang` or `gcc`.
    pub compiler: Compiler,
    /// The oldest rustc that can build it.
    pub rustc: Option<String>,
    /// The bindgen that fits it.
    pub bindgen: Option<String>,
}

/// The C compiler of a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// LLVM with its own linker and tools.
    Clang,
    /// GCC and binutils.
    Gcc,
}

/// One checkout, seen with the flags of one run.
#[derive(Debug, Clone)]
pub struct Project {
    /// The checkout.
    pub root: PathBuf,
    /// What `patches/<base>/base.toml` says.
    pub base: Base,
    /// The configuration flavour.
    pub flavor: Flavor,
    /// A fragment on top of the flavour, for a suite that needs a kernel of its own.
    pub extra: Option<&'static str>,
    /// The cache, shared by checkouts.
    pub cache: PathBuf,
    /// The flags of this run.
    pub opts: Opts,
    /// Words for every make, given after `--`.
    pub make_args: Vec<String>,
}

impl Project {
    /// The checkout that this program was built from.
    pub fn find(opts: &Opts) -> anyhow::Result<Self> {
        let root = match std::env::var_os("REXT2_ROOT") {
            Some(root) => PathBuf::from(root),
            None => Path::new(env!("CARGO_MANIFEST_DIR"))
                .parent()
                .context("xtask does not lie in a checkout")?
                .to_owned(),
        };
        Project::at(&root, &cache_folder()?, opts)
    }

    /// The checkout at `root` with the given cache.
    pub fn at(root: &Path, cache: &Path, opts: &Opts) -> anyhow::Result<Self> {
        let file = root.join("patches").join(&opts.base).join("base.toml");
        if !file.is_file() {
            let known = known_bases(&root.join("patches")).join(", ");
            return Err(exit::error(
                Exit::Usage,
                format!(
                    "no kernel base \"{}\"; --base takes one of: {known}",
                    opts.base
                ),
            ));
        }
        let text = fs::read_to_string(&file)?;
        let base = toml::from_str(&text)
            .with_context(|| format!("{} is malformed", file.display()))
            .exit(Exit::Environment)?;
        Ok(Project {
            root: root.to_owned(),
            base,
            flavor: opts.flavor.unwrap_or_default(),
            extra: None,
            cache: cache.to_owned(),
            opts: opts.clone(),
            make_args: Vec::new(),
        })
    }

    /// The same with words for make.
    pub fn with_make_args(mut self, args: &[String]) -> Self {
        self.make_args = args.to_vec();
        self
    }

    /// The same with a fragment on top of the flavour, and symbols that overrule
    /// the other fragments.
    pub fn with_fragment(mut self, name: &'static str, set: &[&str]) -> Self {
        self.extra = Some(name);
        let set = set.iter().map(|symbol| symbol.to_string());
        // The user's own have the last word.
        self.opts.set.splice(0..0, set);
        self
    }

    /// Flavour and fragment, a name for folders and for people.
    pub fn config_name(&self) -> String {
        match self.extra {
            None => self.flavor.name().to_owned(),
            Some(extra) => format!("{}-{extra}", self.flavor.name()),
        }
    }

    // What the checkout contains.

    /// All patches.
    pub fn patches(&self) -> PathBuf {
        self.root.join("patches")
    }

    /// The patches of the base.
    pub fn base_patches(&self) -> PathBuf {
        self.patches().join(&self.opts.base)
    }

    /// Patches that break the kernel of the base on purpose.
    pub fn mutants(&self) -> PathBuf {
        self.base_patches().join("mutants")
    }

    /// The programs that the compiler must reject.
    pub fn compile_fail(&self) -> PathBuf {
        self.patches().join("compile-fail")
    }

    /// The sources of rext2.
    pub fn module_sources(&self) -> PathBuf {
        self.root.join("module")
    }

    /// The VM's description, fragments and guest programs.
    pub fn qemu(&self) -> PathBuf {
        self.root.join("qemu")
    }

    /// The costs of operations that were accepted last.
    pub fn accepted_costs(&self) -> PathBuf {
        self.qemu().join("bench/cost.tsv")
    }

    /// What is known about fstests.
    pub fn fstests(&self) -> PathBuf {
        self.qemu().join("fstests")
    }

    /// The stored results of fstests on a driver.
    pub fn fstests_baseline(&self, on: &str) -> PathBuf {
        self.fstests().join(format!("baseline-{on}.tsv"))
    }

    /// A Kconfig fragment by name.
    pub fn fragment(&self, name: &str) -> PathBuf {
        self.qemu().join("config").join(format!("{name}.config"))
    }

    // What a run leaves in the checkout: cargo's folder.

    /// Logs, reports and scratch of this checkout.
    pub fn out(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
        .join("rext2")
    }

    /// The log of a step.
    pub fn log(&self, step: &str) -> PathBuf {
        self.out().join("log").join(format!("{step}.log"))
    }

    /// The log of a step, emptied for a new run of it.
    pub fn new_log(&self, step: &str) -> anyhow::Result<PathBuf> {
        let log = self.log(step);
        if !self.opts.dry_run {
            fs::create_dir_all(self.out().join("log"))?;
            fs::write(&log, "")?;
        }
        Ok(log)
    }

    // What the cache holds.

    /// The lock that guards everything shared in the cache.
    pub fn lock_file(&self) -> PathBuf {
        self.cache.join("lock")
    }

    /// Half-made things; emptied by whoever holds the lock.
    pub fn tmp(&self) -> PathBuf {
        self.cache.join("tmp")
    }

    /// Downloaded archives.
    pub fn downloads(&self) -> PathBuf {
        self.cache.join("downloads")
    }

    /// What is known about imported sources.
    pub fn sources(&self) -> PathBuf {
        self.cache.join("sources")
    }

    /// The source tree of one source, shared by checkouts.
    pub fn tree(&self, key: &str) -> PathBuf {
        self.cache.join("trees").join(format!("linux-{key}"))
    }

    /// The build folder of one source and flavour, shared by checkouts.
    pub fn build_dir(&self, source: &Source) -> PathBuf {
        self.cache
            .join("build")
            .join(format!("{}-{}", source.key, self.config_name()))
    }

    /// A published kernel.
    pub fn kernel(&self, identity: &str) -> PathBuf {
        self.cache.join("kernels").join(identity)
    }

    /// The published rext2 of one kernel.
    pub fn module(&self, hash: &str) -> PathBuf {
        self.cache.join("modules").join(hash)
    }

    /// A folder in which modules of one build folder are built.
    pub fn module_build(&self, source: &Source) -> PathBuf {
        self.cache
            .join("module-build")
            .join(format!("{}-{}", source.key, self.config_name()))
    }

    /// The compiler cache, unless the user has one.
    pub fn ccache(&self) -> PathBuf {
        match std::env::var_os("CCACHE_DIR") {
            Some(folder) => folder.into(),
            None => self.cache.join("ccache"),
        }
    }

    /// What clean removes: all that can be built again.
    pub fn made(&self) -> Vec<PathBuf> {
        [
            "build",
            "kernels",
            "modules",
            "module-build",
            "initramfs",
            "images",
            "boot",
            "programs",
            "lint",
            "tmp",
        ]
        .map(|name| self.cache.join(name))
        .to_vec()
    }

    /// What only `clean --all` removes: it comes from the network, or takes minutes.
    pub fn gotten(&self) -> Vec<PathBuf> {
        [
            "trees",
            "downloads",
            "sources",
            "apt",
            "ccache",
            "tools",
            "tools-target",
        ]
        .map(|name| self.cache.join(name))
        .to_vec()
    }

    /// Tools that xtask installed for itself.
    pub fn tools(&self) -> PathBuf {
        self.cache.join("tools")
    }

    /// Where those are compiled; what an interrupted installation takes up.
    pub fn tools_target(&self) -> PathBuf {
        self.cache.join("tools-target")
    }

    /// An initramfs by the hash of its content.
    pub fn initramfs(&self, hash: &str) -> PathBuf {
        self.cache.join("initramfs").join(format!("{hash}.cpio"))
    }

    /// What clippy or rustdoc said, by the hash of what was asked.
    pub fn lint(&self, hash: &str) -> PathBuf {
        self.cache.join("lint").join(format!("{hash}.json"))
    }

    /// The guest programs by the hash of their sources.
    pub fn guest_programs(&self, hash: &str) -> PathBuf {
        self.cache.join("programs").join(hash)
    }

    /// A kernel as QEMU loads it.
    pub fn boot_image(&self, hash: &str) -> PathBuf {
        self.cache.join("boot").join(format!("{hash}.elf"))
    }

    /// What this host's KVM showed when it was tried.
    pub fn kvm_memory(&self) -> PathBuf {
        self.cache.join("kvm.json")
    }

    /// The runs of guests, one folder each.
    pub fn runs(&self) -> PathBuf {
        self.out().join("runs")
    }

    /// Test images by the hash of what they are made from.
    pub fn image(&self, name: &str) -> PathBuf {
        self.cache.join("images").join(name)
    }
}

fn known_bases(patches: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(patches)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("base.toml").is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// `$REXT2_CACHE`, else `$XDG_CACHE_HOME/rext2`, else `~/.cache/rext2`.
fn cache_folder() -> anyhow::Result<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let folder = if let Some(folder) = variable("REXT2_CACHE") {
        folder
    } else if let Some(folder) = variable("XDG_CACHE_HOME") {
        folder.join("rext2")
    } else {
        variable("HOME")
            .context("no place for the cache: set REXT2_CACHE or HOME")
            .exit(Exit::Environment)?
            .join(".cache/rext2")
    };
    std::path::absolute(&folder).context("the cache folder has no absolute path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opts::Cli;
    use clap::Parser as _;

    fn opts(line: &str) -> Opts {
        Cli::try_parse_from(line.split(' ')).unwrap().opts
    }

    #[test]
    fn every_base_of_the_checkout_is_well_formed() {
        let project = Project::find(&opts("xtask doctor")).unwrap();
        for name in known_bases(&project.patches()) {
            Project::find(&opts(&format!("xtask --base {name} doctor"))).unwrap();
        }
    }

    #[test]
    fn an_unknown_base_is_a_usage_error_that_names_the_known_ones() {
        let error = Project::find(&opts("xtask --base linux-2.4 doctor")).unwrap_err();
        assert_eq!(exit::of(&error), Exit::Usage);
        assert!(error.to_string().contains("linux-6.12"), "{error}");
    }
}
