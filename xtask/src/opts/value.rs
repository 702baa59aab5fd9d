// SPDX-License-Identifier: GPL-2.0

//! Values of options that clap would take and nobody can mean.

use std::fmt::Display;
use std::str::FromStr;

/// Nobody waits for a week.
const MOST_SECONDS: f64 = 604_800.0;

/// A number of which there is at least one.
pub fn positive<T>(text: &str) -> Result<T, String>
where
    T: FromStr<Err: Display> + PartialOrd + From<u8>,
{
    match text.parse::<T>() {
        Ok(number) if number >= T::from(1) => Ok(number),
        Ok(_) => Err("it must be at least 1".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(time) if time > 0.0 && time <= MOST_SECONDS => Ok(time),
        Ok(_) => Err(format!("it must be more than 0 and at most {MOST_SECONDS}")),
        Err(error) => Err(error.to_string()),
    }
}
