// SPDX-License-Identifier: GPL-2.0

//! The command line: every verb and flag of xtask.

mod choice;
mod value;

pub use choice::{Accel, Arch, Flavor, Format};

#[cfg(test)]
mod tests;

use crate::fstests::select::Shard;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Take a Linux kernel, patch it, build it with Rust, load rext2, boot it in
/// QEMU and judge it.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 good, 1 tests failed, 2 usage, 3 environment, 4 fetch, 5 patch, 6 config, \
                  7 build, 10 panic, 11 splat, 12 boot timeout, 13 test timeout, 14 QEMU, 15 nothing ran."
)]
pub struct Cli {
    /// Flags that every verb takes.
    #[command(flatten)]
    pub opts: Opts,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Flags with the same name and meaning everywhere.
#[derive(Args, Debug, Clone)]
pub struct Opts {
    /// Kernel base: a folder below patches/
    #[arg(
        long,
        global = true,
        default_value = "linux-6.12",
        value_name = "NAME",
        help_heading = "Kernel"
    )]
    pub base: String,
    /// Use this kernel source (a git tree's HEAD, or an unpacked source); it is only read
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        conflicts_with = "tarball",
        help_heading = "Kernel"
    )]
    pub linux: Option<PathBuf>,
    /// Use this kernel source archive
    #[arg(long, global = true, value_name = "FILE", help_heading = "Kernel")]
    pub tarball: Option<PathBuf>,
    /// Kernel configuration: fragments of qemu/config [default: dev; for bench: bench]
    #[arg(long, global = true, value_enum, help_heading = "Kernel")]
    pub flavor: Option<Flavor>,
    /// Change one configuration symbol; may be given several times
    #[arg(
        long = "set",
        global = true,
        value_name = "CONFIG_X=y",
        help_heading = "Kernel"
    )]
    pub set: Vec<String>,
    /// Leave out the patches below this folder of the base; may be given several times
    #[arg(long, global = true, value_name = "FOLDER", help_heading = "Kernel")]
    pub without: Vec<String>,
    /// Processor architecture
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        help_heading = "Kernel"
    )]
    pub arch: Arch,
    /// Parallel jobs of a build [default: all processors]
    #[arg(
        short,
        long,
        global = true,
        value_name = "N",
        value_parser = value::positive::<usize>,
        help_heading = "Kernel"
    )]
    pub jobs: Option<usize>,

    /// How QEMU runs the guest
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        help_heading = "Guest"
    )]
    pub accel: Accel,
    /// Seconds that a booted guest may take [default: from qemu/vm.toml]
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        value_parser = value::positive::<u64>,
        help_heading = "Guest"
    )]
    pub timeout: Option<u64>,
    /// Seconds until the guest's init must have spoken [default: from qemu/vm.toml]
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        value_parser = value::positive::<u64>,
        help_heading = "Guest"
    )]
    pub boot_timeout: Option<u64>,

    /// Form of the result on stdout; a verb without the form that is asked for says which it has
    #[arg(long, global = true, value_enum, default_value_t, help_heading = "Run")]
    pub format: Format,
    /// Print the commands that would change something, and change nothing
    #[arg(long, global = true, help_heading = "Run")]
    pub dry_run: bool,
    /// Show every command
    #[arg(short, long, global = true, help_heading = "Run")]
    pub verbose: bool,
    /// Keep scratch images and folders, and say where they are
    #[arg(long, global = true, help_heading = "Run")]
    pub keep: bool,
    /// Never install a package: print the command and exit 3
    #[arg(long, global = true, help_heading = "Run")]
    pub no_install: bool,
}

