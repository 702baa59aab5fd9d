// SPDX-License-Identifier: GPL-2.0

//! The exit codes of every verb, and how an error carries one to `main`.

use std::fmt;

/// What a run of xtask says to its caller; below 124, so that neither a shell
/// nor `git bisect run` takes one for something else.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All asked work was done and is good.
    Good = 0,
    /// Tests ran and some failed.
    TestsFailed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// The machine lacks something; `doctor` says what.
    Environment = 3,
    /// The kernel source could not be had.
    Fetch = 4,
    /// Patches do not apply, or their round trip differs.
    Patch = 5,
    /// The kernel configuration cannot be satisfied.
    Config = 6,
    /// The kernel or the module did not build.
    Build = 7,
    /// The guest panicked or oopsed.
    Panic = 10,
    /// The guest printed a splat or is tainted, though its tests passed.
    Splat = 11,
    /// The guest did not come up in time.
    BootTimeout = 12,
    /// The guest came up and did not finish in time.
    TestTimeout = 13,
    /// QEMU did not start or died by itself.
    Qemu = 14,
    /// No test ran, or a required one was skipped.
    NothingRan = 15,
}

impl Exit {
    /// The number for the operating system.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// An error together with its exit code; prints as the error alone.
#[derive(Debug)]
struct Coded {
    exit: Exit,
    error: anyhow::Error,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for Coded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Attaches an exit code to an error.
pub trait WithExit<T> {
    /// The same result, whose error makes the program exit with `exit`.
    fn exit(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> WithExit<T> for Result<T, E> {
    fn exit(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| {
            anyhow::Error::new(Coded {
                exit,
                error: error.into(),
            })
        })
    }
}

/// An error that is only a text, with its exit code.
pub fn error(
    exit: Exit,
    text: impl fmt::Display + fmt::Debug + Send + Sync + 'static,
) -> anyhow::Error {
    anyhow::Error::new(Coded {
        exit,
        error: anyhow::Error::msg(text),
    })
}

/// The outermost exit code in the chain of an error. An error without one is
/// the machine's fault: code 1 is kept for failed tests.
pub fn of(error: &anyhow::Error) -> Exit {
    fn inner(error: &anyhow::Error) -> Option<Exit> {
        if let Some(coded) = error.downcast_ref::<Coded>() {
            return Some(coded.exit);
        }
        error
            .chain()
            .find_map(|cause| cause.downcast_ref::<Coded>().map(|coded| coded.exit))
    }
    inner(error).unwrap_or(Exit::Environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    fn fails() -> anyhow::Result<()> {
        Err(anyhow::anyhow!("cause")).context("middle")
    }

    #[test]
    fn the_outermost_code_wins_and_the_text_is_whole() {
        let error = fails()
            .exit(Exit::Patch)
            .context("outer")
            .exit(Exit::Build)
            .context("top")
            .unwrap_err();
        assert_eq!(of(&error), Exit::Build);
        assert_eq!(format!("{error:#}"), "top: outer: middle: cause");
    }

    #[test]
    fn an_error_without_a_code_is_never_one() {
        assert_eq!(of(&fails().unwrap_err()), Exit::Environment);
    }
}
