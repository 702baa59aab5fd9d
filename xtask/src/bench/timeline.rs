// SPDX-License-Identifier: GPL-2.0

//! The figures of `bench uncached`: from what the guest prints, to tables.

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::grid;
use super::identity::Identity;

/// What uncached IO is to reach, times what plain IO does into an empty cache,
/// and for reads into a full one.
const EMPTY: f64 = 0.90;
const FULL: f64 = 1.6;
/// How far apart its fastest and its slowest interval may be, in percent.
const SPREAD: f64 = 2.0;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Bytes read or written.
    pub bytes: u64,
    /// Nanoseconds of guest time.
    pub ns: u64,
    /// Nanoseconds that kswapd has run.
    pub kswapd_ns: u64,
    /// Pages that reclaim has looked at.
    pub scanned: u64,
    /// Pages that reclaim has taken.
    pub taken: u64,
    /// Bytes that came from the device.
    pub device: u64,
    /// Pages of the file in the cache at the end.
    pub cached: u64,
}

impl Interval {
    fn rate(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.ns.max(1) as f64
    }
}

/// One operation on one file system, in both modes.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// The file system.
    pub fs: String,
    /// `read` or `write`.
    pub operation: String,
    /// Without the flag.
    pub plain: Vec<Interval>,
    /// With it.
    pub uncached: Vec<Interval>,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// On what it was measured.
    pub identity: Identity,
    /// In the order of the guest.
    pub series: Vec<Series>,
}

/// Some intervals taken together.
struct Sum {
    rate: f64,
    low: f64,
    high: f64,
    kswapd_ms: f64,
    scanned: u64,
    taken: u64,
}

impl Sum {
    /// Of none there is nothing to say.
    fn of(intervals: &[Interval]) -> Option<Sum> {
        let count = intervals.len() as u64;
        let sum = |field: fn(&Interval) -> u64| intervals.iter().map(field).sum::<u64>();
        let rates = || intervals.iter().map(Interval::rate);
        (count > 0).then(|| Sum {
            rate: sum(|one| one.bytes) as f64 * 1e3 / sum(|one| one.ns).max(1) as f64,
            low: rates().fold(f64::INFINITY, f64::min),
            high: rates().fold(0.0, f64::max),
            kswapd_ms: sum(|one| one.kswapd_ns) as f64 / 1e6 / count as f64,
            scanned: sum(|one| one.scanned) / count,
            taken: sum(|one| one.taken) / count,
        })
    }

    fn cell(sum: &Option<Sum>) -> String {
        sum.as_ref().map_or("-".to_owned(), |sum| {
            format!("{:.0} ({:.0}–{:.0})", sum.rate, sum.low, sum.high)
        })
    }
}

impl Series {
    /// How many intervals plain IO has before reclaim begins. The one in which it
    /// begins is neither here nor there.
    fn empty(&self) -> usize {
        let begun = self.plain.iter().position(|one| one.scanned > 0);
        begun.unwrap_or(self.plain.len())
    }

    /// Of one mode: with the cache empty, and full.
    fn sums(&self, intervals: &[Interval]) -> [Option<Sum>; 2] {
        let empty = self.empty().min(intervals.len());
        let full = (empty + 1).min(intervals.len());
        [Sum::of(&intervals[..empty]), Sum::of(&intervals[full..])]
    }

    /// Uncached over plain: with the cache empty, and full.
    fn ratios(&self) -> [Option<f64>; 2] {
        let (plain, uncached) = (self.sums(&self.plain), self.sums(&self.uncached));
        let ratio = |at: usize| Some(uncached[at].as_ref()?.rate / plain[at].as_ref()?.rate);
        [ratio(0), ratio(1)]
    }

    /// Percent between the slowest and the fastest uncached interval.
    fn spread(&self) -> f64 {
        Sum::of(&self.uncached).map_or(0.0, |sum| (sum.high / sum.low - 1.0) * 100.0)
    }