/// One verb, each in a file of its own.
#[derive(Subcommand, Debug, Clone)]
pub enum Verb {
    /// Show which tools are here, which are missing, and how to get them
    Doctor,
    /// Get or refresh the kernel source
    Fetch,
    /// Patch series: files in patches/ and commits in the kernel tree
    #[command(subcommand)]
    Patch(PatchVerb),
    /// Make the kernel configuration and prove that nothing asked for was dropped
    Config(MakeArgs),
    /// Build the kernel
    Build(MakeArgs),
    /// Build rext2.ko
    Module(MakeArgs),
    /// Write rust-project.json and compile_commands.json
    Ide,
    /// Boot a guest with rext2 inserted; a shell on a terminal
    Boot(BootArgs),
    /// Build what is needed, then read a real ext2 image through rext2 and compare with the C ext2
    BuildAndBoot(BuildAndBootArgs),
    /// Run one command in a fresh guest with our standard input; hand on its output and exit status
    Exec(ExecArgs),
    /// Run test suites and judge them
    Test(Box<TestArgs>),
    /// Measure, so that the figures repeat on any host
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Judge saved console logs, KTAP streams or reports again, without a guest
    Report(ReportArgs),
    /// Remove what this checkout and its cache hold
    Clean(CleanArgs),
}

impl Verb {
    /// Its word on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Doctor => "doctor",
            Verb::Fetch => "fetch",
            Verb::Patch(_) => "patch",
            Verb::Config(_) => "config",
            Verb::Build(_) => "build",
            Verb::Module(_) => "module",
            Verb::Ide => "ide",
            Verb::Boot(_) => "boot",
            Verb::BuildAndBoot(_) => "build-and-boot",
            Verb::Exec(_) => "exec",
            Verb::Test(_) => "test",
            Verb::Bench(_) => "bench",
            Verb::Report(_) => "report",
            Verb::Clean(_) => "clean",
        }
    }

    /// Whether the verb ends in a guest.
    pub fn needs_guest(&self) -> bool {
        matches!(
            self,
            Verb::Boot(_) | Verb::BuildAndBoot(_) | Verb::Exec(_) | Verb::Test(_) | Verb::Bench(_)
        )
    }

    /// The kernel's flavour where the verb has another one than the usual.
    pub fn flavor(&self) -> Option<Flavor> {
        matches!(self, Verb::Bench(_)).then_some(Flavor::Bench)
    }
}

/// What to do with the patch series.
#[derive(Subcommand, Debug, Clone)]
pub enum PatchVerb {
    /// Bring the kernel tree to the state of the series, one commit a patch
    Apply {
        /// Drop commits and changes that are not in the series (they stay reachable under a ref)
        #[arg(long)]
        discard: bool,
    },
    /// Write the commits of the kernel tree back to patches/
    Export,
    /// Prove the round trip: apply, export, byte-identical, and again the same tree
    Check,
    /// Show the series and the state of the kernel tree
    Status,
}

/// Words for make.
#[derive(Args, Debug, Clone, Default)]
pub struct MakeArgs {
    /// Variables and flags for make, such as RUSTC=… or V=1
    #[arg(last = true, value_name = "MAKE ARGS")]
    pub make: Vec<String>,
}

/// `boot`.
#[derive(Args, Debug, Clone, Default)]
pub struct BootArgs {
    /// Wait for gdb before the first instruction; a script for it stops where rext2 is inserted
    #[arg(long)]
    pub gdb: bool,
    /// Mount this ext2 image instead of a scratch one; what the guest writes stays in it
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// More arguments for QEMU
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu: Vec<String>,
}

/// `build-and-boot`.
#[derive(Args, Debug, Clone, Default)]
pub struct BuildAndBootArgs {
    /// Read this image instead of one made from the project's sources; it is never written
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// No shell at the end, even on a terminal
    #[arg(long)]
    pub no_shell: bool,
}

