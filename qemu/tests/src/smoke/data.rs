// SPDX-License-Identifier: GPL-2.0

//! File data by every way of reading, against the known contents.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may have one"
)]

use super::{image, with};
use crate::case::skip;
use crate::job::Job;
use crate::mount::Mount;
use crate::pattern;
use crate::tree::{self, Content, Layout};
use crate::walk::Aligned;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{
    Advice, Mode, OFlags, SeekFrom, copy_file_range, fadvise, memfd_create, open, seek, sendfile,
};
use rustix::fs::{FileType, MemfdFlags};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, pread, preadv2};
use rustix::pipe::{SpliceFlags, pipe, splice};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Holes are sampled: this much at each end and in the middle.
const SAMPLE: u64 = 64 << 10;
const STEP: u64 = 256 << 10;

fn files(layout: &Layout) -> impl Iterator<Item = (String, Content)> {
    let entries = tree::entries(layout).into_iter();
    entries.filter_map(|entry| Some((entry.path.clone(), entry.content()?.clone())))
}

fn file(layout: &Layout, path: &str) -> Result<(String, Content)> {
    files(layout)
        .find(|(known, _)| known == path)
        .context(format!("the tree of layout {} has no {path}", layout.name))
}

fn open_at(mount: &Mount, path: &str, flags: OFlags) -> Result<OwnedFd> {
    open(mount.join(path), OFlags::RDONLY | flags, Mode::empty())
        .context(format!("cannot open {path}"))
}

/// Checks what was read from byte `pos` on.
fn check(content: &Content, pos: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let end = pos + bytes.len() as u64;
    ensure!(
        end <= content.size,
        "{} bytes after the end",
        end - content.size
    );
    for (is_data, part) in content.parts(pos..end) {
        let bytes = &bytes[(part.start - pos) as usize..(part.end - pos) as usize];
        match is_data {
            true => pattern::check(content.number, part.start, bytes)?,
            false => pattern::check_hole(part.start, bytes)?,
        }
    }
    Ok(())
}

/// The parts of a file worth reading: all data, and samples of the holes.
fn samples(content: &Content) -> Vec<Range<u64>> {
    let mut samples = Vec::new();
    for (is_data, part) in content.parts(0..content.size) {
        if is_data || part.end - part.start <= 3 * SAMPLE {
            samples.push(part);
        } else {
            let middle = part.start + (part.end - part.start) / 2;
            samples.push(part.start..part.start + SAMPLE);
            samples.push(middle..middle + SAMPLE);
            samples.push(part.end - SAMPLE..part.end);
        }
    }
    samples
}

/// Reads `range` by `read` in steps and checks each.
fn check_range(
    content: &Content,
    range: &Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Errno>,
) -> Result<()> {
    let mut buffer = vec![0; STEP as usize];
    let mut pos = range.start;
    while pos < range.end {
        let length = (range.end - pos).min(STEP) as usize;
        let done = read(pos, &mut buffer[..length]).context(format!("cannot read at {pos}"))?;
        ensure!(done == length, "{done} of {length} bytes read at {pos}");
        check(content, pos, &buffer[..done])?;
        pos += done as u64;
    }
    Ok(())
}

/// Every file has its data where it belongs and zeros elsewhere.
pub fn content(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for (path, content) in files(layout) {
            let fd = open_at(mount, &path, OFlags::empty())?;
            for range in samples(&content) {
                check_range(&content, &range, |pos, buffer| pread(&fd, buffer, pos))
                    .context(path.clone())?;
            }
        }
        Ok(())
    })
}

