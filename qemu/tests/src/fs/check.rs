// SPDX-License-Identifier: GPL-2.0

//! Comparisons that say what they compare, and data that is known by its number.

use crate::pattern;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::thread;

/// Fails unless a value is what it should be.
pub fn same<T: Debug + PartialEq>(what: &str, got: T, right: T) -> Result<()> {
    ensure!(got == right, "{what}: {got:?}, not {right:?}");
    Ok(())
}

/// Fails unless a call fails with this error.
pub fn fails<T>(what: &str, result: Result<T, Errno>, right: Errno) -> Result<()> {
    match result {
        Err(error) if error == right => Ok(()),
        Err(error) => bail!("{what}: {}, not {}", name(error), name(right)),
        Ok(_) => bail!("{what}: success, not {}", name(right)),
    }
}

/// The name of an error.
fn name(error: Errno) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(error.raw_os_error()))
}

/// The error number of a result of the standard library.
pub fn errno<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Writes the data of number `id` to a range.
pub fn put(file: &File, id: u16, range: Range<u64>) -> Result<()> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    pattern::fill(id, range.start, &mut bytes);
    put_bytes(file, range.start, &bytes)
}

/// Writes bytes at a position.
pub fn put_bytes(file: &File, mut pos: u64, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let done = pwrite(file, bytes, pos).context(format!("cannot write at {pos}"))?;
        ensure!(done > 0, "nothing was written at {pos}");
        bytes = &bytes[done..];
        pos += done as u64;
    }
    Ok(())
}

/// Reads a range, all of it.
pub fn get(file: &File, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let mut done = 0;
    while done < bytes.len() {
        let pos = range.start + done as u64;
        let length =
            pread(file, &mut bytes[done..], pos).context(format!("cannot read at {pos}"))?;
        ensure!(
            length > 0,
            "the file ends at {pos} and not at {}",
            range.end
        );
        done += length;
    }
    Ok(bytes)
}

/// Fails unless the range holds the data of number `id`.
pub fn holds(file: &File, id: u16, range: Range<u64>) -> Result<()> {
    pattern::check(id, range.start, &get(file, range)?)
}

/// Fails unless the range is all zeros.
pub fn zeros(file: &File, range: Range<u64>) -> Result<()> {
    pattern::check_hole(range.start, &get(file, range)?)
}

/// Fails unless a file has this size.
pub fn size(file: &File, right: u64) -> Result<()> {
    same("size", file.metadata().context("fstat")?.len(), right)
}

/// Runs something as another user, who has no privilege, in a thread.
pub fn as_user<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    run: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let groups: Vec<_> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let switched = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&groups).context("setgroups")?;
        set_thread_res_gid(gid, gid, gid).context("setresgid")?;
        // The kernel takes the capabilities away with the identity.
        set_thread_res_uid(uid, uid, uid).context("setresuid")?;
        run()
    };
    thread::scope(|scope| {
        scope
            .spawn(switched)
            .join()
            .expect("it reports by its result")
    })
}
