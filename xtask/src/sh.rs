// SPDX-License-Identifier: GPL-2.0

//! Child processes: cleaned environment, logged command lines, and nobody left
//! behind when we are stopped. The only file that knows duct.

use anyhow::{Context as _, bail};
use fs_err as fs;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Variables that children inherit. Everything else stays here, above all what
/// cargo, rustup and make set for their own children: it would change the
/// toolchain of the kernel build.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    // The network and its certificates.
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    // Where package managers keep their things; none of these chooses a compiler.
    "APT_CONFIG",
    "DEBIAN_FRONTEND",
    "RUSTUP_HOME",
    "CARGO_HOME",
    "RUSTUP_DIST_SERVER",
    "RUSTUP_UPDATE_ROOT",
    "RUSTUP_AUTO_INSTALL",
    // Documented by the kernel for its users.
    "KCFLAGS",
    "KAFLAGS",
    "KRUSTFLAGS",
    "LIBCLANG_PATH",
    "RUST_LIB_SRC",
];

/// The same for families of variables.
const INHERITED_PREFIXES: &[&str] = &[
    "SSL_",
    "PIP_",
    "CCACHE_",
    "XDG_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
];

/// Variables whose silent loss would surprise: named in the log.
const TOOLCHAIN_PREFIXES: &[&str] = &[
    "RUSTC",
    "RUSTDOC",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "MAKE",
    "MFLAGS",
    "CC",
    "HOSTCC",
    "LLVM",
];

static VERBOSE: AtomicBool = AtomicBool::new(false);
static DRY_RUN: AtomicBool = AtomicBool::new(false);

/// Process groups of the children that run now.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Sets what `-v` and `--dry-run` mean for every command.
pub fn set_mode(verbose: bool, dry_run: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
    DRY_RUN.store(dry_run, Ordering::Relaxed);
}

/// Makes SIGINT, SIGTERM and SIGHUP end the children first and then us.
pub fn end_children_on_signals() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
        .context("cannot install signal handlers")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held until the process ends: no child starts from now on.
            let groups = groups();
            end_groups(&groups);
            eprintln!("interrupted; the next run takes up from here");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    GROUPS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Asks every group to end, waits at most two seconds for the leaders, and
/// kills what is left.
fn end_groups(groups: &BTreeSet<u32>) {
    use rustix::process::Signal;
    for &group in groups {
        signal_group(group, Signal::TERM);
    }
    for _ in 0..200 {
        if !groups.iter().any(|&group| runs(group)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for &group in groups {
        signal_group(group, Signal::KILL);
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name before the state may itself contain blanks and brackets.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn pid(raw: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(raw).ok()?)
}

fn signal_group(group: u32, signal: rustix::process::Signal) {
    if let Some(group) = pid(group) {
        // A group that has gone meanwhile is what we want.
        let _ = rustix::process::kill_process_group(group, signal);
    }
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
        Ok(Reader {
            handle,
            guard: Registered::new(groups, pids),
            name: self.name(),
        })
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
        let dropped = dropped();
        if !dropped.is_empty() && file.metadata()?.len() == 0 {
            writeln!(file, "# not passed on: {}", dropped.join(" "))?;
        }
        writeln!(file, "$ {}", self.dry())?;
        Ok(usize::try_from(file.metadata()?.len())?)
    }

    fn expression(&self) -> duct::Expression {
        let mut expression = duct::cmd(&self.program, &self.args).full_env(self.environment());
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

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
            .filter(|(name, _)| name.to_str().is_some_and(inherited))
            .collect();
        let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.to_owned()));
        set("LC_ALL", OsStr::new("C"));
        // The same kernel from the same input, and a compiler cache that hits.
        set(
            "KBUILD_BUILD_TIMESTAMP",
            OsStr::new("2026-01-01 00:00:00 UTC"),
        );
        set("KBUILD_BUILD_USER", OsStr::new("rext2"));
        set("KBUILD_BUILD_HOST", OsStr::new("rext2"));
        set("KBUILD_BUILD_VERSION", OsStr::new("1"));
        set("GIT_CONFIG_NOSYSTEM", OsStr::new("1"));
        set(
            "GIT_CONFIG_GLOBAL",
            OsStr::new(concat!(env!("CARGO_MANIFEST_DIR"), "/gitconfig")),
        );
        set("GIT_TERMINAL_PROMPT", OsStr::new("0"));
        set("GIT_OPTIONAL_LOCKS", OsStr::new("0"));
        if let Some(parent) = self.dir.as_deref().and_then(Path::parent) {
            // git below another work tree would act on that one, or on nothing.
            set("GIT_CEILING_DIRECTORIES", parent.as_os_str());
        }
        env.extend(self.env.iter().cloned());
        env
    }

    fn start(&self, expression: duct::Expression) -> anyhow::Result<Running> {
        self.show();
        let groups = groups();
        let handle = expression
            .unchecked()
            .start()
            .with_context(|| format!("cannot start {}", self.name()))?;
        let pids = handle.pids();
        Ok(Running {
            handle,
            guard: Registered::new(groups, pids),
        })
    }
}

