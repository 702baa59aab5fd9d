// SPDX-License-Identifier: GPL-2.0

//! Child processes: cleaned environment, logged command lines, and nobody left
//! behind when we are stopped. The only file that knows duct.

mod environment;
mod running;
#[cfg(test)]
mod tests;

pub use running::{Reader, Running, end_children, end_children_on_signals};

use running::{Registered, groups, own_group, status_is_our_kill};

use anyhow::{Context as _, bail};
use fs_err as fs;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

static VERBOSE: AtomicBool = AtomicBool::new(false);
static DRY_RUN: AtomicBool = AtomicBool::new(false);

/// Sets what `-v` and `--dry-run` mean for every command.
pub fn set_mode(verbose: bool, dry_run: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
    DRY_RUN.store(dry_run, Ordering::Relaxed);
}

/// Where the standard input of a child comes from.
#[derive(Clone, Debug)]
enum Stdin {
    Null,
    Bytes(Vec<u8>),
    /// Set by the caller of `expression`.
    Other,
    Terminal,
}

/// A command to run.
#[derive(Clone, Debug)]
pub struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    dir: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    stdin: Stdin,
}

impl Cmd {
    /// A command that runs `program`, found in PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Cmd {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            dir: None,
            env: Vec::new(),
            stdin: Stdin::Null,
        }
    }

    /// git, working on the repository in `dir` and on no other around it.
    pub fn git(dir: &Path) -> Self {
        Cmd::new("git").dir(dir)
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the working folder.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Gives the child these bytes as its standard input (else it has none).
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// The command line as a shell would take it.
    pub fn dry(&self) -> String {
        let mut line = String::new();
        if let Some(dir) = &self.dir {
            line.push_str(&format!("cd {} && ", quote(dir.as_os_str())));
        }
        for (name, value) in &self.env {
            line.push_str(&format!("{}={} ", name.to_string_lossy(), quote(value)));
        }
        line.push_str(&quote(&self.program));
        for arg in &self.args {
            line.push(' ');
            line.push_str(&quote(arg));
        }
        line
    }

    /// Runs the command, appending its command line and output to `log`.
    /// A command that fails is an error that quotes the end of its output.
    pub fn run(&self, log: &Path) -> anyhow::Result<()> {
        if DRY_RUN.load(Ordering::Relaxed) {
            println!("{}", self.dry());
            return Ok(());
        }
        let begin = self.log_line(log)?;
        let file = append(log)?;
        let expression = self
            .expression()
            .stderr_to_stdout()
            .stdout_file(file.into_parts().0);
        let status = self.start(expression)?.wait()?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(log).unwrap_or_default();
        let output = String::from_utf8_lossy(text.get(begin..).unwrap_or_default()).into_owned();
        bail!(
            "{} ended with {status} (log {}){}",
            self.name(),
            log.display(),
            tail(&output, 6)
        );
    }

    /// Runs the command and returns its standard output without the last line end.
    pub fn read(&self) -> anyhow::Result<String> {
        let bytes = self.read_bytes()?;
        let mut text = String::from_utf8(bytes)
            .with_context(|| format!("{} printed something that is not UTF-8", self.name()))?;
        while text.ends_with(['\n', '\r']) {
            text.pop();
        }
        Ok(text)
    }

    /// Runs the command and returns its standard output.
    pub fn read_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let output = self.output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        bail!(
            "{} ended with {}{}",
            self.name(),
            output.status,
            tail(&String::from_utf8_lossy(&output.stderr), 6)
        );
    }

    /// Runs the command and returns its status and outputs, whatever they are.
    /// Also runs under `--dry-run`: it is for commands that only look.
    pub fn output(&self) -> anyhow::Result<std::process::Output> {
        let expression = self.expression().stdout_capture().stderr_capture();
        self.start(expression)?.output()
    }

    /// Runs the command on our terminal, in the foreground, and returns its status.
    pub fn interactive(mut self) -> anyhow::Result<ExitStatus> {
        self.stdin = Stdin::Terminal;
        let expression = self.expression();
        self.start(expression)?.wait()
    }

    /// Starts the command with its output appended to `log`, and goes on.
    pub fn spawn(&self, log: &Path) -> anyhow::Result<Running> {
        self.log_line(log)?;
        let file = append(log)?;
        self.start(
            self.expression()
                .stderr_to_stdout()
                .stdout_file(file.into_parts().0),
        )
    }

    /// Starts the command and hands out its standard output as a stream;
    /// reading to the end and then `finish` reports how it went.
    pub fn reader(&self) -> anyhow::Result<Reader> {
        self.show();
        let groups = groups();
        let handle = self
            .expression()
            .stderr_capture()
            .unchecked()
            .reader()
            .with_context(|| format!("cannot start {}", self.name()))?;
        let pids = handle.pids();
        Ok(Reader::new(
            handle,
            Registered::new(groups, pids),
            self.name(),
        ))
    }

    /// Starts the command with its standard input fed by `feed` and its output
    /// appended to `log`.
    pub fn feed<T>(
        &self,
        log: &Path,
        feed: impl FnOnce(&mut dyn std::io::Write) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.log_line(log)?;
        let piped = Cmd {
            stdin: Stdin::Other,
            ..self.clone()
        };
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let file = append(log)?;
        let expression = piped
            .expression()
            .stdin_file(reader)
            .stderr_to_stdout()
            .stdout_file(file.into_parts().0);
        let mut running = self.start(expression)?;
        let mut writer = std::io::BufWriter::with_capacity(1 << 20, writer);
        let fed = feed(&mut writer).and_then(|value| {
            writer.flush().context("cannot write to its input")?;
            Ok(value)
        });
        drop(writer);
        if fed.is_err() {
            running.end();
        }
        let status = running.wait()?;
        // A child that died first explains the broken pipe.
        if !status.success() && !status_is_our_kill(status) {
            let text = fs::read_to_string(log).unwrap_or_default();
            bail!(
                "{} ended with {status} (log {}){}",
                self.name(),
                log.display(),
                tail(&text, 6)
            );
        }
        fed
    }

    /// The program's name for messages.
    fn name(&self) -> String {
        let name = Path::new(&self.program)
            .file_name()
            .unwrap_or(&self.program)
            .to_string_lossy()
            .into_owned();
        // git alone says too little: which of its commands?
        match self
            .args
            .iter()
            .find(|arg| !arg.to_string_lossy().starts_with('-'))
        {
            Some(verb) if name == "git" => format!("git {}", verb.to_string_lossy()),
            _ => name,
        }
    }

    fn show(&self) {
        if VERBOSE.load(Ordering::Relaxed) {
            eprintln!("+ {}", self.dry());
        }
    }

    /// Writes the command line to the log; returns where its output will begin.
    fn log_line(&self, log: &Path) -> anyhow::Result<usize> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = append(log)?;
        let dropped = environment::dropped();
        if !dropped.is_empty() && file.metadata()?.len() == 0 {
            writeln!(file, "# not passed on: {}", dropped.join(" "))?;
        }
        writeln!(file, "$ {}", self.dry())?;
        Ok(usize::try_from(file.metadata()?.len())?)
    }

    fn expression(&self) -> duct::Expression {
        let mut expression = duct::cmd(&self.program, &self.args)
            .full_env(environment::of(self.dir.as_deref(), &self.env));
        if let Some(dir) = &self.dir {
            expression = expression.dir(dir);
        }
        match &self.stdin {
            Stdin::Null => expression.stdin_null().before_spawn(own_group),
            Stdin::Bytes(bytes) => expression
                .stdin_bytes(bytes.clone())
                .before_spawn(own_group),
            Stdin::Other => expression.before_spawn(own_group),
            // A group of its own could not read the terminal.
            Stdin::Terminal => expression,
        }
    }

    fn start(&self, expression: duct::Expression) -> anyhow::Result<Running> {
        self.show();
        let groups = groups();
        let handle = expression
            .unchecked()
            .start()
            .with_context(|| format!("cannot start {}", self.name()))?;
        let pids = handle.pids();
        Ok(Running::new(handle, Registered::new(groups, pids)))
    }
}

fn append(log: &Path) -> anyhow::Result<fs::File> {
    Ok(fs::OpenOptions::new().create(true).append(true).open(log)?)
}

/// The last lines of an output, ready to stand behind a message.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(count);
    lines[from..]
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect()
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether a program is found in PATH; its path.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| {
            rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
}
