// SPDX-License-Identifier: GPL-2.0

//! `bench cost`: instructions per operation, on each file system in one boot of
//! a guest whose clock counts them (`[counting]` in `qemu/vm.toml`).
//!
//! `qemu/bench/cost.tsv` has the values that were accepted last, by flavour; they
//! hold for the compilers that its comments name.

use anyhow::{Context as _, ensure};
use fs_err as fs;
use rext2_init::{Action, Job, PORT_ERR, PORT_OUT};

use super::table::{Accepted, Identity, Table};
use crate::accel;
use crate::boot;
use crate::chain::{self, Ready};
use crate::console::Lists;
use crate::decode;
use crate::exec;
use crate::exit::{self, Exit};
use crate::guest::{self, Plan, Unobserved};
use crate::guest_tools;
use crate::opts::{Accel, CostArgs, Format};
use crate::project::Project;
use crate::sh::Cmd;
use crate::step::Step;
use crate::test;
use crate::verdict;
use crate::vm::Vm;

/// Percent above the accepted value with which a row passes.
const TOLERANCE: f64 = 2.0;

/// Measures, prints, and compares with what was accepted or accepts it.
pub fn run(project: &Project, args: &CostArgs) -> anyhow::Result<Exit> {
    if project.opts.accel == Accel::Kvm || project.opts.format == Format::Junit {
        return Err(exit::error(
            Exit::Usage,
            "bench cost counts instructions, which only --accel tcg can, and has no --format junit",
        ));
    }
    let mut project = project.clone();
    project.opts.accel = Accel::Tcg;
    let project = &project;
    let ready = chain::ready(project)?;
    let table = measure(project, &ready, args)?;
    let file = project.accepted_costs();
    let accepted = match file.is_file() {
        true => Accepted::parse(&fs::read_to_string(&file)?)
            .with_context(|| format!("cannot parse {}", file.display()))?,
        false => Accepted::default(),
    };
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

/// Names the rows that have become dearer.
fn check(table: &Table, accepted: &Accepted) -> anyhow::Result<Exit> {
    let flavor = &table.identity.kernel.flavor;
    let compared = accepted.compare(table);
    ensure!(
        !compared.is_empty(),
        "nothing is accepted for flavor {flavor}; run cargo xtask bench cost --flavor {flavor} --accept"
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
fn measure(project: &Project, ready: &Ready, args: &CostArgs) -> anyhow::Result<Table> {
    let Ready { kernel, module } = ready;
    let on = args.on.clone().unwrap_or_else(|| match module {
        Some(_) => "rext2,ext2,ext4,xfs".to_owned(),
        None => "ext2,ext4,xfs".to_owned(),
    });
    let (modules, mut files) = boot::module_files(module.as_ref());
    let tools = ["mke2fs", "mkfs.xfs"].map(str::to_owned);
    files.extend(guest_tools::files(&tools)?);
    let mut argv = vec!["/bin/rext2-tests".to_owned(), "cost".to_owned()];
    argv.push(format!("on={on}"));
    argv.extend(args.reps.map(|reps| format!("reps={reps}")));
    let again = format!(
        "cargo xtask {} bench cost --on {on}",
        test::flags(project).join(" ")
    );
    let plan = Plan {
        name: "cost",
        repeat: again,
        job: Job {
            token: guest::token()?,
            modules,
            mounts: Vec::new(),
            action: Action::Exec { argv },
            kmemleak: false,
        },
        disks: Vec::new(),
        files,
        replay: None,
        may_skip: Vec::new(),
        limits: Vm::load(project)?.limits(&project.opts, Some(LIMIT)),
        gdb: false,
        counting: true,
        extra: Vec::new(),
    };
    let step = Step::new("bench", format!("cost ({})", project.flavor.name()));
    let run = guest::run(project, kernel, &plan, &mut Unobserved)?;
    let verdict = verdict::of_folder(&run.folder, &run.record, &Lists::load(project)?);
    decode::console(project, kernel, module.as_ref(), &run.folder, &verdict);
    let status = exec::status(&run, &verdict)?;
    if status != 0 {
        let said = run.folder.text(&run.folder.port(PORT_ERR));
        return Err(exit::error(
            Exit::TestsFailed,
            format!("the guest's program failed: {}", said.trim()),
        ));
    }
    step.ok();
    let qemu = Cmd::new(accel::qemu()?).arg("--version").read()?;
    let identity = Identity {
        kernel: kernel.identity.clone(),
        module: module.as_ref().map(|module| module.hash.clone()),
        qemu: qemu.lines().next().unwrap_or_default().to_owned(),
    };
    Table::parse(&run.folder.text(&run.folder.port(PORT_OUT)), identity)
}

/// Seconds that it may take: a few on an idle host.
const LIMIT: u64 = 1800;