fn own_group(command: &mut std::process::Command) -> std::io::Result<()> {
    command.process_group(0);
    Ok(())
}

fn inherited(name: &str) -> bool {
    INHERITED.contains(&name)
        || INHERITED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

fn dropped() -> Vec<String> {
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| {
            TOOLCHAIN_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
                && !inherited(name)
        })
        .collect();
    names.sort();
    names
}

/// Keeps process groups in the list of those to end with us.
struct Registered(Vec<u32>);

impl Registered {
    fn new(mut groups: MutexGuard<'_, BTreeSet<u32>>, pids: Vec<u32>) -> Self {
        groups.extend(&pids);
        Registered(pids)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut groups = groups();
        for pid in &self.0 {
            groups.remove(pid);
        }
    }
}

/// A child that runs; it is ended when this value goes away.
pub struct Running {
    handle: duct::Handle,
    guard: Registered,
}

impl Running {
    /// The process number, also of its process group.
    pub fn pid(&self) -> Option<u32> {
        self.guard.0.first().copied()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self
            .handle
            .wait()
            .context("cannot wait for a child")?
            .status)
    }

    /// Waits at most so long; `None` if it still runs.
    pub fn wait_timeout(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let output = self
            .handle
            .wait_timeout(limit)
            .context("cannot wait for a child")?;
        Ok(output.map(|output| output.status))
    }

    /// The status if it has ended.
    pub fn try_wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let output = self.handle.try_wait().context("cannot wait for a child")?;
        Ok(output.map(|output| output.status))
    }

    /// Ends it and everything it started: asks first, kills after two seconds.
    pub fn end(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            end_groups(&self.guard.0.iter().copied().collect());
        }
    }

    /// Kills it and everything it started, at once.
    pub fn kill(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            for &group in &self.guard.0 {
                signal_group(group, rustix::process::Signal::KILL);
            }
        }
    }

    fn output(self) -> anyhow::Result<std::process::Output> {
        let output = self.handle.wait().context("cannot wait for a child")?;
        Ok(output.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The standard output of a child as a stream.
pub struct Reader {
    handle: duct::ReaderHandle,
    guard: Registered,
    name: String,
}

impl std::io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&self.handle).read(buffer)
    }
}

