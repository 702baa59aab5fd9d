// SPDX-License-Identifier: GPL-2.0

//! `build`: the kernel of the base, its series and its configuration.

use crate::artifact::{Identity, Kernel, Source};
use crate::config::{self, Asked};
use crate::exit::{self, Exit, WithExit as _};
use crate::fetch;
use crate::install;
use crate::lock;
use crate::module;
use crate::opts::Format;
use crate::patch::series::Series;
use crate::patch::tree::{self, Look, State};
use crate::patch::{self};
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::Step;
use crate::toolchain::{self, Toolchain};
use anyhow::Context as _;
use fs_err as fs;
use std::path::Path;
use std::time::Duration;

/// What make builds.
const TARGETS: [&str; 2] = ["bzImage", "modules"];

/// Everything that decides which kernel is built.
pub struct Wanted {
    /// The source.
    pub source: Source,
    /// The compilers.
    pub toolchain: Toolchain,
    /// The configuration asked for.
    pub asked: Asked,
    /// All of it as text and hashes.
    pub identity: Identity,
}

/// Finds out which kernel is wanted; installs tools and fetches the source if need be.
pub fn wanted(project: &Project) -> anyhow::Result<Wanted> {
    // Mistakes in the checkout first: they cost nothing to find.
    let series = Series::load(project).exit(Exit::Patch)?;
    let asked = Asked::load(project)?;
    let toolchain = tools(project)?;
    let source = fetch::run(project)?;
    let identity = Identity {
        base: project.opts.base.clone(),
        flavor: project.config_name(),
        version: source.version.clone(),
        source: source.origin.clone(),
        source_key: source.key.clone(),
        patches: series.entries.len(),
        series: series.hash(),
        config: asked.hash(),
        toolchain: toolchain.text.clone(),
    };
    Ok(Wanted {
        source,
        toolchain,
        asked,
        identity,
    })
}

/// The compilers; whatever is missing on this machine is installed first.
fn tools(project: &Project) -> anyhow::Result<Toolchain> {
    // Asking rustup twice for its rustc is a tenth of what a warm run may take.
    if let Ok(toolchain) = toolchain::find(project) {
        install::ensure(project, &[install::SOURCE, install::BUILD].concat())?;
        return Ok(toolchain);
    }
    install::ensure(project, &install::for_build(project))?;
    toolchain::find(project).map_err(|missing| {
        exit::error(
            Exit::Environment,
            format!("{}; run \"cargo xtask doctor\"", missing.join("; ")),
        )
    })
}

/// The wanted kernel: published before, or built now.
pub fn run(project: &Project) -> anyhow::Result<Kernel> {
    let wanted = wanted(project)?;
    if let Some(kernel) = published(project, &wanted.identity) {
        // The kernel of the series exists. But whoever has work in the tree
        // that is not in the series would wait in vain to see it run.
        if let Some(_lock) = lock::try_hold(project)?
            && let State::Foreign(why) = tree::state(&wanted.source, Look::Tracked)?
        {
            return Err(tree::refuse(&wanted.source, &why));
        }
        return Ok(kernel);
    }
    build(project, &wanted)
}

/// A published kernel, if it is whole.
fn published(project: &Project, identity: &Identity) -> Option<Kernel> {
    let kernel: Kernel = publish::read_json(&project.kernel(&identity.hash()).join("kernel.json"))?;
    (kernel.identity == *identity && kernel.bzimage.is_file() && kernel.vmlinux.is_file())
        .then_some(kernel)
}

/// Brings the build folder to the wanted kernel and publishes it. Cheap if the
/// folder is there already, so modules call it, too.
pub fn build(project: &Project, wanted: &Wanted) -> anyhow::Result<Kernel> {
    let _lock = lock::hold(project)?;
    let build_dir = project.build_dir(&wanted.source);
    let stamp = build_dir.join("rext2-build.json");
    if publish::read_json::<Identity>(&stamp).as_ref() == Some(&wanted.identity)
        && let Some(kernel) = published(project, &wanted.identity)
    {
        return Ok(kernel);
    }
    let tree = patch::apply(project, &wanted.source, false)?;
    config::make(project, &wanted.toolchain, &tree, &build_dir, &wanted.asked)?;
    if stamp.exists() {
        fs::remove_file(&stamp)?;
    }
    let Identity {
        version,
        patches,
        flavor,
        ..
    } = &wanted.identity;
    let log = project.new_log("build")?;
    let step = Step::new(
        "build",
        format!("kernel {version} +{patches} patches, {flavor}"),
    )
    .log(&log);
    let make = wanted
        .toolchain
        .make(project, &tree.path, &build_dir)
        .args(TARGETS);
    watched(&make, &log, &step, &build_dir.join("rext2-lines"))?;
    let kernel = publish_kernel(project, wanted, &build_dir)?;
    publish::write_json(&stamp, &wanted.identity)?;
    step.ok();
    Ok(kernel)
}

