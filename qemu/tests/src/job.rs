// SPDX-License-Identifier: GPL-2.0

//! What the command line asks for: `SUITE [--fs TYPE] [key=value...]`.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The request that a run of the program serves.
#[derive(Clone, Debug)]
pub struct Job {
    /// The suite.
    pub suite: String,
    /// The file system type under test: `rext2`, or `ext2` for its C peer.
    pub fs: String,
    /// Run this case, `GROUP/NAME`, in this process and report nothing.
    pub case: Option<String>,
    fs_given: bool,
    values: BTreeMap<String, String>,
}

impl Job {
    /// Reads the arguments, without the program's name.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Job> {
        let mut args = args.into_iter();
        let mut job = Job {
            suite: args.next().context("no suite is named")?,
            fs: "rext2".into(),
            case: None,
            fs_given: false,
            values: BTreeMap::new(),
        };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--fs" => {
                    job.fs = args.next().context("--fs needs a file system type")?;
                    job.fs_given = true;
                }
                "--case" => job.case = Some(args.next().context("--case needs a name")?),
                _ => match arg.split_once('=') {
                    Some((key, value)) => {
                        job.values.insert(key.into(), value.into());
                    }
                    None => bail!("unknown argument {arg:?}; expected key=value"),
                },
            }
        }
        Ok(job)
    }

    /// The arguments that make the same request for one case.
    pub fn args_for(&self, case: &str) -> Vec<String> {
        let mut args = vec![self.suite.clone()];
        if self.fs_given {
            args.extend(["--fs".into(), self.fs.clone()]);
        }
        args.extend(["--case".into(), case.into()]);
        args.extend(
            self.values
                .iter()
                .map(|(key, value)| format!("{key}={value}")),
        );
        args
    }

    /// The file system type, if the request names one.
    pub fn fs_given(&self) -> Option<&str> {
        self.fs_given.then_some(self.fs.as_str())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value of a key as a number or other type, or its default.
    pub fn get_or<T: FromStr>(&self, key: &str, default: T) -> Result<T> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text.parse().ok().context(format!("bad value {key}={text}")),
        }
    }

    /// Whether our module is under test, not its C peer.
    pub fn is_rext2(&self) -> bool {
        self.fs == "rext2"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Job> {
        Job::parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn a_case_gets_the_same_request() {
        let job = parse("smoke cycles=20 --fs ext2").unwrap();
        let case = Job::parse(job.args_for("mount/ro")).unwrap();
        assert_eq!((case.suite.as_str(), case.fs.as_str()), ("smoke", "ext2"));
        assert_eq!(case.case.as_deref(), Some("mount/ro"));
        assert_eq!(case.get_or("cycles", 0).unwrap(), 20);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for text in ["", "smoke --fs", "smoke verbose"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("smoke n=x").unwrap().get_or("n", 1).is_err());
    }
}
