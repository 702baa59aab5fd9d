// SPDX-License-Identifier: GPL-2.0

//! kmemleak's report for people. It is asked when the modules are gone, so it
//! can give only addresses for their code: whose they were, init has told.

use rext2_init::Event;

/// The lines of the reports among the events of a run.
pub fn lines(events: &[Event]) -> Vec<String> {
    let mut modules = Vec::new();
    let mut lines = Vec::new();
    for event in events {
        match event {
            Event::Inserted {
                module,
                text: Some(text),
                ..
            } => modules.extend(address(text).map(|start| (start, module.as_str()))),
            Event::Leaks { report, .. } => {
                lines.extend(report.lines().map(|line| with_module(line, &modules)));
            }
            _ => {}
        }
    }
    lines
}

fn address(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim().strip_prefix("0x")?, 16).ok()
}

/// Names the module to a line of a backtrace that is only an address.
fn with_module(line: &str, modules: &[(u64, &str)]) -> String {
    // All modules lie within so many bytes of each other.
    const REACH: u64 = 1 << 30;
    let Some(at) = address(line) else {
        return line.to_owned();
    };
    let before = modules.iter().filter(|(start, _)| *start <= at);
    match before.max() {
        Some((start, name)) if at - start < REACH => {
            format!("{line} ({name}.ko, .text+{:#x})", at - start)
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_module_that_it_was_in() {
        let inserted = |module: &str, text: &str| Event::Inserted {
            module: module.to_owned(),
            text: Some(text.to_owned()),
            sections: Vec::new(),
        };
        let events = [
            inserted("brd", "0xffffffffa0000000"),
            inserted("rext2", "0xffffffffa0010000"),
            Event::Leaks {
                count: 1,
                report: "unreferenced object 0xffff8880054d2a00 (size 32):\n  backtrace:\n    \
                         __kmalloc+0x159/0x2d0\n    0xffffffffa0010055\n    0xffffffffa0000001\n    \
                         0xffffffff81000000\n    0xffffffffffffffff\n"
                    .to_owned(),
            },
        ];
        assert_eq!(
            lines(&events)[2..],
            [
                "    __kmalloc+0x159/0x2d0",
                "    0xffffffffa0010055 (rext2.ko, .text+0x55)",
                "    0xffffffffa0000001 (brd.ko, .text+0x1)",
                "    0xffffffff81000000",
                "    0xffffffffffffffff",
            ]
        );
    }
}
