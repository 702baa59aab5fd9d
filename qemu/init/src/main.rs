// SPDX-License-Identifier: GPL-2.0

//! PID 1 of the test guest: makes the system usable, does the one job it finds
//! in its initramfs, reports what came of it and powers off on every path.

mod checks;
mod modules;
mod ports;
mod run;
mod system;

use anyhow::{Context, Result};
use rext2_init::{Action, Event, JOB_PATH, Job, PORT_KTAP, end_token};
use std::io::Write;

use ports::Control;

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(run::SESSION) {
        let error = run::session(&args.collect::<Vec<_>>());
        eprintln!("rext2-init: no shell: {error:#}");
        std::process::exit(127);
    }
    if let Err(error) = boot() {
        system::kernel_log(&format!("rext2-init: error: {error:#}"));
    }
    system::power_off();
}

/// From the mounts to the last event. An error here has no port to go to.
fn boot() -> Result<()> {
    system::prepare()?;
    let mut control = ports::open_control()?;
    control.send(&Event::Started {
        release: system::release()?,
        uptime_ms: system::uptime_ms()?,
    })?;
    if let Err(error) = work(&mut control) {
        control.send(&Event::Failed {
            what: format!("{error:#}"),
        })?;
    }
    Ok(())
}

fn work(control: &mut Control) -> Result<()> {
    let text = std::fs::read(JOB_PATH).context(format!("cannot read {JOB_PATH}"))?;
    let job: Job = serde_json::from_slice(&text).context(format!("cannot parse {JOB_PATH}"))?;
    for module in &job.modules {
        modules::insert(module)?;
        control.send(&Event::Inserted {
            module: module.name.clone(),
            text: modules::section(module, ".text"),
            sections: match job.debugger {
                true => modules::sections(module)?,
                false => Vec::new(),
            },
        })?;
    }
    if job.debugger {
        system::let_debugger_stop()?;
    }
    for mount in &job.mounts {
        system::mount(mount)?;
        control.send(&Event::Mounted {
            source: mount.source.clone(),
            target: mount.target.clone(),
            fstype: mount.fstype.clone(),
        })?;
    }
    if let Some(status) = run::action(&job.action)? {
        control.send(&Event::Exit { status })?;
    }

    // Tear down in reverse: what is still busy here is a leak worth a report.
    run::kill_rest();
    for mount in job.mounts.iter().rev() {
        system::unmount(mount)?;
    }
    for module in job.modules.iter().rev() {
        modules::remove(module)?;
    }
    let kmemleak = job.kmemleak && checks::has_kmemleak();
    if kmemleak && let Some((count, report)) = checks::kmemleak()? {
        control.send(&Event::Leaks { count, report })?;
    }
    nix::unistd::sync();
    if matches!(job.action, Action::Suite { .. }) {
        let mut ktap = ports::open(PORT_KTAP)?;
        ktap.write_all(format!("{}\n", end_token(&job.token)).as_bytes())
            .context(format!("cannot write to port {PORT_KTAP}"))?;
    }
    control.send(&Event::End {
        tainted: checks::tainted()?,
        kmemleak,
        uptime_ms: system::uptime_ms()?,
    })
}
