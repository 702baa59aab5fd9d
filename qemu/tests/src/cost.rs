// SPDX-License-Identifier: GPL-2.0

//! `cost`: what each operation takes, in nanoseconds of guest time. On a machine
//! that counts instructions (`cargo xtask bench cost`) those are instructions.
//!
//! Each file system of `on=` is made anew on a ramdisk of its own and used by
//! the same calls, `reps=` times. A line for each row goes to standard output:
//! file system, row, median, lowest and highest value, with tabs between; a file
//! system that cannot do it says so with a dash for the median.

pub mod device;
mod files;
mod names;

use crate::job::Job;
use crate::walk::Aligned;
use anyhow::{Context, Result, bail};
use device::Device;
use rustix::io::Errno;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is measured unless `on=` says otherwise.
const ON: &str = "rext2,ext2,ext4,xfs";
/// How often, unless `reps=` says otherwise.
const REPS: usize = 7;

/// Until nothing is left to do of what came before; the guest's clock jumps there.
const SETTLE: Duration = Duration::from_millis(50);

/// What one file system takes.
#[derive(Default)]
pub struct Costs {
    rows: Vec<Row>,
}

/// One kind of operation: nanoseconds of each repetition; none if it cannot be done.
struct Row {
    name: &'static str,
    samples: Option<Vec<f64>>,
}

impl Costs {
    /// Runs `work` for each number below `count`; the row gets what one of them takes.
    pub fn time(
        &mut self,
        name: &'static str,
        count: usize,
        mut work: impl FnMut(usize) -> Result<(), Errno>,
    ) -> Result<()> {
        let all = |work: &mut dyn FnMut(usize) -> Result<(), Errno>| (0..count).try_for_each(work);
        self.time_all(name, count, || all(&mut work))
    }

    /// Runs `work`, which does `count` operations; the row gets what one of them takes.
    pub fn time_all(
        &mut self,
        name: &'static str,
        count: usize,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<()> {
        // What earlier operations have left to be done, such as freeing inodes
        // when no reader is left, is not to come in between.
        sleep(SETTLE);
        let begin = Instant::now();
        let result = work();
        let took = begin.elapsed().as_nanos() as f64 / count as f64;
        let index = match self.rows.iter().position(|row| row.name == name) {
            Some(index) => index,
            None => {
                let samples = Some(Vec::new());
                self.rows.push(Row { name, samples });
                self.rows.len() - 1
            }
        };
        let row = &mut self.rows[index];
        match result {
            Ok(()) => {
                if let Some(samples) = &mut row.samples {
                    samples.push(took);
                }
            }
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => row.samples = None,
            Err(error) => return Err(error).context(name),
        }
        Ok(())
    }

    /// The lines of all rows.
    fn print(mut self, fs: &str) -> Result<()> {
        for row in &mut self.rows {
            let name = row.name;
            let Some(samples) = &mut row.samples else {
                println!("{fs}\t{name}\t-\t-\t-");
                continue;
            };
            samples.sort_by(f64::total_cmp);
            let (Some(low), Some(high)) = (samples.first(), samples.last()) else {
                bail!("{name} was never measured");
            };
            let median = samples[samples.len() / 2];
            println!("{fs}\t{name}\t{median:.0}\t{low:.0}\t{high:.0}");
        }
        Ok(())
    }
}

/// Measures and prints.
pub fn run(job: &Job) -> Result<()> {
    // Nothing is written back but what is asked to be.
    set("/proc/sys/vm/dirty_writeback_centisecs", "0")?;
    set("/proc/sys/vm/dirty_background_ratio", "90")?;
    set("/proc/sys/vm/dirty_ratio", "95")?;
    let reps = job.get_or("reps", REPS)?;
    // One buffer for all: direct IO takes as many instructions as its pages lie in pieces.
    let mut buffer = Aligned::new(files::LARGE);
    buffer.bytes().fill(1);
    for fs in job.get("on").unwrap_or(ON).split(',') {
        one(fs, reps, &mut buffer)?.print(fs)?;
    }
    Ok(())
}

fn one(fs: &str, reps: usize, buffer: &mut Aligned) -> Result<Costs> {
    let device = Device::new(fs)?;
    let mount = device.mount(fs)?;
    // What the first of all calls finds cold is not what an operation takes.
    let mut warm_up = Costs::default();
    let mut costs = Costs::default();
    for rep in 0..=reps {
        let costs = match rep {
            0 => &mut warm_up,
            _ => &mut costs,
        };
        let folder = mount.join("work");
        fs::create_dir(&folder).context("cannot make the folder to work in")?;
        let result =
            files::measure(costs, &folder, buffer).and_then(|()| names::measure(costs, &folder));
        result.context(fs.to_owned())?;
        fs::remove_dir_all(&folder).context("cannot remove the folder to work in")?;
    }
    mount.close()?;
    device.remove()?;
    Ok(costs)
}

fn set(file: &str, value: &str) -> Result<()> {
    fs::write(file, value).context(format!("cannot write {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_has_no_samples() {
        let mut costs = Costs::default();
        costs.time("good", 2, |_| Ok(())).unwrap();
        costs.time("none", 1, |_| Err(Errno::OPNOTSUPP)).unwrap();
        assert!(costs.time("bad", 1, |_| Err(Errno::IO)).is_err());
        let samples = |index: usize| costs.rows[index].samples.as_ref().map(Vec::len);
        assert_eq!((samples(0), samples(1)), (Some(1), None));
    }
}
