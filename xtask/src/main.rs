// SPDX-License-Identifier: GPL-2.0

//! `cargo xtask`: fetch, patch, configure, build, boot, test.

use clap::Parser as _;
use std::process::ExitCode;
use xtask::{exit, opts::Cli, pipe, sh};

fn main() -> ExitCode {
    pipe::end_quietly_when_closed();
    let cli = Cli::parse();
    let result = sh::end_children_on_signals().and_then(|()| xtask::run(&cli));
    let exit = result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        exit::of(&error)
    });
    ExitCode::from(exit.code())
}
