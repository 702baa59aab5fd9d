// SPDX-License-Identifier: GPL-2.0

//! Connects the user's terminal with the guest's: raw while it lasts, restored
//! on every way out. Ctrl-A X leaves even a guest that hangs.

use anyhow::Context as _;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ctrl-A, then x or X, ends the guest; Ctrl-A twice sends one.
const ESCAPE: u8 = 1;

/// Size of a terminal.
pub struct Size {
    /// Height.
    pub rows: u16,
    /// Width.
    pub cols: u16,
}

impl Size {
    /// Of the user's terminal; 24 by 80 for one that does not know.
    pub fn of_terminal() -> Self {
        match tcgetwinsize(std::io::stdin()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Size {
                rows: size.ws_row,
                cols: size.ws_col,
            },
            _ => Size { rows: 24, cols: 80 },
        }
    }
}

/// The terminal while it belongs to the guest.
pub struct Session {
    before: Termios,
    left: Arc<AtomicBool>,
}

impl Session {
    /// Makes the terminal raw and connects it to the socket, which QEMU is
    /// about to make.
    pub fn open(socket: &Path) -> anyhow::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("cannot set the terminal")?;
        let left = Arc::new(AtomicBool::new(false));
        let (socket, flag) = (socket.to_owned(), left.clone());
        std::thread::spawn(move || connect(socket, &flag));
        Ok(Session { before, left })
    }

    /// Whether the user has asked to leave.
    pub fn left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nothing more can be done for a terminal that has gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn connect(socket: PathBuf, left: &AtomicBool) {
    let stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if let Ok(guest) = stream.try_clone() {
        std::thread::spawn(move || show(guest));
    }
    send(stream, left);
}

/// From the guest to the screen.
fn show(mut guest: UnixStream) {
    let mut buffer = [0; 4096];
    let mut screen = std::io::stdout();
    while let Ok(count @ 1..) = guest.read(&mut buffer) {
        let shown = screen.write_all(&buffer[..count]);
        if shown.and_then(|()| screen.flush()).is_err() {
            return;
        }
    }
}

/// From the keyboard to the guest.
fn send(mut guest: UnixStream, left: &AtomicBool) {
    let mut buffer = [0; 256];
    let mut keys = Keys::default();
    while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
        let typed = keys.filter(&buffer[..count]);
        if keys.leave {
            left.store(true, Ordering::Relaxed);
            return;
        }
        if guest.write_all(&typed).is_err() {
            return;
        }
    }
}

/// Finds the escape sequence in what is typed.
#[derive(Default)]
struct Keys {
    escaped: bool,
    leave: bool,
}

impl Keys {
    fn filter(&mut self, typed: &[u8]) -> Vec<u8> {
        let mut sent = Vec::new();
        for &key in typed {
            match (std::mem::take(&mut self.escaped), key) {
                (false, ESCAPE) => self.escaped = true,
                (true, b'x' | b'X') => self.leave = true,
                (true, ESCAPE) | (false, _) => sent.push(key),
                (true, other) => sent.extend([ESCAPE, other]),
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_sequence_is_kept_from_the_guest() {
        let sent = |typed: &[&[u8]]| {
            let mut keys = Keys::default();
            let sent: Vec<u8> = typed.iter().flat_map(|part| keys.filter(part)).collect();
            (sent, keys.leave)
        };
        assert_eq!(sent(&[b"ls\r\x03"]), (b"ls\r\x03".to_vec(), false));
        assert_eq!(sent(&[b"\x01", b"x"]), (vec![], true));
        assert_eq!(sent(&[b"\x01\x01"]), (vec![1], false));
        assert_eq!(sent(&[b"\x01k"]), (vec![1, b'k'], false));
    }
}
