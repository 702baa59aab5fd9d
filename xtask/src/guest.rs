// SPDX-License-Identifier: GPL-2.0

//! One guest from its job to its record: folder, initramfs, QEMU, watching,
//! checks of the disks; once more under TCG if KVM killed it.

#[cfg(test)]
mod tests;

use anyhow::Context as _;
use fs_err as fs;
use rext2_init::{Action, Event, Job, PORT_CTL, PORT_ERR, PORT_IN, PORT_KTAP, PORT_OUT};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::accel::{self, Choice, Host, Kind, Machine};
use crate::artifact::Kernel;
use crate::boot_image;
use crate::console::{self, Lists};
use crate::fsck::{self, Checker};
use crate::initramfs;
use crate::opts::Accel;
use crate::project::Project;
use crate::qemu::{self, Access, Guest, Port};
use crate::rundir::{Folder, Record};
use crate::sh::Cmd;
use crate::step;
use crate::vm::{Limits, Vm};
use crate::watch::{self, End, Files};

/// What a guest is to do, and with what.
pub struct Plan<'a> {
    /// What runs: a suite's name, or a verb.
    pub name: &'a str,
    /// The command that repeats it.
    pub repeat: String,
    /// The guest's job.
    pub job: Job,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Files for its initramfs: where they are, where they go.
    pub files: Vec<(PathBuf, String)>,
    /// The recording that the guest gets instead of a new one.
    pub replay: Option<PathBuf>,
    /// Tests that may be skipped, by full name.
    pub may_skip: Vec<String>,
    /// How long it may take.
    pub limits: Limits,
    /// Whether a debugger is waited for.
    pub gdb: bool,
    /// The benchmark on whose machine the guest's clock counts instructions; only
    /// TCG can do that.
    pub counting: Option<&'static str>,
    /// MiB of memory, where the machine's are not enough.
    pub memory: Option<u32>,
    /// The user's own arguments for QEMU.
    pub extra: Vec<OsString>,
}

/// A disk of a plan.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The image.
    pub file: PathBuf,
    /// The serial by which the guest finds it.
    pub serial: String,
    /// Read-only, or writes go where they do no harm; or to a private copy
    /// that is checked afterwards.
    pub use_as: Use,
}

/// How a disk is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// The guest cannot write.
    ReadOnly,
    /// Writes are forgotten.
    Scratch,
    /// Writes go to a copy, which must be whole after the run.
    Checked(Checker),
    /// Writes go to a copy, which stays in the run's folder.
    Kept,
    /// It is the user's: writes and flushes go to the file itself.
    Own,
    /// There is no image: the disk is empty, of so many bytes, and goes with the run.
    Blank(u64),
    /// Writes and flushes are recorded; the guest reads the recording from a disk
    /// whose serial ends in `-log`.
    Recorded,
}

/// A finished run.
pub struct Run {
    /// Where everything lies.
    pub folder: Folder,
    /// What it was and how it ended.
    pub record: Record,
}

/// Sees what the guest does while it does it.
pub trait Observer {
    /// The machine starts; its files will be in the folder.
    fn starts(&mut self, _folder: &Folder, _choice: &Choice) -> anyhow::Result<()> {
        Ok(())
    }
    /// Called often, with the events since the last call; may end the guest.
    fn tick(&mut self, _events: &[Event]) -> anyhow::Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }
}

/// Nobody looks.
pub struct Unobserved;

impl Observer for Unobserved {}

/// The most that a recording may take; what it does not take is a hole.
const RECORDING: u64 = 2 << 30;

