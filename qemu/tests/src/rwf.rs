// SPDX-License-Identifier: GPL-2.0

//! `rwf`: reads or writes a file with and without `RWF_UNCACHED` and tells how
//! fast that was and what it left in the page cache.

use crate::uncached::raw::{Cached, cachestat};
use crate::uncached::{PLAIN, UNCACHED, read_at, write_at};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, fadvise, fsync};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: rwf read|write [-p] [-c] [-b BYTES] [-s BYTES] FILE

Reads or writes FILE from its start with RWF_UNCACHED; prints MB/s and what the
page cache holds of FILE before and after.

  -p        plainly, without RWF_UNCACHED
  -c        with FILE put out of the cache first
  -b BYTES  each request (64K)
  -s BYTES  all of them (read: the whole file; write: 16M)

BYTES may end in K, M or G. A write overwrites FILE with zeros and ends with
fsync. Exit status: 0 done, 1 failed, 2 usage, 95 RWF_UNCACHED is not supported
on FILE.";

/// Exit status where the flag is not supported: EOPNOTSUPP's number.
const UNSUPPORTED: u8 = 95;
const USAGE_ERROR: u8 = 2;

/// What the command line asks for.
#[derive(Debug, Eq, PartialEq)]
struct Request {
    write: bool,
    plain: bool,
    cold: bool,
    part: usize,
    size: Option<u64>,
    file: PathBuf,
}

/// Runs the program with these arguments.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let request = match parse(args) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("error: {error:#}\n{USAGE}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match run(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if !request.plain && error.downcast_ref() == Some(&Errno::OPNOTSUPP) => {
            eprintln!(
                "error: {}: this kernel or file system does not support RWF_UNCACHED; \
                 -p does the same without it",
                request.file.display()
            );
            ExitCode::from(UNSUPPORTED)
        }
        Err(error) => {
            eprintln!("error: {}: {error:#}", request.file.display());
            ExitCode::FAILURE
        }
    }
}

fn parse(args: impl IntoIterator<Item = String>) -> Result<Request> {
    let mut args = args.into_iter();
    let write = match args.next().as_deref() {
        Some("read") => false,
        Some("write") => true,
        _ => bail!("expected read or write"),
    };
    let mut request = Request {
        write,
        plain: false,
        cold: false,
        part: 64 << 10,
        size: write.then_some(16 << 20),
        file: PathBuf::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().context(format!("{arg} needs a number"));
        match arg.as_str() {
            "-p" => request.plain = true,
            "-c" => request.cold = true,
            "-b" => request.part = bytes(&value()?)?.try_into()?,
            "-s" => request.size = Some(bytes(&value()?)?),
            _ if arg.starts_with('-') || request.file != Path::new("") => {
                bail!("unexpected argument {arg:?}")
            }
            _ => request.file = arg.into(),
        }
    }
    ensure!(request.file != Path::new(""), "no file is named");
    ensure!(request.part > 0, "a request of no bytes");
    Ok(request)
}

/// A number with a unit.
fn bytes(text: &str) -> Result<u64> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().context(format!("bad number {text:?}"))?;
    number
        .checked_mul(1 << shift)
        .context(format!("{text} is too much"))
}

fn run(request: &Request) -> Result<()> {
    let file = File::options()
        .read(true)
        .write(request.write)
        .create(request.write)
        .truncate(false)
        .open(&request.file)
        .context("cannot open")?;
    if request.cold {
        fsync(&file).context("cannot sync")?;
        fadvise(&file, 0, None, Advice::DontNeed).context("cannot advise")?;
    }
    let flags = if request.plain { PLAIN } else { UNCACHED };
    let size = match request.size {
        Some(size) => size,
        None => file.metadata().context("cannot stat")?.len(),
    };

    println!("before   {}", shown(&file));
    let begin = Instant::now();
    let done = match request.write {
        true => write_all(&file, size, request.part, flags)?,
        false => read_all(&file, size, request.part, flags)?,
    };
    if request.write {
        println!("written  {}", shown(&file));
        fsync(&file).context("cannot sync")?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("after    {}", shown(&file));
    println!(
        "{} {}: {done} bytes, {} each, {seconds:.3} s, {:.1} MB/s",
        if request.plain { "plain" } else { "uncached" },
        if request.write { "write" } else { "read" },
        request.part,
        done as f64 / 1e6 / seconds.max(1e-9)
    );
    Ok(())
}

fn read_all(file: &File, size: u64, part: usize, flags: ReadWriteFlags) -> Result<u64> {
    let mut buffer = vec![0; part];
    let mut pos = 0;
    while pos < size {
        let length = part.min(usize::try_from(size - pos).unwrap_or(part));
        match read_at(file, pos, &mut buffer[..length], flags)? {
            0 => break,
            done => pos += done as u64,
        }
    }
    Ok(pos)
}

fn write_all(file: &File, size: u64, part: usize, flags: ReadWriteFlags) -> Result<u64> {
    let buffer = vec![0; part];
    let mut pos = 0;
    while pos < size {
        let length = part.min(usize::try_from(size - pos).unwrap_or(part));
        match write_at(file, pos, &buffer[..length], flags)? {
            0 => bail!("nothing was written at {pos}"),
            done => pos += done as u64,
        }
    }
    Ok(pos)
}

/// The cache's share of a file, as a line.
fn shown(file: &File) -> String {
    match cachestat(file, 0, 0) {
        Ok(Cached {
            pages,
            dirty,
            writeback,
            evicted,
            ..
        }) => format!(
            "cached {pages} pages, dirty {dirty}, under writeback {writeback}, reclaimed {evicted}"
        ),
        Err(error) => format!("not known: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Request> {
        parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn the_command_line() {
        let right = Request {
            write: true,
            plain: true,
            cold: false,
            part: 4096,
            size: Some(3 << 30),
            file: "x".into(),
        };
        assert_eq!(parsed("write -p -b 4K x -s 3G").unwrap(), right);
        for text in [
            "",
            "copy x",
            "read",
            "read x y",
            "read -b x",
            "read -b 0 x",
            "read -q x",
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn plain_io_on_a_file() {
        let file = std::env::temp_dir().join(format!("rwf-{}", std::process::id()));
        let run = |verb: &str| {
            run(&parsed(&format!("{verb} -p -b 1000 -s 4500 {}", file.display())).unwrap())
        };
        let result = run("write").and_then(|()| run("read"));
        let length = std::fs::metadata(&file).map(|meta| meta.len());
        std::fs::remove_file(&file).unwrap();
        result.unwrap();
        assert_eq!(length.unwrap(), 4500);
    }
}
