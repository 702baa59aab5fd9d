// SPDX-License-Identifier: GPL-2.0

//! A table of costs: from what the guest prints, to text, Markdown and JSON,
//! and its comparison with values that were accepted.

use anyhow::{Context as _, ensure};
use rext2_tests::number::grouped;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

use super::grid;
use super::identity::Identity;

/// The file system that the others are compared with.
const BASE: &str = "ext2";
/// The one whose values are held to the accepted ones. Others have workers of
/// their own, which come in between now and then.
const OURS: &str = "rext2";

/// Instructions of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The middle of the repetitions.
    pub median: u64,
    /// The lowest one.
    pub low: u64,
    /// The highest one.
    pub high: u64,
}

/// All operations on all file systems.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// On what they were measured.
    pub identity: Identity,
    /// The file systems, in the order of the guest.
    pub filesystems: Vec<String>,
    /// The operations, in the order of the guest.
    pub rows: Vec<Row>,
}

/// One operation.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What is done.
    pub name: String,
    /// By file system; those that cannot do it are missing.
    pub costs: BTreeMap<String, Cost>,
}

impl Row {
    fn median(&self, fs: &str) -> Option<u64> {
        self.costs.get(fs).map(|cost| cost.median)
    }

    /// Times what the C ext2 takes.
    fn ratio(&self, fs: &str) -> Option<f64> {
        Some(self.median(fs)? as f64 / self.median(BASE)? as f64)
    }
}

impl Table {
    /// Reads what the guest's program prints.
    pub fn parse(text: &str, identity: Identity) -> anyhow::Result<Self> {
        let mut table = Table {
            identity,
            filesystems: Vec::new(),
            rows: Vec::new(),
        };
        for line in text.lines() {
            table
                .add(line)
                .with_context(|| format!("the guest printed {line:?}"))?;
        }
        ensure!(!table.rows.is_empty(), "the guest printed nothing");
        Ok(table)
    }

    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        let fields: Vec<_> = line.split('\t').collect();
        let [fs, name, median, low, high] = fields[..] else {
            anyhow::bail!("not five fields");
        };
        if !self.filesystems.iter().any(|known| known == fs) {
            self.filesystems.push(fs.to_owned());
        }
        if !self.rows.iter().any(|row| row.name == name) {
            self.rows.push(Row {
                name: name.to_owned(),
                costs: BTreeMap::new(),
            });
        }
        let row = self.rows.iter_mut().find(|row| row.name == name);
        let costs = &mut row.context("a row without a name")?.costs;
        if median != "-" {
            let cost = Cost {
                median: median.parse()?,
                low: low.parse()?,
                high: high.parse()?,
            };
            costs.insert(fs.to_owned(), cost);
        }
        Ok(())
    }

    /// The heads of the columns and the cells of the rows.
    fn cells(&self) -> Vec<Vec<String>> {
        let others = || self.filesystems.iter().filter(|fs| *fs != BASE);
        let mut head = vec!["operation".to_owned()];
        head.extend(self.filesystems.iter().cloned());
        head.extend(others().map(|fs| format!("{fs}/{BASE}")));
        let mut cells = vec![head];
        for row in &self.rows {
            let mut line = vec![row.name.clone()];
            let median = |fs: &String| row.median(fs).map_or("-".to_owned(), grouped);
            line.extend(self.filesystems.iter().map(median));
            let ratio = |fs: &String| row.ratio(fs).map_or("-".to_owned(), |r| format!("{r:.2}"));
            line.extend(others().map(ratio));
            cells.push(line);
        }
        cells
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::from("Instructions per operation\n");
        for line in self.identity.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text + &grid::text(&self.cells(), 1)
    }

    /// For a cover letter or a README.
    pub fn markdown(&self) -> String {
        let mut text = String::from("Instructions per operation, measured on\n\n");
        for line in self.identity.lines() {
            text.push_str(&format!("- {line}\n"));
        }
        text.push('\n');
        text + &grid::markdown(&self.cells(), 1)
    }

    /// For programs.
    pub fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).context("cannot encode the table")
    }
}

/// The values that were accepted last, by flavour, file system and row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    values: BTreeMap<(String, String, String), u64>,
    /// On what they were measured, by flavour.
    heads: BTreeMap<String, String>,
}

/// What stands above them.
const HEAD: &str = "\
# SPDX-License-Identifier: GPL-2.0
#
# Instructions per operation as they were accepted last; \"cargo xtask bench cost
# --check\" compares with them, \"--accept\" writes them. Flavour, file system,
# operation, instructions.
";

