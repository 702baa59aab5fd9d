// SPDX-License-Identifier: GPL-2.0

//! Superblocks: being filled, live, and being shut down.
//!
//! A mount goes through three states, each of which is consumed by the step to the next:
//! [`NewSb`], where the block size and the limits are set and nothing else exists;
//! [`LiveSb`], with the data of the file system, so that there can be inodes; and [`Mounted`], with
//! a root. `fill_super` can only return the last.

use super::{buffer::BufHead, context, export, inode, xattr, FileSystem, INode};
use crate::{
    alloc::KBox,
    bindings,
    error::{code::*, from_result, to_result, Result},
    types::Opaque,
};
use core::{fmt, marker::PhantomData, ptr, ptr::NonNull};

mod new;

pub use new::{Limits, LiveSb, Mounted, NewSb};

/// Makes `'a` invariant, so that what belongs to one mount is not taken for that of another.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// A superblock with the data of its file system.
///
/// # Invariants
///
/// `s_fs_info` points to a `T::Data` that stays where it is for as long as there is a reference to
/// the superblock.
#[repr(transparent)]
pub struct SuperBlock<T: FileSystem>(Opaque<bindings::super_block>, PhantomData<T>);

// SAFETY: The VFS uses superblocks from all tasks, and `T::Data` is `Send` and `Sync`.
unsafe impl<T: FileSystem> Send for SuperBlock<T> {}

// SAFETY: As above.
unsafe impl<T: FileSystem> Sync for SuperBlock<T> {}

