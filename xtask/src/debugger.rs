// SPDX-License-Identifier: GPL-2.0

//! `--gdb`: scripts that attach gdb to the waiting guest, stop it when rext2 is
//! inserted, and load rext2's symbols at the addresses where it lies then.

use anyhow::Context as _;
use fs_err as fs;
use rext2_init::{DEBUGGER_STOP, Event};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::artifact::{Kernel, Module};
use crate::boot_image;
use crate::publish;
use crate::rundir::Folder;

/// The sections that hold code and data of a module, `.text` apart. The others
/// are gone after its start, or are only for the kernel.
const SECTIONS: &[&str] = &[".text.unlikely.", ".exit.text", ".rodata", ".data", ".bss"];

/// Tenths of a second for which gdb waits for the module's script.
const PATIENCE: u32 = 50;

/// What a user's gdb needs.
pub struct Debugger<'a> {
    kernel: &'a Kernel,
    module: Option<&'a Module>,
    symbols: Option<PathBuf>,
}

impl<'a> Debugger<'a> {
    /// For this kernel and module.
    pub fn new(kernel: &'a Kernel, module: Option<&'a Module>) -> Self {
        Debugger {
            kernel,
            module,
            symbols: None,
        }
    }

    /// Writes the script that attaches, and tells how to call it.
    pub fn starts(&mut self, folder: &Folder) -> anyhow::Result<()> {
        let symbols = folder.path().join("rext2.gdb");
        let attach = folder.path().join("attach.gdb");
        let has_module = self.module.is_some();
        fs::write(
            &attach,
            attaching(&folder.socket("gdb"), has_module.then_some(&symbols)),
        )?;
        self.symbols = Some(symbols);
        let vmlinux = &self.kernel.vmlinux;
        let lines = boot_image::section_names(&fs::read(vmlinux)?)
            .with_context(|| format!("{} is no ELF file", vmlinux.display()))?
            .contains(".debug_info");
        let then = match has_module {
            true => "the guest stops again when rext2 is inserted, with its symbols loaded",
            false => "the guest runs",
        };
        let symbols = match lines {
            true => "functions, types and source lines".to_owned(),
            false => format!(
                "functions only, as flavor {} has no debug info; --flavor debug has source lines, too",
                self.kernel.identity.flavor
            ),
        };
        eprintln!(
            "the guest waits for gdb; attach from another terminal with\r\n  \
             gdb -x {} {}\r\n\
             and \"continue\": {then}\r\n\
             symbols: {symbols}\r",
            word(&attach),
            word(vmlinux)
        );
        Ok(())
    }

    /// Writes the module's script as soon as it has addresses.
    pub fn tick(&self, events: &[Event]) -> anyhow::Result<()> {
        let (Some(script), Some(module)) = (&self.symbols, self.module) else {
            return Ok(());
        };
        for event in events {
            if let Event::Inserted {
                module: name,
                text: Some(text),
                sections,
            } = event
                && name == "rext2"
            {
                let command = add_symbols(&module.debug_ko, text, sections);
                publish::write(script, command.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// The script that attaches gdb; with a module it stops once that is in.
fn attaching(socket: &Path, symbols: Option<&PathBuf>) -> String {
    let mut text = format!("target remote {}\n", socket.display());
    let Some(symbols) = symbols else {
        return text;
    };
    // The guest tells the addresses just before it stops; we need a moment to
    // write them down. Hardware breakpoints: the kernel is not in memory yet.
    let file = word(symbols);
    let _ = write!(
        text,
        "thbreak {DEBUGGER_STOP}\n\
         commands\n\
         silent\n\
         shell for n in $(seq {PATIENCE}); do [ -e {file} ] && break; sleep 0.1; done\n\
         source {}\n\
         echo rext2 is inserted: set breakpoints, then continue\\n\n\
         end\n",
        symbols.display()
    );
    text
}

/// gdb's command that loads a module's symbols, without its question.
fn add_symbols(file: &Path, text: &str, sections: &[(String, String)]) -> String {
    let mut command = format!("set confirm off\nadd-symbol-file {} {text}", file.display());
    for (name, address) in sections {
        if SECTIONS.contains(&name.as_str()) {
            let _ = write!(command, " -s {name} {address}");
        }
    }
    command + "\nset confirm on\n"
}

/// A path as one word of a shell.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,=@%".contains(&byte);
    match text.bytes().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_loaded_where_the_sections_lie() {
        let sections = [
            (".bss", "0x3"),
            (".init.text", "0x4"),
            (".rodata", "0x2"),
            (".text", "0x1"),
        ]
        .map(|(name, address)| (name.to_owned(), address.to_owned()));
        assert_eq!(
            add_symbols(Path::new("/m/rext2.debug.ko"), "0x1", &sections),
            "set confirm off\n\
             add-symbol-file /m/rext2.debug.ko 0x1 -s .bss 0x3 -s .rodata 0x2\n\
             set confirm on\n"
        );
    }

    #[test]
    fn without_a_module_there_is_nothing_to_stop_for() {
        let socket = Path::new("/r/gdb");
        assert_eq!(attaching(socket, None), "target remote /r/gdb\n");
        let script = attaching(socket, Some(&"/r/it's here".into()));
        assert!(script.contains("[ -e '/r/it'\\''s here' ]"), "{script}");
        assert!(script.contains("source /r/it's here\n"), "{script}");
    }
}
