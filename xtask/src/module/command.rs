// SPDX-License-Identifier: GPL-2.0

//! The compiler's command of a module's build, as kbuild has saved it.

use anyhow::Context as _;
use fs_err as fs;
use std::path::Path;

/// Reads the command that kbuild has saved for the crate.
pub fn saved(name: &str, built: &Path) -> anyhow::Result<Vec<String>> {
    let file = built.with_file_name(format!(".{name}.o.cmd"));
    let text = fs::read_to_string(&file)?;
    let line = text.lines().next().unwrap_or_default();
    let (_, command) = line
        .split_once(":= ")
        .with_context(|| format!("{} holds no command", file.display()))?;
    let command = command.split(" ; ").next().unwrap_or_default();
    crate_free(shell_words(command))
        .with_context(|| format!("{} holds no call of rustc", file.display()))
}

/// Drops the variables before the compiler, and the names and outputs of the crate.
fn crate_free(words: Vec<String>) -> Option<Vec<String>> {
    let is_variable = |word: &String| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let mut words = words.into_iter().skip_while(is_variable);
    let mut kept = vec![words.next()?];
    while let Some(word) = words.next() {
        match word.as_str() {
            "--crate-name" | "--out-dir" => {
                words.next()?;
            }
            word if word.starts_with("--emit=")
                || (word.ends_with(".rs") && !word.starts_with('-')) => {}
            _ => kept.push(word),
        }
    }
    Some(kept)
}

/// Splits a command line as the shell does, as far as kbuild's lines go.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_saved_command_serves_other_crates() {
        let line = "RUST_MODFILE=/m/rext2 rustc --edition=2021 -Zcrate-attr='feature(a, b)' @./include/generated/rustc_cfg \
                    --extern kernel --crate-type rlib -L ./rust/ --crate-name rext2 --sysroot=/dev/null --out-dir /m/ \
                    --emit=dep-info=/m/.rext2.o.d --emit=obj=/m/rext2.o /m/rext2.rs ";
        assert_eq!(
            crate_free(shell_words(line)).unwrap().join("|"),
            "rustc|--edition=2021|-Zcrate-attr=feature(a, b)|@./include/generated/rustc_cfg|--extern|kernel|--crate-type|rlib|-L|./rust/|--sysroot=/dev/null"
        );
    }
}
