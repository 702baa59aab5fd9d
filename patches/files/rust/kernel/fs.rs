// SPDX-License-Identifier: GPL-2.0

//! File systems on block devices.
//!
//! The objects and the tables of operations are those of the C side; only what C states in prose
//! is a type here:
//!
//! | C | Rust |
//! | --- | --- |
//! | `struct file_system_type` | [`FsType`], a `static` made by [`module_fs!`](crate::module_fs) |
//! | `struct super_block` | [`SuperBlock`]; being filled: [`NewSb`](sb::NewSb) then [`LiveSb`](sb::LiveSb) |
//! | `struct inode` and what the file system embeds it in | [`INode`], owned through [`IRef`] |
//! | an inode with `I_NEW` set | [`NewINode`](inode::NewINode), from the disk; [`FreshINode`](inode::FreshINode) and [`Ready`](inode::Ready), being created |
//! | an inode in `evict_inode` | [`Evicting`](inode::Evicting) |
//! | "called with `i_rwsem` held" | [`Held`](lock::Held), in mode [`Shared`](lock::Shared) or [`Excl`](lock::Excl) |
//! | a dentry whose name and parent do not change | [`Unhashed`](dentry::Unhashed), [`Negative`](dentry::Negative), [`Entry`](dentry::Entry), [`Positive`](dentry::Positive) |
//! | `struct inode_operations` of a directory | [`dir::Operations`] |
//! | `struct inode_operations` of a symbolic link | [`symlink::Operations`] |
//! | `struct file_operations` of a regular file | [`file::Operations`] |
//! | `struct address_space_operations` | [`aops::Operations`] |
//! | `struct iomap_ops` | one trait for each use: [`iomap::Lookup`], [`iomap::Overwrite`], [`iomap::Alloc`] |
//! | `struct xattr_handler` | [`xattr::Operations`] |
//! | `struct posix_acl` | [`Acl`](acl::Acl), read and stored by [`acl::Operations`] |
//! | `struct fileattr` | [`fileattr::Operations`] |
//! | `struct export_operations` | [`export::Operations`] |
//! | `struct buffer_head` | [`BufHead`](buffer::BufHead) |
//!
//! A file system implements [`FileSystem`], chooses the operations of each inode when it sets the
//! inode up, and is declared by [`module_fs!`](crate::module_fs).
//!
//! # Lifetimes
//!
//! - The module stays as long as there is a superblock: the core pins the owner of the type.
//! - `T::Data` lives from [`NewSb::publish`](sb::NewSb::publish) until the last inode has been
//!   evicted, and is dropped while the block device is still open.
//! - `T::INodeData` lives as long as its slab object, from allocation until the grace period
//!   after eviction has passed.
//! - References to inodes, buffers and dentries cannot outlive the borrow of the superblock that
//!   they came from. One that is leaked with [`core::mem::forget`] keeps its slab object and the
//!   module in memory for ever, out of the reach of the rest of the kernel.
//!
//! # Lock order
//!
//! `s_umount`, `i_rwsem` of directories (parent before child), `i_rwsem` of files,
//! `invalidate_lock`, folio lock, locks of the file system, buffer lock, `i_lock`. Callbacks are
//! told by their arguments which of them are held.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/fs_context.h`](srctree/include/linux/fs_context.h)

use crate::{
    bindings,
    error::{code::*, to_result, Result},
    init::PinInit,
    prelude::vtable,
    str::CStr,
    types::Opaque,
    ThisModule,
};
use core::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

pub mod acl;
pub mod aops;
pub mod buffer;
mod compat;
pub mod context;
pub mod dentry;
pub mod dir;
pub mod export;
pub mod file;
pub mod fileattr;
pub mod inode;
pub mod iomap;
pub mod lock;
pub mod sb;
pub mod symlink;
mod truncate;
pub mod xattr;

pub use inode::{INode, IRef};
pub use sb::SuperBlock;

/// A position in a file, or a length of one, in bytes (`loff_t`).
pub type Offset = bindings::loff_t;

/// An inode number.
pub type Ino = u64;

