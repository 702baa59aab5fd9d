// SPDX-License-Identifier: GPL-2.0

//! The superblock of a mounted file system: what is written to it, and what an error leads to.
//!
//! A file system that is written to is marked on the disk as not clean at once, and as what it was
//! before when it is unmounted: one that needed a check keeps needing it.

#![forbid(unsafe_code)]

use crate::{
    group, held,
    ondisk::{self, compat, ro_compat, state},
    options::OnError,
    Rext2,
};
use core::{
    fmt,
    mem::offset_of,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};
use kernel::{
    fs::{self, buffer::BufHead, INode, SuperBlock},
    ondisk::{Le16, Le32},
    prelude::*,
};

/// What is known of the superblock on the disk. Its lock is the innermost one.
#[derive(Default)]
pub(crate) struct State {
    /// `s_state` as it was before we marked it.
    remembered: u16,
    /// Whether the file system is marked as not clean.
    active: bool,
}

/// A feature that is set when it is used for the first time.
#[derive(Clone, Copy)]
pub(crate) enum Feature {
    /// There are files of 2 GiB or more.
    LargeFile,
    /// There are extended attributes.
    ExtAttr,
}

/// The superblock in its buffer.
struct Raw<'a> {
    buffer: BufHead<'a>,
    /// Byte of the block at which it starts.
    start: usize,
}

impl<'a> Raw<'a> {
    fn read(sb: &'a SuperBlock<Rext2>) -> Result<Self> {
        let mount = sb.data();
        Ok(Self {
            buffer: sb.bread(mount.super_block)?,
            start: mount.super_offset,
        })
    }

    fn get16(&self, field: usize) -> Result<u16> {
        Ok(self.buffer.get::<Le16>(self.start + field)?.get())
    }

    fn get32(&self, field: usize) -> Result<u32> {
        Ok(self.buffer.get::<Le32>(self.start + field)?.get())
    }

    fn set16(&self, field: usize, value: u16) -> Result {
        self.buffer.put(self.start + field, &Le16::new(value))
    }

    fn set32(&self, field: usize, value: u32) -> Result {
        self.buffer.put(self.start + field, &Le32::new(value))
    }

    fn write(&self, wait: bool) -> Result {
        self.buffer.mark_dirty();
        if wait {
            self.buffer.sync()?;
        }
        Ok(())
    }
}

const STATE: usize = offset_of!(ondisk::SuperBlock, s_state);
const MNT_COUNT: usize = offset_of!(ondisk::SuperBlock, s_mnt_count);
const MAX_MNT_COUNT: usize = offset_of!(ondisk::SuperBlock, s_max_mnt_count);
const MTIME: usize = offset_of!(ondisk::SuperBlock, s_mtime);
const REV_LEVEL: usize = offset_of!(ondisk::SuperBlock, s_rev_level);

/// Marks the file system as being written to, and counts the mount.
pub(crate) fn activate(sb: &SuperBlock<Rext2>) -> Result {
    let mut known = sb.data().state.lock();
    let raw = Raw::read(sb)?;
    let old = raw.get16(STATE)?;
    let (count, max) = (raw.get16(MNT_COUNT)?, raw.get16(MAX_MNT_COUNT)? as i16);
    let last = raw.get32(offset_of!(ondisk::SuperBlock, s_lastcheck))?;
    let interval = raw.get32(offset_of!(ondisk::SuperBlock, s_checkinterval))?;
    let mtime = raw.get32(MTIME)?;
    let now = fs::real_seconds();
    if old & state::VALID == 0 {
        sb.warn(format_args!("not clean: running e2fsck is recommended"));
    } else if old & state::ERROR != 0 {
        sb.warn(format_args!("has errors: running e2fsck is recommended"));
    } else if max > 0 && i32::from(count) >= i32::from(max) {
        sb.warn(format_args!(
            "mounted {count} times without a check: running e2fsck is recommended"
        ));
    } else if interval != 0 && i64::from(last) + i64::from(interval) <= now {
        sb.warn(format_args!(
            "not checked for a long time: running e2fsck is recommended"
        ));
    }
    let fields = [
        (
            MAX_MNT_COUNT,
            max as u16,
            if max == 0 { 20 } else { max as u16 },
        ),
        (STATE, old, old & !state::VALID),
        (MNT_COUNT, count, count.wrapping_add(1)),
    ];
    for (field, _, new) in fields {
        raw.set16(field, new)?;
    }
    raw.set32(MTIME, now as u32)?;
    if let Err(e) = raw.write(true) {
        // It stays read-only, and what is in memory may still be written.
        for (field, old, _) in fields {
            raw.set16(field, old)?;
        }
        raw.set32(MTIME, mtime)?;
        return Err(e);
    }
    *known = State {
        remembered: old,
        active: true,
    };
    Ok(())
}

