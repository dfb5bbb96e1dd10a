//! Notifications from the daemon to its service manager (sd_notify(3)). Without `NOTIFY_SOCKET` they do nothing.
//!
//! A failed notification is only logged: the daemon does not depend on it.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use libsystemd::daemon::{NotifyState, notify};

use crate::clock;

/// Time between two requests of a [`LongStart`].
const ASKS: Duration = Duration::from_secs(2);
/// Time for which each request of a [`LongStart`] asks. Past it, and past the unit's own limit, systemd ends a process
/// that stands still.
const EXTENSION: Duration = Duration::from_secs(60);

/// A part of the start-up that takes as long as a disk needs, such as the migration of a large store. Until this value
/// is dropped, a thread asks the service manager again and again for more time than `TimeoutStartSec=` permits.
#[derive(Debug)]
pub struct LongStart {
    _ends: Option<SyncSender<()>>,
}

impl LongStart {
    pub fn begin() -> Self {
        let (ends, ended) = sync_channel::<()>(0);
        let asks = move || {
            let extension = NotifyState::Other(format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
            while ended.recv_timeout(ASKS) == Err(RecvTimeoutError::Timeout) {
                send(std::slice::from_ref(&extension));
            }
        };
        match thread::Builder::new().name("long-start".to_owned()).spawn(asks) {
            Ok(_) => Self { _ends: Some(ends) },
            Err(error) => {
                tracing::warn!(%error, "cannot ask the service manager for a longer start");
                Self { _ends: None }
            }
        }
    }
}

/// Reports that the start-up or a reload is complete; `systemctl status` shows `status`.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(one_line(status))]);
}

/// Reports a new status line.
pub fn status(status: &str) {
    send(&[NotifyState::Status(one_line(status))]);
}

/// Reports that the daemon is alive (`WatchdogSec=`).
pub(crate) fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Reports that the daemon reads its configuration again; [`ready`] ends the reload. Carries MONOTONIC_USEC, which
/// `Type=notify-reload` requires.
pub fn reloading() {
    let stamp = NotifyState::Other(format!("MONOTONIC_USEC={}", clock::mono_us()));
    send(&[NotifyState::Reloading, stamp]);
}

/// Reports that the daemon is ending; `systemctl status` shows `status`.
pub fn stopping(status: &str) {
    send(&[NotifyState::Stopping, NotifyState::Status(one_line(status))]);
}

/// Replaces control characters: a line break in a status would begin another assignment, such as MAINPID=.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn send(state: &[NotifyState]) {
    if let Err(error) = notify(false, state) {
        tracing::warn!("cannot notify the service manager (sd_notify): {error}");
    }
}
