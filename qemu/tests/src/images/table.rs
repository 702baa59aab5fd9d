// SPDX-License-Identifier: GPL-2.0

//! The table of right answers, `qemu/images/expected.tsv`: reads its lines.
//!
//! A line's answers are what its image deviates in from what it holds: `tree`
//! (the files of make.sh), `empty` (a fresh file system) or `none` (the image
//! is refused). `big=EIO` is short for every call on that file, `*=EIO` for
//! every call between mount and umount but statfs.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = include_str!("../../../images/expected.tsv");

/// What every call answers on an image that holds the tree of make.sh.
const TREE: &[(&str, &str)] = &[
    (
        "ls",
        "big:r,bigdev:b,d:d,fast:l,fifo:p,lost+found:d,nul:c,slow:l",
    ),
    ("ls.d", "f:r"),
    ("read.big", BIG),
    ("direct.big", BIG),
    ("stat.big", "100644/1/300000/592/0/0"),
    ("mtime.big", "1700000000.0"),
    ("attr.big", ""),
    ("attr.f", ""),
    ("mtime.f", "1700000000.0"),
    ("read.f", "6/363a3020"),
    ("link.fast", "abc"),
    ("link.slow", "x*100"),
    ("rdev.nul", "1.3"),
    ("rdev.bigdev", "259.300"),
    ("xattr.big", ""),
    ("xattr.fast", ""),
];
const BIG: &str = "300000/5cbafdbf";
/// The same for an image with nothing but lost+found.
const EMPTY: &[(&str, &str)] = &[("ls", "lost+found:d")];

/// The right answers of one driver for one image.
#[derive(Clone, Debug)]
pub struct Answers {
    holds: String,
    statfs: String,
    own: BTreeMap<String, String>,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the image is about.
    pub theme: String,
    /// Its name.
    pub image: String,
    /// What rext2 has to answer.
    pub rext2: Answers,
    /// What the C driver answers.
    pub ext2: Answers,
    /// The on-disk field that rext2's log line names; any of several.
    pub log: Vec<String>,
    /// What rext2's one line at a successful mount has to say.
    pub note: Option<String>,
}

/// All lines.
pub fn rows() -> Result<Vec<Row>> {
    parse(TABLE)
}

pub(super) fn parse(table: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, line) in table.lines().enumerate() {
        if !line.is_empty() && !line.starts_with('#') {
            let row = row(line).context(format!("expected.tsv:{}", index + 1))?;
            ensure!(
                seen.insert(row.image.clone()),
                "expected.tsv:{}: {} is listed twice",
                index + 1,
                row.image
            );
            rows.push(row);
        }
    }
    Ok(rows)
}

fn row(line: &str) -> Result<Row> {
    let fields: Vec<_> = line.split('\t').collect();
    let [image, holds, statfs, rext2, ext2, log, reason] = fields[..] else {
        anyhow::bail!("{} fields instead of 7", fields.len());
    };
    ensure!(
        ["tree", "empty", "none"].contains(&holds),
        "unknown contents {holds:?}"
    );
    let answers = |text: &str| -> Result<Answers> {
        let own = text.split(' ').filter(|answer| *answer != "-");
        Ok(Answers {
            holds: holds.into(),
            statfs: statfs.into(),
            own: own
                .map(|answer| {
                    answer
                        .split_once('=')
                        .context(format!("bad answer {answer:?}"))
                })
                .map(|pair| pair.map(|(call, value)| (call.into(), value.into())))
                .collect::<Result<_>>()?,
        })
    };
    ensure!(
        ext2 == "=" || (ext2 != rext2 && reason.len() > 1),
        "a difference from C without a reason"
    );
    let theme = match image.split('-').next() {
        Some("a") => "features",
        Some("b") => "geometry",
        Some("c") => "inodes",
        Some("d") => "directories",
        Some("e") => "state",
        _ => anyhow::bail!("unknown theme of {image}"),
    };
    let (notes, fields): (Vec<_>, Vec<_>) = log
        .split('|')
        .filter(|field| *field != "-")
        .partition(|field| field.starts_with("mount:"));
    Ok(Row {
        theme: theme.into(),
        image: image.into(),
        rext2: answers(rext2)?,
        ext2: answers(if ext2 == "=" { rext2 } else { ext2 })?,
        log: fields.into_iter().map(String::from).collect(),
        note: notes.first().map(|note| note["mount:".len()..].into()),
    })
}

impl Answers {
    /// The right answer to a call.
    pub fn to(&self, call: &str) -> &str {
        let own = |key: &str| self.own.get(key).map(String::as_str);
        let object = call.split_once('.').map_or(call, |(_, object)| object);
        if let Some(value) = own(call).or_else(|| own(object)) {
            return value;
        }
        let common = match (self.holds.as_str(), call) {
            (_, "mount" | "umount") => return "ok",
            (_, "statfs") => return &self.statfs,
            ("tree", _) => TREE,
            _ => EMPTY,
        };
        own("*").unwrap_or_else(|| {
            let found = common.iter().find(|(name, _)| *name == call);
            found.map_or("ENOENT", |(_, value)| value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        assert_eq!(rows().unwrap().len(), 155);
    }

    #[test]
    fn answers_are_the_contents_with_deviations() {
        let line = "c-x\ttree\t1/2\tbig=EUCLEAN read.f=EIO\t-\ti_size\tC does not look";
        let row = &parse(line).unwrap()[0];
        for (call, value) in [
            ("mount", "ok"),
            ("stat.big", "EUCLEAN"),
            ("read.f", "EIO"),
            ("link.fast", "abc"),
            ("statfs", "1/2"),
            ("ls.h", "ENOENT"),
        ] {
            assert_eq!(row.rext2.to(call), value, "{call}");
        }
        assert_eq!(row.ext2.to("stat.big"), "100644/1/300000/592/0/0");
        assert_eq!(row.log, ["i_size"]);
    }

    #[test]
    fn mistakes_in_the_table_are_found() {
        let good = "c-x\ttree\t1/2\tbig=EIO\t-\ti_size\twhy";
        for bad in [
            good.replace("why", ""),
            good.replace("tree", "trees"),
            good.replace("big=EIO", "big"),
            good.replace("c-x", "x"),
            good.replace("\ti_size", ""),
            format!("{good}\n{good}"),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }
}
