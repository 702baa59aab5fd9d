// SPDX-License-Identifier: GPL-2.0

//! The system calls that no safe crate wraps: cachestat, and io_uring and aio
//! with flags for each request.
#![expect(
    unsafe_code,
    reason = "rustix and nix have no cachestat, and asynchronous requests name memory by address"
)]

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The number of cachestat(2), the same on every architecture; libc does not
/// name it on x86-64.
const CACHESTAT: libc::c_long = 451;

/// What the page cache holds of a range of a file, in pages: the kernel's
/// `struct cachestat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cached {
    /// In the cache.
    pub pages: u64,
    /// Dirty.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Taken out by reclaim, which leaves a trace; dropping leaves none.
    pub evicted: u64,
    /// The same, a short while ago.
    pub recently_evicted: u64,
}

/// The kernel's `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The cache's share of `length` bytes from `offset`; of all from there if
/// `length` is 0.
pub fn cachestat(file: &File, offset: u64, length: u64) -> io::Result<Cached> {
    let range = Range { offset, length };
    let mut cached = Cached::default();
    // SAFETY: cachestat(2) reads one `struct cachestat_range` and writes one
    // `struct cachestat`; both pointers come from live values of types with
    // the same fields and layout, and the kernel keeps neither.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut cached,
            0,
        )
    };
    match result {
        0 => Ok(cached),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The requests of io_uring that move data of files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// IORING_OP_READ
    Read,
    /// IORING_OP_READV
    Readv,
    /// IORING_OP_READ_FIXED
    ReadFixed,
    /// IORING_OP_WRITE
    Write,
    /// IORING_OP_WRITEV
    Writev,
    /// IORING_OP_WRITE_FIXED
    WriteFixed,
}

/// An instance of io_uring that does one request at a time.
pub struct Ring(IoUring);

impl Ring {
    /// A new one.
    pub fn new() -> io::Result<Ring> {
        IoUring::new(1).map(Ring)
    }

    /// Does one request at `pos` and waits for it; `bytes` is what is written,
    /// or takes what is read. The length or error is the request's own.
    pub fn run(
        &mut self,
        file: &File,
        request: Request,
        bytes: &mut [u8],
        pos: u64,
        rw_flags: ReadWriteFlags,
        in_worker: bool,
    ) -> io::Result<Result<usize, Errno>> {
        let (start, length) = (bytes.as_mut_ptr(), bytes.len() as u32);
        let vector = libc::iovec {
            iov_base: start.cast(),
            iov_len: bytes.len(),
        };
        let fixed = matches!(request, Request::ReadFixed | Request::WriteFixed);
        if fixed {
            // SAFETY: the vector names `bytes`, which nobody else can use before
            // this function returns; the request that uses the buffer has ended
            // then, and without a request the kernel only holds its pages.
            unsafe { self.0.submitter().register_buffers(&[vector]) }?;
        }
        let fd = types::Fd(file.as_raw_fd());
        let rw_flags = rw_flags.bits() as i32;
        macro_rules! entry {
            ($op:ident($($argument:expr),*)) => {
                opcode::$op::new(fd, $($argument),*).offset(pos).rw_flags(rw_flags).build()
            };
        }
        let entry: Entry = match request {
            Request::Read => entry!(Read(start, length)),
            Request::Readv => entry!(Readv(&raw const vector, 1)),
            Request::ReadFixed => entry!(ReadFixed(start, length, 0)),
            Request::Write => entry!(Write(start, length)),
            Request::Writev => entry!(Writev(&raw const vector, 1)),
            Request::WriteFixed => entry!(WriteFixed(start, length, 0)),
        };
        let flags = match in_worker {
            true => Flags::ASYNC,
            false => Flags::empty(),
        };
        // SAFETY: the entry names `bytes` and `vector`, which live until this
        // function returns, and `file`, which is open until then. The function
        // returns only when the request has ended, or when it was not accepted.
        unsafe { self.0.submission().push(&entry.flags(flags)) }.map_err(io::Error::other)?;
        let result = loop {
            match self.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whether the kernel still uses the memory is not known.
                Err(_) => std::process::abort(),
            }
            if let Some(entry) = self.0.completion().next() {
                break entry.result();
            }
        };
        if fixed {
            self.0.submitter().unregister_buffers()?;
        }
        Ok(match usize::try_from(result) {
            Ok(length) => Ok(length),
            Err(_) => Err(Errno::from_raw_os_error(-result)),
        })
    }
}

/// The kernel's `struct iocb` on little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    start: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct IoEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// Reads or writes `bytes` at `pos` by io_submit(2) and waits for the end. The
/// length or error is the request's own, or what io_submit(2) answers.
pub fn aio(
    file: &File,
    write: bool,
    bytes: &mut [u8],
    pos: u64,
    rw_flags: ReadWriteFlags,
) -> io::Result<Result<usize, Errno>> {
    let answer = |result: libc::c_long| match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    };
    let mut context: libc::c_ulong = 0;
    // SAFETY: io_setup(2) writes one aio_context_t, which is a long.
    answer(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) })?;
    let mut iocb = Iocb {
        rw_flags: rw_flags.bits() as i32,
        opcode: u16::from(write),
        fd: file.as_raw_fd() as u32,
        start: bytes.as_mut_ptr() as u64,
        length: bytes.len() as u64,
        offset: pos as i64,
        ..Iocb::default()
    };
    let list = [&raw mut iocb];
    // SAFETY: `list` holds one pointer to a `struct iocb`, which names `bytes`.
    // All live until this function returns, which it does when the request has
    // ended or was not accepted.
    let submitted =
        answer(unsafe { libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()) });
    let result = match submitted {
        Err(error) => Err(error.raw_os_error().unwrap_or_default()),
        Ok(_) => {
            let mut event = IoEvent::default();
            let none = std::ptr::null::<libc::timespec>();
            // SAFETY: io_getevents(2) writes one `struct io_event`.
            let got = answer(unsafe {
                libc::syscall(libc::SYS_io_getevents, context, 1, 1, &raw mut event, none)
            });
            match got {
                Ok(1) => usize::try_from(event.result).map_err(|_| -event.result as i32),
                // Whether the kernel still uses the memory is not known.
                _ => std::process::abort(),
            }
        }
    };
    // SAFETY: it takes no pointer; the context is ours.
    answer(unsafe { libc::syscall(libc::SYS_io_destroy, context) })?;
    Ok(result.map_err(Errno::from_raw_os_error))
}
