// SPDX-License-Identifier: GPL-2.0

//! `bench cost`: instructions per operation, on each file system in one boot of
//! a guest whose clock counts them (`[counting.cost]` in `qemu/vm.toml`).
//!
//! `qemu/bench/cost.tsv` has the values that were accepted last, by flavour; they
//! hold for the compilers that its comments name.

use anyhow::{Context as _, ensure};
use fs_err as fs;

use super::measure;
use super::table::{Accepted, Table};
use crate::chain::{self, Ready};
use crate::exit::{self, Exit};
use crate::opts::{CostArgs, Format};
use crate::project::Project;

/// Percent above the accepted value with which a row passes.
const TOLERANCE: f64 = 2.0;

/// Measures, prints, and compares with what was accepted or accepts it.
pub fn run(project: &Project, args: &CostArgs) -> anyhow::Result<Exit> {
    let project = &measure::counting(project);
    let ready = chain::ready(project)?;
    let table = fresh(project, &ready, args)?;
    let file = project.accepted_costs();
    let accepted = accepted(project)?;
    match (project.opts.format, args.markdown) {
        (Format::Json, _) => println!("{}", table.json()?),
        (_, true) => print!("{}", table.markdown()),
        _ => print!("{}", table.text()),
    }
    if args.check {
        return check(&table, &accepted);
    }
    if args.accept {
        fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
        fs::write(&file, accepted.with(&table).text())?;
        eprintln!("accepted: {}", file.display());
    }
    Ok(Exit::Good)
}

/// What the checkout's file has.
fn accepted(project: &Project) -> anyhow::Result<Accepted> {
    let file = project.accepted_costs();
    match file.is_file() {
        true => Accepted::parse(&fs::read_to_string(&file)?)
            .with_context(|| format!("cannot parse {}", file.display())),
        false => Ok(Accepted::default()),
    }
}

/// Whether there is anything to compare with: a kernel takes minutes to build.
pub fn can_check(project: &Project) -> anyhow::Result<()> {
    let (accepted, flavor) = (accepted(project)?, project.flavor.name());
    let flavors = accepted.flavors();
    if flavors.contains(&flavor) {
        return Ok(());
    }
    let others = match flavors.is_empty() {
        true => String::new(),
        false => format!("add --flavor {}, or ", flavors.join(" or --flavor ")),
    };
    Err(exit::error(
        Exit::Usage,
        format!(
            "bench cost --check: no values are accepted for flavor {flavor}; \
             {others}accept some with --accept"
        ),
    ))
}

/// Names the rows that have become dearer.
fn check(table: &Table, accepted: &Accepted) -> anyhow::Result<Exit> {
    let compared = accepted.compare(table);
    ensure!(
        !compared.is_empty(),
        "none of these rows was accepted before; accept them with --accept"
    );
    let dearer: Vec<_> = compared
        .iter()
        .filter(|row| row.percent() > TOLERANCE)
        .collect();
    for row in &dearer {
        eprintln!("dearer: {row}");
    }
    eprintln!(
        "check: {} of {} values are more than {TOLERANCE} % above the accepted ones",
        dearer.len(),
        compared.len()
    );
    Ok(match dearer.is_empty() {
        true => Exit::Good,
        false => Exit::TestsFailed,
    })
}

/// The table from a fresh guest.
fn fresh(project: &Project, ready: &Ready, args: &CostArgs) -> anyhow::Result<Table> {
    let on = measure::on(ready, args.on.as_deref(), "ext2,ext4,xfs");
    let mut argv = vec!["/bin/rext2-tests".to_owned(), "cost".to_owned()];
    argv.push(format!("on={on}"));
    argv.extend(args.reps.map(|reps| format!("reps={reps}")));
    let again = format!(" --on {on}");
    let (text, identity) = measure::run(project, ready, "cost", &again, argv)?;
    Table::parse(&text, identity)
}
