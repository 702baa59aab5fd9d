// SPDX-License-Identifier: GPL-2.0

//! The reader of our output may leave before its end, as `| head` does. Then
//! there is nobody to tell anything: we end our children and go.

use std::process;

use crate::sh;

/// What a shell says of a program that a closed pipe has ended.
const STATUS: i32 = 128 + signal_hook::consts::SIGPIPE;

/// Ends this program quietly.
pub fn closed() -> ! {
    sh::end_children();
    process::exit(STATUS)
}

/// Lets `println!` and `eprintln!`, which panic when nobody reads them, do so.
pub fn end_quietly_when_closed() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        if text.is_some_and(|text| is_of_a_closed_pipe(text)) {
            closed();
        }
        usual(panic);
    }));
}

fn is_of_a_closed_pipe(text: &str) -> bool {
    text.starts_with("failed printing to std") && text.contains("Broken pipe")
}
