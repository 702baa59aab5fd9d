// SPDX-License-Identifier: GPL-2.0

//! Content hashes: the keys of everything in the cache.

use fs_err as fs;
use sha2::{Digest as _, Sha256};
use std::io::Read as _;
use std::path::Path;

/// Collects parts whose borders count: `ab`+`c` and `a`+`bc` differ.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds one part.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The hash in hex digits.
    pub fn hex(self) -> String {
        hex(&self.0.finalize())
    }

    /// The first 16 hex digits: enough for a name in the cache.
    pub fn short(self) -> String {
        let mut hex = self.hex();
        hex.truncate(16);
        hex
    }
}

/// The first 16 hex digits of the hash of `bytes`.
pub fn short(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.part(bytes);
    hasher.short()
}

/// SHA-256 of a file, as sha256sum prints it.
pub fn file(path: &Path) -> anyhow::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..n]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_between_parts_count() {
        let of = |parts: &[&str]| {
            let mut hasher = Hasher::default();
            for part in parts {
                hasher.part(part.as_bytes());
            }
            hasher.hex()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }

    #[test]
    fn a_file_hashes_as_sha256sum_does() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(
            super::file(file.path()).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
