// SPDX-License-Identifier: GPL-2.0

//! Suite `uncached`: buffered IO with `RWF_UNCACHED`, row by row, on every file
//! system that has it and on every kind of device.
//!
//! P rows are about the interface, R about reads, W about writes, M and T about
//! races, K about memory pressure, E about errors. What is in the cache is asked
//! of cachestat(2), which also tells dropped pages from reclaimed ones: only
//! reclaim leaves a trace. Dropping follows the end of writeback, so it is
//! waited for, a second at most. Pages that may stay:
//!
//! | row | stay | why |
//! |---|---|---|
//! | R4, R7b, R17 | all | a user without the flag makes marked folios ordinary ones |
//! | R6, R7 | mapped ones | a fault is such a user; it asks for readahead of its own |
//! | R8 | none, read 1.00x | a folio is kept until it was read to its end, as long as reads are sequential |
//! | R16, R19 | told | readahead that nobody has read is left to reclaim |
//! | W6 | 0 or 1 | an append that finds its page under writeback leaves it to fsync |
//! | W7 | none | zeroing by the file system itself is no use by somebody else |
//! | W7b | 0 or 1 | ... but what it reads in to be zeroed was never marked |
//! | W9 | 1 folio | a plain write is a user without the flag |
//! | W12 | all | a plain read brings back what the end of writeback drops before it |
//! | W14 | 0 or 1 | inline data is cleaned without writeback |
//! | T5 | told, none after one more read | compaction may hold a folio as its writeback ends |
//! | all writes, data=journal | told | jbd2 holds the buffers until it has emptied the journal |
//!
//! Rows that are not as planned:
//!
//! | row | here | why |
//! |---|---|---|
//! | P2 | C ext2 and block devices accept the flag | the series supports them |
//! | W15 | bigalloc is a file system of its own, for every row | no option of a mount |
//! | W20 | no seals | only files of tmpfs have them, which refuses the flag (P2) |
//! | T6 | by compaction | one node: nothing else moves a page that is not mapped |
//! | E2 | not the C ext2 | it warns of link counts and buffers, with plain writes, too |
//! | E5, data=journal | what stays must go when asked to | jbd2 holds it, see above |
//! | X1 to X5 | suites `exercise` and `stress` | the same operations, with a model |
//! | V1 | `cargo xtask upstream` | about the patches one by one |
//!
//! P6, P16, R20 and K2 are not there: they need files mapped from memory, tracing,
//! encryption and fs-verity, and control groups. No flavour has those, as each
//! changes the common structures or adds to the boot and to what is counted.
//!
//! Timing is judged only by order: W10 and R15 look whether the device still
//! works when the call has returned.
//!
//! With `expect=stock` the suite is its own control: it demands that a kernel
//! without support refuses the flag everywhere and changes nothing (row P3).
//! Other values: `seconds=` for each race, `cycles=` for W21, `seed=`.

mod blocks;
pub mod device;
pub mod env;
mod errors;
mod flakey;
pub mod fs;
mod fuse;
mod interface;
pub mod map;
mod model;
mod pressure;
mod races;
pub mod raw;
mod reads;
mod slow;
mod unsupported;
mod writes;

use crate::case::{Case, Group};
use crate::job::Job;
use anyhow::{Result, bail};
use device::Class;
use env::Env;
pub use env::{PLAIN, UNCACHED, read_at, write_at};
use fs::Fs;

/// One test of the suite, for many file systems and devices.
struct Row {
    name: &'static str,
    run: fn(&mut Env) -> Result<()>,
    on: fn(&Fs) -> bool,
    limit: u64,
}

impl Row {
    const fn new(name: &'static str, run: fn(&mut Env) -> Result<()>) -> Row {
        Row {
            name,
            run,
            on: all,
            limit: 60,
        }
    }

    /// The same row, only on some file systems.
    const fn on(self, on: fn(&Fs) -> bool) -> Row {
        Row { on, ..self }
    }

    /// The same row, with another limit in seconds.
    const fn limit(self, limit: u64) -> Row {
        Row { limit, ..self }
    }
}

/// All rows, or those of a kernel without support, as `expect=` says.
pub fn groups(job: &Job) -> Result<Vec<Group>> {
    let supported = match job.get("expect") {
        None | Some("supported") => true,
        Some("stock") => false,
        Some(other) => bail!("bad value expect={other}; it is supported or stock"),
    };
    let mut groups = vec![Group {
        name: "other-files".into(),
        cases: unsupported::cases(supported),
    }];
    if !supported {
        groups.extend(each("stock", Class::Hardirq, in_tree, &[interface::STOCK]));
        return Ok(groups);
    }
    for class in [Class::Inline, Class::Softirq] {
        let errors = match class {
            Class::Softirq => errors::BAD_SECTORS,
            _ => &[],
        };
        groups.extend(each(
            class.name(),
            class,
            all,
            &[writes::ROWS, blocks::ROWS, errors],
        ));
    }
    groups.extend(each(
        Class::Hardirq.name(),
        Class::Hardirq,
        all,
        &[
            interface::ROWS,
            reads::ROWS,
            writes::ROWS,
            blocks::ROWS,
            blocks::ONCE,
            errors::ROWS,
            races::ROWS,
            model::ROWS,
        ],
    ));
    groups.extend(flakey::groups());
    groups.extend(each("slow", Class::Slow, of_each_driver, &[slow::ROWS]));
    groups.extend(each(
        "pressure",
        Class::Hardirq,
        is_large,
        &[pressure::ROWS],
    ));
    Ok(groups)
}

/// Every file system.
fn all(_: &Fs) -> bool {
    true
}

/// The file systems of a kernel without our module.
fn in_tree(fs: &Fs) -> bool {
    fs.kind != "rext2"
}

/// One file system for each way to read and to end writeback: enough for rows
/// that take their time, or that no mount option changes.
fn of_each_driver(fs: &Fs) -> bool {
    ["ext4-4k", "ext4-1k", "xfs", "ext2-c"].contains(&fs.name)
}

/// The file systems with room for more than memory.
fn is_large(fs: &Fs) -> bool {
    fs.mib > 256
}

/// A group for each of these file systems on this class of device.
fn each<'a>(
    name: &'a str,
    class: Class,
    on: fn(&Fs) -> bool,
    rows: &'a [&'static [Row]],
) -> impl Iterator<Item = Group> + 'a {
    let chosen = fs::ALL.iter().filter(move |fs| on(fs));
    chosen.map(move |fs| {
        let rows = rows.iter().flat_map(|rows| rows.iter());
        let cases = rows.filter(|row| (row.on)(fs));
        Group {
            name: format!("{name}/{}", fs.name),
            cases: cases.map(|row| case(row, class, fs)).collect(),
        }
    })
}

fn case(row: &'static Row, class: Class, fs: &'static Fs) -> Case {
    let case = Case::new(row.name, move |job| {
        let mut env = Env::new(job, fs, class)?;
        (row.run)(&mut env)?;
        env.finish()
    });
    case.limit(row.limit)
}
