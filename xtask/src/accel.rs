// SPDX-License-Identifier: GPL-2.0

//! KVM or TCG: found by trying, not by looking at files or CPU flags.
//!
//! `/dev/kvm` is opened, a VM is created, and a real guest (`probe.rs`) runs in
//! the very QEMU that will be used. What the guest showed is remembered until
//! the host boots again, or has another QEMU or another `/dev/kvm`. A later
//! guest that KVM kills is remembered as well.

mod probe;

use anyhow::Context as _;
use fs_err as fs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::exit::{self, Exit};
use crate::opts::Accel;
use crate::project::Project;
use crate::publish;
use crate::sh::{self, Cmd};

/// The probe takes a second or two where KVM works, nested or not.
const PATIENCE: Duration = Duration::from_secs(15);
/// What QEMU prints when KVM gives up on a guest; QEMU itself goes on.
pub const KVM_DIED: &str = "KVM internal error";

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The processor.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// What was chosen, and why.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Choice {
    /// What was chosen.
    pub kind: Kind,
    /// The reason, for people.
    pub why: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Kvm => write!(f, "accel=kvm ({})", self.why),
            Kind::Tcg => write!(f, "accel=tcg ({})", self.why),
        }
    }
}

/// What is asked of a host, in this order.
pub trait Host {
    /// Opens the device and creates a VM.
    fn create_vm(&self) -> Result<(), String>;
    /// Runs the probe; the reason if its message does not arrive.
    fn run_guest(&self) -> Result<(), String>;
    /// Names everything the probe's answer depends on.
    fn identity(&self) -> anyhow::Result<String>;
}

/// What is known of a host.
#[derive(Deserialize, Serialize)]
struct Known {
    identity: String,
    trouble: Option<String>,
}

/// Decides for this run.
pub fn choose(want: Accel, host: &dyn Host, memory: &Path) -> anyhow::Result<Choice> {
    if want == Accel::Tcg {
        return Ok(Choice {
            kind: Kind::Tcg,
            why: "asked for".to_owned(),
        });
    }
    match (works(host, memory)?, want) {
        (Ok(why), _) => Ok(Choice {
            kind: Kind::Kvm,
            why,
        }),
        (Err(why), Accel::Kvm) => Err(exit::error(
            Exit::Environment,
            format!("KVM does not work here: {why}; leave out --accel to use TCG"),
        )),
        (Err(why), _) => Ok(Choice {
            kind: Kind::Tcg,
            why: format!("kvm: {why}"),
        }),
    }
}

fn works(host: &dyn Host, memory: &Path) -> anyhow::Result<Result<String, String>> {
    // The user may have joined the group since: this is never remembered.
    if let Err(why) = host.create_vm() {
        return Ok(Err(why));
    }
    let identity = host.identity()?;
    if let Some(known) =
        publish::read_json::<Known>(memory).filter(|known| known.identity == identity)
    {
        return Ok(match known.trouble {
            None => Ok("a test guest ran".to_owned()),
            Some(trouble) => Err(trouble),
        });
    }
    let trouble = host.run_guest().err();
    remember(memory, &identity, trouble.as_deref())?;
    Ok(match trouble {
        None => Ok("a test guest ran".to_owned()),
        Some(trouble) => Err(trouble),
    })
}

fn remember(memory: &Path, identity: &str, trouble: Option<&str>) -> anyhow::Result<()> {
    let known = Known {
        identity: identity.to_owned(),
        trouble: trouble.map(str::to_owned),
    };
    publish::write_json(memory, &known).context("cannot remember what KVM showed")
}

/// Remembers that KVM killed a guest after its probe went well.
pub fn distrust(host: &dyn Host, memory: &Path, trouble: &str) -> anyhow::Result<()> {
    remember(memory, &host.identity()?, Some(trouble))
}

/// This machine.
pub struct Machine {
    device: PathBuf,
    qemu: PathBuf,
    scratch: PathBuf,
}

impl Machine {
    /// This machine, with the QEMU of the project.
    pub fn new(project: &Project, qemu: &Path) -> Self {
        Machine {
            device: PathBuf::from("/dev/kvm"),
            qemu: qemu.to_owned(),
            scratch: project.out(),
        }
    }
}

