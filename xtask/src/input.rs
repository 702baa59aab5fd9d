// SPDX-License-Identifier: GPL-2.0

//! Standard input for a program in a guest: bytes go to it as it reads them,
//! over a port of its own, and it sees their end.

use rustix::fs::{FileType, fstat, major, minor};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What comes before the input (see [`rext2_init::PORT_IN`]).
const BEGINNING: &[u8] = b"\n";

/// Whether our standard input has something to hand on. A terminal stays with
/// us, and a port costs time at boot: nothing needs none.
pub fn is_given() -> bool {
    let stdin = std::io::stdin();
    !std::io::IsTerminal::is_terminal(&stdin) && holds_something(stdin)
}

fn holds_something(input: impl AsFd) -> bool {
    let Ok(stat) = fstat(&input) else {
        return false;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        // /dev/null is 1:3.
        FileType::CharacterDevice => (major(stat.st_rdev), minor(stat.st_rdev)) != (1, 3),
        FileType::RegularFile => {
            rustix::fs::tell(input).is_ok_and(|at| at < stat.st_size.cast_unsigned())
        }
        _ => true,
    }
}

/// Sends our standard input to the socket, which QEMU is about to make.
pub fn send(socket: &Path) {
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        // Read without a buffer of our own: what nobody wants is not taken.
        if let Ok(input) = std::io::stdin().as_fd().try_clone_to_owned() {
            hand_on(File::from(input), &socket);
        }
    });
}

fn hand_on(mut input: File, socket: &PathBuf) {
    let mut guest = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut buffer = [0; 64 << 10];
    let mut sent = guest.write_all(BEGINNING);
    while sent.is_ok() {
        match input.read(&mut buffer) {
            Ok(count @ 1..) => sent = guest.write_all(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    // Only this direction: QEMU drops what it has not read from one that is closed.
    let _ = guest.shutdown(Shutdown::Write);
    // Until the guest is gone.
    let _ = guest.read(&mut buffer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom};
    use std::os::unix::net::UnixListener;

    #[test]
    fn nothing_costs_no_port() {
        assert!(!holds_something(File::open("/dev/null").unwrap()));
        assert!(holds_something(File::open("/dev/zero").unwrap()));
        assert!(holds_something(UnixStream::pair().unwrap().0));
        let mut file = tempfile::tempfile().unwrap();
        assert!(!holds_something(&file));
        file.write_all(b"hi").unwrap();
        assert!(!holds_something(&file));
        file.seek(SeekFrom::Start(1)).unwrap();
        assert!(holds_something(&file));
    }

    #[test]
    fn all_of_it_arrives_and_then_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("stdin");
        let text = vec![b'x'; 1 << 20];
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&text).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let to = socket.clone();
        let sender = std::thread::spawn(move || hand_on(file, &to));
        let mut guest = UnixListener::bind(&socket).unwrap().accept().unwrap().0;
        let mut got = Vec::new();
        guest.read_to_end(&mut got).unwrap();
        assert!(got[0] == b'\n' && got[1..] == text);
        drop(guest);
        sender.join().unwrap();
    }
}
