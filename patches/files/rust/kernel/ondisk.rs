// SPDX-License-Identifier: GPL-2.0

//! Fixed-endian integers and structures as they lie on a disk.
//!
//! A structure declared with [`on_disk!`](crate::on_disk) has no padding, a size that is checked
//! when it is compiled, and only members for which every bit pattern is a value. It can therefore
//! be filled with whatever a device returns; what the values mean is for the file system to check.

use crate::types::{AsBytes, FromBytes};

macro_rules! little_endian {
    ($name:ident, $int:ident) => {
        #[doc = concat!("A little-endian [`", stringify!($int), "`], aligned like one.")]
        ///
        /// # Examples
        ///
        /// ```
        #[doc = concat!("use kernel::ondisk::", stringify!($name), ";")]
        ///
        #[doc = concat!("let n = ", stringify!($name), "::new(0x12);")]
        /// assert_eq!(n.get(), 0x12);
        #[doc = concat!("assert_eq!(", stringify!($name), "::default().get(), 0);")]
        /// ```
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name($int);

        impl $name {
            /// Stores `value`.
            pub const fn new(value: $int) -> Self {
                Self(value.to_le())
            }

            /// Returns the value in the byte order of the CPU.
            pub const fn get(self) -> $int {
                $int::from_le(self.0)
            }
        }

        // SAFETY: The type is a transparent wrapper of an integer: all bit patterns are valid.
        unsafe impl FromBytes for $name {}

        // SAFETY: The type is a transparent wrapper of an integer: it has no padding.
        unsafe impl AsBytes for $name {}
    };
}

little_endian!(Le16, u16);
little_endian!(Le32, u32);
little_endian!(Le64, u64);

/// Declares structures as they lie on a disk.
///
/// The number behind the name is the size in bytes. The compiler refuses a structure of another
/// size, one with padding, and one with a member that is not made of [`AsBytes`] + [`FromBytes`].
/// Attributes other than documentation are not accepted: they could change what is checked.
///
/// # Examples
///
/// ```
/// use kernel::ondisk::{Le16, Le32};
///
/// kernel::on_disk! {
///     /// The head of a directory entry.
///     pub struct Entry(8) {
///         pub inode: Le32,
///         pub rec_len: Le16,
///         pub name_len: u8,
///         pub file_type: u8,
///     }
/// }
///
/// let entry = Entry {
///     inode: Le32::new(2),
///     rec_len: Le16::new(12),
///     name_len: 1,
///     file_type: 2,
/// };
/// assert_eq!(entry.inode.get(), 2);
/// assert_eq!(core::mem::size_of::<Entry>(), 8);
/// ```
#[macro_export]
macro_rules! on_disk {
    ($(
        $(#[doc = $doc:expr])*
        $vis:vis struct $name:ident($size:literal) {
            $($(#[doc = $field_doc:expr])* $field_vis:vis $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name {
            $($(#[doc = $field_doc])* $field_vis $field: $type,)*
        }

        const _: () = {
            const fn members_are_plain_bytes<T: $crate::types::AsBytes + $crate::types::FromBytes>(
            ) -> usize {
                ::core::mem::size_of::<T>()
            }
            let members = 0 $(+ members_are_plain_bytes::<$type>())*;
            ::core::assert!(members == $size, "the members do not add up to the size, or leave padding");
            ::core::assert!(::core::mem::size_of::<$name>() == $size, "the structure has another size");
        };

        // SAFETY: The members are `FromBytes` and fill the structure, as the constant above
        // checks, so that every bit pattern is a valid value of the structure.
        unsafe impl $crate::types::FromBytes for $name {}

        // SAFETY: The members are `AsBytes` and fill the structure, as the constant above checks,
        // so that none of its bytes is padding.
        unsafe impl $crate::types::AsBytes for $name {}
    )*};
}
