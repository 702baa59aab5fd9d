// SPDX-License-Identifier: GPL-2.0

//! Many images on one disk: a partition each, found by its label. The guest
//! needs one virtio disk, no loop device and no file system to find them.

use anyhow::{Context as _, ensure};
use fs_err as fs;
use gpt::disk::LogicalBlockSize;
use gpt::partition::Partition;
use gpt::{GptConfig, mbr::ProtectiveMBR, partition_types};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use uuid::Uuid;

const SECTOR: u64 = 512;
/// Partitions start at multiples of this; the first is behind the table.
const ALIGN: u64 = 1 << 20;
/// The kernel looks at no more partitions of a disk.
const MOST: usize = 255;

/// Writes a disk at `path` that holds the files as partitions, holes kept.
pub fn pack(path: &Path, parts: &[(String, impl AsRef<Path>)]) -> anyhow::Result<()> {
    ensure!(
        parts.len() <= MOST,
        "{} images are more than a disk can have partitions",
        parts.len()
    );
    let mut disk = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    let mut table = BTreeMap::new();
    let mut start = ALIGN;
    for (number, (label, file)) in (1..).zip(parts) {
        let size = copy(file.as_ref(), &mut disk, start)?;
        ensure!(
            size > 0 && size % SECTOR == 0,
            "{} does not end at a sector: {size} bytes",
            file.as_ref().display()
        );
        let partition = Partition {
            part_type_guid: partition_types::LINUX_FS,
            // The same disk is the same bytes.
            part_guid: Uuid::from_u128(u128::from(number)),
            first_lba: start / SECTOR,
            last_lba: (start + size) / SECTOR - 1,
            flags: 0,
            name: label.clone(),
        };
        table.insert(number, partition);
        start = (start + size).next_multiple_of(ALIGN);
    }
    // Room for the second copy of the table.
    let size = start + ALIGN;
    disk.set_len(size)?;
    let sectors = u32::try_from(size / SECTOR - 1).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(sectors)
        .overwrite_lba0(&mut disk)
        .context("cannot write the protective boot record")?;
    let mut gpt = GptConfig::new()
        .writable(true)
        .logical_block_size(LogicalBlockSize::Lb512)
        .change_partition_count(true)
        .create_from_device(disk, Some(Uuid::from_u128(0)))
        .context("cannot make a partition table")?;
    gpt.update_partitions(table)
        .context("cannot make a partition table")?;
    gpt.write().context("cannot write the partition table")?;
    Ok(())
}

/// Copies the data of a file to `start` of the disk; the size of the file.
fn copy(file: &Path, disk: &mut fs::File, start: u64) -> anyhow::Result<u64> {
    let mut source = fs::File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    let mut pos = 0;
    loop {
        let data = match seek(&source, SeekFrom::Data(pos)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(source.metadata()?.len()),
            Err(error) => return Err(error).context(format!("cannot seek in {}", file.display())),
        };
        let hole = seek(&source, SeekFrom::Hole(data))
            .context(format!("cannot seek in {}", file.display()))?;
        source.seek(std::io::SeekFrom::Start(data))?;
        disk.seek(std::io::SeekFrom::Start(start + data))?;
        let mut left = hole - data;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            source.read_exact(&mut buffer[..part])?;
            disk.write_all(&buffer[..part])?;
            left -= part as u64;
        }
        pos = hole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_images_than_a_usual_table_holds() {
        let folder = tempfile::tempdir().unwrap();
        let parts: Vec<_> = (0..150)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                std::fs::write(&path, [number as u8 + 1; 512]).unwrap();
                (format!("image-{number}"), path)
            })
            .collect();
        let path = folder.path().join("disk");
        pack(&path, &parts).unwrap();

        let disk = GptConfig::new().open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(disk.partitions().len(), 150);
        for (number, partition) in disk.partitions() {
            assert_eq!(partition.name, format!("image-{}", number - 1));
            let at = (partition.first_lba * SECTOR) as usize;
            assert_eq!(bytes[at..at + 512], [*number as u8; 512]);
        }
    }

    #[test]
    fn a_file_that_ends_inside_a_sector_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd");
        std::fs::write(&path, [0; 100]).unwrap();
        let error = pack(&folder.path().join("disk"), &[("odd".into(), path)]).unwrap_err();
        assert!(error.to_string().contains("100 bytes"), "{error:#}");
    }
}
