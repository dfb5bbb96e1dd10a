//! The unit's status text, which `systemctl status` shows: `prolog f123 rank 3: 2/4 20-lustre, mounting /p/lustre1`.
//!
//! Sent to systemd (sd_notify(3)) without ever waiting for it: a status that PID 1 is too busy for is a status less, and no script is late for it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use perilog_core::task::Start;

use crate::output::one_line;

#[derive(Debug)]
pub(crate) struct Headline {
    task: String,
    of: usize,
    script: String,
    /// `None`: not in a unit, or not one that listens.
    systemd: Option<(UnixDatagram, SocketAddr)>,
}

impl Headline {
    pub(crate) fn new(start: &Start) -> Self {
        let task = format!("{} {} rank {}", start.action, start.job, start.task.rank);
        Self { task, of: 0, script: String::new(), systemd: systemd() }
    }

    /// How many scripts there are.
    pub(crate) fn of(&mut self, of: usize) {
        self.of = of;
    }

    /// The `index`th script begins, counted from 1.
    pub(crate) fn script(&mut self, index: usize, name: &str) {
        self.script = format!("{index}/{} {name}", self.of);
        self.tell(&self.script);
    }

    /// What the script is at.
    pub(crate) fn detail(&self, text: &str) {
        self.tell(&format!("{}, {text}", self.script));
    }

    /// All is over.
    pub(crate) fn end(&self, text: &str) {
        self.tell(text);
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.systemd {
            // A line break would begin another assignment, such as MAINPID=.
            let status = format!("STATUS={}: {}\n", self.task, one_line(text));
            let _ = socket.send_to_addr(status.as_bytes(), address);
        }
    }
}

/// Where systemd listens: a path, or with `@` a name in the abstract namespace.
fn systemd() -> Option<(UnixDatagram, SocketAddr)> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}
