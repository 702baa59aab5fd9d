// SPDX-License-Identifier: GPL-2.0

//! QEMU's argument vector, built here and nowhere else.

use rext2_init::PORT_IN;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::accel::Kind;
use crate::vm::Vm;

/// Everything that QEMU is told about one guest.
pub struct Guest<'a> {
    /// The machine.
    pub vm: &'a Vm,
    /// How instructions are run.
    pub accel: Kind,
    /// The kernel, an ELF file with a PVH entry or a bzImage.
    pub kernel: &'a Path,
    /// The initramfs.
    pub initrd: &'a Path,
    /// The disks, `vda` first.
    pub disks: &'a [Disk],
    /// The file that takes the kernel's console.
    pub console: &'a Path,
    /// The virtio-serial ports and the files that take what they say.
    pub ports: &'a [Port],
    /// The socket of the guest's terminal.
    pub terminal: Option<&'a Path>,
    /// The socket whose other side gives the guest's program its input; the guest
    /// starts when somebody has connected.
    pub input: Option<&'a Path>,
    /// The socket that a debugger connects to; the guest waits for it.
    pub gdb: Option<&'a Path>,
    /// The user's own arguments, last.
    pub extra: &'a [OsString],
}

/// A virtio-serial port.
#[derive(Clone, Debug)]
pub struct Port {
    /// The name that the guest sees.
    pub name: &'static str,
    /// The file that takes its output.
    pub file: PathBuf,
}

/// A virtio-blk disk of raw format.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The image.
    pub file: PathBuf,
    /// The serial by which the guest finds the disk.
    pub serial: String,
    /// What happens to writes.
    pub access: Access,
}

/// What happens to a guest's writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Access {
    /// The guest sees a read-only disk.
    ReadOnly,
    /// They go to an overlay that ends with the run.
    Snapshot,
    /// They change the file: only for a copy of our own, or on request.
    Write,
    /// They change the file, and are recorded with the flushes in this one, in the
    /// format of dm-log-writes.
    Record(PathBuf),
    /// The guest sees a read-only disk that somebody else writes.
    Watch,
    /// They change the user's file, and the guest's flushes reach the disk.
    Own,
}

/// The arguments after the program's name.
pub fn argv(guest: &Guest) -> Vec<OsString> {
    let vm = guest.vm;
    let mut argv = Argv::default();
    argv.pair("-machine", &vm.machine);
    match guest.accel {
        Kind::Kvm => argv.pair("-accel", "kvm").pair("-cpu", &vm.cpu.kvm),
        Kind::Tcg => match &vm.icount {
            // Instructions are counted in one thread only.
            Some(icount) => argv
                .pair("-accel", "tcg,thread=single")
                .pair("-icount", icount),
            None => argv.pair("-accel", "tcg,thread=multi"),
        }
        .pair("-cpu", &vm.cpu.tcg),
    };
    argv.pair("-smp", vm.cpus.to_string())
        .pair("-m", format!("{}M", vm.memory))
        .flags(&["-nodefaults", "-no-user-config", "-no-reboot"])
        .pair("-display", "none")
        .pair("-kernel", guest.kernel)
        .pair("-initrd", guest.initrd)
        .pair("-append", vm.cmdline.join(" "))
        .pair("-chardev", file_chardev("console", guest.console))
        .pair("-serial", "chardev:console");
    if !guest.ports.is_empty() || guest.terminal.is_some() || guest.input.is_some() {
        argv.pair("-device", "virtio-serial-pci");
    }
    // The terminal first: port 0 is the console's.
    if let Some(socket) = guest.terminal {
        argv.pair(
            "-chardev",
            option("socket,id=terminal,server=on,wait=off,path=", socket, ""),
        )
        .pair("-device", "virtconsole,chardev=terminal");
    }
    for (index, port) in guest.ports.iter().enumerate() {
        let id = format!("port{index}");
        argv.pair("-chardev", file_chardev(&id, &port.file)).pair(
            "-device",
            format!("virtserialport,chardev={id},name={}", port.name),
        );
    }
    if let Some(socket) = guest.input {
        let chardev = option("socket,id=input,server=on,wait=on,path=", socket, "");
        let device = format!("virtserialport,chardev=input,name={PORT_IN}");
        argv.pair("-chardev", chardev).pair("-device", device);
    }
    for (index, disk) in guest.disks.iter().enumerate() {
        match &disk.access {
            Access::Record(log) => argv.pair("-blockdev", recorded(index, &disk.file, log)),
            access => {
                let access = match access {
                    Access::ReadOnly => "readonly=on",
                    Access::Snapshot => "snapshot=on",
                    Access::Watch => "readonly=on,file.locking=off",
                    Access::Write | Access::Own | Access::Record(_) => "readonly=off",
                };
                // Of ours nothing outlives the run: its flushes go no further
                // than the host's page cache, which may be lost without harm.
                let cache = match disk.access {
                    Access::Own => "writeback",
                    _ => "unsafe",
                };
                let drive =
                    format!("if=none,id=disk{index},format=raw,cache={cache},{access},file=");
                argv.pair("-drive", option(&drive, &disk.file, ""))
            }
        }
        .pair(
            "-device",
            format!(
                "virtio-blk-pci,drive=disk{index},num-queues={},serial={}",
                vm.cpus, disk.serial
            ),
        );
    }
    if let Some(socket) = guest.gdb {
        argv.pair("-gdb", option("unix:", socket, ",server=on,wait=off"))
            .flags(&["-S"]);
    }
    argv.0.extend(guest.extra.iter().cloned());
    argv.0
}

