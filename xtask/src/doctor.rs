// SPDX-License-Identifier: GPL-2.0

//! `doctor`: which tools are here, which are missing, and the one line that gets them.

use crate::exit::Exit;
use crate::install::{self, GUEST, Tool};
use crate::opts::Format;
use crate::project::Project;
use crate::toolchain::Found;
use serde::Serialize;

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    tool: &'static str,
    found: String,
    wanted: String,
    package: String,
    good: bool,
}

/// The verb: exit 3 if something is missing.
pub fn verb(project: &Project) -> anyhow::Result<Exit> {
    let tools = [&install::for_tests(project)[..], GUEST].concat();
    let rows: Vec<Row> = tools.iter().map(|&tool| row(project, tool)).collect();
    let line = install::line(project, &tools);
    if project.opts.format == Format::Json {
        let value = serde_json::json!({ "tools": rows, "install": line, "cache": project.cache });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        println!(
            "     {:<20} {:<50} {:<10} package",
            "tool", "found", "wanted"
        );
        for row in &rows {
            let mark = if row.good { "ok" } else { "no" };
            println!(
                "{mark:<4} {:<20} {:<50} {:<10} {}",
                row.tool, row.found, row.wanted, row.package
            );
        }
        println!("cache {}, {}", project.cache.display(), free(project));
    }
    Ok(match line {
        None => Exit::Good,
        Some(line) => {
            eprintln!("install what is missing with:\n  {line}");
            Exit::Environment
        }
    })
}

fn row(project: &Project, tool: Tool) -> Row {
    let (found, good) = match tool.found(project) {
        Found::Yes(found) => (found, true),
        Found::No(reason) => (reason, false),
    };
    let packages = tool.packages(project);
    let package = match tool {
        Tool::Bindgen if packages.is_empty() => "cargo install bindgen-cli".to_owned(),
        _ if packages.is_empty() => format!("rustup component {}", tool.components().join(" ")),
        _ => packages.join(" "),
    };
    Row {
        tool: tool.name(),
        found,
        wanted: tool.wanted(project),
        package,
        good,
    }
}

/// Room on the cache's disk: a source, its tree and one build take 6 GiB.
fn free(project: &Project) -> String {
    let folder = project.cache.ancestors().find(|folder| folder.is_dir());
    match folder.and_then(|folder| rustix::fs::statvfs(folder).ok()) {
        Some(stat) => {
            let gib = stat.f_bavail.saturating_mul(stat.f_frsize) >> 30;
            let hint = if gib < 6 {
                "; a first build needs 6 GiB"
            } else {
                ""
            };
            format!("{gib} GiB free{hint}")
        }
        None => "free space unknown".to_owned(),
    }
}
