// SPDX-License-Identifier: GPL-2.0

//! Makes a failing sequence shorter: leaves parts out, from halves down to
//! single steps, as long as it still fails.

use std::time::{Duration, Instant};

/// The shortest sequence found in this time that `fails`; nothing if not even
/// the whole one does.
pub fn shortest<T: Clone>(
    all: &[T],
    time: Duration,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Option<Vec<T>> {
    let end = Instant::now() + time;
    // The end of a long sequence is often enough, and quick to try.
    let mut length = 100;
    let mut steps = loop {
        let tail = &all[all.len().saturating_sub(length)..];
        if fails(tail) {
            break tail.to_vec();
        }
        if length >= all.len() {
            return None;
        }
        length *= 10;
    };
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        let mut shorter = false;
        while from < steps.len() {
            if Instant::now() > end {
                return Some(steps);
            }
            let mut without = steps[..from].to_vec();
            without.extend_from_slice(&steps[(from + part).min(steps.len())..]);
            if !without.is_empty() && fails(&without) {
                steps = without;
                shorter = true;
            } else {
                from += part;
            }
        }
        // At single steps: until none can go.
        if part > 1 || !shorter {
            part /= 2;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    #[test]
    fn two_steps_that_matter_are_found_among_many() {
        let all: Vec<u32> = (0..5000).collect();
        let fails = |steps: &[u32]| {
            let first = steps.iter().position(|step| *step == 17);
            let second = steps.iter().position(|step| *step == 4711);
            matches!((first, second), (Some(first), Some(second)) if first < second)
        };
        assert_eq!(shortest(&all, TIME, fails), Some(vec![17, 4711]));
    }

    #[test]
    fn what_does_not_fail_again_is_not_made_up() {
        assert_eq!(shortest(&[1, 2, 3], TIME, |_| false), None);
    }
}