/// `exec`.
#[derive(Args, Debug, Clone, Default)]
pub struct ExecArgs {
    /// Wait for gdb before the first instruction; a script for it stops where rext2 is inserted
    #[arg(long)]
    pub gdb: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `test`.
#[derive(Args, Debug, Clone, Default)]
pub struct TestArgs {
    /// Suites to run [default: smoke images fs]
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// Run only tests whose name contains this text, or one of several with commas between
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// The seed of everything random
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Suite fuzz: how many images; suite crash: how many points
    #[arg(long, value_name = "N", value_parser = value::positive::<u64>)]
    pub count: Option<u64>,
    /// Suites exercise and stress: how many operations; suite crash: of each workload
    #[arg(long, value_name = "N", value_parser = value::positive::<u64>)]
    pub ops: Option<u64>,
    /// Suite stress, and each race of suite uncached: how long
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = value::seconds,
        allow_negative_numbers = true
    )]
    pub seconds: Option<f64>,
    /// Suites exercise and stress: leave these operations out
    #[arg(long, value_name = "NAME,…")]
    pub off: Option<String>,
    /// Suite crash: judge this recording of an earlier run again
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Suite crash: fail also where a file is damaged that was changed after its fsync
    #[arg(long)]
    pub strict: bool,
    /// The file system driver to test: rext2, or as a control ext2, ext4 or xfs
    #[arg(long, visible_alias = "on", value_name = "TYPE")]
    pub fs: Option<String>,
    /// Suite fstests: the fstests tree, which you have built
    #[arg(long, value_name = "DIR")]
    pub fstests: Option<PathBuf>,
    /// Suite fstests: the tests of this group, such as quick or auto; may be given several times
    #[arg(short, long, value_name = "GROUP", value_delimiter = ',')]
    pub group: Vec<String>,
    /// Suite fstests: this test, such as generic/013; may be given several times
    #[arg(short, long, value_name = "TEST", value_delimiter = ',')]
    pub test: Vec<String>,
    /// Suite fstests: the i-th of n parts of the tests; report merges their JSON
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Suite fstests: seconds that one test may take [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub limit: Option<u64>,
    /// Suite fstests: write the results to the stored baseline
    #[arg(long)]
    pub accept: bool,
    /// Break the kernel on purpose, once for each patch in patches/BASE/mutants, and demand that
    /// the rows that the patch names fail; --filter takes the mutants whose name contains the text
    #[arg(long)]
    pub mutants: bool,
    /// Show the suites and how many tests they have, or of the suites that are named every test,
    /// and run none
    #[arg(long)]
    pub list: bool,
}

/// What to measure.
#[derive(Subcommand, Debug, Clone)]
pub enum BenchVerb {
    /// Instructions per operation on rext2, ext2, ext4 and xfs, in one boot
    Cost(CostArgs),
    /// MB/s of guest time while a large file is read and written, plainly and with RWF_UNCACHED,
    /// until memory is full and beyond
    Uncached(UncachedArgs),
}

/// `bench uncached`.
#[derive(Args, Debug, Clone, Default)]
pub struct UncachedArgs {
    /// Measure these file systems only [default: rext2,ext4,xfs]
    #[arg(long, value_name = "TYPE,…")]
    pub on: Option<String>,
    /// Print the tables as Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Fail if uncached IO misses one of its goals
    #[arg(long)]
    pub check: bool,
}

/// `bench cost`.
#[derive(Args, Debug, Clone, Default)]
pub struct CostArgs {
    /// Measure these file systems only
    #[arg(long, value_name = "TYPE,…")]
    pub on: Option<String>,
    /// How often each operation is measured; the median counts [default: 7]
    #[arg(long, value_name = "N", value_parser = value::positive::<u32>)]
    pub reps: Option<u32>,
    /// Print the table as Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Fail if a value of rext2 is more than 2 % above the one in qemu/bench/cost.tsv, which has
    /// those of --flavor dev
    #[arg(long)]
    pub check: bool,
    /// Write the values to qemu/bench/cost.tsv
    #[arg(long, conflicts_with = "check")]
    pub accept: bool,
}

/// `report`.
#[derive(Args, Debug, Clone, Default)]
pub struct ReportArgs {
    /// The folder of a run or a file in it, such as console.log; a JSON report of test; any
    /// kernel log or KTAP stream; of several reports of fstests one is made
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// `clean`.
#[derive(Args, Debug, Clone, Default)]
pub struct CleanArgs {
    /// Also remove downloaded archives and imported sources
    #[arg(long)]
    pub all: bool,
}
