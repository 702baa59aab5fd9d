// SPDX-License-Identifier: GPL-2.0

//! The kernel as QEMU loads it: vmlinux without its section headers.
//!
//! QEMU needs the segments and the PVH note, but reads and sorts a symbol table
//! whenever it finds one.

use anyhow::Context as _;
use fs_err as fs;
use std::path::{Path, PathBuf};

use crate::exit::{self, Exit};
use crate::hash;
use crate::project::Project;
use crate::publish;

/// Offsets in the header of a 64-bit ELF file: the section headers' place, and
/// their size, number and string table.
const E_SHOFF: std::ops::Range<usize> = 0x28..0x30;
const E_SHENTSIZE_TO_SHSTRNDX: std::ops::Range<usize> = 0x3a..0x40;
const E_SHENTSIZE: usize = 0x3a;
const E_SHSTRNDX: usize = 0x3e;
/// The program headers' place and number.
const E_PHOFF: std::ops::Range<usize> = 0x20..0x28;
const E_PHNUM: std::ops::Range<usize> = 0x38..0x3a;
const PHDR_SIZE: usize = 56;

/// The image for this kernel, made when the cache does not have it.
pub fn of(project: &Project, vmlinux: &Path) -> anyhow::Result<PathBuf> {
    let meta = fs::metadata(vmlinux)?;
    let time = meta.modified().context("no modification time")?;
    let key = format!("{} {} {time:?}", vmlinux.display(), meta.len());
    let file = project.boot_image(&hash::short(key.as_bytes()));
    if file.is_file() {
        return Ok(file);
    }
    let elf = without_sections(fs::read(vmlinux)?).ok_or_else(|| {
        exit::error(
            Exit::Build,
            format!("{} is no 64-bit ELF file; build again", vmlinux.display()),
        )
    })?;
    publish::write(&file, &elf)?;
    Ok(file)
}

/// The names of an ELF file's sections, each ended by a zero byte.
pub fn section_names(elf: &[u8]) -> Option<String> {
    let number = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(elf.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let table = number(E_SHOFF.start, 8)?;
    let (size, index) = (number(E_SHENTSIZE, 2)?, number(E_SHSTRNDX, 2)?);
    let header = table.checked_add(size.checked_mul(index)?)?;
    // sh_offset and sh_size.
    let (from, length) = (number(header + 0x18, 8)?, number(header + 0x20, 8)?);
    let names = elf.get(from..from.checked_add(length)?)?;
    Some(String::from_utf8_lossy(names).into_owned())
}

/// The file up to the end of its last segment, with a header that knows of no
/// sections.
fn without_sections(mut elf: Vec<u8>) -> Option<Vec<u8>> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let mut bytes = [0; 8];
        let field = elf.get(range)?;
        bytes[..field.len()].copy_from_slice(field);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (table, count) = (number(E_PHOFF)?, number(E_PHNUM)?);
    let mut end = table.checked_add(count.checked_mul(PHDR_SIZE)?)?;
    for index in 0..count {
        // p_offset and p_filesz.
        let header = table + index * PHDR_SIZE;
        let (offset, size) = (
            number(header + 8..header + 16)?,
            number(header + 32..header + 40)?,
        );
        end = end.max(offset.checked_add(size)?);
    }
    if end > elf.len() {
        return None;
    }
    elf.truncate(end);
    elf.get_mut(E_SHOFF)?.fill(0);
    elf.get_mut(E_SHENTSIZE_TO_SHSTRNDX)?.fill(0);
    Some(elf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf() -> Vec<u8> {
        let mut elf = vec![0u8; 0x200];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[E_PHOFF].copy_from_slice(&0x40u64.to_le_bytes());
        elf[E_SHOFF].copy_from_slice(&0x180u64.to_le_bytes());
        elf[E_PHNUM].copy_from_slice(&1u16.to_le_bytes());
        elf[E_SHENTSIZE_TO_SHSTRNDX].fill(7);
        elf[0x48..0x50].copy_from_slice(&0x100u64.to_le_bytes());
        elf[0x60..0x68].copy_from_slice(&0x40u64.to_le_bytes());
        elf[0x100..0x140].fill(0xaa);
        elf
    }

    #[test]
    fn segments_stay_and_sections_go() {
        let cut = without_sections(elf()).unwrap();
        assert_eq!(cut.len(), 0x140);
        assert!(cut[0x100..].iter().all(|byte| *byte == 0xaa));
        assert!(cut[E_SHOFF].iter().all(|byte| *byte == 0));
        assert!(cut[E_SHENTSIZE_TO_SHSTRNDX].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn section_names_are_found_in_this_program() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let names = section_names(&program).unwrap();
        assert!(names.contains(".text\0") && !names.contains(".no-such\0"));
        assert!(section_names(b"MZ not an ELF file").is_none());
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        assert!(without_sections(b"MZ not an ELF file".to_vec()).is_none());
        let mut short = elf();
        short.truncate(0x120);
        assert!(without_sections(short).is_none());
        let mut wild = elf();
        wild[E_PHNUM].fill(0xff);
        assert!(without_sections(wild).is_none());
    }
}
