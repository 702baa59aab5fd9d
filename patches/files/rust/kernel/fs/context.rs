// SPDX-License-Identifier: GPL-2.0

//! Mount options: taken one by one before a mount, and printed for `/proc/mounts`.
//!
//! C header: [`include/linux/fs_context.h`](srctree/include/linux/fs_context.h)

use super::{sb, FileSystem};
use crate::{
    alloc::{flags::GFP_KERNEL, KBox},
    bindings,
    error::{code::*, from_result, Result},
    str::CStr,
};
use core::{fmt, marker::PhantomData, ptr};

/// The value of a mount option.
enum Value<'a> {
    /// There is none: `-o key`.
    None,
    /// `-o key=text`.
    Text(&'a CStr),
    /// A file, a path or a blob, handed to `fsconfig(2)`.
    Other,
}

/// A mount option.
pub struct Param<'a> {
    key: &'a CStr,
    value: Value<'a>,
}

impl<'a> Param<'a> {
    /// # Safety
    ///
    /// `param` is valid during `'a`.
    unsafe fn from_raw(param: &'a bindings::fs_parameter) -> Self {
        let value = match param.type_() {
            bindings::fs_value_type_fs_value_is_flag => Value::None,
            bindings::fs_value_type_fs_value_is_string => {
                // SAFETY: The member is the one of this type.
                let text = unsafe { param.__bindgen_anon_1.string };
                // SAFETY: The VFS hands over a string that ends with nul and lives as the
                // parameter.
                Value::Text(unsafe { CStr::from_char_ptr(text) })
            }
            _ => Value::Other,
        };
        Param {
            // SAFETY: As above.
            key: unsafe { CStr::from_char_ptr(param.key) },
            value,
        }
    }

    /// The name of the option.
    pub fn key(&self) -> &'a [u8] {
        self.key.as_bytes()
    }

    /// Accepts an option without a value.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has one.
    pub fn flag(&self) -> Result {
        match self.value {
            Value::None => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// The value, as it was given.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none or if it is not text.
    pub fn text(&self) -> Result<&'a [u8]> {
        match self.value {
            Value::Text(text) => Ok(text.as_bytes()),
            _ => Err(EINVAL),
        }
    }

    /// The value as a decimal number.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not one, `ERANGE` if it is too big.
    pub fn u32(&self) -> Result<u32> {
        let digits = self.text()?;
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(EINVAL);
        }
        digits
            .iter()
            .try_fold(0u32, |n, d| {
                n.checked_mul(10)?.checked_add(u32::from(d - b'0'))
            })
            .ok_or(ERANGE)
    }
}

/// Where the options of a mount are printed.
pub struct Options<'a> {
    seq: *mut bindings::seq_file,
    _seq: PhantomData<&'a mut bindings::seq_file>,
}

impl Options<'_> {
    /// # Safety
    ///
    /// `seq` is valid for as long as the result lives.
    pub(super) unsafe fn new(seq: *mut bindings::seq_file) -> Self {
        Self {
            seq,
            _seq: PhantomData,
        }
    }

    /// Prints `,args`.
    pub fn show(&mut self, args: fmt::Arguments<'_>) {
        // SAFETY: `seq` is valid, and `%pA` takes the arguments of a Rust format.
        unsafe {
            bindings::seq_printf(
                self.seq,
                c",%pA".as_ptr().cast(),
                ptr::from_ref(&args).cast::<core::ffi::c_void>(),
            );
        }
    }
}

/// The C side of mount contexts.
pub(super) struct Tables<T>(PhantomData<T>);

impl<T: FileSystem> Tables<T> {
    const OPS: &'static bindings::fs_context_operations = &bindings::fs_context_operations {
        free: Some(Self::free),
        get_tree: Some(Self::get_tree),
        parse_param: Some(Self::parse_param),
        reconfigure: if T::HAS_RECONFIGURE {
            Some(sb::Tables::<T>::reconfigure)
        } else {
            None
        },
        // SAFETY: The table consists of optional function pointers: zero is `None`.
        ..unsafe { core::mem::zeroed() }
    };

    /// The parameters of a context.
    ///
    /// # Safety
    ///
    /// `fc` was set up by [`Self::init_fs_context`], and nobody else uses its parameters during
    /// `'a`.
    pub(super) unsafe fn params<'a>(fc: *mut bindings::fs_context) -> &'a mut T::Params {
        // SAFETY: `init_fs_context` stored it, and `free` is called last.
        unsafe { &mut *(*fc).fs_private.cast() }
    }

    /// # Safety
    ///
    /// Called by the VFS with a new context for type `T`.
    pub(super) unsafe extern "C" fn init_fs_context(
        fc: *mut bindings::fs_context,
    ) -> crate::ffi::c_int {
        from_result(|| {
            let params = KBox::new(T::Params::default(), GFP_KERNEL)?;
            // SAFETY: The context is valid and in use by this task only.
            unsafe {
                (*fc).fs_private = KBox::into_raw(params).cast();
                (*fc).ops = Self::OPS;
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS as the last use of a context that has these operations.
    unsafe extern "C" fn free(fc: *mut bindings::fs_context) {
        // SAFETY: `init_fs_context` stored it before it set the operations.
        drop(unsafe { KBox::<T::Params>::from_raw((*fc).fs_private.cast()) });
    }

    /// # Safety
    ///
    /// Called by the VFS with a context that has these operations, under its lock.
    unsafe extern "C" fn get_tree(fc: *mut bindings::fs_context) -> crate::ffi::c_int {
        // SAFETY: `fill_super` takes what `get_tree_bdev` calls it with.
        unsafe { bindings::get_tree_bdev(fc, Some(sb::Tables::<T>::fill_super)) }
    }

    /// # Safety
    ///
    /// Called by the VFS with a context that has these operations, under its lock.
    unsafe extern "C" fn parse_param(
        fc: *mut bindings::fs_context,
        param: *mut bindings::fs_parameter,
    ) -> crate::ffi::c_int {
        from_result(|| {
            // SAFETY: The parameter is valid during the call.
            let param = unsafe { Param::from_raw(&*param) };
            // SAFETY: The lock of the context makes this the only use.
            T::parse_param(unsafe { Self::params(fc) }, &param).map(|()| 0)
        })
    }
}
