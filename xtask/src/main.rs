//! `cargo xtask`: fetch, patch, configure, build, boot, test.

fn main() {}