impl Accepted {
    /// Reads the file.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut accepted = Accepted::default();
        for line in text.lines() {
            if let Some((flavor, head)) = line
                .strip_prefix("# measured ")
                .and_then(|line| line.split_once(": "))
            {
                let head = head.to_owned();
                accepted.heads.insert(flavor.to_owned(), head);
                continue;
            }
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let fields: Vec<_> = line.split('\t').collect();
            let [flavor, fs, row, value] = fields[..] else {
                anyhow::bail!("not four fields: {line:?}");
            };
            let key = (flavor.to_owned(), fs.to_owned(), row.to_owned());
            let value = value.parse().with_context(|| format!("in {line:?}"))?;
            accepted.values.insert(key, value);
        }
        Ok(accepted)
    }

    /// The flavours that have values.
    pub fn flavors(&self) -> Vec<&str> {
        let mut flavors: Vec<_> = self.values.keys().map(|key| key.0.as_str()).collect();
        flavors.dedup();
        flavors
    }

    /// The same with the table's values for its flavour and file systems.
    pub fn with(mut self, table: &Table) -> Self {
        let flavor = &table.identity.kernel.flavor;
        self.values
            .retain(|(known, fs, _), _| known != flavor || !table.filesystems.contains(fs));
        for row in &table.rows {
            for (fs, cost) in &row.costs {
                let key = (flavor.clone(), fs.clone(), row.name.clone());
                self.values.insert(key, cost.median);
            }
        }
        self.heads
            .insert(flavor.clone(), table.identity.lines().join("; "));
        self
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (flavor, head) in &self.heads {
            text.push_str(&format!("# measured {flavor}: {head}\n"));
        }
        for ((flavor, fs, row), value) in &self.values {
            text.push_str(&format!("{flavor}\t{fs}\t{row}\t{value}\n"));
        }
        text
    }

    /// Our rows that have an accepted value, with both.
    pub fn compare(&self, table: &Table) -> Vec<Compared> {
        let flavor = &table.identity.kernel.flavor;
        let mut compared = Vec::new();
        for row in &table.rows {
            let key = (flavor.clone(), OURS.to_owned(), row.name.clone());
            if let (Some(&accepted), Some(now)) = (self.values.get(&key), row.median(OURS)) {
                compared.push(Compared {
                    row: row.name.clone(),
                    accepted,
                    now,
                });
            }
        }
        compared
    }
}

/// A value beside the one that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    row: String,
    accepted: u64,
    now: u64,
}

impl Compared {
    /// Percent above the accepted value.
    pub fn percent(&self) -> f64 {
        (self.now as f64 / self.accepted as f64 - 1.0) * 100.0
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = &self.row;
        let (accepted, now) = (grouped(self.accepted), grouped(self.now));
        write!(
            f,
            "{row}: {now}, accepted {accepted} ({:+.1} %)",
            self.percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> anyhow::Result<Table> {
        let kernel = crate::artifact::Identity {
            base: "linux-6.12".to_owned(),
            flavor: "dev".to_owned(),
            version: "6.12.1".to_owned(),
            source: String::new(),
            source_key: String::new(),
            patches: 2,
            series: "s".to_owned(),
            config: "c".to_owned(),
            toolchain: vec!["clang 19".to_owned()],
        };
        let identity = Identity {
            kernel,
            module: None,
            qemu: "QEMU 7".to_owned(),
        };
        Table::parse(text, identity)
    }

    const TEXT: &str = "rext2\tcreate\t900\t1\t2\nrext2\tpunch\t1234567\t1\t2\n\
                        ext2\tcreate\t1000\t1\t2\next2\tpunch\t-\t-\t-\n";

    #[test]
    fn a_row_without_a_value_has_no_ratio() {
        let table = table(TEXT).unwrap();
        let text = table.text();
        assert!(
            text.contains("create           900  1,000        0.90"),
            "{text}"
        );
        assert!(
            text.contains("punch      1,234,567      -           -"),
            "{text}"
        );
        let markdown = table.markdown();
        assert!(markdown.contains("| --- | ---: | ---: | ---: |\n| create | 900 | 1,000 | 0.90 |"));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in ["", "rext2\tcreate\t1\t2\n", "rext2\tcreate\tx\t1\t2\n"] {
            assert!(table(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn accepted_values_make_the_round_trip_and_are_compared() {
        let table = table(TEXT).unwrap();
        let older = Accepted::parse("bench\text2\tcreate\t7\ndev\trext2\tgone\t5\n").unwrap();
        let accepted = older.with(&table);
        assert_eq!(Accepted::parse(&accepted.text()).unwrap(), accepted);
        assert!(accepted.text().contains("bench\text2\tcreate\t7\n"));
        assert_eq!(accepted.flavors(), ["bench", "dev"]);
        assert!(!accepted.text().contains("gone"));
        assert_eq!(accepted.compare(&table).len(), 2);
        let dearer = self::table(&TEXT.replace("\t900", "\t920")).unwrap();
        let compared = accepted.compare(&dearer);
        let most = compared.iter().map(Compared::percent).fold(0.0, f64::max);
        assert!((2.2..2.3).contains(&most), "{most}");
    }
}
