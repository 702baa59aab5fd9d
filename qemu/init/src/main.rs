//! PID 1 of the test guest.

fn main() {}
