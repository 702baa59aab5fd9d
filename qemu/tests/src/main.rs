//! Guest test programs.

fn main() {}