/// Vectors of odd lengths at random offsets.
pub fn odd_reads(job: &Job, layout: &Layout) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(job.get_or("seed", 1)?);
    with(job, layout, |mount| {
        for path in ["dense", "stripes", "levels", "sparse"] {
            // Some layouts have no room for the largest.
            let Ok((_, content)) = file(layout, path) else {
                continue;
            };
            let fd = open_at(mount, path, OFlags::empty())?;
            for _ in 0..60 {
                let near = match content.data.len() {
                    0 => 0,
                    n => content.data[random.usize(0..n)].start,
                };
                let pos = near.saturating_sub(random.u64(0..5000)) + random.u64(0..5000);
                let mut parts = [
                    vec![0; random.usize(1..3000)],
                    vec![0; random.usize(0..9000)],
                ];
                let [one, two] = &mut parts;
                let mut slices = [IoSliceMut::new(one), IoSliceMut::new(two)];
                let done = preadv2(&fd, &mut slices, pos, ReadWriteFlags::empty())
                    .context(format!("{path}: cannot read at {pos}"))?;
                let bytes = parts.concat();
                let wanted = (bytes.len() as u64).min(content.size.saturating_sub(pos));
                ensure!(
                    done as u64 == wanted,
                    "{path}: {done} of {wanted} bytes at {pos}"
                );
                check(&content, pos, &bytes[..done]).context(path)?;
            }
        }
        Ok(())
    })
}

/// From the first to the last byte, with readahead and asked-for readahead.
pub fn sequential(job: &Job, layout: &Layout) -> Result<()> {
    let (path, content) = file(layout, "dense")?;
    for advice in [
        Advice::Normal,
        Advice::Sequential,
        Advice::Random,
        Advice::WillNeed,
    ] {
        with(job, layout, |mount| {
            let fd = open_at(mount, &path, OFlags::empty())?;
            fadvise(&fd, 0, None, advice).context("cannot advise")?;
            let whole = 0..content.size;
            check_range(&content, &whole, |pos, buffer| pread(&fd, buffer, pos))
                .context(format!("{advice:?}"))
        })?;
    }
    Ok(())
}

/// Direct reads: of sectors, of blocks, of much; not of anything else.
pub fn direct(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for (path, content) in files(layout) {
            let fd = open_at(mount, &path, OFlags::DIRECT)?;
            for range in samples(&content) {
                let aligned = range.start / 4096 * 4096..range.end;
                for size in [512, layout.block_size as usize, 128 << 10] {
                    let mut buffer = Aligned::new(size);
                    // The small sizes are about the edges of a range.
                    let starts = [aligned.start, aligned.end.saturating_sub(1) / 4096 * 4096];
                    for pos in starts {
                        let done = pread(&fd, buffer.bytes(), pos)
                            .context(format!("{path}: cannot read {size} bytes at {pos}"))?;
                        let wanted = (size as u64).min(content.size - pos);
                        ensure!(
                            done as u64 == wanted,
                            "{path}: {done} of {wanted} bytes at {pos}"
                        );
                        check(&content, pos, &buffer.bytes()[..done]).context(path.clone())?;
                    }
                }
            }
        }
        let (path, content) = file(layout, "dense")?;
        let fd = open_at(mount, &path, OFlags::DIRECT)?;
        let mut buffer = Aligned::new(8192);
        for (what, from, to, pos) in [
            ("offset", 0, 4096, 100),
            ("length", 0, 700, 4096),
            ("memory", 1, 513, 4096),
        ] {
            let got = pread(&fd, &mut buffer.bytes()[from..to], pos);
            ensure!(
                got == Err(Errno::INVAL),
                "a direct read with an odd {what} gave {got:?}"
            );
        }
        let end = pread(&fd, buffer.bytes(), content.size.next_multiple_of(4096));
        ensure!(end == Ok(0), "a direct read at the end gave {end:?}");
        Ok(())
    })
}

