// SPDX-License-Identifier: GPL-2.0

//! Mount options.

#![forbid(unsafe_code)]

use crate::super_block::Mount;
use core::sync::atomic::Ordering;
use kernel::{
    fs::context::{Options, Param},
    prelude::*,
};

/// The options of a mount.
#[derive(Default)]
pub(crate) struct Params {
    /// Where to look for the superblock, in units of 1024 bytes, if not at its usual place.
    pub(crate) super_location: Option<u32>,
    /// Whether `statfs` counts the metadata as part of the file system, if that was said.
    pub(crate) minix_df: Option<bool>,
}

impl Params {
    /// Takes one option.
    pub(crate) fn parse(&mut self, param: &Param<'_>) -> Result {
        match param.key() {
            b"sb" => self.super_location = Some(param.u32()?),
            b"minixdf" => {
                param.flag()?;
                self.minix_df = Some(true);
            }
            b"bsddf" => {
                param.flag()?;
                self.minix_df = Some(false);
            }
            _ => return Err(ENOPARAM),
        }
        Ok(())
    }
}

/// Prints the options that differ from the default.
pub(crate) fn show(mount: &Mount, to: &mut Options<'_>) {
    if let Some(location) = mount.super_location {
        to.show(format_args!("sb={location}"));
    }
    if mount.minix_df.load(Ordering::Relaxed) {
        to.show(format_args!("minixdf"));
    }
}
