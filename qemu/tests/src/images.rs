// SPDX-License-Identifier: GPL-2.0

//! Suite `images`: corner-case and broken images, mounted read-only one by one
//! and used with a fixed list of calls; the answers are those of a table.

pub mod judge;
pub mod probe;
pub mod table;

use crate::case::{Case, Group};
use crate::disk;
use crate::job::Job;
use anyhow::{Context, Result};

/// Serial of the disk whose partitions are the images.
pub const SERIAL: &str = "images";

/// One group for each theme of the table, one case for each image.
pub fn groups(_: &Job) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in table::rows()? {
        if groups.last().is_none_or(|group| group.name != row.theme) {
            groups.push(Group {
                name: row.theme.clone(),
                cases: Vec::new(),
            });
        }
        let cases = &mut groups.last_mut().context("the first group")?.cases;
        let case = Case::new(row.image.clone(), move |job| {
            let partition = disk::partition(SERIAL, &row.image)?;
            let answers = probe::probe(&partition, &job.fs)?;
            if job.get("print").is_some() {
                println!("{}", probe::summary(&answers));
            }
            judge::judge(&row, &answers, job.is_rext2())
        });
        cases.push(case.limit(25));
    }
    Ok(groups)
}
