// SPDX-License-Identifier: GPL-2.0

//! `build-and-boot`: everything from the source to a guest in which rext2 and
//! the C ext2 read the same image and must see the same; then a shell.

use rext2_init::Mount;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use crate::boot::{self, Shell, USER_IMAGE};
use crate::chain::{self, Ready};
use crate::exec::Program;
use crate::exit::{self, Exit};
use crate::guest::{Disk, Use};
use crate::images;
use crate::opts::BuildAndBootArgs;
use crate::project::Project;

const MOUNT_POINT: &str = "/mnt/image";

/// Builds what is needed, compares, and opens a shell on a terminal.
pub fn run(project: &Project, args: &BuildAndBootArgs) -> anyhow::Result<Exit> {
    let Ready { kernel, module } = chain::ready(project)?;
    let disk = disk(project, args)?;
    let program = Program {
        name: "build-and-boot",
        repeat: "cargo xtask build-and-boot".to_owned(),
        argv: vec![
            "/bin/rext2-tests".to_owned(),
            "compare".to_owned(),
            format!("disk={}", disk.serial),
        ],
        disks: vec![disk.clone()],
        debugger: None,
        stdin: false,
    };
    match program.run(project, &kernel, module.as_ref())? {
        0 => {}
        status => {
            return Err(exit::error(
                Exit::TestsFailed,
                format!("rext2 and ext2 do not see the same image (status {status})"),
            ));
        }
    }
    if args.no_shell || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(Exit::Good);
    }
    let mount = Mount {
        source: "/dev/vda".to_owned(),
        target: MOUNT_POINT.to_owned(),
        fstype: "rext2".to_owned(),
        read_only: false,
        data: String::new(),
    };
    // In the shell one may write, too, and it does no harm.
    let disk = Disk {
        use_as: Use::Scratch,
        ..disk
    };
    let shell = Shell {
        kernel: &kernel,
        module: module.as_ref(),
        disk,
        mount,
        debugger: None,
        extra: Vec::new(),
        name: "build-and-boot",
    };
    boot::shell(project, shell)
}

/// The user's image, or one of a real tree; the guest cannot write to either.
fn disk(project: &Project, args: &BuildAndBootArgs) -> anyhow::Result<Disk> {
    let (file, serial): (PathBuf, String) = match &args.image {
        Some(image) => (image.clone(), USER_IMAGE.to_owned()),
        None => {
            let disk = images::main_image(project)?;
            (disk.path, disk.serial)
        }
    };
    Ok(Disk {
        file,
        serial,
        use_as: Use::ReadOnly,
    })
}