    /// The goals that it misses.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let name = format!("{} {}", self.fs, self.operation);
        let mut hold = |good: bool, text: String| {
            if !good {
                missed.push(format!("{name}: {text}"));
            }
        };
        let [empty, full] = self.ratios();
        let shown = |ratio: Option<f64>| ratio.map_or("nothing".to_owned(), |r| format!("{r:.2}"));
        hold(
            empty.is_some_and(|ratio| ratio >= EMPTY),
            format!("{} of plain into an empty cache, not {EMPTY}", shown(empty)),
        );
        if self.operation == "read" {
            hold(
                full.is_some_and(|ratio| ratio >= FULL),
                format!("{} times plain into a full cache, not {FULL}", shown(full)),
            );
        }
        let spread = self.spread();
        hold(
            spread <= SPREAD,
            format!("intervals are {spread:.1} % apart, not {SPREAD}"),
        );
        let kswapd: u64 = self.uncached.iter().map(|one| one.kswapd_ns).sum();
        let taken: u64 = self.uncached.iter().map(|one| one.taken).sum();
        hold(
            taken == 0,
            format!("reclaim took {taken} pages, kswapd ran {kswapd} ns"),
        );
        missed
    }
}

impl Timeline {
    /// Reads what the guest's program prints.
    pub fn parse(text: &str, identity: Identity) -> anyhow::Result<Self> {
        let mut series: Vec<Series> = Vec::new();
        for line in text.lines() {
            let (fs, operation, uncached, interval) =
                interval(line).with_context(|| format!("the guest printed {line:?}"))?;
            let known = |series: &Series| series.fs == fs && series.operation == operation;
            if !series.iter().any(known) {
                series.push(Series {
                    fs: fs.to_owned(),
                    operation: operation.to_owned(),
                    plain: Vec::new(),
                    uncached: Vec::new(),
                });
            }
            let series = series.iter_mut().rfind(|series| known(series));
            let series = series.context("a line without a series")?;
            match uncached {
                true => series.uncached.push(interval),
                false => series.plain.push(interval),
            }
        }
        ensure!(!series.is_empty(), "the guest printed nothing");
        Ok(Timeline { identity, series })
    }

    /// The rates of every interval.
    fn intervals(&self) -> Vec<Vec<String>> {
        let mut head = vec!["MiB".to_owned()];
        for series in &self.series {
            head.push(format!("{} {}", series.fs, series.operation));
            head.push("uncached".to_owned());
        }
        let mut cells = vec![head];
        let most = self.series.iter().map(|series| series.plain.len()).max();
        for index in 0..most.unwrap_or(0) {
            let all = |intervals: &[Interval]| -> u64 {
                intervals.iter().take(index + 1).map(|one| one.bytes).sum()
            };
            let done = self.series.iter().map(|series| all(&series.plain)).max();
            let mut line = vec![(done.unwrap_or(0) >> 20).to_string()];
            for series in &self.series {
                for mode in [&series.plain, &series.uncached] {
                    let rate = mode.get(index).map(Interval::rate);
                    line.push(rate.map_or("-".to_owned(), |rate| format!("{rate:.0}")));
                }
            }
            cells.push(line);
        }
        cells
    }

    /// What they come to.
    fn summary(&self) -> Vec<Vec<String>> {
        let head = [
            "",
            "mode",
            "cache empty",
            "cache full",
            "kswapd ms",
            "scanned",
            "taken",
        ];
        let mut cells = vec![head.map(str::to_owned).to_vec()];
        for series in &self.series {
            let name = format!("{} {}", series.fs, series.operation);
            for (mode, intervals) in [("plain", &series.plain), ("uncached", &series.uncached)] {
                let [empty, full] = series.sums(intervals);
                let mut line = vec![name.clone(), mode.to_owned()];
                line.extend([Sum::cell(&empty), Sum::cell(&full)]);
                line.extend(match &full {
                    None => ["-", "-", "-"].map(str::to_owned),
                    Some(sum) => [
                        format!("{:.1}", sum.kswapd_ms),
                        sum.scanned.to_string(),
                        sum.taken.to_string(),
                    ],
                });
                cells.push(line);
            }
            let ratios = series.ratios();
            let ratio = |at: usize| ratios[at].map_or("-".to_owned(), |r| format!("{r:.2}"));
            let mut line = vec![name, "uncached/plain".to_owned(), ratio(0), ratio(1)];
            line.extend(["", "", ""].map(str::to_owned));
            cells.push(line);
        }
        cells
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for line in self.identity.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text.push_str(&grid::text(&self.intervals(), 1));
        text.push_str(&format!("\n{SUMMARY}\n"));
        text + &grid::text(&self.summary(), 2)
    }

