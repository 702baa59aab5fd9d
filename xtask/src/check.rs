// SPDX-License-Identifier: GPL-2.0

//! The command line as a whole, judged before anything is done, or said that it
//! would be: files that are named and not there, forms that a verb has not, and
//! what only some suites take.

use std::path::Path;

use crate::bench;
use crate::chosen;
use crate::exit::{self, Exit};
use crate::opts::{Cli, Format, Verb};
use crate::project::Project;
use crate::suites;

/// The verbs whose result has other forms than the one for people.
const FORMS: &[(&str, &[Format])] = &[
    ("doctor", &[Format::Json]),
    ("fetch", &[Format::Json]),
    ("build", &[Format::Json]),
    ("module", &[Format::Json]),
    ("test", &[Format::Json, Format::Junit]),
    ("bench", &[Format::Json]),
    ("report", &[Format::Json, Format::Junit]),
];

/// Refuses what cannot be meant.
pub fn run(project: &Project, cli: &Cli) -> anyhow::Result<()> {
    form(cli)?;
    let opts = &project.opts;
    let source = "give one that holds a kernel source, or an archive to --tarball";
    folder("--linux", opts.linux.as_deref(), source)?;
    file("--tarball", opts.tarball.as_deref())?;
    match &cli.verb {
        Verb::Boot(args) => {
            file("--image", args.image.as_deref())?;
            writable("--image", args.image.as_deref())
        }
        Verb::BuildAndBoot(args) => {
            file("--image", args.image.as_deref())?;
            match project.base.module {
                true => Ok(()),
                false => Err(exit::error(
                    Exit::NothingRan,
                    format!(
                        "base {} cannot have rext2, so there is nothing to compare; use \"boot\"",
                        opts.base
                    ),
                )),
            }
        }
        Verb::Test(args) => {
            file("--replay", args.replay.as_deref())?;
            let tree = "give that of an fstests tree that you have built";
            folder("--fstests", args.fstests.as_deref(), tree)?;
            match args.list {
                true => Ok(()),
                false => chosen::of(project, &suites::load(project)?, args).map(drop),
            }
        }
        Verb::Bench(verb) => bench::check(project, verb),
        _ => Ok(()),
    }
}

/// Whether the verb has the form that is asked for.
fn form(cli: &Cli) -> anyhow::Result<()> {
    let form = cli.opts.format;
    if form == Format::Human {
        return Ok(());
    }
    let name = cli.verb.name();
    let list = matches!(&cli.verb, Verb::Test(args) if args.list);
    let of = FORMS.iter().find(|(verb, _)| *verb == name);
    let of = of.map_or(&[][..], |(_, forms)| forms);
    if !of.contains(&form) || list && form == Format::Junit {
        let have = FORMS.iter().filter(|(_, forms)| forms.contains(&form));
        let have: Vec<_> = have.map(|(verb, _)| *verb).collect();
        let forms: Vec<_> = [&Format::Human].into_iter().chain(of).collect();
        let forms: Vec<_> = forms.iter().map(|form| form.name()).collect();
        return wrong(format!(
            "{name}{} has no --format {}; it has: {}; verbs that have it: {}",
            if list { " --list" } else { "" },
            form.name(),
            forms[..forms.len() - usize::from(list)].join(", "),
            have.join(", ")
        ));
    }
    // They only look, so a dry run of them is like any other.
    let looks = list || matches!(cli.verb, Verb::Doctor | Verb::Report(_));
    if cli.opts.dry_run && !looks {
        return wrong(format!(
            "--dry-run prints commands, which have no --format {}; leave out one of them",
            form.name()
        ));
    }
    Ok(())
}

fn wrong(text: String) -> anyhow::Result<()> {
    Err(exit::error(Exit::Usage, text))
}

fn folder(option: &str, path: Option<&Path>, next: &str) -> anyhow::Result<()> {
    match path {
        Some(path) if !path.exists() => wrong(missing(option, path)),
        Some(path) if !path.is_dir() => {
            wrong(format!("{option} {} is no folder; {next}", path.display()))
        }
        _ => Ok(()),
    }
}

fn file(option: &str, path: Option<&Path>) -> anyhow::Result<()> {
    match path {
        Some(path) if !path.exists() => wrong(missing(option, path)),
        Some(path) if !path.is_file() => wrong(format!(
            "{option} {} is no file; give the path of one",
            path.display()
        )),
        _ => Ok(()),
    }
}

fn missing(option: &str, path: &Path) -> String {
    format!(
        "{option} {} is not there; give the path of one that is",
        path.display()
    )
}

fn writable(option: &str, path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    match std::fs::OpenOptions::new().write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => wrong(format!(
            "{option} {} cannot be written: {error}; \"build-and-boot\" only reads an image",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn every_verb_has_the_form_or_says_who_has() {
        let verbs = [
            "doctor",
            "fetch",
            "patch status",
            "patch check",
            "patch apply",
            "patch export",
            "config",
            "build",
            "module",
            "ide",
            "boot",
            "build-and-boot",
            "exec -- true",
            "test",
            "test --list",
            "bench cost",
            "bench uncached",
            "report x",
            "clean",
        ];
        for verb in verbs {
            for form in [Format::Human, Format::Json, Format::Junit] {
                let line = format!("xtask --format {} {verb}", form.name());
                let cli = Cli::try_parse_from(line.split(' ')).unwrap();
                let name = verb.split(' ').next().unwrap();
                let has = form == Format::Human
                    || FORMS
                        .iter()
                        .any(|(verb, forms)| *verb == name && forms.contains(&form))
                        && (verb, form) != ("test --list", Format::Junit);
                match super::form(&cli) {
                    Ok(()) => assert!(has, "{line}"),
                    Err(error) => {
                        assert!(!has && exit::of(&error) == Exit::Usage, "{line}: {error}");
                        let text = error.to_string();
                        assert!(text.contains("verbs that have it: "), "{text}");
                        assert!(text.starts_with(name), "{text}");
                    }
                }
            }
        }
    }
}