/// Runs make with a bar that knows how many lines the last whole build printed.
fn watched(make: &Cmd, log: &Path, step: &Step, lines: &Path) -> anyhow::Result<()> {
    let expected: Option<u64> = fs::read_to_string(lines)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if let Some(expected) = expected {
        step.total(expected, false);
    }
    let count = || {
        fs::read(log).map_or(0, |text| {
            text.iter().filter(|&&byte| byte == b'\n').count() as u64
        })
    };
    let mut running = make.spawn(log)?;
    let status = loop {
        if let Some(status) = running.wait_timeout(Duration::from_millis(500))? {
            break status;
        }
        step.at(count());
    };
    if !status.success() {
        return Err(exit::error(
            Exit::Build,
            format!(
                "the kernel does not build: make ended with {status} (log {}){}",
                log.display(),
                first_errors(log)
            ),
        ));
    }
    if expected.is_none_or(|expected| expected < count()) {
        publish::write(lines, count().to_string().as_bytes())?;
    }
    Ok(())
}

/// The first lines of a build log that say what went wrong.
pub fn first_errors(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("$ ") && !line.starts_with("# "))
        .collect();
    let tells = |line: &&str| {
        ["error:", "error[", "Error:", "undefined!", "fatal:"]
            .iter()
            .any(|word| line.contains(word))
    };
    let first = lines
        .iter()
        .position(tells)
        .or_else(|| lines.iter().position(|line| line.contains("***")));
    let from = first.unwrap_or(lines.len().saturating_sub(10));
    lines
        .iter()
        .skip(from)
        .take(12)
        .map(|line| format!("\n  {line}"))
        .collect()
}

/// Copies what guests and debuggers need out of the build folder.
fn publish_kernel(project: &Project, wanted: &Wanted, build_dir: &Path) -> anyhow::Result<Kernel> {
    let half = project.tmp().join("kernel");
    fs::create_dir_all(&half)?;
    let place = project.kernel(&wanted.identity.hash());
    let copy = |from: &Path, name: &str| -> anyhow::Result<std::path::PathBuf> {
        fs::copy(from, half.join(name))?;
        Ok(place.join(name))
    };
    let release = fs::read_to_string(build_dir.join("include/config/kernel.release"))?
        .trim()
        .to_owned();
    let mut modules = Vec::new();
    for line in fs::read_to_string(build_dir.join("modules.order"))?.lines() {
        let module = build_dir.join(line).with_extension("ko");
        let name = module
            .file_name()
            .context("modules.order has an empty line")?
            .to_string_lossy()
            .into_owned();
        modules.push(copy(&module, &name)?);
    }
    let kernel = Kernel {
        bzimage: copy(&build_dir.join("arch/x86/boot/bzImage"), "bzImage")?,
        vmlinux: copy(&build_dir.join("vmlinux"), "vmlinux")?,
        modules,
        release,
        build_dir: build_dir.to_owned(),
        identity: wanted.identity.clone(),
    };
    publish::write_json(&half.join("kernel.json"), &kernel)?;
    publish::folder(&half, &place)?;
    Ok(kernel)
}

/// The verb `build`.
pub fn verb(project: &Project) -> anyhow::Result<()> {
    if project.opts.dry_run {
        return dry_run(project, false);
    }
    let kernel = run(project)?;
    match project.opts.format {
        Format::Json => println!("{}", serde_json::to_string(&kernel)?),
        _ => println!("{}", kernel.bzimage.display()),
    }
    Ok(())
}

/// The commands up to the kernel, or to rext2, without running any of them.
pub fn dry_run(project: &Project, with_module: bool) -> anyhow::Result<()> {
    let wanted = wanted(project)?;
    let tree = &wanted.source.git;
    let build_dir = project.build_dir(&wanted.source);
    let make = wanted.toolchain.make(project, tree, &build_dir);
    let commit = patch::commits::kept_as(&wanted.identity.series);
    println!("{}", patch::tree::checkout(&wanted.source, &commit).dry());
    println!("{}", config::command(make.clone(), &build_dir).dry());
    println!("{}", make.clone().args(TARGETS).dry());
    if with_module {
        let folder = project.module_build(&wanted.source);
        println!("{}", module::make_command(make, &folder).dry());
    }
    Ok(())
}

/// The verb `config`.
pub fn config_verb(project: &Project) -> anyhow::Result<()> {
    if project.opts.dry_run {
        return dry_run(project, false);
    }
    let wanted = wanted(project)?;
    let build_dir = project.build_dir(&wanted.source);
    let _lock = lock::hold(project)?;
    let tree = patch::apply(project, &wanted.source, false)?;
    config::make(project, &wanted.toolchain, &tree, &build_dir, &wanted.asked)?;
    println!("{}", build_dir.join(".config").display());
    Ok(())
}
