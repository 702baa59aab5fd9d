// SPDX-License-Identifier: GPL-2.0

//! File contents that tell where they belong: each 8-byte word holds the
//! number of its file and its own offset, so that a wrong byte says which
//! block came instead of the right one.

use anyhow::{Result, bail};

/// What fills a device before a file system is made on it: a byte of it in a file
/// is what the disk held before.
pub const STALE: &[u8; 8] = b"oldblock";

/// Keeps every word different from zero, which is what a hole reads as.
const MARK: u64 = 0xa5c3_5a69_96c3_3c5a;
/// Words are numbered with this many bits; files with the rest.
const WORD_BITS: u32 = 40;

fn word(file: u16, index: u64) -> u64 {
    ((u64::from(file) << WORD_BITS) | index) ^ MARK
}

/// Fills `buffer` with what file `file` holds from byte `pos` on.
pub fn fill(file: u16, pos: u64, buffer: &mut [u8]) {
    let mut at = 0;
    while at < buffer.len() {
        let here = pos + at as u64;
        let skip = (here % 8) as usize;
        let bytes = word(file, here / 8).to_le_bytes();
        let length = (8 - skip).min(buffer.len() - at);
        buffer[at..at + length].copy_from_slice(&bytes[skip..skip + length]);
        at += length;
    }
}

/// Fails if `buffer` is not what the file holds from byte `pos` on.
pub fn check(file: u16, pos: u64, buffer: &[u8]) -> Result<()> {
    let mut right = vec![0; buffer.len()];
    fill(file, pos, &mut right);
    match first_difference(&right, buffer) {
        None => Ok(()),
        Some(at) => {
            let pos = pos + at as u64;
            bail!(
                "byte {pos} of file {file}: {}",
                describe(pos, &buffer[at..])
            )
        }
    }
}

/// Fails if `buffer`, read from byte `pos` on, is not all zeros.
pub fn check_hole(pos: u64, buffer: &[u8]) -> Result<()> {
    match buffer.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => {
            let pos = pos + at as u64;
            bail!("byte {pos}, in a hole: {}", describe(pos, &buffer[at..]))
        }
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

/// What the bytes at a file position look like.
pub fn describe(pos: u64, bytes: &[u8]) -> String {
    if bytes.iter().take(8).all(|byte| *byte == 0) {
        return "zeros".into();
    }
    // The next whole word tells whose data this is.
    let skip = ((8 - pos % 8) % 8) as usize;
    let Some(bytes) = bytes.get(skip..skip + 8) else {
        return format!("{bytes:02x?}");
    };
    let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default()) ^ MARK;
    let (file, index) = (word >> WORD_BITS, word & ((1 << WORD_BITS) - 1));
    if file <= u64::from(u16::MAX) {
        format!("the data of byte {} of file {file}", index * 8)
    } else {
        format!("{bytes:02x?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_the_same_part_of_the_whole() {
        let mut whole = [0; 64];
        fill(7, 1 << 33, &mut whole);
        for (start, end) in [(0, 64), (3, 5), (7, 24), (63, 64)] {
            assert!(check(7, (1 << 33) + start as u64, &whole[start..end]).is_ok());
        }
    }

    #[test]
    fn a_wrong_byte_tells_whose_it_is() {
        let mut data = [0; 4096];
        fill(3, 8192, &mut data);
        let error = check(2, 4096, &data).unwrap_err().to_string();
        assert_eq!(
            error,
            "byte 4097 of file 2: the data of byte 8200 of file 3"
        );
        let error = check_hole(512, &data).unwrap_err().to_string();
        assert_eq!(
            error,
            "byte 512, in a hole: the data of byte 8192 of file 3"
        );
        let error = check(2, 4096, &[0; 16]).unwrap_err().to_string();
        assert_eq!(error, "byte 4096 of file 2: zeros");
    }
}
