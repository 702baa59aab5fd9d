// SPDX-License-Identifier: GPL-2.0

//! The job's program: started, waited for, its leftovers ended.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rext2_init::{Action, PORT_ERR, PORT_OUT, SHELL_TTY};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::ports;

/// First argument of the copy of init that becomes the shell.
pub const SESSION: &str = "session";
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";

/// Runs the action's program to its end; its status, if there is a program.
pub fn action(action: &Action) -> Result<Option<i32>> {
    match action {
        Action::Halt => Ok(None),
        Action::Exec { argv, stdin } => program(argv, *stdin).map(Some),
        Action::Suite { argv } => program(argv, false).map(Some),
        Action::Shell {
            rows,
            cols,
            greeting,
        } => {
            let mut shell = Command::new("/init");
            shell.args([SESSION, &rows.to_string(), &cols.to_string(), greeting]);
            wait_for(spawn(shell)?).map(Some)
        }
    }
}

fn program(argv: &[String], stdin: bool) -> Result<i32> {
    let Some((name, args)) = argv.split_first() else {
        bail!("the job names no program");
    };
    let mut errors = ports::open(PORT_ERR)?;
    let mut command = Command::new(name);
    command
        .args(args)
        .stdin(match stdin {
            true => ports::open_input()?.into(),
            false => Stdio::null(),
        })
        .stdout(ports::open(PORT_OUT)?)
        .stderr(errors.try_clone().context("cannot share a port")?);
    match spawn(command) {
        Ok(pid) => wait_for(pid),
        // What a shell says and returns.
        Err(error) => {
            writeln!(errors, "rext2-init: {error:#}")
                .context(format!("cannot write to port {PORT_ERR}"))?;
            Ok(127)
        }
    }
}

fn spawn(mut command: Command) -> Result<Pid> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .current_dir("/")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/")
        .env("TERM", "linux")
        .spawn()
        .context(format!("cannot run {name}"))?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// Waits for `pid` and, as PID 1 must, for whatever else ends meanwhile.
fn wait_for(pid: Pid) -> Result<i32> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(who, status)) if who == pid => return Ok(status),
            Ok(WaitStatus::Signaled(who, signal, _)) if who == pid => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for the job's program"),
        }
    }
}

/// Ends every process that the job has left behind and waits for the last.
pub fn kill_rest() {
    // Everyone but PID 1. Kernel threads are counted too, and ignore it.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(None, None) != Err(Errno::ECHILD) {}
}

/// Becomes the shell of a session of its own. The first terminal that a
/// session leader opens becomes its controlling one: job control works.
pub fn session(args: &[String]) -> anyhow::Error {
    match terminal(args) {
        Ok(mut shell) => shell.exec().into(),
        Err(error) => error,
    }
}

fn terminal(args: &[String]) -> Result<Command> {
    let [rows, cols, greeting] = args else {
        bail!("expected the terminal's rows, its columns and a greeting");
    };
    nix::unistd::setsid().context("cannot start a session")?;
    let mut tty = OpenOptions::new()
        .read(true)
        .write(true)
        .open(SHELL_TTY)
        .context(format!("cannot open {SHELL_TTY}"))?;
    let clone = || tty.try_clone().context("cannot share the terminal");
    let status = Command::new("stty")
        .args(["rows", rows, "cols", cols])
        .stdin(clone()?)
        .status()
        .context("cannot run stty")?;
    if !status.success() {
        bail!("stty: {status}");
    }
    let mut shell = Command::new("sh");
    shell
        .arg("-l")
        .stdin(clone()?)
        .stdout(clone()?)
        .stderr(clone()?);
    tty.write_all(greeting.as_bytes())
        .context("cannot greet the user")?;
    Ok(shell)
}
