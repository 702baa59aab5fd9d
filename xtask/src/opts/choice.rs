// SPDX-License-Identifier: GPL-2.0

//! Options that are one of a few words.

use clap::ValueEnum;

/// A named set of Kconfig fragments.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavor {
    /// Fast to build and to boot
    #[default]
    Dev,
    /// KASAN, lockdep, UBSAN, RCU and context checks
    Debug,
    /// The kernel concurrency sanitizer
    Kcsan,
    /// No debugging, as a distribution builds it
    Bench,
}

impl Flavor {
    /// The name on the command line and of the fragment.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Dev => "dev",
            Flavor::Debug => "debug",
            Flavor::Kcsan => "kcsan",
            Flavor::Bench => "bench",
        }
    }
}

/// Processor architecture of kernel and guest.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86
    #[default]
    #[value(name = "x86_64")]
    X86_64,
}

/// How QEMU runs the guest's instructions.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accel {
    /// KVM where it really works, else TCG
    #[default]
    Auto,
    /// KVM or nothing
    Kvm,
    /// QEMU's own translator
    Tcg,
}

impl Format {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Human => "human",
            Format::Json => "json",
            Format::Junit => "junit",
        }
    }
}

/// Form of a result.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people
    #[default]
    Human,
    /// One JSON object
    Json,
    /// JUnit XML
    Junit,
}
