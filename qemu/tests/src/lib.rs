// SPDX-License-Identifier: GPL-2.0

//! The guest's test programs: suites of cases that use a file system through
//! system calls and report in KTAP; and what the host needs to make their images.

pub mod case;
pub mod compare;
pub mod cost;
pub mod crash;
pub mod dio;
pub mod disk;
pub mod exercise;
pub mod fs;
pub mod fstests;
pub mod fuzz;
pub mod images;
pub mod job;
pub mod kernel;
pub mod kmsg;
pub mod ktap;
pub mod mapping;
pub mod mount;
pub mod number;
pub mod pattern;
pub mod runner;
pub mod rwf;
pub mod smoke;
pub mod stress;
pub mod suite;
pub mod sys;
pub mod timeline;
pub mod tree;
pub mod uncached;
pub mod walk;