/// Mappings read the same, data and holes.
pub fn mapped(job: &Job, layout: &Layout) -> Result<()> {
    const PROT_READ: i32 = 1;
    const MAP_SHARED: i32 = 1;
    with(job, layout, |mount| {
        for path in ["dense", "stripes", "levels", "sparse", "hole-tail"] {
            let Ok((_, content)) = file(layout, path) else {
                continue;
            };
            for range in samples(&content) {
                let start = range.start / 4096 * 4096;
                let length = (range.end - start) as usize;
                let file = File::from(open_at(mount, path, OFlags::empty())?);
                let place = FileOffset::new(file, start);
                let region = MmapRegion::<()>::build(Some(place), length, PROT_READ, MAP_SHARED)
                    .context(format!("{path}: cannot map {length} bytes at {start}"))?;
                let mut bytes = vec![0; length];
                region.get_slice(0, length)?.copy_to(&mut bytes[..]);
                check(&content, start, &bytes).context(path)?;
            }
        }
        Ok(())
    })
}

/// SEEK_DATA and SEEK_HOLE walk over the data; the C driver knows one hole, at
/// the end.
pub fn seek_data_hole(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for (path, content) in files(layout) {
            let fd = open_at(mount, &path, OFlags::empty())?;
            let wanted = match job.is_rext2() {
                true => blocks(&content, layout.block_size),
                false if content.size == 0 => vec![],
                false => vec![0..content.size],
            };
            let mut found = Vec::new();
            let mut pos = 0;
            while found.len() <= wanted.len() {
                let data = match seek(&fd, SeekFrom::Data(pos)) {
                    Ok(data) => data,
                    Err(Errno::NXIO) => break,
                    Err(error) => return Err(error).context(format!("{path}: SEEK_DATA")),
                };
                pos = seek(&fd, SeekFrom::Hole(data)).context(format!("{path}: SEEK_HOLE"))?;
                found.push(data..pos);
            }
            ensure!(
                found == wanted,
                "{path}: data in {found:?}, not in {wanted:?}"
            );
            for beyond in [SeekFrom::Data(content.size), SeekFrom::Hole(content.size)] {
                let got = seek(&fd, beyond);
                ensure!(got == Err(Errno::NXIO), "{path}: {beyond:?} gave {got:?}");
            }
            let end = seek(&fd, SeekFrom::End(0));
            ensure!(end == Ok(content.size), "{path}: SEEK_END gave {end:?}");
        }
        Ok(())
    })
}

/// The parts of a file in whole blocks, joined, cut at its end.
fn blocks(content: &Content, block: u64) -> Vec<Range<u64>> {
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for data in &content.data {
        let start = data.start / block * block;
        let end = data.end.next_multiple_of(block).min(content.size);
        match blocks.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => blocks.push(start..end),
        }
    }
    blocks
}

/// FIEMAP covers the data and nothing else, and leads to it on the disk.
pub fn extents(job: &Job, layout: &Layout) -> Result<()> {
    let device = image(layout)?.device;
    let disk = open(&device, OFlags::RDONLY | OFlags::DIRECT, Mode::empty())
        .context(format!("cannot open {}", device.display()))?;
    with(job, layout, |mount| {
        for (path, content) in files(layout) {
            // The C driver takes seconds to step over a hole block by block.
            if !job.is_rext2() && content.size > 1 << 30 {
                continue;
            }
            let fd = open_at(mount, &path, OFlags::empty())?;
            let mut found: Vec<Range<u64>> = Vec::new();
            for extent in fiemap::Fiemap::new(fd.as_fd()) {
                let extent = match extent {
                    Err(error) if error.raw_os_error() == Some(95) => {
                        return skip("the driver has no FIEMAP");
                    }
                    extent => extent.context(format!("{path}: FIEMAP"))?,
                };
                let range = extent.fe_logical..extent.fe_logical + extent.fe_length;
                on_disk(&disk, &content, &range, extent.fe_physical).context(format!(
                    "{path}: extent {range:?} at {}",
                    extent.fe_physical
                ))?;
                match found.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => found.push(range),
                }
            }
            // The last extent may end with its block or with the file.
            if let Some(last) = found.last_mut() {
                last.end = last.end.min(content.size);
            }
            let wanted = blocks(&content, layout.block_size);
            ensure!(found == wanted, "{path}: extents {found:?}, not {wanted:?}");
        }
        Ok(())
    })
}