/// A token that no test can guess by accident and no other run shares.
pub fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let mut random = fs::File::open("/dev/urandom")?;
    std::io::Read::read_exact(&mut random, &mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs a guest.
pub fn run(
    project: &Project,
    kernel: &Kernel,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> anyhow::Result<Run> {
    let mut vm = match plan.counting {
        Some(benchmark) => Vm::load(project)?.counting(benchmark)?,
        None => Vm::load(project)?,
    };
    vm.memory = vm.memory.max(plan.memory.unwrap_or(0));
    let lists = Lists::load(project)?;
    let qemu = accel::qemu()?;
    let host = Machine::new(project, &qemu);
    let memory = project.kvm_memory();
    let setup = Setup {
        project,
        kernel,
        plan,
        vm: &vm,
        lists: &lists,
        qemu: &qemu,
    };
    let again = !plan.has_input();
    with_fallback(
        project.opts.accel,
        again,
        &host,
        &memory,
        &lists,
        |choice| setup.once(choice, observer),
    )
}

impl Plan<'_> {
    /// Whether the guest's program reads our standard input.
    fn has_input(&self) -> bool {
        matches!(self.job.action, Action::Exec { stdin: true, .. })
    }
}

/// Runs once; and once more under TCG if KVM killed the guest, nobody insists on
/// KVM, and nothing that the guest has read is used up. What KVM did is remembered.
fn with_fallback(
    want: Accel,
    again: bool,
    host: &dyn Host,
    memory: &Path,
    lists: &Lists,
    mut once: impl FnMut(Choice) -> anyhow::Result<Run>,
) -> anyhow::Result<Run> {
    let first = once(accel::choose(want, host, memory)?)?;
    let Some(trouble) = first.killed_by_kvm(lists) else {
        return Ok(first);
    };
    let trouble = format!("/dev/kvm killed a guest: {trouble}");
    accel::distrust(host, memory, &trouble)?;
    if want == Accel::Kvm {
        return Ok(first);
    }
    if !again {
        step::note("the next run will be under TCG; repeat this one with the same input");
        return Ok(first);
    }
    step::note(&format!("{trouble}; the run is repeated under TCG"));
    once(accel::choose(want, host, memory)?)
}

impl Run {
    fn killed_by_kvm(&self, lists: &Lists) -> Option<String> {
        let under_kvm = |choice: &Choice| choice.kind == Kind::Kvm;
        if !self.record.accel.as_ref().is_some_and(under_kvm) {
            return None;
        }
        let log = self.folder.text(&self.folder.qemu_log());
        let mut findings = lists.scan(&log).into_iter();
        findings
            .find(|finding| finding.kind == console::Kind::Qemu)
            .map(|finding| finding.text)
    }
}

struct Setup<'a> {
    project: &'a Project,
    kernel: &'a Kernel,
    plan: &'a Plan<'a>,
    vm: &'a Vm,
    lists: &'a Lists,
    qemu: &'a Path,
}

