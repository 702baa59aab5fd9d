// SPDX-License-Identifier: GPL-2.0

//! Promises that take more than one look: a debugger, a terminal, a long input.

use anyhow::{Context as _, bail, ensure};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{PATIENCE, program, text};
use crate::hash;
use crate::install;
use crate::project::Project;
use crate::sh::{Cmd, Running};

/// Some MiB through a port, judged by the hash that the guest finds.
pub fn large_input(project: &Project, flags: &[String]) -> anyhow::Result<()> {
    let input: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let file = tempfile::NamedTempFile::new()?;
    fs_err::write(file.path(), &input)?;
    let wanted = hash::file(file.path())?;
    let cmd = program(project, flags)?.args(["exec", "--", "sha256sum"]);
    let output = cmd.stdin(input).output()?;
    let said = text(&output.stdout);
    ensure!(
        said.starts_with(&wanted),
        "the guest's hash is {said:?}, not {wanted}; stderr: {:?}",
        text(&output.stderr)
    );
    Ok(())
}

/// Types into the shell of `boot`, on a terminal of script(1), and looks into the
/// image afterwards.
pub fn shell_writes(project: &Project, flags: &[String]) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("mine.img");
    let log = project.new_log("shell")?;
    let tool = |name: &str| install::program(name).with_context(|| format!("no {name}"));
    Cmd::new(tool("mke2fs")?)
        .args(["-q", "-F", "-t", "ext2"])
        .arg(&image)
        .arg("8M")
        .run(&log)?;
    typed(project, flags, Some(&image), "echo kept >/mnt/image/file")?;
    let content = |image: &Path| {
        Cmd::new(tool("debugfs")?)
            .args(["-R", "cat /file"])
            .arg(image)
            .read()
    };
    let said = content(&image)?;
    ensure!(said.trim() == "kept", "the image's file says {said:?}");
    let scratch = project.image("scratch.img");
    let before = hash::file(&scratch).ok();
    let said = typed(
        project,
        flags,
        None,
        "echo forgotten >/mnt/scratch/file && echo wri''tten",
    )?;
    ensure!(said.contains("written"), "the shell said {said:?}");
    let after = hash::file(&scratch)?;
    ensure!(
        before.is_none_or(|before| before == after),
        "the scratch image in the cache was written"
    );
    Ok(())
}

/// What the shell says when this is typed into it, and then `exit`.
fn typed(
    project: &Project,
    flags: &[String],
    image: Option<&Path>,
    line: &str,
) -> anyhow::Result<String> {
    let image = image.map(|image| format!("--image={}", image.display()));
    let boot = program(project, flags)?.args(["boot"]).args(image);
    let output = Cmd::new("script")
        .args(["-qec", &boot.dry(), "/dev/null"])
        .stdin(format!("{line}\nexit\n"))
        .output()?;
    let said = text(&output.stdout);
    ensure!(
        output.status.success(),
        "boot ended with {}: {said}",
        output.status
    );
    Ok(said)
}

/// A guest that waits for gdb, and the script that attaches it.
fn waiting(project: &Project, flags: &[String]) -> anyhow::Result<(Running, String)> {
    let log = project.new_log("gdb")?;
    let cmd = program(project, flags)?.args(["exec", "--gdb", "--", "true"]);
    let mut child = cmd.spawn(&log)?;
    loop {
        let said = text(&fs_err::read(&log)?);
        let hint = said
            .split_once("gdb -x ")
            .and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((line, _)) = hint {
            let line = line.trim().to_owned();
            // QEMU makes the socket a moment later.
            if Path::new(&socket(&line)?).exists() {
                return Ok((child, line));
            }
        }
        if let Some(status) = child.wait_timeout(Duration::from_millis(20))? {
            bail!("ended with {status} before a debugger came: {said}");
        }
    }
}

/// The socket to which the script of this hint connects.
fn socket(line: &str) -> anyhow::Result<String> {
    let script = line.split(' ').next().unwrap_or_default();
    let script = fs_err::read_to_string(script)?;
    let first = script.lines().next().unwrap_or_default();
    let socket = first.strip_prefix("target remote ");
    Ok(socket.context("the script attaches nowhere")?.to_owned())
}

fn ends_well(project: &Project, mut child: Running) -> anyhow::Result<()> {
    let status = child.wait_timeout(PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "ended with {status:?}: {}",
        text(&fs_err::read(project.log("gdb"))?)
    );
    Ok(())
}

/// Plays gdb: connects where the script says, sees that nothing has run, continues.
pub fn stub(project: &Project, flags: &[String]) -> anyhow::Result<()> {
    let (child, line) = waiting(project, flags)?;
    let mut gdb = UnixStream::connect(socket(&line)?).context("cannot attach")?;
    gdb.set_read_timeout(Some(PATIENCE))
        .context("gdb's socket")?;
    // "Why did you stop?" Only a stopped guest answers at once.
    gdb.write_all(b"$?#3f").context("cannot ask the stub")?;
    let mut answer = String::new();
    while !answer.contains('#') {
        let mut some = [0; 64];
        let count = gdb.read(&mut some).context("the stub says nothing")?;
        ensure!(count > 0, "the stub hung up after {answer:?}");
        answer.push_str(&text(&some[..count]));
    }
    ensure!(
        answer.starts_with("+$T"),
        "the guest is not stopped: {answer:?}"
    );
    gdb.write_all(b"+$c#63").context("cannot continue")?;
    ends_well(project, child)
}

/// The real gdb, as the hint calls it.
pub fn gdb(project: &Project, flags: &[String]) -> anyhow::Result<()> {
    let (child, line) = waiting(project, flags)?;
    let (script, vmlinux) = line.split_once(' ').context("no kernel in the hint")?;
    let output = Cmd::new("timeout")
        .args(["120", "gdb", "-q", "-nx", "-batch"])
        .args(["-x", script, vmlinux])
        .args(["-ex", "continue", "-ex", "info functions put_super"])
        .args(["-ex", "delete", "-ex", "detach"])
        .output()?;
    let said = text(&output.stdout);
    let ours = |line: &str| line.starts_with("0xffffffffa") && line.contains("Rext2 as kernel");
    ensure!(
        said.contains("rext2 is inserted") && said.lines().any(ours),
        "gdb said {said:?}, {:?}",
        text(&output.stderr)
    );
    ends_well(project, child)
}