/// The first and the last sector of an extent, read from the device itself.
fn on_disk(disk: &OwnedFd, content: &Content, range: &Range<u64>, physical: u64) -> Result<()> {
    let mut buffer = Aligned::new(512);
    let last = (range.end - 1) / 512 * 512;
    for pos in [range.start, last] {
        if pos >= content.size {
            continue;
        }
        let at = physical + (pos - range.start);
        pread(disk, buffer.bytes(), at).context(format!("cannot read the disk at {at}"))?;
        let length = (content.size - pos).min(512) as usize;
        check(content, pos, &buffer.bytes()[..length])?;
    }
    Ok(())
}

/// Data through pipes and between files: splice, sendfile, copy_file_range.
pub fn copies(job: &Job, layout: &Layout) -> Result<()> {
    let (path, content) = file(layout, "dense")?;
    let whole = 0..content.size;
    with(job, layout, |mount| {
        let fd = open_at(mount, &path, OFlags::empty())?;
        let memory = || memfd_create("copy", MemfdFlags::CLOEXEC).context("cannot make a memfd");
        let size = content.size as usize;

        let target = memory()?;
        let mut pos = 0;
        while (pos as usize) < size {
            let done = sendfile(&target, &fd, Some(&mut pos), size).context("sendfile")?;
            ensure!(done > 0, "sendfile ended at {pos}");
        }
        check_range(&content, &whole, |pos, buffer| pread(&target, buffer, pos))
            .context("sendfile")?;

        let (output, input) = pipe().context("cannot make a pipe")?;
        let (mut from, mut to) = (0, 0);
        let target = memory()?;
        while (from as usize) < size {
            let taken = splice(
                &fd,
                Some(&mut from),
                &input,
                None,
                60_000,
                SpliceFlags::empty(),
            )
            .context("splice from the file")?;
            ensure!(taken > 0, "splice ended at {from}");
            let mut left = taken;
            while left > 0 {
                let flags = SpliceFlags::empty();
                left -= splice(&output, None, &target, Some(&mut to), left, flags)
                    .context("splice to memory")?;
            }
        }
        check_range(&content, &whole, |pos, buffer| pread(&target, buffer, pos))
            .context("splice")?;

        let target = memory()?;
        match copy_file_range(&fd, None, &target, None, size) {
            // Between different file systems the kernel may leave it to us.
            Err(Errno::XDEV) => Ok(()),
            Ok(done) => bail!("copy_file_range to another file system copied {done} bytes"),
            Err(error) => Err(error).context("copy_file_range"),
        }
    })
}

/// Reads and seeks at and after the end of files.
pub fn ends(job: &Job, layout: &Layout) -> Result<()> {
    with(job, layout, |mount| {
        for (path, content) in files(layout) {
            let fd = open_at(mount, &path, OFlags::empty())?;
            let mut buffer = [0; 64];
            for pos in [content.size, content.size + 1, content.size + (1 << 20)] {
                let got = pread(&fd, &mut buffer, pos);
                ensure!(got == Ok(0), "{path}: reading at {pos} gave {got:?}");
            }
            if content.size > 0 {
                let pos = content.size - 1;
                let got = pread(&fd, &mut buffer, pos);
                ensure!(got == Ok(1), "{path}: reading the last byte gave {got:?}");
                check(&content, pos, &buffer[..1]).context(path.clone())?;
            }
        }
        let fd = open_at(mount, "dense", OFlags::empty())?;
        let limit = seek(&fd, SeekFrom::Start(i64::MAX as u64));
        ensure!(
            limit == Err(Errno::INVAL),
            "seeking beyond the largest file gave {limit:?}"
        );
        let kind = rustix::fs::fstat(&fd).context("cannot stat")?.st_mode;
        ensure!(
            FileType::from_raw_mode(kind) == FileType::RegularFile,
            "not a regular file: mode {kind:o}"
        );
        Ok(())
    })
}
