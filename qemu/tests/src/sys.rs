// SPDX-License-Identifier: GPL-2.0

//! The system calls that no safe crate wraps: file handles, freezing, msync.
#![expect(
    unsafe_code,
    reason = "rustix and nix have neither file handles nor FIFREEZE, and map only unsafely"
)]

use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest handle of any file system: `MAX_HANDLE_SZ`.
const LONGEST: usize = 128;
/// `FIFREEZE` and `FITHAW`.
const FIFREEZE: libc::Ioctl = 0xC004_5877;
const FITHAW: libc::Ioctl = 0xC004_5878;

/// A file handle as name_to_handle_at(2) gives it: `struct file_handle` with
/// room for the longest.
#[repr(C)]
#[derive(Clone)]
pub struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

impl Handle {
    /// The handle of what `path` names; a symbolic link itself.
    pub fn of(path: &Path) -> Result<Handle, Errno> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        let mut handle = Handle {
            length: LONGEST as u32,
            kind: 0,
            bytes: [0; LONGEST],
        };
        let mut mount = 0;
        // SAFETY: the path ends with a zero byte. The kernel writes at most
        // `length` bytes behind the head of the handle, which has as many, and
        // one number to `mount`.
        let result = unsafe {
            libc::name_to_handle_at(
                libc::AT_FDCWD,
                path.as_ptr(),
                (&raw mut handle).cast(),
                &raw mut mount,
                0,
            )
        };
        check(result).map(|_| handle)
    }

    /// Opens what the handle names on the file system of `mount`.
    pub fn open(&mut self, mount: impl AsFd, flags: i32) -> Result<OwnedFd, Errno> {
        // SAFETY: the kernel reads the head and `length` bytes behind it.
        let result = unsafe {
            libc::open_by_handle_at(
                mount.as_fd().as_raw_fd(),
                (&raw mut *self).cast(),
                flags | libc::O_CLOEXEC,
            )
        };
        // SAFETY: the kernel has just made this descriptor, for us alone.
        check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Its bytes, to change them.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[..(self.length as usize).min(LONGEST)]
    }
}

/// Freezes the file system that the descriptor is on.
pub fn freeze(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: FIFREEZE takes no argument.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FIFREEZE, 0) }).map(|_| ())
}

/// Thaws it.
pub fn thaw(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: FITHAW takes no argument.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FITHAW, 0) }).map(|_| ())
}

/// Writes back what a mapping has changed: msync(2) with MS_SYNC.
pub fn msync(start: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: msync only looks up the mappings of a range of addresses, and
    // fails where there is none.
    check(unsafe { libc::msync(start.cast(), length, libc::MS_SYNC) }).map(|_| ())
}

/// Reads the 32-bit number that an ioctl of a file returns through its argument.
pub fn ioctl_read(file: &File, request: libc::Ioctl) -> Result<u32, Errno> {
    let mut value: libc::c_long = 0;
    // SAFETY: the requests for which this is called write an int or a long.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) })?;
    Ok(value as u32)
}

fn check(result: i32) -> Result<i32, Errno> {
    match result {
        -1 => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        value => Ok(value),
    }
}
