// SPDX-License-Identifier: GPL-2.0

//! `boot`: a guest with rext2 inserted and an image mounted, the user's or a
//! scratch one; a shell in it on a terminal, a short report without one.

use anyhow::Context as _;
use rext2_init::{Action, Event, Job, Module as GuestModule, Mount};
use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::accel::Choice;
use crate::artifact::{Kernel, Module};
use crate::chain::{self, Ready};
use crate::console::Lists;
use crate::debugger::Debugger;
use crate::exit::{self, Exit};
use crate::guest::{self, Disk, Observer, Plan, Use};
use crate::initramfs;
use crate::opts::BootArgs;
use crate::project::Project;
use crate::rundir::Folder;
use crate::sh::Cmd;
use crate::summary;
use crate::terminal::{Session, Size};
use crate::verdict;
use crate::vm::Vm;

/// The serial of the scratch disk.
const SCRATCH: &str = "scratch";
/// The serial of the user's own.
pub const USER_IMAGE: &str = "image";

/// The module as the guest's init inserts it, and the file it needs for that.
pub fn module_files(module: Option<&Module>) -> (Vec<GuestModule>, Vec<(PathBuf, String)>) {
    let Some(module) = module else {
        return (Vec::new(), Vec::new());
    };
    let inserted = GuestModule {
        name: "rext2".to_owned(),
        params: String::new(),
    };
    let file = (module.ko.clone(), initramfs::module_path("rext2"));
    (vec![inserted], vec![file])
}

/// One line that says what runs the guest, and why.
pub fn announce(choice: &Choice) {
    eprintln!("boot     {choice}");
}

/// The verb.
pub fn verb(project: &Project, args: &BootArgs) -> anyhow::Result<Exit> {
    let Ready { kernel, module } = chain::ready(project)?;
    run(project, &kernel, module.as_ref(), args)
}

/// Boots a guest with the scratch image.
pub fn run(
    project: &Project,
    kernel: &Kernel,
    module: Option<&Module>,
    args: &BootArgs,
) -> anyhow::Result<Exit> {
    let fstype = match module {
        Some(_) => "rext2",
        None => "ext2",
    };
    let disk = disk(args.image.as_deref(), || scratch(project))?;
    let mount = Mount {
        source: "/dev/vda".to_owned(),
        target: format!("/mnt/{}", disk.serial),
        fstype: fstype.to_owned(),
        read_only: false,
        data: String::new(),
    };
    let debugger = args.gdb.then(|| Debugger::new(kernel, module));
    let extra = args.qemu.iter().map(Into::into).collect();
    shell(
        project,
        Shell {
            kernel,
            module,
            disk,
            mount,
            debugger,
            extra,
            name: "boot",
        },
    )
}

/// The user's own image, in which everything stays that the guest writes; or the
/// scratch image, for which it is forgotten.
fn disk(
    image: Option<&Path>,
    scratch: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<Disk> {
    let (file, serial, use_as) = match image {
        Some(image) => (image.to_owned(), USER_IMAGE, Use::Own),
        None => (scratch()?, SCRATCH, Use::Scratch),
    };
    Ok(Disk {
        file,
        serial: serial.to_owned(),
        use_as,
    })
}

/// What a shell runs in.
pub struct Shell<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The module, inserted.
    pub module: Option<&'a Module>,
    /// The disk, `/dev/vda`.
    pub disk: Disk,
    /// Where it is mounted.
    pub mount: Mount,
    /// Whether a debugger is waited for.
    pub debugger: Option<Debugger<'a>>,
    /// The user's own arguments for QEMU.
    pub extra: Vec<std::ffi::OsString>,
    /// The verb.
    pub name: &'a str,
}

