// SPDX-License-Identifier: GPL-2.0

//! `config`: fragments on top of allnoconfig, and the proof that everything
//! asked for is in the result. Kconfig itself drops what it cannot satisfy and
//! says nothing.

mod kconfig;

use crate::artifact::Tree;
use crate::exit::{self, Exit, WithExit as _};
use crate::hash;
use crate::opts::Flavor;
use crate::project::Project;
use crate::publish;
use crate::sh::Cmd;
use crate::step::Step;
use crate::toolchain::Toolchain;
use anyhow::Context as _;
use fs_err as fs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One symbol as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// `y`, `m`, `n` or a value.
    pub value: String,
    /// Which fragment or flag asked.
    pub by: String,
}

/// All symbols that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked(BTreeMap<String, Wish>);

impl Asked {
    /// Reads the fragments of the flavour and the `--set` flags.
    pub fn load(project: &Project) -> anyhow::Result<Self> {
        let mut names = vec!["base"];
        if project.base.module {
            names.push("rust");
        }
        // The fast flavour is the base alone.
        if project.flavor != Flavor::Dev {
            names.push(project.flavor.name());
        }
        names.extend(project.extra);
        let mut asked = Asked::default();
        let mut mistakes = Vec::new();
        for name in names {
            let path = project.fragment(name);
            let by = path
                .strip_prefix(&project.root)
                .unwrap_or(&path)
                .display()
                .to_string();
            match fs::read_to_string(&path) {
                Ok(text) => asked.add(&text, &by, &mut mistakes),
                Err(_) => mistakes.push(format!("the fragment {by} is missing")),
            }
        }
        for line in &project.opts.set {
            asked.overrule(line, &mut mistakes);
        }
        if mistakes.is_empty() {
            return Ok(asked);
        }
        let text = mistakes.join("\n  ");
        Err(exit::error(
            Exit::Config,
            format!(
                "the configuration \"{}\" contradicts itself:\n  {text}",
                project.config_name()
            ),
        ))
    }

    /// Adds a fragment; a symbol that another one wants otherwise is a mistake.
    pub fn add(&mut self, text: &str, by: &str, mistakes: &mut Vec<String>) {
        for (n, line) in text.lines().enumerate() {
            match parse(line) {
                Ok(None) => {}
                Ok(Some((symbol, value))) => match self.0.get(&symbol) {
                    Some(wish) if wish.value != value => {
                        mistakes.push(format!(
                            "{symbol} is {} in {} and {value} in {by}",
                            wish.value, wish.by
                        ));
                    }
                    Some(_) => {}
                    None => {
                        self.0.insert(
                            symbol,
                            Wish {
                                value,
                                by: by.to_owned(),
                            },
                        );
                    }
                },
                Err(error) => mistakes.push(format!("{by} line {}: {error}", n + 1)),
            }
        }
    }

    /// A `--set` flag is the user's word against every fragment.
    fn overrule(&mut self, line: &str, mistakes: &mut Vec<String>) {
        let line = if line.starts_with("CONFIG_") {
            line.to_owned()
        } else {
            format!("CONFIG_{line}")
        };
        match parse(&line) {
            Ok(Some((symbol, value))) => {
                self.0.insert(
                    symbol,
                    Wish {
                        value,
                        by: "--set".to_owned(),
                    },
                );
            }
            _ => mistakes.push(format!("--set {line} is not of the form CONFIG_X=y")),
        }
    }

    /// The whole as one fragment, in an order of its own.
    pub fn text(&self) -> String {
        self.0
            .iter()
            .map(|(symbol, wish)| match wish.value.as_str() {
                "n" => format!("# {symbol} is not set\n"),
                value => format!("{symbol}={value}\n"),
            })
            .collect()
    }

    /// A hash of what was asked for.
    pub fn hash(&self) -> String {
        hash::short(self.text().as_bytes())
    }

