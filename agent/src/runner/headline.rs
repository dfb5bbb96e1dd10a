//! Status text of the unit for `systemctl status`: `prolog f123 rank 3: 2/4 20-lustre, mounting /p/lustre1 (since
//! 03:12:07Z, limit 5m)`. The text names the start time, because a duration would need a timer to stay true; the line
//! above shows the unit's age.
//!
//! The runner sends the text (sd_notify(3)) without waiting: if PID 1 is too busy, the text is lost and no script is
//! delayed. Each text wakes PID 1, which handles the units of all tasks. So the runner does not announce a script that
//! ends before a person could read its name.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use perilog_core::Span;
use perilog_core::task::Start;

use crate::output::one_line;

/// Time in milliseconds from the begin of a script until the unit's status shows the name of the script that then runs.
/// The status normally shows no script that ends sooner.
const UNSEEN_MS: u64 = 200;

#[derive(Debug)]
pub(crate) struct Headline {
    task: String,
    of: usize,
    script: String,
    /// Start time and limit of the script as text, for example `(since 03:12:07Z, limit 5m)`.
    about: String,
    /// CLOCK_MONOTONIC (ms) at which the runner will write the running script's name into the unit's status; `None`:
    /// the status is up to date.
    due: Option<u64>,
    /// Whether the runner has sent a text. If so, the task's end must replace the text, because the unit would still
    /// show it.
    shown: bool,
    /// systemd's notification socket; `None`: the runner is in no unit, or the unit accepts no notifications.
    systemd: Option<SocketAddr>,
}

impl Headline {
    pub(crate) fn new(start: &Start) -> Self {
        let task = format!("{} {} rank {}", start.action, start.job, start.task.rank);
        Self { task, of: 0, script: String::new(), about: String::new(), due: None, shown: false, systemd: systemd() }
    }

    /// Sets the number of scripts of the task.
    pub(crate) fn of(&mut self, of: usize) {
        self.of = of;
    }

    /// Sets the running script, the `index`th counted from 1; [`Self::tick`] announces the script later. `now` is
    /// CLOCK_MONOTONIC (ms), `wall_ms` milliseconds since 1970, `limit_ms` the limit of the script or of the
    /// task.
    pub(crate) fn script(&mut self, index: usize, name: &str, now: u64, wall_ms: u64, limit_ms: Option<u64>) {
        self.script = format!("{index}/{} {name}", self.of);
        let second = wall_ms / 1000;
        let limit = limit_ms.map_or_else(|| "no limit".to_owned(), |ms| format!("limit {}", Span::from_millis(ms)));
        self.about = format!("(since {:02}:{:02}:{:02}Z, {limit})", second / 3_600 % 24, second / 60 % 60, second % 60);
        self.due.get_or_insert(now.saturating_add(UNSEEN_MS));
    }

    /// Returns CLOCK_MONOTONIC (ms) at which to call [`Self::tick`]; `None`: no call is needed.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due
    }

    /// Shows the script's name in the unit's status, if the time for that has come. `now` is CLOCK_MONOTONIC (ms).
    pub(crate) fn tick(&mut self, now: u64) {
        if self.due.take_if(|at| *at <= now).is_some() {
            self.show(&format!("{} {}", self.script, self.about));
        }
    }

    /// Shows a text beside the script's name in the unit's status, such as the script's own progress message.
    pub(crate) fn detail(&mut self, text: &str) {
        self.show(&format!("{}, {text} {}", self.script, self.about));
    }

    /// Shows in the unit's status that all scripts have ended, and what the runner waits for.
    pub(crate) fn waits(&mut self, text: &str) {
        self.show(text);
    }

    /// Shows `text` in the unit's status as the end of the task. After a good end (`well`), shows `text` only if it
    /// replaces an earlier text: otherwise the agent unloads the unit before a person could look.
    pub(crate) fn end(&mut self, text: &str, well: bool) {
        if self.shown || !well {
            self.show(text);
        }
    }

    fn show(&mut self, text: &str) {
        (self.due, self.shown) = (None, true);
        if let Some(address) = &self.systemd {
            // A line break would begin another assignment, such as MAINPID=.
            let status = format!("STATUS={}: {}\n", self.task, one_line(text));
            // The text is for people, so a failure has no consequence.
            let _ = send(address, status.as_bytes());
        }
    }
}

fn send(address: &SocketAddr, bytes: &[u8]) -> io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(bytes, address)
}

/// Returns the address of systemd's notification socket: a path, or with `@` a name in the abstract namespace. `None`
/// outside of a unit that accepts notifications.
fn systemd() -> Option<SocketAddr> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    address.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headline(systemd: &UnixDatagram) -> Headline {
        let systemd = systemd.local_addr().ok();
        Headline {
            task: "t".to_owned(),
            of: 3,
            script: String::new(),
            about: String::new(),
            due: None,
            shown: false,
            systemd,
        }
    }

    fn status_line(systemd: &UnixDatagram) -> Option<String> {
        let mut buffer = [0; 256];
        let n = systemd.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
    }

    #[test]
    fn unseen_progress_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let systemd = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        systemd.set_nonblocking(true).unwrap();

        let mut quick = headline(&systemd);
        quick.script(1, "a", 100, 0, None);
        quick.tick(99 + UNSEEN_MS);
        quick.end("well", true);
        assert_eq!(status_line(&systemd), None);
        quick.end("not so well", false);
        assert_eq!(status_line(&systemd).as_deref(), Some("STATUS=t: not so well\n"));

        // The headline shows some names of many short scripts.
        let mut slow = headline(&systemd);
        slow.script(1, "a", 100, 0, None);
        slow.script(2, "b", 200, 97_328_000, Some(300_000));
        assert_eq!(slow.next(), Some(100 + UNSEEN_MS));
        slow.tick(100 + UNSEEN_MS);
        assert_eq!(
            (status_line(&systemd).as_deref(), slow.next()),
            (Some("STATUS=t: 2/3 b (since 03:02:08Z, limit 5m)\n"), None)
        );
        slow.script(3, "c", 400, 1_000, None);
        slow.detail("at it");
        assert_eq!(
            (status_line(&systemd).as_deref(), slow.next()),
            (Some("STATUS=t: 3/3 c, at it (since 00:00:01Z, no limit)\n"), None)
        );
        slow.end("well", true);
        assert_eq!(status_line(&systemd).as_deref(), Some("STATUS=t: well\n"));
    }
}