fn file_chardev(id: &str, file: &Path) -> OsString {
    option(&format!("file,id={id},path="), file, "")
}

/// A disk that is recorded. The recorder itself has to see the flushes.
fn recorded(index: usize, file: &Path, log: &Path) -> OsString {
    const CHILD: &str = "driver=file,{}.cache.no-flush=on,{}.filename=";
    let child = |name: &str| format!("{name}.{}", CHILD.replace("{}", name));
    let mut text: OsString =
        format!("driver=blklogwrites,node-name=disk{index},log-sector-size=512").into();
    for (name, path) in [("file", file), ("log", log)] {
        text.push(option(&format!(",{}", child(name)), path, ""));
    }
    text
}

/// An option that ends in a path; QEMU wants a comma in it doubled.
fn option(before: &str, path: &Path, after: &str) -> OsString {
    let path = path.to_string_lossy().replace(',', ",,");
    format!("{before}{path}{after}").into()
}

#[derive(Default)]
struct Argv(Vec<OsString>);

impl Argv {
    fn pair(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(name.into());
        self.0.push(value.into());
        self
    }

    fn flags(&mut self, names: &[&str]) -> &mut Self {
        self.0.extend(names.iter().map(OsString::from));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Vm;

    fn line(guest: &Guest) -> String {
        let words: Vec<_> = argv(guest)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.join(" ")
    }

    fn guest<'a>(vm: &'a Vm, disks: &'a [Disk], ports: &'a [Port]) -> Guest<'a> {
        Guest {
            vm,
            accel: Kind::Tcg,
            kernel: Path::new("/k/vmlinux"),
            initrd: Path::new("/r/initramfs"),
            disks,
            console: Path::new("/r/console.log"),
            ports,
            terminal: None,
            input: None,
            gdb: None,
            extra: &[],
        }
    }

    fn vm() -> Vm {
        toml::from_str(
            "machine = 'm'\ncpu = { tcg = 'max', kvm = 'host' }\ncpus = 2\n\
             memory = 256\ncmdline = ['console=ttyS0', 'panic=-1']\n\
             timeouts = { boot = 1, run = 2 }",
        )
        .unwrap()
    }

    #[test]
    fn the_whole_line_of_a_plain_guest() {
        let ports = [Port {
            name: "rext2.ctl",
            file: "/r/events".into(),
        }];
        assert_eq!(
            line(&guest(&vm(), &[], &ports)),
            "-machine m -accel tcg,thread=multi -cpu max -smp 2 -m 256M \
             -nodefaults -no-user-config -no-reboot -display none \
             -kernel /k/vmlinux -initrd /r/initramfs -append console=ttyS0 panic=-1 \
             -chardev file,id=console,path=/r/console.log -serial chardev:console \
             -device virtio-serial-pci \
             -chardev file,id=port0,path=/r/events \
             -device virtserialport,chardev=port0,name=rext2.ctl"
        );
    }

    #[test]
    fn the_processor_is_the_hosts_only_under_kvm() {
        let vm = vm();
        let mut guest = guest(&vm, &[], &[]);
        assert!(!line(&guest).contains("host"));
        guest.accel = Kind::Kvm;
        assert!(line(&guest).contains("-accel kvm -cpu host"));
    }

    #[test]
    fn instructions_are_counted_in_one_thread() {
        let mut vm = vm();
        vm.icount = Some("shift=0".to_owned());
        let line = line(&guest(&vm, &[], &[]));
        assert!(line.contains("-accel tcg,thread=single -icount shift=0 -cpu max"));
    }

    #[test]
    fn a_disk_is_written_only_on_request() {
        let disk = |access| Disk {
            file: "/i/a,b.img".into(),
            serial: "s".to_owned(),
            access,
        };
        let disks = [
            disk(Access::ReadOnly),
            disk(Access::Snapshot),
            disk(Access::Write),
        ];
        let line = line(&guest(&vm(), &disks, &[]));
        for (index, access) in ["readonly=on", "snapshot=on", "readonly=off"]
            .iter()
            .enumerate()
        {
            assert!(
                line.contains(&format!(
                    "-drive if=none,id=disk{index},format=raw,cache=unsafe,{access},\
                     file=/i/a,,b.img -device virtio-blk-pci,drive=disk{index},num-queues=2,serial=s"
                )),
                "{line}"
            );
        }
    }

    #[test]
    fn what_the_user_writes_is_not_left_in_a_cache() {
        let disks = [Disk {
            file: "/home/u/mine.img".into(),
            serial: "s".to_owned(),
            access: Access::Own,
        }];
        let line = line(&guest(&vm(), &disks, &[]));
        assert!(
            line.contains("cache=writeback,readonly=off,file=/home/u/mine.img"),
            "{line}"
        );
    }

    #[test]
    fn a_guest_with_input_waits_for_whoever_gives_it() {
        let vm = vm();
        let mut guest = guest(&vm, &[], &[]);
        assert!(!line(&guest).contains("socket"));
        guest.input = Some(Path::new("/r/stdin"));
        assert!(
            line(&guest).ends_with(
                "-device virtio-serial-pci \
                 -chardev socket,id=input,server=on,wait=on,path=/r/stdin \
                 -device virtserialport,chardev=input,name=rext2.in"
            ),
            "{}",
            line(&guest)
        );
    }

    #[test]
    fn a_recorder_sees_the_flushes_of_its_disk_and_others_may_read_what_it_writes() {
        let disk = |file: &str, access| Disk {
            file: file.into(),
            serial: "s".to_owned(),
            access,
        };
        let disks = [
            disk("/i/a", Access::Record("/r/log".into())),
            disk("/r/log", Access::Watch),
        ];
        let line = line(&guest(&vm(), &disks, &[]));
        assert!(
            line.contains(
                "-blockdev driver=blklogwrites,node-name=disk0,log-sector-size=512,\
                 file.driver=file,file.cache.no-flush=on,file.filename=/i/a,\
                 log.driver=file,log.cache.no-flush=on,log.filename=/r/log \
                 -device virtio-blk-pci,drive=disk0,num-queues=2,serial=s"
            ),
            "{line}"
        );
        assert!(
            line.contains("cache=unsafe,readonly=on,file.locking=off,file=/r/log"),
            "{line}"
        );
    }

    #[test]
    fn a_terminal_comes_before_the_ports_and_gdb_stops_the_guest() {
        let ports = [Port {
            name: "rext2.ctl",
            file: "/r/events".into(),
        }];
        let vm = vm();
        let mut guest = guest(&vm, &[], &ports);
        guest.terminal = Some(Path::new("/r/tty"));
        guest.gdb = Some(Path::new("/r/gdb"));
        let extra = ["-s".into()];
        guest.extra = &extra;
        let line = line(&guest);
        let terminal = line.find("virtconsole").unwrap();
        assert!(terminal < line.find("virtserialport").unwrap(), "{line}");
        assert!(
            line.ends_with("-gdb unix:/r/gdb,server=on,wait=off -S -s"),
            "{line}"
        );
    }
}
