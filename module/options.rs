// SPDX-License-Identifier: GPL-2.0

//! Mount options.

#![forbid(unsafe_code)]

use crate::ondisk::{self, default_mount_opts as defaults};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use kernel::{
    fs::{
        context::{Options as Shown, Param},
        SuperBlock,
    },
    prelude::*,
};

/// What an error leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    /// Nothing but the report.
    Continue,
    /// Nobody can write any more.
    RemountReadOnly,
    /// The machine stops.
    Panic,
}

impl OnError {
    /// The value of `s_errors`; what is none of them counts as the safe one.
    fn from_disk(value: u16) -> Self {
        match value {
            1 => Self::Continue,
            3 => Self::Panic,
            _ => Self::RemountReadOnly,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountReadOnly => "remount-ro",
            Self::Panic => "panic",
        }
    }
}

/// The options that a mount asks for; `None` is what was not said.
#[derive(Default)]
pub(crate) struct Params {
    /// Where to look for the superblock, in units of 1024 bytes, if not at its usual place.
    pub(crate) super_location: Option<u32>,
    minix_df: Option<bool>,
    errors: Option<OnError>,
    resuid: Option<u32>,
    resgid: Option<u32>,
    grpid: Option<bool>,
    user_xattr: Option<bool>,
    acl: Option<bool>,
    reservation: Option<bool>,
    orlov: Option<bool>,
    debug: Option<bool>,
}

impl Params {
    /// Takes one option.
    pub(crate) fn parse(&mut self, param: &Param<'_>) -> Result {
        let switch = |to: &mut Option<bool>, value: bool| -> Result {
            param.flag()?;
            *to = Some(value);
            Ok(())
        };
        match param.key() {
            b"sb" => self.super_location = Some(param.u32()?),
            b"minixdf" => return switch(&mut self.minix_df, true),
            b"bsddf" => return switch(&mut self.minix_df, false),
            b"errors" => {
                self.errors = Some(match param.text()? {
                    b"continue" => OnError::Continue,
                    b"remount-ro" => OnError::RemountReadOnly,
                    b"panic" => OnError::Panic,
                    _ => return Err(EINVAL),
                })
            }
            b"resuid" => self.resuid = Some(param.u32()?),
            b"resgid" => self.resgid = Some(param.u32()?),
            b"grpid" | b"bsdgroups" => return switch(&mut self.grpid, true),
            b"nogrpid" | b"sysvgroups" => return switch(&mut self.grpid, false),
            b"user_xattr" => return switch(&mut self.user_xattr, true),
            b"nouser_xattr" => return switch(&mut self.user_xattr, false),
            b"acl" => return switch(&mut self.acl, true),
            b"noacl" => return switch(&mut self.acl, false),
            b"reservation" => return switch(&mut self.reservation, true),
            b"noreservation" => return switch(&mut self.reservation, false),
            b"orlov" => return switch(&mut self.orlov, true),
            b"oldalloc" => return switch(&mut self.orlov, false),
            b"debug" => return switch(&mut self.debug, true),
            // What it says is always so.
            b"noquota" => return param.flag(),
            b"quota" | b"usrquota" | b"grpquota" => {
                pr_err!("quotas are not supported: mount without them\n");
                return Err(EINVAL);
            }
            b"nouid32" => {
                pr_err!("nouid32 is not supported: owners always have 32 bits\n");
                return Err(EINVAL);
            }
            _ => return Err(ENOPARAM),
        }
        Ok(())
    }
}

/// The options of a mounted file system.
pub(crate) struct Options {
    super_location: Option<u32>,
    minix_df: AtomicBool,
    errors: AtomicU32,
    resuid: AtomicU32,
    resgid: AtomicU32,
    grpid: AtomicBool,
    user_xattr: AtomicBool,
    acl: AtomicBool,
    reservation: AtomicBool,
    orlov: AtomicBool,
    debug: AtomicBool,
    /// What the superblock says in place of options that were not given.
    default_errors: OnError,
    default_resuid: u32,
    default_resgid: u32,
    default_opts: u32,
}

impl Options {
    /// The options of a new mount.
    pub(crate) fn new(params: &Params, raw: &ondisk::SuperBlock) -> Self {
        let default_opts = match raw.s_rev_level.get() {
            ondisk::REV_ORIGINAL => 0,
            _ => raw.s_default_mount_opts.get(),
        };
        let default_errors = OnError::from_disk(raw.s_errors.get());
        let options = Self {
            super_location: params.super_location,
            minix_df: AtomicBool::new(false),
            errors: AtomicU32::new(default_errors as u32),
            resuid: AtomicU32::new(raw.s_def_resuid.get().into()),
            resgid: AtomicU32::new(raw.s_def_resgid.get().into()),
            grpid: AtomicBool::new(default_opts & defaults::BSD_GROUPS != 0),
            user_xattr: AtomicBool::new(default_opts & defaults::USER_XATTR != 0),
            acl: AtomicBool::new(cfg!(CONFIG_FS_POSIX_ACL) && default_opts & defaults::ACL != 0),
            reservation: AtomicBool::new(true),
            orlov: AtomicBool::new(true),
            debug: AtomicBool::new(default_opts & defaults::DEBUG != 0),
            default_errors,
            default_resuid: raw.s_def_resuid.get().into(),
            default_resgid: raw.s_def_resgid.get().into(),
            default_opts,
        };
        options.apply(params);
        options
    }