    /// What the result does not have, with the symbol, asked and got.
    pub fn dropped(&self, config: &str) -> Vec<Dropped> {
        let mut got = BTreeMap::new();
        for (symbol, value) in config.lines().filter_map(|line| parse(line).ok().flatten()) {
            got.insert(symbol, value);
        }
        let dropped = |(symbol, wish): (&String, &Wish)| {
            let got = got.get(symbol).map_or("n", String::as_str);
            (got != wish.value).then(|| Dropped {
                symbol: symbol.clone(),
                wish: wish.clone(),
                got: got.to_owned(),
            })
        };
        self.0.iter().filter_map(dropped).collect()
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A wish that the result does not fulfil.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// `CONFIG_RUST`
    pub symbol: String,
    /// What was asked, and by whom.
    pub wish: Wish,
    /// What came out.
    pub got: String,
}

/// A line of a fragment or of a .config.
fn parse(line: &str) -> Result<Option<(String, String)>, String> {
    let line = line.trim();
    let valid = |symbol: &str| {
        symbol.strip_prefix("CONFIG_").is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    if let Some(symbol) = line
        .strip_prefix("# ")
        .and_then(|rest| rest.strip_suffix(" is not set"))
        && valid(symbol)
    {
        return Ok(Some((symbol.to_owned(), "n".to_owned())));
    }
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    match line.split_once('=') {
        Some((symbol, value)) if valid(symbol) && !value.is_empty() => {
            Ok(Some((symbol.to_owned(), value.to_owned())))
        }
        _ => Err(format!("{line:?} is not of the form CONFIG_X=y")),
    }
}

/// One line about a dropped symbol.
fn explain(dropped: &Dropped, definitions: &[String], config: &str) -> String {
    let Dropped { symbol, wish, got } = dropped;
    let mut text = format!("{symbol} asked {} ({}), got {got}; ", wish.value, wish.by);
    if definitions.is_empty() {
        text.push_str("no such symbol in this source");
    } else {
        let list: Vec<String> = definitions
            .iter()
            .map(|condition| match condition.is_empty() {
                true => "nothing".to_owned(),
                false => format!("{condition} ({})", kconfig::values_in(condition, config)),
            })
            .collect();
        text.push_str(&format!("depends on: {}", list.join(", or ")));
    }
    text
}

/// The error about dropped symbols; `kconfig` finds the Kconfig texts that define one.
pub fn verify(
    asked: &Asked,
    config: &str,
    kconfig: impl Fn(&str) -> Vec<String>,
) -> Result<(), String> {
    let dropped = asked.dropped(config);
    if dropped.is_empty() {
        return Ok(());
    }
    let lines = dropped.iter().map(|dropped| {
        let definitions: Vec<String> = kconfig(&dropped.symbol)
            .iter()
            .flat_map(|text| kconfig::depends_on(text, &dropped.symbol))
            .collect();
        format!("\n  {}", explain(dropped, &definitions, config))
    });
    Err(lines.collect())
}

/// Where the wishes lie for Kconfig.
fn fragment(build_dir: &Path) -> PathBuf {
    build_dir.join("rext2.config")
}

/// Lets `make` make the configuration.
pub fn command(make: Cmd, build_dir: &Path) -> Cmd {
    make.arg(format!(
        "KCONFIG_ALLCONFIG={}",
        fragment(build_dir).display()
    ))
    .arg("allnoconfig")
}

/// Makes the configuration in the build folder.
pub fn make(
    project: &Project,
    toolchain: &Toolchain,
    tree: &Tree,
    build_dir: &Path,
    asked: &Asked,
) -> anyhow::Result<()> {
    let config = build_dir.join(".config");
    let stamp = build_dir.join("rext2-config.stamp");
    let made_of = [
        asked.hash(),
        tree.series_hash.clone(),
        toolchain.text.join("\n"),
    ]
    .join("\n");
    let stamp_text = |config: &str| format!("{}\n{made_of}\n", hash::short(config.as_bytes()));
    if let (Ok(config), Ok(stamp)) = (fs::read_to_string(&config), fs::read_to_string(&stamp))
        && stamp == stamp_text(&config)
    {
        return Ok(());
    }
    let log = project.new_log("config")?;
    let step = Step::new(
        "config",
        format!("{}, {} symbols", project.config_name(), asked.len()),
    )
    .log(&log);
    fs::create_dir_all(build_dir)?;
    publish::write(&fragment(build_dir), asked.text().as_bytes())?;
    command(toolchain.make(project, &tree.path, build_dir), build_dir)
        .run(&log)
        .context("make allnoconfig failed")
        .exit(Exit::Config)?;
    let text = fs::read_to_string(&config)?;
    let kconfig = |symbol: &str| kconfig::files_of(&tree.path, symbol);
    if let Err(lines) = verify(asked, &text, kconfig) {
        let mut hint = String::new();
        if lines.contains("CONFIG_RUST asked y") {
            // The kernel's own check knows more reasons than Kconfig shows.
            let check = toolchain
                .make(project, &tree.path, build_dir)
                .arg("rustavailable");
            if let Err(error) = check.run(&log) {
                hint = format!("\nmake rustavailable says: {error:#}");
            }
        }
        return Err(exit::error(
            Exit::Config,
            format!(
                "linux of {} cannot be configured as \"{}\":{lines}{hint}",
                tree.path.display(),
                project.config_name()
            ),
        ));
    }
    publish::write(&stamp, stamp_text(&text).as_bytes())?;
    step.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fragments: &[&str]) -> (Asked, Vec<String>) {
        let (mut asked, mut mistakes) = (Asked::default(), Vec::new());
        for (n, text) in fragments.iter().enumerate() {
            asked.add(text, &format!("{n}.config"), &mut mistakes);
        }
        (asked, mistakes)
    }

    use super::kconfig::tests::KCONFIG;

    /// toolkit B2.
    #[test]
    fn a_dropped_symbol_is_named_with_its_dependencies() {
        let (asked, _) = asked(&["CONFIG_RUST=y\nCONFIG_NET=y\n"]);
        let config =
            "CONFIG_NET=y\nCONFIG_MODVERSIONS=y\n# CONFIG_RUST is not set\nCONFIG_HAVE_RUST=y\n";
        let text = verify(&asked, config, |_| vec![KCONFIG.to_owned()]).unwrap_err();
        assert_eq!(
            text,
            "\n  CONFIG_RUST asked y (0.config), got n; depends on: \
             HAVE_RUST && (!MODVERSIONS || GENDWARFKSYMS) \
             (HAVE_RUST=y, MODVERSIONS=y, GENDWARFKSYMS=n)"
        );
    }

    #[test]
    fn a_symbol_that_is_not_in_the_source_is_said_to_be_so() {
        let (asked, _) = asked(&["CONFIG_NOSUCH=y\n"]);
        let text = verify(&asked, "", |_| Vec::new()).unwrap_err();
        assert!(
            text.contains("CONFIG_NOSUCH asked y (0.config), got n; no such symbol"),
            "{text}"
        );
    }

    #[test]
    fn wishes_of_every_kind_are_compared() {
        let (asked, mistakes) = asked(&[
            "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=n\nCONFIG_E=8\nCONFIG_F=\"x y\"\n# a remark\n",
        ]);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert!(
            asked
                .dropped("CONFIG_A=y\nCONFIG_B=m\nCONFIG_E=8\nCONFIG_F=\"x y\"\n")
                .is_empty()
        );
        let dropped =
            asked.dropped("CONFIG_A=m\nCONFIG_B=y\nCONFIG_C=y\nCONFIG_D=y\nCONFIG_E=16\n");
        let symbols: Vec<&str> = dropped
            .iter()
            .map(|dropped| dropped.symbol.as_str())
            .collect();
        assert_eq!(
            symbols,
            [
                "CONFIG_A", "CONFIG_B", "CONFIG_C", "CONFIG_D", "CONFIG_E", "CONFIG_F"
            ]
        );
    }

    #[test]
    fn fragments_that_disagree_or_are_malformed_are_mistakes() {
        let (_, mistakes) = asked(&[
            "CONFIG_A=y\nCONFIG_B=y\n",
            "CONFIG_A=m\nCONFIG_B=y\nCONFIGX=y\n",
        ]);
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        assert_eq!(mistakes[0], "CONFIG_A is y in 0.config and m in 1.config");
        assert!(mistakes[1].contains("1.config line 3"));
    }

    #[test]
    fn a_set_flag_overrules_fragments() {
        let (mut asked, mut mistakes) = asked(&["CONFIG_A=y\n"]);
        asked.overrule("CONFIG_A=n", &mut mistakes);
        asked.overrule("B=m", &mut mistakes);
        asked.overrule("nonsense", &mut mistakes);
        assert_eq!(asked.text(), "# CONFIG_A is not set\nCONFIG_B=m\n");
        assert_eq!(mistakes.len(), 1);
    }
}
