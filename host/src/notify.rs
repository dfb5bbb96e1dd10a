//! Notifications from the daemon to its service manager (sd_notify(3)). Without `NOTIFY_SOCKET` they do nothing.
//!
//! A failed notification is only logged: the daemon does not depend on it.

use libsystemd::daemon::{NotifyState, notify};

use crate::clock;

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
