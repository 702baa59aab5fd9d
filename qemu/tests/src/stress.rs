// SPDX-License-Identifier: GPL-2.0

//! Suite `stress`: many processes do random things to the same few names for
//! `seconds=`, on each file system of `on=`. Errors that a race explains are
//! none; any other one is, and so is what the file system's checker finds.
//!
//! Values: `on=`, `device=` as in suite `exercise`, `seconds=`, `procs=` how many
//! processes, `ops=` how many operations each does at most, `seed=`, `off=`
//! operations between commas.

mod worker;

use crate::case::{Case, Group};
use crate::exercise::{chosen, class};
use crate::job::Job;
use crate::uncached::env::Env;
use crate::walk;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The suite's own limit ends a run.
const LIMIT: u64 = 24 * 3600;

/// The group of each chosen file system.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    let class = class(job)?;
    // A mistake in a name is told before anything is mounted.
    worker::Settings::of(job, 0)?;
    let group = |fs: &'static crate::uncached::fs::Fs| Group {
        name: format!("{}/{}", class.name(), fs.name),
        cases: vec![
            Case::new("processes", move |job: &Job| {
                let mut env = Env::new(job, fs, class)?;
                run(&mut env)?;
                env.finish()
            })
            .limit(LIMIT),
        ],
    };
    Ok(chosen(job)?.into_iter().map(group).collect())
}

/// What one of the processes does.
pub fn worker(job: &Job) -> Result<()> {
    worker::run(job)
}

fn run(env: &mut Env) -> Result<()> {
    let procs: usize = env.job.get_or("procs", 8)?;
    let root = env.path().join("stress");
    fs::create_dir(&root).context("cannot make a folder")?;
    let mut children = Vec::new();
    for number in 0..procs {
        let mut args = env.job.args_for("worker");
        args[0] = "stress-worker".into();
        args.push(format!("number={number}"));
        args.push(format!("root={}", root.display()));
        let child = Command::new("/proc/self/exe")
            .args(args)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a process")?;
        children.push(child);
    }
    let mut failed = Vec::new();
    for (number, mut child) in children.into_iter().enumerate() {
        let status = child.wait().context("cannot wait for a process")?;
        if !status.success() {
            let signal = status.signal().map(|signal| format!(", signal {signal}"));
            failed.push(format!(
                "process {number}: {status}{}",
                signal.unwrap_or_default()
            ));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    let before = walk::tree(&root)?.len();
    env.remount(env.fs.options)?;
    let after = walk::tree(&env.path().join("stress"))?.len();
    ensure!(
        before == after,
        "{before} names before unmounting, {after} after"
    );
    println!("{after} names are left");
    fs::remove_dir_all(env.path().join("stress")).context("cannot remove the folder")
}
