// SPDX-License-Identifier: GPL-2.0

//! The virtio-serial ports: found by name in sysfs, linked, opened.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use rext2_init::{Event, PORT_CTL, PORT_DIR, PORT_IN};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Ports appear after the host has answered the driver, shortly after boot;
/// a loaded host may take its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The port that takes the events.
pub struct Control(File);

impl Control {
    /// Reports one event: one line, one write.
    pub fn send(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event).context("cannot encode an event")?;
        line.push(b'\n');
        self.0
            .write_all(&line)
            .context(format!("cannot write to port {PORT_CTL}"))
    }
}

/// Opens the control port; every job has one, so this also waits for the rest.
pub fn open_control() -> Result<Control> {
    open(PORT_CTL).map(Control)
}

/// Opens a port for writing.
pub fn open(name: &str) -> Result<File> {
    open_with(name, OpenOptions::new().write(true))
}

/// Opens the port with the program's input, at its beginning.
pub fn open_input() -> Result<File> {
    let mut port = open_with(PORT_IN, OpenOptions::new().read(true))?;
    let start = Instant::now();
    // Before the kernel knows that the host is there, it reads as ended.
    while port.read(&mut [0]).context("cannot read the input")? == 0 {
        if start.elapsed() > PATIENCE {
            bail!("the host gives no input to port {PORT_IN}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(port)
}

/// The kernel lets one process in at a time, so a program that has not yet let
/// go of the port is waited for.
fn open_with(name: &str, options: &OpenOptions) -> Result<File> {
    let start = Instant::now();
    let path = Path::new(PORT_DIR).join(name);
    loop {
        link_all()?;
        match options.open(&path) {
            Ok(file) => return Ok(file),
            Err(error) if start.elapsed() > PATIENCE => {
                return Err(error).context(format!("cannot open port {name}"));
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT | Errno::EBUSY | Errno::ENXIO) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Err(error).context(format!("cannot open port {name}")),
            },
        }
    }
}

/// Links every named port into [`PORT_DIR`], as udev would.
fn link_all() -> Result<()> {
    fs::create_dir_all(PORT_DIR).context(format!("cannot make {PORT_DIR}"))?;
    let class = "/sys/class/virtio-ports";
    for entry in fs::read_dir(class).context(format!("cannot list {class}"))? {
        let entry = entry.context(format!("cannot list {class}"))?;
        // The name is there only after the host has sent it.
        let Ok(name) = fs::read_to_string(entry.path().join("name")) else {
            continue;
        };
        let name = name.trim();
        let link = Path::new(PORT_DIR).join(name);
        if name.is_empty() || link.exists() {
            continue;
        }
        if name.contains('/') {
            bail!("port name {name:?} is not a file name");
        }
        let device = Path::new("/dev").join(entry.file_name());
        std::os::unix::fs::symlink(&device, &link)
            .context(format!("cannot link port {name} to {}", device.display()))?;
    }
    Ok(())
}