/// Marks the file system as what it was before it was written to, once all else is on the disk. With
/// open files that have no name, it stays marked: somebody has to free them.
pub(crate) fn deactivate(sb: &SuperBlock<Rext2>) -> Result {
    held::release(sb)?;
    counts(sb)?;
    sb.sync_device()?;
    let mut known = sb.data().state.lock();
    if !known.active {
        return Ok(());
    }
    let raw = Raw::read(sb)?;
    let errors = raw.get16(STATE)? & state::ERROR;
    let mut marks = known.remembered | errors;
    if sb.has_unlinked_files() {
        marks &= !state::VALID;
    }
    raw.set16(STATE, marks)?;
    // Not before all else is on the disk, and neither lost by the device.
    if let Err(e) = raw.write(true).and_then(|()| sb.sync_device()) {
        // It goes on as it was: whoever asked for it is told.
        raw.set16(STATE, marks & !state::VALID)?;
        raw.write(false)?;
        return Err(e);
    }
    known.active = false;
    Ok(())
}

/// Marks a file system that [`deactivate`] has marked once more as being written to.
pub(crate) fn reactivate(sb: &SuperBlock<Rext2>) -> Result {
    let mut known = sb.data().state.lock();
    let raw = Raw::read(sb)?;
    raw.set16(STATE, raw.get16(STATE)? & !state::VALID)?;
    known.active = true;
    raw.write(true)
}

/// Has the counts of what is free written.
pub(crate) fn counts(sb: &SuperBlock<Rext2>) -> Result {
    let mount = sb.data();
    group::write_descriptors(sb)?;
    let known = mount.state.lock();
    if !known.active {
        return Ok(());
    }
    let raw = Raw::read(sb)?;
    let sum = |count: fn(&group::Group) -> &AtomicU32| -> u32 {
        let groups = mount.groups.iter();
        let counts = groups.map(|g| count(g).load(Ordering::Relaxed));
        // The disk may have said more than there can be.
        counts.fold(0, u32::saturating_add)
    };
    let now = fs::real_seconds() as u32;
    raw.set32(
        offset_of!(ondisk::SuperBlock, s_free_blocks_count),
        sum(|g| &g.free_blocks),
    )?;
    raw.set32(
        offset_of!(ondisk::SuperBlock, s_free_inodes_count),
        sum(|g| &g.free_inodes),
    )?;
    raw.set32(offset_of!(ondisk::SuperBlock, s_wtime), now)?;
    raw.write(false)
}

/// Sets a feature, and the revision that knows of features.
pub(crate) fn set_feature(sb: &SuperBlock<Rext2>, feature: Feature) -> Result {
    let mount = sb.data();
    let (field, bit, known) = match feature {
        Feature::LargeFile => (
            offset_of!(ondisk::SuperBlock, s_feature_ro_compat),
            ro_compat::LARGE_FILE,
            &mount.large_file,
        ),
        Feature::ExtAttr => (
            offset_of!(ondisk::SuperBlock, s_feature_compat),
            compat::EXT_ATTR,
            &mount.ext_attr,
        ),
    };
    if known.load(Ordering::Relaxed) {
        return Ok(());
    }
    let _known = mount.state.lock();
    let raw = Raw::read(sb)?;
    if raw.get32(REV_LEVEL)? == ondisk::REV_ORIGINAL {
        raw.set32(
            offset_of!(ondisk::SuperBlock, s_first_ino),
            ondisk::FIRST_INO_REV0,
        )?;
        raw.set16(
            offset_of!(ondisk::SuperBlock, s_inode_size),
            ondisk::INODE_SIZE_REV0,
        )?;
        raw.set32(REV_LEVEL, ondisk::REV_DYNAMIC)?;
    }
    raw.set32(field, raw.get32(field)? | bit)?;
    raw.write(false)?;
    known.store(true, Ordering::Relaxed);
    Ok(())
}

/// Reports damage, and does what the administrator wants to be done then.
pub(crate) fn corrupted(
    sb: &SuperBlock<Rext2>,
    inode: Option<&INode<Rext2>>,
    what: fmt::Arguments<'_>,
) {
    let mount = sb.data();
    if is_said(&mount.reports) {
        sb.corrupted(inode, what);
    }
    if !sb.is_read_only() {
        let _known = mount.state.lock();
        // If the superblock cannot be written, there is nobody left to be told.
        let _ = Raw::read(sb).and_then(|raw| match raw.get16(STATE)? {
            // Damage seldom comes alone.
            old if old & state::ERROR != 0 => Ok(()),
            old => {
                raw.set16(STATE, old | state::ERROR)?;
                raw.write(true)
            }
        });
    }
    match mount.options.on_error() {
        OnError::Continue => {}
        OnError::RemountReadOnly if sb.is_read_only() => {}
        OnError::RemountReadOnly => {
            sb.err(format_args!("remounting read-only because of the error"));
            sb.force_read_only();
        }
        OnError::Panic => sb.panic(format_args!("panic forced after the error")),
    }
}

/// Counts a report, and returns whether it is one of the first of this minute. A hostile disk has
/// room for millions of damaged pointers, and each would be a line on the kernel log.
fn is_said(reports: &AtomicU64) -> bool {
    const EACH_MINUTE: u32 = 100;
    let minute = (fs::real_seconds() / 60) as u32;
    let old = reports.load(Ordering::Relaxed);
    let count = match old >> 32 == u64::from(minute) {
        true => (old as u32).saturating_add(1),
        false => 1,
    };
    // Who counts at the same time may get lost.
    reports.store(
        u64::from(minute) << 32 | u64::from(count),
        Ordering::Relaxed,
    );
    count <= EACH_MINUTE
}
