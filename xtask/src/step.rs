// SPDX-License-Identifier: GPL-2.0

//! Progress on stderr: one line a step, with a bar or spinner on a terminal and
//! a heartbeat line elsewhere. stdout is only for results.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a silent step says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// A step that runs: `build    kernel 6.12.117 +14 patches   ok  41.2 s  (log …)`.
pub struct Step {
    verb: String,
    what: String,
    log: Option<PathBuf>,
    begin: Instant,
    bar: Option<ProgressBar>,
    heartbeat: Option<(Sender<()>, JoinHandle<()>)>,
    finished: bool,
}

impl Step {
    /// Begins a step of `verb`.
    pub fn new(verb: &str, what: impl Into<String>) -> Self {
        let what = what.into();
        let (bar, heartbeat) = if plain() {
            (None, Some(heartbeat(label(verb, &what))))
        } else {
            let bar = ProgressBar::new_spinner().with_message(label(verb, &what));
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_style(style("{spinner} {msg}  {elapsed}"));
            bar.enable_steady_tick(Duration::from_millis(120));
            (Some(bar), None)
        };
        Step {
            verb: verb.into(),
            what,
            log: None,
            begin: Instant::now(),
            bar,
            heartbeat,
            finished: false,
        }
    }

    /// Names the log that holds the details.
    pub fn log(mut self, log: &Path) -> Self {
        self.log = Some(log.to_owned());
        self
    }

    /// Turns the spinner into a bar of `total` units, bytes or things.
    pub fn total(&self, total: u64, bytes: bool) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_style(style(if bytes {
                "{spinner} {msg}  {wide_bar} {bytes}/{total_bytes}  {eta}"
            } else {
                "{spinner} {msg}  {wide_bar} {pos}/{len}  {eta}"
            }));
        }
    }

    /// Moves the bar to `position`.
    pub fn at(&self, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }

    /// Changes what the final line says about the object of the step.
    pub fn what(&mut self, what: impl Into<String>) {
        self.what = what.into();
        if let Some(bar) = &self.bar {
            bar.set_message(label(&self.verb, &self.what));
        }
    }

    /// The step went well.
    pub fn ok(self) {
        self.end("ok");
    }

    /// The step ended with this word: `ok`, `unchanged`, `3 failed`.
    pub fn end(mut self, word: &str) {
        self.finish(word);
    }

    fn finish(&mut self, word: &str) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if let Some((stop, thread)) = self.heartbeat.take() {
            drop(stop);
            let _ = thread.join();
        }
        let log = self
            .log
            .as_ref()
            .map(|log| format!("  (log {})", log.display()))
            .unwrap_or_default();
        eprintln!(
            "{:<50}  {word:<9} {:>6.1} s{log}",
            label(&self.verb, &self.what),
            self.begin.elapsed().as_secs_f64()
        );
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.finish("failed");
    }
}

/// A remark between the steps.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}

/// Whether progress is plain lines: no terminal, or CI.
fn plain() -> bool {
    !std::io::stderr().is_terminal() || std::env::var_os("CI").is_some_and(|value| value == "true")
}

fn label(verb: &str, what: &str) -> String {
    format!("{verb:<8} {what}")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn heartbeat(label: String) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let begin = Instant::now();
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(HEARTBEAT) {
            eprintln!("{label}  … {} s", begin.elapsed().as_secs());
        }
    });
    (stop, thread)
}