    /// Changes what was said.
    pub(crate) fn apply(&self, params: &Params) {
        let switches = [
            (params.minix_df, &self.minix_df),
            (params.grpid, &self.grpid),
            (params.user_xattr, &self.user_xattr),
            (
                params.acl.map(|acl| acl && cfg!(CONFIG_FS_POSIX_ACL)),
                &self.acl,
            ),
            (params.reservation, &self.reservation),
            (params.orlov, &self.orlov),
            (params.debug, &self.debug),
        ];
        for (said, option) in switches {
            if let Some(value) = said {
                option.store(value, Ordering::Relaxed);
            }
        }
        let numbers = [
            (params.errors.map(|e| e as u32), &self.errors),
            (params.resuid, &self.resuid),
            (params.resgid, &self.resgid),
        ];
        for (said, option) in numbers {
            if let Some(value) = said {
                option.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Whether a remount may change the options to these.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what cannot change, which is reported.
    pub(crate) fn check_change(&self, sb: &SuperBlock<crate::Rext2>, params: &Params) -> Result {
        if params.super_location.is_some() && params.super_location != self.super_location {
            sb.err(format_args!("sb= cannot change while it is mounted"));
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Whether `statfs` counts the metadata as part of the file system.
    pub(crate) fn minix_df(&self) -> bool {
        self.minix_df.load(Ordering::Relaxed)
    }

    /// What an error leads to.
    pub(crate) fn on_error(&self) -> OnError {
        match self.errors.load(Ordering::Relaxed) {
            n if n == OnError::Continue as u32 => OnError::Continue,
            n if n == OnError::Panic as u32 => OnError::Panic,
            _ => OnError::RemountReadOnly,
        }
    }

    /// The user and the group for whom the reserved blocks are.
    pub(crate) fn reserve_for(&self) -> (u32, u32) {
        (
            self.resuid.load(Ordering::Relaxed),
            self.resgid.load(Ordering::Relaxed),
        )
    }

    /// Whether new files belong to the group of their directory.
    pub(crate) fn grpid(&self) -> bool {
        self.grpid.load(Ordering::Relaxed)
    }

    /// Whether there are `user.` attributes.
    pub(crate) fn user_xattr(&self) -> bool {
        self.user_xattr.load(Ordering::Relaxed)
    }

    /// Whether there are access control lists.
    pub(crate) fn acl(&self) -> bool {
        self.acl.load(Ordering::Relaxed)
    }

    /// Whether a file that grows gets a range of blocks that others leave alone.
    pub(crate) fn reservation(&self) -> bool {
        self.reservation.load(Ordering::Relaxed)
    }

    /// Whether directories are spread over the groups.
    pub(crate) fn orlov(&self) -> bool {
        self.orlov.load(Ordering::Relaxed)
    }

    /// Prints the options that differ from the default.
    pub(crate) fn show(&self, to: &mut Shown<'_>) {
        if let Some(location) = self.super_location {
            to.show(format_args!("sb={location}"));
        }
        let default = |bit: u32| self.default_opts & bit != 0;
        let switches = [
            (self.minix_df(), false, "minixdf", "bsddf"),
            (
                self.grpid(),
                default(defaults::BSD_GROUPS),
                "grpid",
                "nogrpid",
            ),
            (
                self.user_xattr(),
                default(defaults::USER_XATTR),
                "user_xattr",
                "nouser_xattr",
            ),
            (
                self.acl(),
                cfg!(CONFIG_FS_POSIX_ACL) && default(defaults::ACL),
                "acl",
                "noacl",
            ),
            (self.reservation(), true, "reservation", "noreservation"),
            (self.orlov(), true, "orlov", "oldalloc"),
            (
                self.debug.load(Ordering::Relaxed),
                default(defaults::DEBUG),
                "debug",
                "",
            ),
        ];
        for (value, default, yes, no) in switches {
            if value != default {
                to.show(format_args!("{}", if value { yes } else { no }));
            }
        }
        if self.on_error() != self.default_errors {
            to.show(format_args!("errors={}", self.on_error().name()));
        }
        let (uid, gid) = self.reserve_for();
        if uid != self.default_resuid {
            to.show(format_args!("resuid={uid}"));
        }
        if gid != self.default_resgid {
            to.show(format_args!("resgid={gid}"));
        }
    }
}