impl<T: FileSystem> SuperBlock<T> {
    /// Makes a reference from a pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is a superblock of type `T` with data ([`NewSb::publish`] has been called), and
    /// `put_super` does not run on it during `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::super_block) -> &'a Self {
        // CAST: `SuperBlock` is transparent.
        // SAFETY: By the safety requirements.
        unsafe { &*ptr.cast() }
    }

    /// The C superblock.
    pub(super) fn as_ptr(&self) -> *mut bindings::super_block {
        self.0.get()
    }

    /// The data of the file system.
    pub fn data(&self) -> &T::Data {
        // SAFETY: By the type invariant.
        unsafe { &*(*self.as_ptr()).s_fs_info.cast::<T::Data>() }
    }

    /// Whether the file system is mounted read-only.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: The superblock is valid.
        unsafe { bindings::sb_rdonly(self.as_ptr()) }
    }

    /// The block size, in bytes.
    pub fn block_size(&self) -> u32 {
        // SAFETY: The superblock is valid; the block size does not change once there is data.
        unsafe { (*self.as_ptr()).s_blocksize as u32 }
    }

    /// The binary logarithm of the block size.
    pub fn block_size_bits(&self) -> u8 {
        // SAFETY: As in `block_size`.
        unsafe { (*self.as_ptr()).s_blocksize_bits }
    }

    /// Whether the mount has access control lists.
    pub fn has_posix_acl(&self) -> bool {
        // SAFETY: The superblock is valid.
        unsafe { bindings::fs_has_posix_acl(self.as_ptr()) }
    }

    /// Reads a block of metadata through the page cache of the device.
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot read it. The caller has checked that the block lies on it.
    pub fn bread(&self, block: u64) -> Result<BufHead<'_>> {
        // SAFETY: The superblock is valid and has its final block size.
        unsafe { BufHead::read(self.as_ptr(), block) }
    }

    /// Takes a block whose old contents mean nothing, and fills it with zeros: it is up to date, and
    /// not dirty.
    ///
    /// # Errors
    ///
    /// `EIO` if there is no such block, or no memory. The caller has checked that it lies on the
    /// device.
    pub fn bnew(&self, block: u64) -> Result<BufHead<'_>> {
        // SAFETY: The superblock is valid and has its final block size.
        unsafe { BufHead::new(self.as_ptr(), block) }
    }

    /// Drops what the page cache of the device holds of `count` blocks from `block` on, because they
    /// become contents of a file, which has a page cache of its own; and waits for IO on them.
    pub fn clean_aliases(&self, block: u64, count: u64) {
        // SAFETY: The superblock is valid and has its final block size.
        unsafe { bindings::fs_clean_bdev_aliases(self.as_ptr(), block, count) }
    }

    /// Writes what the page cache of the device holds, and has the device write its own cache.
    ///
    /// # Errors
    ///
    /// What the device returns.
    pub fn sync_device(&self) -> Result {
        // SAFETY: The superblock is valid and its device is open.
        to_result(unsafe { bindings::fs_sync_device(self.as_ptr()) })
    }

    /// Whether there are files without a name that are still open: without us, nobody frees them.
    pub fn has_unlinked_files(&self) -> bool {
        // SAFETY: The superblock is valid.
        unsafe { bindings::fs_has_unlinked_files(self.as_ptr()) }
    }

    /// Lets nobody write any more, because of an error.
    pub fn force_read_only(&self) {
        // SAFETY: The superblock is valid.
        unsafe { set_flag(self.as_ptr(), bindings::SB_RDONLY, true) }
    }

    /// Says whether there are access control lists. Called while it is mounted or remounted.
    ///
    /// Without `CONFIG_FS_POSIX_ACL` there never are. With them, it is
    /// [`FreshINode::inherit_acl`](inode::FreshINode::inherit_acl) that applies the umask.
    pub fn set_posix_acl(&self, on: bool) {
        let on = on && cfg!(CONFIG_FS_POSIX_ACL);
        // SAFETY: The superblock is valid.
        unsafe { set_flag(self.as_ptr(), bindings::SB_POSIXACL, on) }
    }

    /// Stops the machine, because the administrator asked for that in case of an error.
    pub fn panic(&self, args: fmt::Arguments<'_>) -> ! {
        // SAFETY: The arguments are those that the format asks for: two strings that end with nul
        // (`s_id` is one of the superblock, which is valid), and the arguments of a Rust format.
        unsafe {
            bindings::panic(
                c"%s (%s): %pA".as_ptr().cast(),
                T::NAME.as_char_ptr(),
                ptr::addr_of!((*self.as_ptr()).s_id).cast::<u8>(),
                ptr::from_ref(&args).cast::<core::ffi::c_void>(),
            )
        }
    }

    /// Starts to read a block of metadata that will be asked for soon.
    pub fn breadahead(&self, block: u64) {
        // SAFETY: The superblock is valid and has its final block size.
        unsafe { bindings::sb_breadahead(self.as_ptr(), block) }
    }

    /// Says on the kernel log what keeps an operation from being done.
    pub fn err(&self, args: fmt::Arguments<'_>) {
        // SAFETY: The superblock is valid.
        unsafe { log::<T>(self.as_ptr(), Level::Err, args) }
    }

    /// Says on the kernel log what the administrator should look at.
    pub fn warn(&self, args: fmt::Arguments<'_>) {
        // SAFETY: The superblock is valid.
        unsafe { log::<T>(self.as_ptr(), Level::Warning, args) }
    }

    /// Reports that the file system is damaged: one line on the kernel log and an event for those
    /// who watch the file system for errors.
    pub fn corrupted(&self, inode: Option<&INode<T>>, args: fmt::Arguments<'_>) {
        self.err(args);
        let inode = inode.map_or(ptr::null_mut(), INode::as_ptr);
        // SAFETY: The superblock is valid; the inode is valid or null.
        unsafe { bindings::fs_report_corruption(self.as_ptr(), inode) }
    }
}

/// Sets or clears a flag of a superblock.
///
/// Others may look at the flags at any time, and change other ones, as always with these: of two
/// changes at the same time one may be lost.
///
/// # Safety
///
/// `sb` is valid.
unsafe fn set_flag(sb: *mut bindings::super_block, flag: crate::ffi::c_ulong, on: bool) {
    // SAFETY: By the safety requirements.
    unsafe {
        let flags = ptr::addr_of_mut!((*sb).s_flags);
        let old = flags.read_volatile();
        flags.write_volatile(if on { old | flag } else { old & !flag });
    }
}

/// A severity of the kernel log.
#[derive(Clone, Copy)]
enum Level {
    Err,
    Warning,
    Info,
}

/// Prints `TYPE (DEVICE): ARGS` on the kernel log.
///
/// # Safety
///
/// `sb` is valid.
unsafe fn log<T: FileSystem>(
    sb: *const bindings::super_block,
    level: Level,
    args: fmt::Arguments<'_>,
) {
    let prefix: &[u8; 3] = match level {
        Level::Err => bindings::KERN_ERR,
        Level::Warning => bindings::KERN_WARNING,
        Level::Info => bindings::KERN_INFO,
    };
    // SAFETY: The arguments are those that the format asks for: three strings that end with nul
    // (`s_id` is one of the superblock, which is valid), and the arguments of a Rust format.
    #[cfg(CONFIG_PRINTK)]
    unsafe {
        bindings::_printk(
            c"%s%s (%s): %pA\n".as_ptr().cast(),
            prefix.as_ptr(),
            T::NAME.as_char_ptr(),
            ptr::addr_of!((*sb).s_id).cast::<u8>(),
            ptr::from_ref(&args).cast::<core::ffi::c_void>(),
        );
    }
}

