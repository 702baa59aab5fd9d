// SPDX-License-Identifier: GPL-2.0

//! `qemu/vm.toml`: the machine that every guest gets.

use anyhow::Context as _;
use fs_err as fs;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::opts::Opts;
use crate::project::Project;

/// The machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// QEMU's `-machine`.
    pub machine: String,
    /// QEMU's `-cpu`, by accelerator.
    pub cpu: Cpu,
    /// Number of processors.
    pub cpus: u32,
    /// Size of the memory, in MiB.
    pub memory: u32,
    /// The kernel's command line, word by word.
    pub cmdline: Vec<String>,
    /// How long a guest may take.
    pub timeouts: Timeouts,
    /// How many times longer than elsewhere a suite may take.
    #[serde(default = "usual")]
    pub slowness: u32,
    /// The machines on which instructions are counted, by benchmark.
    #[serde(default)]
    pub counting: BTreeMap<String, Counting>,
    /// QEMU's `-icount`; with it the guest's clock counts instructions.
    #[serde(skip)]
    pub icount: Option<String>,
    /// What a flavour changes.
    #[serde(default)]
    flavor: BTreeMap<String, Changes>,
}

/// QEMU's `-cpu`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Under TCG.
    pub tcg: String,
    /// Under KVM.
    pub kvm: String,
}

/// Limits in seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// Until init has spoken.
    pub boot: u64,
    /// From then on until the power is off.
    pub run: u64,
}

/// What a machine that counts instructions has instead.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// QEMU's `-icount`.
    pub icount: String,
    /// Number of processors.
    pub cpus: u32,
    /// Size of the memory, in MiB.
    pub memory: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    memory: Option<u32>,
    timeouts: Option<Timeouts>,
    slowness: Option<u32>,
    #[serde(default)]
    cmdline: Vec<String>,
}

fn usual() -> u32 {
    1
}

/// The limits of one run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the first sign of life; a debugger has none.
    pub boot: Option<Duration>,
    /// From the first sign of life on; a shell has none.
    pub run: Option<Duration>,
    /// From the guest's last event until the power is off.
    pub power_off: Duration,
}

/// What a guest may take to power off; a loaded host under `debug` needs a few
/// seconds of it.
pub const POWER_OFF: Duration = Duration::from_secs(30);

impl Vm {
    /// Reads the machine for the project's flavour.
    pub fn load(project: &Project) -> anyhow::Result<Self> {
        Self::read(&project.qemu().join("vm.toml"), project.flavor.name())
    }

    fn read(file: &Path, flavor: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file)?;
        let mut vm: Vm =
            toml::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        let changes = vm.flavor.remove(flavor).unwrap_or_default();
        vm.memory = changes.memory.unwrap_or(vm.memory);
        vm.timeouts = changes.timeouts.unwrap_or(vm.timeouts);
        vm.slowness = changes.slowness.unwrap_or(vm.slowness);
        vm.cmdline.extend(changes.cmdline);
        Ok(vm)
    }

    /// The machine of a benchmark, with a clock that counts instructions.
    pub fn counting(mut self, benchmark: &str) -> anyhow::Result<Self> {
        let counting = (self.counting.remove(benchmark))
            .with_context(|| format!("qemu/vm.toml has no table [counting.{benchmark}]"))?;
        self.cpus = counting.cpus;
        self.memory = counting.memory;
        self.icount = Some(counting.icount);
        Ok(self)
    }

    /// The limits of a run: the command line's, else the suite's by the measure
    /// of this kernel, else the machine's.
    pub fn limits(&self, opts: &Opts, suite: Option<u64>) -> Limits {
        let suite = suite.map(|seconds| seconds * u64::from(self.slowness));
        let run = opts.timeout.or(suite).unwrap_or(self.timeouts.run);
        Limits {
            boot: Some(Duration::from_secs(
                opts.boot_timeout.unwrap_or(self.timeouts.boot),
            )),
            run: Some(Duration::from_secs(run)),
            power_off: POWER_OFF,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flavor_of_the_checkout_has_a_machine() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/vm.toml");
        let dev = Vm::read(&file, "dev").unwrap();
        assert!(
            dev.cpus >= 2,
            "races and multi-queue disks need two processors"
        );
        for flavor in ["debug", "kcsan", "bench"] {
            let vm = Vm::read(&file, flavor).unwrap();
            assert!(vm.timeouts.boot >= dev.timeouts.boot, "{flavor}");
        }
    }

    #[test]
    fn a_slow_kernel_stretches_the_limit_of_a_suite_but_not_the_users() {
        use clap::Parser as _;
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/vm.toml");
        let seconds = |flavor: &str, args: &[&str]| {
            let words = ["xtask", "test"].iter().chain(args);
            let opts = crate::opts::Cli::parse_from(words).opts;
            let limits = Vm::read(&file, flavor).unwrap().limits(&opts, Some(100));
            limits.run.map_or(0, |run| run.as_secs())
        };
        assert_eq!(seconds("dev", &[]), 100);
        assert!(seconds("debug", &[]) > 100);
        assert_eq!(seconds("debug", &["--timeout", "7"]), 7);
    }
}