impl Reader {
    /// After the end of the stream: an error if the child failed.
    pub fn finish(self) -> anyhow::Result<()> {
        match self
            .handle
            .try_wait()
            .with_context(|| format!("cannot wait for {}", self.name))?
        {
            Some(output) if output.status.success() => Ok(()),
            Some(output) => bail!(
                "{} ended with {}{}",
                self.name,
                output.status,
                tail(&String::from_utf8_lossy(&output.stderr), 6)
            ),
            None => bail!("{} was left before its end", self.name),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !matches!(self.handle.try_wait(), Ok(Some(_))) {
            end_groups(&self.guard.0.iter().copied().collect());
        }
    }
}

fn status_is_our_kill(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal().is_some_and(|signal| {
        signal == signal_hook::consts::SIGTERM || signal == signal_hook::consts::SIGKILL
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_can_be_pasted_into_a_shell() {
        let cmd = Cmd::new("make")
            .arg("CC=ccache clang-19")
            .arg("it's")
            .arg("")
            .env("A", "b c")
            .dir("/x y");
        assert_eq!(
            cmd.dry(),
            r"cd '/x y' && A='b c' make 'CC=ccache clang-19' 'it'\''s' ''"
        );
    }

    #[test]
    fn a_failing_command_quotes_its_own_output_only() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("sub/log");
        Cmd::new("echo").arg("before").run(&log).unwrap();
        let error = Cmd::new("sh")
            .args(["-c", "echo out; echo err >&2; exit 3"])
            .run(&log)
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("exit status: 3") && text.contains("\n  out\n  err"),
            "{text}"
        );
        assert!(!text.contains("before"), "{text}");
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("$ echo before\nbefore\n"), "{log}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::new("no-such-program-of-rext2").read().unwrap_err();
        assert!(format!("{error:#}").contains("cannot start no-such-program-of-rext2"));
    }

    #[test]
    fn toolchain_variables_do_not_pass() {
        for name in [
            "RUSTC",
            "RUSTUP_TOOLCHAIN",
            "MAKEFLAGS",
            "CARGO_MANIFEST_DIR",
            "CARGO",
            "RUSTFLAGS",
            "LD_LIBRARY_PATH",
            "ARCH",
        ] {
            assert!(!inherited(name), "{name}");
        }
        for name in [
            "PATH",
            "CCACHE_DIR",
            "SSL_CERT_FILE",
            "https_proxy",
            "CARGO_HOME",
        ] {
            assert!(inherited(name), "{name}");
        }
    }

    #[test]
    fn a_child_is_ended_with_its_own_children() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        // The grandchild does not hear the polite signal.
        let script = "sh -c 'trap \"\" TERM; echo $$; sleep 100; sleep 100' & wait";
        let mut child = Cmd::new("sh").args(["-c", script]).spawn(&log).unwrap();
        let grandchild: u32 = loop {
            assert!(
                child
                    .wait_timeout(Duration::from_millis(20))
                    .unwrap()
                    .is_none()
            );
            let text = std::fs::read_to_string(&log).unwrap();
            if let Some(pid) = text.lines().last().and_then(|line| line.parse().ok()) {
                break pid;
            }
        };
        assert!(runs(grandchild));
        child.end();
        for _ in 0..100 {
            if !runs(grandchild) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("process {grandchild} is still there");
    }

    #[test]
    fn a_child_is_fed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let feed = |pipe: &mut dyn std::io::Write| Ok(pipe.write_all(b"one two")?);
        Cmd::new("wc").arg("-w").feed(&log, feed).unwrap();
        assert!(std::fs::read_to_string(&log).unwrap().ends_with("\n2\n"));
        assert_eq!(Cmd::new("cat").stdin("x\n").read().unwrap(), "x");
        assert_eq!(Cmd::new("cat").read().unwrap(), "");
    }

    #[test]
    fn feeding_a_child_that_dies_reports_the_child() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let error = Cmd::new("sh")
            .args(["-c", "echo broken; exit 9"])
            .feed(&log, |pipe| {
                // More than a pipe holds.
                for _ in 0..64 {
                    pipe.write_all(&[0; 1 << 16])?;
                }
                Ok(())
            })
            .unwrap_err();
        assert!(format!("{error:#}").contains("exit status: 9"), "{error:#}");
    }
}