/// What `statfs(2)` reports, besides what the superblock knows.
#[derive(Default)]
pub struct Stat {
    /// Size of the file system for data, in blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that users without privileges may allocate.
    pub available_blocks: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub free_files: u64,
    /// Length of the longest name, in bytes.
    pub name_len: u32,
}

/// The C side of superblocks.
pub(super) struct Tables<T>(PhantomData<T>);

impl<T: FileSystem> Tables<T> {
    const OPS: &'static bindings::super_operations = &bindings::super_operations {
        alloc_inode: Some(inode::Tables::<T>::alloc_inode),
        evict_inode: Some(inode::Tables::<T>::evict_inode),
        free_inode: Some(inode::Tables::<T>::free_inode),
        put_super: Some(Self::put_super),
        show_options: if T::HAS_SHOW_OPTIONS {
            Some(Self::show_options)
        } else {
            None
        },
        statfs: if T::HAS_STATFS {
            Some(Self::statfs)
        } else {
            None
        },
        freeze_fs: if T::HAS_FREEZE {
            Some(Self::freeze_fs)
        } else {
            None
        },
        sync_fs: if T::HAS_SYNC_FS {
            Some(Self::sync_fs)
        } else {
            None
        },
        unfreeze_fs: if T::HAS_THAW {
            Some(Self::unfreeze_fs)
        } else {
            None
        },
        write_inode: if T::HAS_WRITE_INODE {
            Some(inode::Tables::<T>::write_inode)
        } else {
            None
        },
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// Called by `get_tree_bdev` for a superblock that is not in use yet.
    ///
    /// # Safety
    ///
    /// `sb` is a new superblock of type `T` on a block device, which only the calling task uses;
    /// `fc` is the context of its mount, with parameters of `T`.
    pub(super) unsafe extern "C" fn fill_super(
        sb: *mut bindings::super_block,
        fc: *mut bindings::fs_context,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The superblock is valid and ours; the tables are static.
            unsafe {
                (*sb).s_op = Self::OPS;
                (*sb).s_export_op = export::Tables::<T::Export>::OPS;
                if <T::Xattr as xattr::Operations>::HAS_GET {
                    (*sb).s_xattr = xattr::Tables::<T::Xattr>::HANDLERS.as_ptr();
                }
            }
            let sb = NonNull::new(sb).ok_or(EINVAL)?;
            // SAFETY: By the safety requirements.
            let new = unsafe { NewSb::from_raw(sb) };
            // SAFETY: The context has parameters, which nobody else uses during the mount.
            let params = unsafe { context::Tables::<T>::params(fc) };
            T::fill_super(new, params).map(|_| 0)
        })
    }

    /// Frees the data of the superblock, while its device is still open.
    ///
    /// # Safety
    ///
    /// `sb` is a superblock of type `T` without inodes that are in use, and will have none again.
    unsafe fn release(sb: *mut bindings::super_block) {
        // SAFETY: The superblock is valid, and its inodes have been evicted.
        unsafe { bindings::fs_isolate_busy_inodes(sb) };
        // SAFETY: The superblock is valid, and nobody else uses it.
        let data = unsafe { ptr::replace(ptr::addr_of_mut!((*sb).s_fs_info), ptr::null_mut()) };
        if !data.is_null() {
            // SAFETY: It comes from `publish`. References to the superblock, through which others
            // reach it, end before it is shut down.
            drop(unsafe { KBox::from_raw(data.cast::<T::Data>()) });
        }
    }

    /// # Safety
    ///
    /// Called by `generic_shutdown_super`, after the inodes have been evicted.
    unsafe extern "C" fn put_super(sb: *mut bindings::super_block) {
        if T::HAS_PUT_SUPER {
            // SAFETY: The superblock has data, as it had a root; it goes below.
            T::put_super(unsafe { SuperBlock::from_raw(sb) });
        }
        // SAFETY: By the safety requirements.
        unsafe { Self::release(sb) }
    }

    /// # Safety
    ///
    /// Called by the VFS with an active superblock of type `T`.
    unsafe extern "C" fn sync_fs(
        sb: *mut bindings::super_block,
        wait: crate::ffi::c_int,
    ) -> crate::ffi::c_int {
        // SAFETY: An active superblock has data.
        let sb = unsafe { SuperBlock::<T>::from_raw(sb) };
        from_result(|| T::sync_fs(sb, wait != 0).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by the VFS with an active superblock of type `T`.
    unsafe extern "C" fn freeze_fs(sb: *mut bindings::super_block) -> crate::ffi::c_int {
        // SAFETY: An active superblock has data.
        let sb = unsafe { SuperBlock::<T>::from_raw(sb) };
        from_result(|| T::freeze(sb).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by the VFS with an active superblock of type `T`.
    unsafe extern "C" fn unfreeze_fs(sb: *mut bindings::super_block) -> crate::ffi::c_int {
        // SAFETY: An active superblock has data.
        let sb = unsafe { SuperBlock::<T>::from_raw(sb) };
        from_result(|| T::thaw(sb).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by the VFS for the last reference to a superblock of type `T`.
    pub(super) unsafe extern "C" fn kill_sb(sb: *mut bindings::super_block) {
        // A mount that failed before it had a root is not shut down through `put_super`.
        // SAFETY: The superblock is valid.
        if unsafe { (*sb).s_root.is_null() } {
            // SAFETY: Inodes are evicted with their last reference as long as the superblock is not
            // active, which it becomes only once it has a root.
            unsafe { Self::release(sb) };
        }
        // SAFETY: The superblock was made by `get_tree_bdev`.
        unsafe { bindings::kill_block_super(sb) }
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry of an active superblock of type `T`.
    unsafe extern "C" fn statfs(
        dentry: *mut bindings::dentry,
        buf: *mut bindings::kstatfs,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The dentry pins the superblock, which has data, as it has dentries.
            let sb = unsafe { SuperBlock::<T>::from_raw((*dentry).d_sb) };
            let stat = T::statfs(sb)?;
            // SAFETY: `buf` is a buffer of the caller.
            let buf = unsafe { &mut *buf };
            // SAFETY: The superblock is valid; both are set before it is active.
            unsafe {
                buf.f_type = (*sb.as_ptr()).s_magic as _;
                buf.f_fsid =
                    bindings::uuid_to_fsid(ptr::addr_of_mut!((*sb.as_ptr()).s_uuid.b).cast::<u8>());
            }
            buf.f_bsize = sb.block_size() as _;
            buf.f_blocks = stat.blocks;
            buf.f_bfree = stat.free_blocks;
            buf.f_bavail = stat.available_blocks;
            buf.f_files = stat.files;
            buf.f_ffree = stat.free_files;
            buf.f_namelen = stat.name_len as _;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS with a dentry of an active superblock of type `T`.
    unsafe extern "C" fn show_options(
        seq: *mut bindings::seq_file,
        dentry: *mut bindings::dentry,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The dentry pins the superblock, which has data, as it has dentries.
            let sb = unsafe { SuperBlock::<T>::from_raw((*dentry).d_sb) };
            // SAFETY: `seq` is valid during the call.
            let mut options = unsafe { context::Options::new(seq) };
            T::show_options(sb, &mut options).map(|()| 0)
        })
    }

    /// Applies new options to a mounted superblock.
    ///
    /// # Safety
    ///
    /// Called by the VFS with `s_umount` held exclusively; `fc` has a root of type `T`.
    pub(super) unsafe extern "C" fn reconfigure(
        fc: *mut bindings::fs_context,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The context holds the root, which pins the superblock.
            let sb = unsafe { SuperBlock::<T>::from_raw((*(*fc).root).d_sb) };
            // SAFETY: The context is valid.
            let (flags, mask) = unsafe { ((*fc).sb_flags, (*fc).sb_flags_mask) };
            let rdonly = bindings::SB_RDONLY as u32;
            let wanted = if mask & rdonly != 0 {
                flags & rdonly != 0
            } else {
                sb.is_read_only()
            };
            // What was written before is on the device, whatever changes.
            // SAFETY: The superblock is active, and `s_umount` is held.
            to_result(unsafe { bindings::sync_filesystem(sb.as_ptr()) })?;
            // SAFETY: The context has parameters, which nobody else uses during the call.
            let params = unsafe { context::Tables::<T>::params(fc) };
            T::reconfigure(sb, params, wanted).map(|()| 0)
        })
    }
}