/// Boots into a shell; without a terminal the guest only reports and goes down.
pub fn shell(project: &Project, shell: Shell) -> anyhow::Result<Exit> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let Mount { target, fstype, .. } = &shell.mount;
    let (what, fate) = match shell.disk.use_as {
        Use::Own => (shell.disk.file.display().to_string(), "stays in it"),
        _ => (shell.disk.serial.clone(), "is forgotten when you leave"),
    };
    let greeting = format!(
        "\r\nLinux {}; {what} is mounted on {target} as {fstype}, and what you write {fate}.\r\n\
         Leave with \"exit\" or Ctrl-D; Ctrl-A X ends the guest at once, as a power failure does.\r\n\r\n",
        shell.kernel.release
    );
    let action = match interactive {
        true => {
            let Size { rows, cols } = Size::of_terminal();
            Action::Shell {
                rows,
                cols,
                greeting,
            }
        }
        false => Action::Halt,
    };
    let (modules, files) = module_files(shell.module);
    let mut limits = Vm::load(project)?.limits(&project.opts, None);
    if interactive {
        limits.run = None;
    }
    if shell.debugger.is_some() {
        (limits.boot, limits.run) = (None, None);
    }
    let plan = Plan {
        name: shell.name,
        repeat: format!("cargo xtask {}", shell.name),
        job: Job {
            token: guest::token()?,
            modules,
            mounts: vec![shell.mount.clone()],
            action,
            kmemleak: false,
            debugger: shell.debugger.is_some(),
        },
        disks: vec![shell.disk.clone()],
        files,
        replay: None,
        may_skip: Vec::new(),
        limits,
        gdb: shell.debugger.is_some(),
        counting: None,
        memory: None,
        extra: shell.extra,
    };
    let mut observer = Show {
        debugger: shell.debugger,
        session: None,
        interactive,
    };
    let run = guest::run(project, shell.kernel, &plan, &mut observer);
    // Before the first line for the user.
    drop(observer);
    let run = run?;
    let lists = Lists::load(project)?;
    let verdict = verdict::of_folder(&run.folder, &run.record, &lists);
    match verdict.exit {
        Exit::Good => {
            if !interactive {
                println!("no terminal, so no shell: the guest booted, mounted and powered off");
            }
            Ok(Exit::Good)
        }
        code => {
            eprint!("{}", summary::tail(&run.folder, &verdict.findings));
            let folder = run.folder.path().display();
            Err(exit::error(
                code,
                format!("{} (run {folder})", verdict.reason),
            ))
        }
    }
}

/// The scratch image: 64 MiB, freshly made by mke2fs once per cache.
fn scratch(project: &Project) -> anyhow::Result<PathBuf> {
    let image = project.image("scratch.img");
    if !image.is_file() {
        let folder = image.parent().context("a file of the cache has a folder")?;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let temporary = tempfile::NamedTempFile::new_in(folder)?;
        Cmd::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2", "-L", SCRATCH])
            .arg(temporary.path())
            .arg("64M")
            .run(&project.log("scratch"))
            .context("cannot make the scratch image")?;
        temporary.persist(&image)?;
    }
    Ok(image)
}

/// Shows what happens, and connects the terminal.
struct Show<'a> {
    debugger: Option<Debugger<'a>>,
    session: Option<Session>,
    interactive: bool,
}

impl Observer for Show<'_> {
    fn starts(&mut self, folder: &Folder, choice: &Choice) -> anyhow::Result<()> {
        announce(choice);
        if let Some(debugger) = &mut self.debugger {
            debugger.starts(folder)?;
        }
        if self.interactive {
            // A repeated run has another folder, and so another socket.
            drop(self.session.take());
            self.session = Some(Session::open(&folder.socket("terminal"))?);
        }
        Ok(())
    }

    fn tick(&mut self, events: &[Event]) -> anyhow::Result<ControlFlow<()>> {
        if let Some(debugger) = &self.debugger {
            debugger.tick(events)?;
        }
        for event in events {
            if self.interactive {
                break;
            }
            match event {
                Event::Started { release, uptime_ms } => {
                    println!("Linux {release} started in {uptime_ms} ms");
                }
                Event::Inserted { module, .. } => println!("module {module} inserted"),
                Event::Mounted {
                    source,
                    target,
                    fstype,
                } => println!("{source} mounted on {target} as {fstype}"),
                _ => {}
            }
        }
        Ok(match &self.session {
            Some(session) if session.left() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_own_image_keeps_what_is_written() {
        let scratch = || Ok(PathBuf::from("/cache/scratch.img"));
        let disk = |image| disk(image, scratch).unwrap();
        assert_eq!(disk(None).use_as, Use::Scratch);
        let mine = disk(Some(Path::new("mine.img")));
        assert_eq!(mine.use_as, Use::Own);
        assert_eq!(mine.file, Path::new("mine.img"));
    }
}
