// SPDX-License-Identifier: GPL-2.0

//! The tools that the steps need: whether they are here, their Debian packages,
//! and installing them.

pub use tools::{BUILD, GUEST, SOURCE, Tool, compilers, for_build, for_tests, known, program};

mod tools;

use crate::exit::{self, Exit};
use crate::project::Project;
use crate::sh::{self, Cmd};
use crate::step::{self, Step};
use crate::toolchain::{self, Found};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

/// The commands that bring what is missing.
struct Plan {
    missing: Vec<String>,
    packages: Vec<String>,
    /// Of rustup's toolchain.
    components: Vec<&'static str>,
    bindgen: bool,
}

fn plan(project: &Project, tools: &[Tool]) -> Plan {
    let mut plan = Plan {
        missing: Vec::new(),
        packages: Vec::new(),
        components: Vec::new(),
        bindgen: false,
    };
    let mut packages = BTreeSet::new();
    for &tool in tools {
        if let Found::No(reason) = tool.found(project) {
            plan.missing.push(if reason == "missing" {
                tool.name().to_owned()
            } else {
                reason
            });
            let of_debian = tool.packages(project);
            plan.bindgen |= tool == Tool::Bindgen && of_debian.is_empty();
            packages.extend(of_debian);
            if toolchain::rustup().is_some() {
                plan.components.extend(tool.components());
            }
        }
    }
    plan.packages = packages.into_iter().collect();
    plan
}

impl Plan {
    fn apt(&self) -> String {
        format!(
            "apt-get install --yes --no-install-recommends {}",
            self.packages.join(" ")
        )
    }

    /// One line that a user can paste.
    fn line(&self, project: &Project) -> String {
        let mut parts = Vec::new();
        if !self.packages.is_empty() {
            parts.push(format!("sudo apt-get update && sudo {}", self.apt()));
        }
        if !self.components.is_empty() {
            let components = self.components.join(" ");
            parts.push(format!("rustup component add {components}"));
        }
        if self.bindgen {
            parts.push(bindgen_install(project).dry());
        }
        parts.join(" && ")
    }
}

/// The line that brings everything in `tools` that is missing; `None` if nothing is.
pub fn line(project: &Project, tools: &[Tool]) -> Option<String> {
    let plan = plan(project, tools);
    (!plan.missing.is_empty()).then(|| plan.line(project))
}

/// Makes sure that the tools are here: installs what is missing if we may,
/// asks first on a terminal, else prints the one command that does it.
pub fn ensure(project: &Project, tools: &[Tool]) -> anyhow::Result<()> {
    let plan = plan(project, tools);
    if plan.missing.is_empty() {
        return Ok(());
    }
    let missing = plan.missing.join(", ");
    let refuse = |why: &str| {
        Err(exit::error(
            Exit::Environment,
            format!(
                "missing: {missing}; {why}install with:\n  {}",
                plan.line(project)
            ),
        ))
    };
    if project.opts.no_install || project.opts.dry_run {
        return refuse("");
    }
    if !plan.packages.is_empty() && sh::which("apt-get").is_none() {
        return refuse("this is not Debian or Ubuntu, so by its package names there, ");
    }
    let root = rustix::process::geteuid().is_root();
    if !plan.packages.is_empty() && !root && !passwordless_sudo() {
        return refuse("only root can install packages; ");
    }
    step::note(&format!("missing: {missing}"));
    step::note(&format!("about to run: {}", plan.line(project)));
    if terminal() && !agreed()? {
        return refuse("nothing was installed; ");
    }
    install(project, &plan, root)?;
    let left = plan_left(project, tools);
    if left.is_empty() {
        return Ok(());
    }
    Err(exit::error(
        Exit::Environment,
        format!(
            "still missing after installing: {}; \"cargo xtask doctor\" shows all",
            left.join(", ")
        ),
    ))
}

fn plan_left(project: &Project, tools: &[Tool]) -> Vec<String> {
    plan(project, tools).missing
}

fn install(project: &Project, plan: &Plan, root: bool) -> anyhow::Result<()> {
    let log = project.new_log("install")?;
    if !plan.packages.is_empty() {
        let step = Step::new("install", plan.packages.join(" ")).log(&log);
        let apt = |args: &[&str]| {
            let cmd = if root {
                Cmd::new("env")
            } else {
                Cmd::new("sudo").args(["-n", "env"])
            };
            cmd.args([
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-oDPkg::Lock::Timeout=600",
                "--quiet",
            ])
            .args(args)
        };
        let packages: Vec<&str> = plan.packages.iter().map(String::as_str).collect();
        let install = apt(&[
            &["install", "--yes", "--no-install-recommends"],
            packages.as_slice(),
        ]
        .concat());
        // Old lists name files that mirrors no longer have: then once more with new ones.
        if packages.iter().any(|package| !known(package)) || install.run(&log).is_err() {
            apt(&["update"])
                .run(&log)
                .context("cannot update apt's lists")?;
            install
                .run(&log)
                .with_context(|| format!("cannot install {}", plan.packages.join(" ")))?;
        }
        step.ok();
    }
    if !plan.components.is_empty() {
        components(project, &plan.components, &log, root)?;
    }
    if plan.bindgen {
        let version = project.base.bindgen.as_deref().unwrap_or_default();
        let step = Step::new("install", format!("bindgen {version} into the cache")).log(&log);
        bindgen_install(project)
            .run(&log)
            .context("cannot build bindgen")?;
        fs_err::remove_dir_all(project.tools_target())?;
        step.ok();
    }
    Ok(())
}

/// Parts of rustup's toolchain; where rustup cannot get the library sources,
/// Debian's compiler and the sources that fit it.
fn components(project: &Project, names: &[&str], log: &Path, root: bool) -> anyhow::Result<()> {
    let step = Step::new("install", names.join(" ")).log(log);
    let rustup = toolchain::rustup().context("rustup is gone")?;
    let added = Cmd::new(rustup)
        .args(["component", "add"])
        .args(names)
        .dir(&project.root)
        .run(log);
    if added.is_err() && names.contains(&"rust-src") && known("rustc-web") {
        let apt = if root {
            Cmd::new("apt-get")
        } else {
            Cmd::new("sudo").args(["-n", "apt-get"])
        };
        apt.args([
            "install",
            "--yes",
            "--no-install-recommends",
            "rustc-web",
            "rust-web-src",
        ])
        .run(log)?;
    } else {
        added.with_context(|| format!("cannot get {} from rustup", names.join(", ")))?;
    }
    step.ok();
    Ok(())
}

fn bindgen_install(project: &Project) -> Cmd {
    let version = project.base.bindgen.as_deref().unwrap_or_default();
    Cmd::new("cargo")
        .args([
            "install",
            "--locked",
            "--quiet",
            &format!("bindgen-cli@{version}"),
            "--root",
        ])
        .arg(project.tools())
        .env("CARGO_TARGET_DIR", project.tools_target())
        // It runs for seconds and is compiled for minutes.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .dir(&project.root)
}

fn passwordless_sudo() -> bool {
    sh::which("sudo").is_some() && Cmd::new("sudo").args(["-n", "true"]).read().is_ok()
}

fn terminal() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && std::env::var_os("CI").is_none()
}

fn agreed() -> anyhow::Result<bool> {
    eprint!("install now? [Y/n] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "" | "y" | "Y" | "yes"))
}
