// SPDX-License-Identifier: GPL-2.0

//! The system calls that no safe crate wraps: cachestat, and io_uring with
//! flags for each request.
#![expect(
    unsafe_code,
    reason = "rustix and nix have no cachestat, and io-uring's requests name memory by address"
)]

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
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

/// Does one request at `pos` and waits for it; `bytes` is what is written, or
/// takes what is read. The length or error is the request's own.
pub fn uring(
    file: &File,
    request: Request,
    bytes: &mut [u8],
    pos: u64,
    rw_flags: i32,
    in_worker: bool,
) -> io::Result<Result<usize, Errno>> {
    // The kernel may use the memory for as long as the request lives, which an
    // error below may leave behind: memory that is never freed is always good.
    let memory: &'static mut [u8] = Box::leak(Box::from(&*bytes));
    let (start, length) = (memory.as_mut_ptr(), memory.len() as u32);
    let vector: &'static libc::iovec = Box::leak(Box::new(libc::iovec {
        iov_base: start.cast(),
        iov_len: memory.len(),
    }));
    let mut ring = IoUring::new(1)?;
    // SAFETY: the vector names `memory`, which is valid for ever.
    unsafe { ring.submitter().register_buffers(&[*vector]) }?;

    let fd = types::Fd(file.as_raw_fd());
    macro_rules! entry {
        ($op:ident($($argument:expr),*)) => {
            opcode::$op::new(fd, $($argument),*).offset(pos).rw_flags(rw_flags).build()
        };
    }
    let entry: Entry = match request {
        Request::Read => entry!(Read(start, length)),
        Request::Readv => entry!(Readv(vector, 1)),
        Request::ReadFixed => entry!(ReadFixed(start, length, 0)),
        Request::Write => entry!(Write(start, length)),
        Request::Writev => entry!(Writev(vector, 1)),
        Request::WriteFixed => entry!(WriteFixed(start, length, 0)),
    };
    let flags = match in_worker {
        true => Flags::ASYNC,
        false => Flags::empty(),
    };
    // SAFETY: all memory that the entry names is leaked, so it outlives the
    // request; nobody else touches `memory` until the request has ended; `file`
    // is open now, and the kernel takes a reference of its own.
    unsafe { ring.submission().push(&entry.flags(flags)) }.map_err(io::Error::other)?;
    let result = loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if let Some(entry) = ring.completion().next() {
            break entry.result();
        }
    };
    bytes.copy_from_slice(memory);
    Ok(match usize::try_from(result) {
        Ok(length) => Ok(length),
        Err(_) => Err(Errno::from_raw_os_error(-result)),
    })
}