impl Setup<'_> {
    fn once(&self, choice: Choice, observer: &mut dyn Observer) -> anyhow::Result<Run> {
        let plan = self.plan;
        let folder = Folder::create(self.project, plan.name)?;
        let initrd = folder.initramfs();
        initramfs::write(self.project, self.kernel, &plan.job, &plan.files, &initrd)?;
        let kernel = boot_image::of(self.project, &self.kernel.vmlinux)?;
        let mut disks = Vec::new();
        let mut replay = String::new();
        for (index, disk) in plan.disks.iter().enumerate() {
            let copy = || {
                let copy = folder.disk(index);
                copy_sparse(&disk.file, &copy, &folder.qemu_log())?;
                anyhow::Ok(copy)
            };
            let mut recording = None;
            let (file, access) = match (disk.use_as, &plan.replay) {
                (Use::ReadOnly, _) => (disk.file.clone(), Access::ReadOnly),
                (Use::Scratch, _) => (disk.file.clone(), Access::Snapshot),
                (Use::Own, _) => (disk.file.clone(), Access::Own),
                (Use::Checked(_) | Use::Kept, _) => (copy()?, Access::Write),
                (Use::Blank(size), _) => {
                    let file = folder.disk(index);
                    fs::File::create(&file)?.set_len(size)?;
                    (file, Access::Write)
                }
                (Use::Recorded, Some(old)) => {
                    recording = Some(old.clone());
                    (disk.file.clone(), Access::Snapshot)
                }
                (Use::Recorded, None) => {
                    let new = folder.recording();
                    fs::File::create(&new)?.set_len(RECORDING)?;
                    recording = Some(new.clone());
                    // What timing has made of a seed is in it.
                    replay = format!(" --replay {}", new.display());
                    (copy()?, Access::Record(new))
                }
            };
            disks.push(qemu::Disk {
                file,
                serial: disk.serial.clone(),
                access,
            });
            if let Some(file) = recording {
                disks.push(qemu::Disk {
                    file,
                    serial: format!("{}-log", disk.serial),
                    access: Access::Watch,
                });
            }
        }
        let suite = matches!(plan.job.action, Action::Suite { .. });
        let names: &[&'static str] = match plan.job.action {
            Action::Halt | Action::Shell { .. } => &[PORT_CTL],
            Action::Exec { .. } => &[PORT_CTL, PORT_OUT, PORT_ERR],
            Action::Suite { .. } => &[PORT_CTL, PORT_OUT, PORT_ERR, PORT_KTAP],
        };
        let port = |name: &&'static str| Port {
            name,
            file: folder.port(name),
        };
        let ports: Vec<_> = names.iter().map(port).collect();
        let shell = matches!(plan.job.action, Action::Shell { .. });
        let (terminal, gdb) = (folder.socket("terminal"), folder.socket("gdb"));
        let input = folder.port(PORT_IN);
        let argv = qemu::argv(&Guest {
            vm: self.vm,
            accel: choice.kind,
            kernel: &kernel,
            initrd: &initrd,
            disks: &disks,
            console: &folder.console(),
            ports: &ports,
            terminal: shell.then_some(terminal.as_path()),
            input: plan.has_input().then_some(input.as_path()),
            gdb: plan.gdb.then_some(gdb.as_path()),
            extra: &plan.extra,
        });
        let files = Files {
            console: folder.console(),
            qemu_log: folder.qemu_log(),
            control: Some(folder.port(PORT_CTL)),
            ktap: suite.then(|| folder.port(PORT_KTAP)),
        };
        observer.starts(&folder, &choice)?;
        let begin = Instant::now();
        let mut machine = leashed(self.qemu).args(argv).spawn(&folder.qemu_log())?;
        let end = watch::watch(&mut machine, &files, self.lists, &plan.limits, |events| {
            observer.tick(events)
        })?;
        let record = Record {
            name: plan.name.to_owned(),
            repeat: plan.repeat.clone() + &replay,
            suite,
            token: plan.job.token.clone(),
            may_skip: plan.may_skip.clone(),
            kernel: Some(self.kernel.identity.clone()),
            accel: Some(choice),
            disks: self.check(&folder, &end)?,
            end,
            seconds: begin.elapsed().as_secs_f64(),
        };
        folder.finish(&record, self.project.opts.keep)?;
        for (index, disk) in plan.disks.iter().enumerate() {
            if matches!(disk.use_as, Use::Blank(_)) && !self.project.opts.keep {
                fs::remove_file(folder.disk(index))?;
            }
        }
        Ok(Run { folder, record })
    }

    /// Checks the copies; after a guest that died they may be anything.
    fn check(&self, folder: &Folder, end: &End) -> anyhow::Result<Vec<fsck::Checked>> {
        let mut checked = Vec::new();
        for (index, disk) in self.plan.disks.iter().enumerate() {
            if let (Use::Checked(checker), End::Down { .. }) = (disk.use_as, end) {
                checked.push(fsck::check(checker, &disk.serial, &folder.disk(index))?);
            }
        }
        Ok(checked)
    }
}

/// QEMU on a leash: the kernel kills it when we die, however we die. Only the
/// thread that starts it counts as us, so it must be one that stays.
pub fn leashed(qemu: &Path) -> Cmd {
    Cmd::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(qemu)
}

/// A copy whose holes stay holes.
fn copy_sparse(from: &Path, to: &Path, log: &Path) -> anyhow::Result<()> {
    Cmd::new("cp")
        .args(["--sparse=always", "--reflink=auto", "--"])
        .arg(from)
        .arg(to)
        .run(log)
        .with_context(|| format!("cannot copy {}", from.display()))
}
