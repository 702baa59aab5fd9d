// SPDX-License-Identifier: GPL-2.0

//! Reads in Kconfig files what a symbol depends on, for the messages about dropped ones.

use crate::sh::Cmd;
use fs_err as fs;
use std::path::Path;

/// Where a symbol is defined: its dependencies, one text a definition.
pub fn depends_on(kconfig: &str, symbol: &str) -> Vec<String> {
    let name = symbol.strip_prefix("CONFIG_").unwrap_or(symbol);
    let mut found = Vec::new();
    // Conditions of the blocks around: `if X`, and `depends on` of a menu.
    let mut around: Vec<Vec<String>> = Vec::new();
    let mut here: Option<Vec<String>> = None;
    let mut in_menu_head = false;
    let text = kconfig.replace("\\\n", " ");
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let ends_block = matches!(
            word,
            "config"
                | "menuconfig"
                | "choice"
                | "endchoice"
                | "if"
                | "endif"
                | "menu"
                | "endmenu"
                | "source"
                | "comment"
        );
        if ends_block {
            if let Some(own) = here.take() {
                found.push([around.concat(), own].concat().join(" && "));
            }
            in_menu_head = false;
        }
        match word {
            "if" => around.push(vec![rest.trim().to_owned()]),
            "menu" => {
                around.push(Vec::new());
                in_menu_head = true;
            }
            "endif" | "endmenu" => {
                around.pop();
            }
            "config" | "menuconfig" if rest.trim() == name => here = Some(Vec::new()),
            "depends" => {
                let words: Vec<&str> = rest.split_whitespace().skip(1).collect();
                let condition = words.join(" ");
                let condition = if condition.contains("||") {
                    format!("({condition})")
                } else {
                    condition
                };
                if let Some(own) = &mut here {
                    own.push(condition);
                } else if in_menu_head && let Some(block) = around.last_mut() {
                    block.push(condition);
                }
            }
            _ => {}
        }
    }
    if let Some(own) = here.take() {
        found.push([around.concat(), own].concat().join(" && "));
    }
    found
}

/// The symbols of a condition with their values in a .config.
pub fn values_in(condition: &str, config: &str) -> String {
    let mut names: Vec<&str> = condition
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|name| name.len() > 1 && name.chars().any(|c| c.is_ascii_uppercase()))
        .collect();
    names.dedup();
    let value = |name: &&str| {
        let symbol = format!("CONFIG_{name}=");
        let value = config
            .lines()
            .find_map(|line| line.strip_prefix(symbol.as_str()))
            .unwrap_or("n");
        format!("{name}={value}")
    };
    names.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// The Kconfig files that define a symbol.
pub fn files_of(tree: &Path, symbol: &str) -> Vec<String> {
    let name = symbol.strip_prefix("CONFIG_").unwrap_or(symbol);
    let files = Cmd::git(tree)
        .args([
            "grep",
            "-l",
            "-E",
            &format!("^(menu)?config {name}$"),
            "--",
            "*Kconfig*",
        ])
        .read()
        .unwrap_or_default();
    files
        .lines()
        .filter_map(|file| fs::read_to_string(tree.join(file)).ok())
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const KCONFIG: &str = "config RUST\n\tbool \"Rust support\"\n\tdepends on HAVE_RUST\n\tdepends on !MODVERSIONS || \\\n\t\tGENDWARFKSYMS\n\thelp\n\t  Text.\n\nif BLOCK\nmenu \"x\"\n\tdepends on PCI\nconfig INNER\n\tbool\nendmenu\nendif\nconfig FREE\n\tbool\n";

    #[test]
    fn conditions_of_surrounding_blocks_count() {
        assert_eq!(depends_on(KCONFIG, "CONFIG_INNER"), ["BLOCK && PCI"]);
        assert_eq!(depends_on(KCONFIG, "CONFIG_FREE"), [""]);
        assert!(depends_on(KCONFIG, "CONFIG_OTHER").is_empty());
    }
}
