// SPDX-License-Identifier: GPL-2.0

//! The system calls that no safe crate wraps: file handles, freezing, msync, and
//! writes that are submitted together.
#![expect(
    unsafe_code,
    reason = "rustix and nix have neither file handles nor FIFREEZE nor Linux AIO, map only \
              unsafely, and io-uring's requests name memory by address"
)]

use io_uring::{IoUring, opcode, types};
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

/// Has what is dirty of a file written, waits for nothing and promises nothing.
pub fn start_writing(file: &File) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: sync_file_range takes numbers only; a length of 0 is all of the file.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) }).map(|_| ())
}

/// Reads the 32-bit number that an ioctl of a file returns through its argument.
pub fn ioctl_read(file: &File, request: libc::Ioctl) -> Result<u32, Errno> {
    let mut value: libc::c_long = 0;
    // SAFETY: the requests for which this is called write an int or a long.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) })?;
    Ok(value as u32)
}

/// A write: its position and its bytes.
pub type Write<'a> = (u64, &'a [u8]);

/// Writes through io_uring, at most `depth` at a time; each one's result.
pub fn uring_write(
    file: &File,
    writes: &[Write],
    depth: usize,
) -> std::io::Result<Vec<Result<usize, Errno>>> {
    let mut ring = IoUring::new(depth as u32)?;
    let mut results = vec![Err(Errno::CANCELED); writes.len()];
    let (mut next, mut done) = (0, 0);
    while done < writes.len() {
        while next < writes.len() && next - done < depth {
            let (pos, bytes) = writes[next];
            let fd = types::Fd(file.as_raw_fd());
            let entry = opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
                .offset(pos)
                .build()
                .user_data(next as u64);
            // SAFETY: file and bytes are borrowed for as long as this function
            // runs, and it does not return before the request has ended.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("there is room for as many as may be on their way");
            next += 1;
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The kernel may still read the bytes of other requests.
            Err(_) => std::process::abort(),
            Ok(_) => {}
        }
        for entry in ring.completion() {
            results[entry.user_data() as usize] = length(i64::from(entry.result()));
            done += 1;
        }
    }
    Ok(results)
}

/// Writes through Linux AIO, at most `depth` at a time; each one's result.
pub fn aio_write(
    file: &File,
    writes: &[Write],
    depth: usize,
) -> std::io::Result<Vec<Result<usize, Errno>>> {
    let context = Aio::new(depth)?;
    let mut results = vec![Err(Errno::CANCELED); writes.len()];
    let (mut next, mut done) = (0, 0);
    while done < writes.len() {
        while next < writes.len() && next - done < depth {
            if let Err(error) = context.submit(file, writes[next], next) {
                results[next] = Err(error);
                done += 1;
            }
            next += 1;
        }
        if done < writes.len() {
            let (number, result) = context.wait();
            results[number] = result;
            done += 1;
        }
    }
    Ok(results)
}

/// A context of Linux AIO.
struct Aio(libc::c_ulong);

impl Aio {
    fn new(depth: usize) -> std::io::Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one number.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        match result {
            0 => Ok(Aio(context)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    fn submit(&self, file: &File, (pos, bytes): Write, number: usize) -> Result<(), Errno> {
        // SAFETY: a block of zeros is a valid `struct iocb`.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = number as u64;
        block.aio_lio_opcode = 1; // IOCB_CMD_PWRITE
        block.aio_fildes = file.as_raw_fd() as u32;
        block.aio_buf = bytes.as_ptr() as u64;
        block.aio_nbytes = bytes.len() as u64;
        block.aio_offset = pos as i64;
        let mut list = [&raw mut block];
        // SAFETY: the kernel copies the block. The caller has borrowed file and
        // bytes, and waits for the request before it gives them back.
        let result = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) };
        check(result as i32).map(|_| ())
    }

    /// Waits for one request: its number and its result.
    fn wait(&self) -> (usize, Result<usize, Errno>) {
        let mut event = [0u64; 4];
        loop {
            let none = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: the kernel writes one `struct io_event`, four words.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    1,
                    1,
                    event.as_mut_ptr(),
                    none,
                )
            };
            match check(result as i32) {
                Ok(1) => return (event[0] as usize, length(event[2] as i64)),
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel may still read the bytes of requests.
                Err(_) => std::process::abort(),
            }
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours and is used no more; the kernel waits for
        // what is on its way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// A length, or the negative number of an error.
fn length(result: i64) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
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