    /// For a cover letter or a README.
    pub fn markdown(&self) -> String {
        let mut text = format!("{TITLE}, measured on\n\n");
        for line in self.identity.lines() {
            text.push_str(&format!("- {line}\n"));
        }
        text.push('\n');
        text.push_str(&grid::markdown(&self.intervals(), 1));
        text.push_str(&format!("\n{SUMMARY}\n\n"));
        text + &grid::markdown(&self.summary(), 2)
    }

    /// For programs.
    pub fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).context("cannot encode the figures")
    }

    /// The goals that are missed.
    pub fn missed(&self) -> Vec<String> {
        self.series.iter().flat_map(Series::missed).collect()
    }
}

/// What stands above the tables.
const TITLE: &str = "MB/s of guest time, by interval";
const SUMMARY: &str =
    "MB/s (slowest–fastest interval); kswapd and pages of reclaim per interval with the cache full";

/// File system, operation, whether uncached, and the figures of a line.
fn interval(line: &str) -> anyhow::Result<(&str, &str, bool, Interval)> {
    let fields: Vec<_> = line.split('\t').collect();
    let [fs, operation, mode, ref numbers @ ..] = fields[..] else {
        anyhow::bail!("too few fields");
    };
    let uncached = match mode {
        "plain" => false,
        "uncached" => true,
        _ => anyhow::bail!("no mode {mode:?}"),
    };
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|field| {
            field
                .parse()
                .with_context(|| format!("no number {field:?}"))
        })
        .collect::<anyhow::Result<_>>()?;
    let [bytes, ns, kswapd_ns, scanned, taken, device, cached] = numbers[..] else {
        anyhow::bail!("not seven numbers");
    };
    let interval = Interval {
        bytes,
        ns,
        kswapd_ns,
        scanned,
        taken,
        device,
        cached,
    };
    Ok((fs, operation, uncached, interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            kernel: crate::artifact::Identity {
                base: "linux-6.12".into(),
                flavor: "dev".into(),
                version: "6.12.1".into(),
                source: String::new(),
                source_key: String::new(),
                patches: 3,
                series: "s".into(),
                config: "c".into(),
                toolchain: Vec::new(),
            },
            module: None,
            qemu: "QEMU".into(),
        }
    }

    /// Intervals of 1 MB in so many microseconds, and what reclaim took.
    fn lines(mode: &str, intervals: &[(u64, u64)]) -> String {
        let line = |(us, taken): &(u64, u64)| {
            format!(
                "xfs\tread\t{mode}\t1000000\t{}\t0\t{taken}\t{taken}\t1000000\t0\n",
                us * 1000
            )
        };
        intervals.iter().map(line).collect()
    }

    fn timeline(plain: &[(u64, u64)], uncached: &[(u64, u64)]) -> Timeline {
        let text = lines("plain", plain) + &lines("uncached", uncached);
        Timeline::parse(&text, identity()).unwrap()
    }

    const PLAIN: [(u64, u64); 4] = [(1000, 0), (1000, 0), (1500, 10), (2000, 20)];

    #[test]
    fn what_is_fast_enough_misses_nothing() {
        let timeline = timeline(&PLAIN, &[(1050, 0); 4]);
        assert!(timeline.missed().is_empty(), "{:?}", timeline.missed());
        let text = timeline.text();
        assert!(
            text.contains("xfs read  plain           1000 (1000–1000)"),
            "{text}"
        );
        assert!(text.contains("xfs read  uncached/plain"), "{text}");
        assert!(text.contains("0.95"), "{text}");
        assert!(text.contains("1.90"), "{text}");
        assert!(timeline.markdown().contains("| xfs read | plain | 1000"));
    }

    #[test]
    fn each_goal_can_be_missed() {
        let missed = |uncached: &[(u64, u64)]| timeline(&PLAIN, uncached).missed();
        assert!(missed(&[(1200, 0); 4])[0].contains("empty"));
        assert!(missed(&[(1050, 0), (1050, 0), (1050, 0), (1300, 0)])[0].contains("full"));
        assert!(missed(&[(1000, 0), (1050, 0), (1000, 0), (1000, 0)])[0].contains("apart"));
        assert!(missed(&[(1000, 0), (1000, 0), (1000, 0), (1000, 5)])[0].contains("took 5"));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for text in [
            "",
            "xfs\tread\tfast\t1\t1\t1\t1\t1\t1\t1\n",
            "xfs\tread\tplain\t1\n",
        ] {
            assert!(Timeline::parse(text, identity()).is_err(), "{text:?}");
        }
    }
}