/// Says which static describes the type of a file system.
///
/// # Safety
///
/// `fs_type` must return the same static at each call, and no other type may return it.
pub unsafe trait Declared: Sized {
    /// The static file system type.
    fn fs_type() -> &'static FsType<Self>
    where
        Self: FileSystem;
}

/// The operations of a file system that does not have any of a kind.
pub struct Unsupported<T>(PhantomData<T>);

/// A file system on a block device.
///
/// [`Declared`] is implemented by [`module_fs!`](crate::module_fs).
#[vtable]
pub trait FileSystem: Declared + Send + Sync + 'static {
    /// The name of the type, as in `/proc/filesystems`; also that of the inode slab.
    const NAME: &'static CStr;

    /// What a mounted file system knows (`s_fs_info`).
    type Data: Send + Sync;

    /// What an inode knows besides the VFS inode.
    ///
    /// It is dropped in an RCU callback: dropping it must not sleep.
    type INodeData: Send + Sync;

    /// The mount options (`fc->fs_private`).
    type Params: Default + Send;

    /// Extended attributes, or [`Unsupported`].
    type Xattr: xattr::Operations<FileSystem = Self>;

    /// POSIX access control lists, or [`Unsupported`].
    type Acl: acl::Operations<FileSystem = Self>;

    /// Flags of files, or [`Unsupported`].
    type FileAttr: fileattr::Operations<FileSystem = Self>;

    /// File handles, or [`Unsupported`].
    type Export: export::Operations<FileSystem = Self>;

    /// Makes the private part of an inode that has just been allocated.
    fn init_inode_data() -> impl PinInit<Self::INodeData, crate::error::Error>;

    /// Takes one mount option.
    ///
    /// # Errors
    ///
    /// `ENOPARAM` for an option that the file system does not have, `EINVAL` for a bad value.
    fn parse_param(_params: &mut Self::Params, _param: &context::Param<'_>) -> Result {
        Err(ENOPARAM)
    }

    /// Reads the superblock of the device and sets up the root directory.
    ///
    /// # Errors
    ///
    /// Whatever is returned is what `mount(2)` returns, and the superblock is discarded.
    fn fill_super<'a>(
        sb: sb::NewSb<'a, Self>,
        params: &Self::Params,
    ) -> Result<sb::Mounted<'a, Self>>;

    /// Reports the size and the state of the file system, for `statfs(2)`.
    fn statfs(_sb: &SuperBlock<Self>) -> Result<sb::Stat> {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Prints the mount options that differ from the default, each with a comma before it.
    fn show_options(_sb: &SuperBlock<Self>, _to: &mut context::Options<'_>) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Writes an inode to its place on the disk, and waits for that if `wait`.
    ///
    /// Called without locks, or with those of who syncs the inode. Allocations do not wait for
    /// file systems.
    ///
    /// # Errors
    ///
    /// What `fsync(2)` returns.
    fn write_inode(_inode: &INode<Self>, _wait: bool) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Waits for what [`write_inode`](FileSystem::write_inode) has written without waiting: an inode
    /// that is not dirty any more is not written by `fsync(2)`, but has to be on the device.
    ///
    /// # Errors
    ///
    /// What `fsync(2)` returns.
    fn sync_inode(_inode: &INode<Self>) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Takes an inode out of use. Its page cache is empty.
    ///
    /// If no name leads to it, frees what it has on the disk, its number last: from then on
    /// others may use it.
    fn evict(_inode: inode::Evicting<'_, Self>) {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Writes what is not an inode. If `wait`, inodes and their contents have been written, and all
    /// is to be on the device when the call returns.
    ///
    /// # Errors
    ///
    /// What `syncfs(2)` returns.
    fn sync_fs(_sb: &SuperBlock<Self>, _wait: bool) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Makes the device hold a file system that could be mounted. All has been written, and nobody
    /// writes before it is thawed.
    ///
    /// # Errors
    ///
    /// What `FIFREEZE` returns.
    fn freeze(_sb: &SuperBlock<Self>) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Ends what [`FileSystem::freeze`] has begun.
    ///
    /// # Errors
    ///
    /// What `FITHAW` returns.
    fn thaw(_sb: &SuperBlock<Self>) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Writes what is left, as the last use of the superblock. There are no inodes.
    fn put_super(_sb: &SuperBlock<Self>) {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }

    /// Applies new options to a mounted file system; `read_only` is the state that it shall have.
    fn reconfigure(_sb: &SuperBlock<Self>, _params: &Self::Params, _read_only: bool) -> Result {
        crate::build_error!(crate::error::VTABLE_DEFAULT_ERROR)
    }
}

/// Runs `f`; allocations in it do not wait for file systems.
///
/// Who holds a lock that is also taken when an inode is evicted needs that, because an allocation may
/// wait for inodes to be evicted.
pub fn nofs<R>(f: impl FnOnce() -> R) -> R {
    let _scope = inode::NoFs::new();
    f()
}

/// A random number.
pub fn random_u32() -> u32 {
    // SAFETY: No preconditions.
    unsafe { bindings::get_random_u32() }
}

/// Whether the current task has been killed: long work for it may end.
pub fn is_killed() -> bool {
    // SAFETY: There is a current task wherever this code runs: no callback is called in an interrupt.
    unsafe { bindings::fs_is_killed() }
}

/// The time of day, in seconds since 1970.
pub fn real_seconds() -> i64 {
    // SAFETY: No preconditions.
    unsafe { bindings::ktime_get_real_seconds() }
}

/// Whether the current task may use what is kept for the user `uid` and the group `gid`: it runs as
/// one of them, or with `CAP_SYS_RESOURCE`. The group 0 counts as none.
pub fn may_use_reserve(uid: u32, gid: u32) -> bool {
    // SAFETY: No preconditions.
    unsafe { bindings::fs_may_use_reserve(uid, gid) }
}

/// The static description of a file system type.
///
/// It is a `static` because the locking validator takes its embedded keys only from static memory.
///
/// # Invariants
///
/// - `cache` is non-null from before the type is registered until after it is unregistered.
/// - Other than through the C side, `fs` is written only by [`FsType::register`], before the type
///   is registered.
#[repr(C)]
pub struct FsType<T: FileSystem> {
    fs: Opaque<bindings::file_system_type>,
    cache: AtomicPtr<bindings::kmem_cache>,
    _type: PhantomData<fn() -> T>,
}

// SAFETY: `fs` is synchronised by the C side once it is registered and not touched by Rust after
// that, by the type invariants; `cache` is atomic.
unsafe impl<T: FileSystem> Sync for FsType<T> {}

impl<T: FileSystem> FsType<T> {
    /// Makes a type that is not registered.
    #[doc(hidden)]
    pub const fn new() -> Self {
        // INVARIANT: Not registered.
        Self {
            // SAFETY: `file_system_type` consists of integers, pointers and lists for which zero is
            // a value.
            fs: Opaque::new(unsafe { core::mem::zeroed() }),
            cache: AtomicPtr::new(ptr::null_mut()),
            _type: PhantomData,
        }
    }

    /// Creates the inode slab and makes the type known.
    ///
    /// # Safety
    ///
    /// - `module` is the module that holds `self` and the code of `T`.
    /// - The caller is the initialisation of that module; nothing that can fail comes after it, and
    ///   the result is dropped by the exit of the module and not earlier.
    ///
    /// With these no superblock of the type exists when the result is dropped: each one, and each
    /// mount that is being set up, holds a reference to the module.
    #[doc(hidden)]
    pub unsafe fn register(&'static self, module: &'static ThisModule) -> Result<Registration<T>> {
        // The C side stops the machine for such a name.
        if T::NAME.as_bytes().contains(&b'.') {
            return Err(EINVAL);
        }
        let layout = core::alloc::Layout::new::<INode<T>>();
        // SAFETY: `NAME` is a nul-terminated string that is never freed.
        let cache = unsafe {
            bindings::fs_inode_cache_create(
                T::NAME.as_char_ptr(),
                layout.size().try_into()?,
                layout.align().try_into()?,
            )
        };
        if cache.is_null() {
            return Err(ENOMEM);
        }

        // INVARIANT: Set before the type is registered.
        let first = self.cache.compare_exchange(
            ptr::null_mut(),
            cache,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if first.is_err() {
            // SAFETY: The cache is ours and has no objects.
            unsafe { bindings::kmem_cache_destroy(cache) };
            return Err(EBUSY);
        }
        // From here on the cache is destroyed when this is dropped.
        let mut registration = Registration {
            fs_type: self,
            registered: false,
        };

        let fs = self.fs.get();
        // SAFETY: The type is not registered, and the exchange above lets one caller pass only: we
        // have exclusive access.
        unsafe {
            (*fs).name = T::NAME.as_char_ptr();
            (*fs).owner = module.as_ptr();
            (*fs).fs_flags = bindings::FS_REQUIRES_DEV as _;
            (*fs).init_fs_context = Some(context::Tables::<T>::init_fs_context);
            (*fs).kill_sb = Some(sb::Tables::<T>::kill_sb);
        }
        // SAFETY: `fs` is initialised and static.
        to_result(unsafe { bindings::register_filesystem(fs) })?;
        registration.registered = true;

        Ok(registration)
    }

    /// The slab of the inodes; null if the type is not registered.
    pub(crate) fn cache(&self) -> *mut bindings::kmem_cache {
        self.cache.load(Ordering::Acquire)
    }
}

/// A registered file system type; unregistered when it is dropped.
///
/// # Invariants
///
/// `fs_type.cache` is a slab that this value owns; `registered` says whether the C side knows
/// the type.
#[doc(hidden)]
pub struct Registration<T: FileSystem> {
    fs_type: &'static FsType<T>,
    registered: bool,
}

impl<T: FileSystem> Drop for Registration<T> {
    fn drop(&mut self) {
        // Code that is built in stays, and so does its file system.
        // SAFETY: The type is not being registered: that ended with the creation of `self`.
        if self.registered && unsafe { (*self.fs_type.fs.get()).owner.is_null() } {
            return;
        }
        if self.registered {
            // SAFETY: Registered, by the type invariant. It can only fail for a type that is not.
            unsafe { bindings::unregister_filesystem(self.fs_type.fs.get()) };
        }
        // SAFETY: No preconditions. It waits for the `free_inode` callbacks, which use the cache.
        unsafe { bindings::rcu_barrier() };
        let cache = self.fs_type.cache.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: The slab is ours by the type invariant. No superblock of the type exists (see
        // `FsType::register`), and the inodes of former ones have been freed above.
        unsafe { bindings::kmem_cache_destroy(cache) };
    }
}

/// Declares a module that is a file system.
///
/// The arguments are those of [`module!`](crate::prelude::module), with the type that implements
/// [`FileSystem`] as `type`. The registration is the last step of the initialisation of the module
/// and ends with it, so that a file system that is mounted always has its code.
///
/// # Examples
///
/// ```ignore
/// kernel::module_fs! {
///     type: MyFs,
///     name: "myfs",
///     author: "Somebody",
///     description: "My file system",
///     license: "GPL",
/// }
/// ```
#[macro_export]
macro_rules! module_fs {
    (type: $type:ty, $($info:tt)*) => {
        static __FS_TYPE: $crate::fs::FsType<$type> = $crate::fs::FsType::new();

        // SAFETY: It is always the same static, which has no other name.
        unsafe impl $crate::fs::Declared for $type {
            fn fs_type() -> &'static $crate::fs::FsType<Self> {
                &__FS_TYPE
            }
        }

        struct __FsModule {
            _registration: $crate::fs::Registration<$type>,
        }

        impl $crate::Module for __FsModule {
            fn init(module: &'static $crate::ThisModule) -> $crate::error::Result<Self> {
                Ok(Self {
                    // SAFETY: This is the initialisation of the module of the static and of the
                    // type. Nothing comes after it, and `module!` keeps the result until the exit.
                    _registration: unsafe { __FS_TYPE.register(module) }?,
                })
            }
        }

        $crate::macros::module! {
            type: __FsModule,
            $($info)*
        }
    };
}