impl Host for Machine {
    fn create_vm(&self) -> Result<(), String> {
        let device = self.device.display();
        let path = std::ffi::CString::new(self.device.as_os_str().as_encoded_bytes())
            .map_err(|error| error.to_string())?;
        let explain = |error: kvm_ioctls::Error| std::io::Error::from_raw_os_error(error.errno());
        let kvm = kvm_ioctls::Kvm::new_with_path(&path).map_err(|error| {
            let error = explain(error);
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    format!("{device}: {error}; add yourself to group kvm")
                }
                _ => format!("{device}: {error}"),
            }
        })?;
        kvm.create_vm()
            .map(drop)
            .map_err(|error| format!("{device} cannot create a VM: {}", explain(error)))
    }

    fn run_guest(&self) -> Result<(), String> {
        probe_guest(&self.qemu, &self.scratch)
            .unwrap_or_else(|error| Err(format!("the test guest cannot run: {error:#}")))
            .map_err(|why| format!("{} dies on a test guest: {why}", self.device.display()))
    }

    fn identity(&self) -> anyhow::Result<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let qemu = fs::metadata(&self.qemu)?;
        let device = fs::metadata(&self.device)?;
        // Size and time of the program change with its version, and asking
        // QEMU for the version takes longer than a probe is worth.
        Ok(format!(
            "boot {}, {} {} {}, device {:x} inode {}",
            boot.trim(),
            self.qemu.display(),
            qemu.len(),
            qemu.mtime(),
            device.rdev(),
            device.ino()
        ))
    }
}

/// Runs the probe's sector under KVM; the inner error is what went wrong in
/// the guest, the outer what kept us from trying.
fn probe_guest(qemu: &Path, scratch: &Path) -> anyhow::Result<Result<(), String>> {
    fs::create_dir_all(scratch)?;
    let folder = tempfile::tempdir_in(scratch)?;
    let file = |name: &str| folder.path().join(name);
    fs::write(file("sector"), probe::sector())?;
    fs::write(file("serial"), "")?;
    let path = |name: &str| file(name).to_string_lossy().replace(',', ",,");
    let log = file("log");
    let mut child = Cmd::new(qemu)
        .args(["-machine", "pc,accel=kvm", "-cpu", "host", "-nodefaults"])
        .args(["-no-user-config", "-no-reboot", "-display", "none"])
        .args(["-serial", &format!("file:{}", path("serial"))])
        .args([
            "-drive",
            &format!("if=ide,format=raw,snapshot=on,file={}", path("sector")),
        ])
        .spawn(&log)?;
    let begin = Instant::now();
    loop {
        let ended = child.wait_timeout(Duration::from_millis(20))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        if text.contains(KVM_DIED) {
            child.kill();
            let detail = text.lines().find(|line| line.contains("failure"));
            return Ok(Err(format!(
                "{KVM_DIED} ({})",
                detail.unwrap_or("no detail")
            )));
        }
        if let Some(status) = ended {
            let said = fs::read(file("serial"))?;
            if said == probe::MESSAGE.as_bytes() {
                return Ok(Ok(()));
            }
            let own = |line: &&str| !line.starts_with(['$', '#']) && !line.is_empty();
            let detail = text.lines().find(own);
            return Ok(Err(match detail {
                Some(detail) => format!("QEMU ended with {status}: {detail}"),
                None => format!("QEMU ended with {status}, the guest's message did not arrive"),
            }));
        }
        if begin.elapsed() > PATIENCE {
            child.kill();
            return Ok(Err(format!(
                "it printed nothing in {} s",
                PATIENCE.as_secs()
            )));
        }
    }
}

/// The QEMU of this machine: `REXT2_QEMU`, else the one in PATH.
pub fn qemu() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("REXT2_QEMU").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    sh::which("qemu-system-x86_64").ok_or_else(|| {
        exit::error(
            Exit::Environment,
            "no qemu-system-x86_64 in PATH; install qemu-system-x86",
        )
    })
}

#[cfg(test)]
mod tests;
