//! D-Bus messages of one connection. A separate tokio task reads every message, and enters each changed
//! task into [`Wakeups`] for an inspection. The tokio task waits for nothing else, so no unread message stalls a call
//! of the connection.
//!
//! Any process on the host may send the agent a signal of any interface and member: the bus's stock policy permits it,
//! even if the agent has not subscribed to the signal (AddMatch). Only the sender, which the bus itself records, proves
//! a signal: the bus for owners of names, systemd for jobs and units.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::StreamExt as _;
use perilog_core::ids::{UNIT_PREFIX, unit_of};
use zbus::message::Type;
use zbus::{Message, MessageStream};

use super::names::{DBUS, MANAGER, PROPERTIES, SYSTEMD, unit_path};
use crate::wakeups::Wakeups;

/// The units about which the agent wants signals: at most this host's live tasks.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// systemd's unique bus name, the sender of systemd's signals; set before the agent starts or watches any unit, so
    /// no relevant signal comes earlier. The connection ends when systemd gets another name (daemon-reexec), so the
    /// name never changes.
    systemd: OnceLock<String>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Names of the units that this agent is starting: entered before the start call, removed when the start job's
    /// JobRemoved arrives, or when the agent no longer expects that signal.
    starting: HashSet<String>,
    /// Stems of the watched units, by the unit's object path.
    watched: HashMap<String, String>,
}

impl Interest {
    /// Sets systemd's unique bus name: only this sender's signals about jobs and units count. Later calls have no
    /// effect.
    pub(super) fn systemd_is(&self, unique: &str) {
        self.systemd.get_or_init(|| unique.to_owned());
    }

    fn is_systemd(&self, sender: &str) -> bool {
        self.systemd.get().is_some_and(|systemd| systemd == sender)
    }

    pub(super) fn starts(&self, stem: &str) {
        self.lock().starting.insert(unit_of(stem));
    }

    pub(super) fn does_not_start(&self, stem: &str) {
        self.lock().starting.remove(&unit_of(stem));
    }

    /// Watches a unit; returns `false` if the unit was watched before.
    pub(super) fn watch(&self, stem: &str) -> bool {
        self.lock().watched.insert(unit_path(&unit_of(stem)), stem.to_owned()).is_none()
    }

    /// Stops watching a unit; returns `true` if the unit was watched.
    pub(super) fn forget(&self, stem: &str) -> bool {
        let mut tables = self.lock();
        let unit = unit_of(stem);
        tables.starting.remove(&unit);
        tables.watched.remove(&unit_path(&unit)).is_some()
    }

    fn ended_job(&self, unit: &str) -> Option<String> {
        self.lock().starting.take(unit)?.strip_suffix(".service").map(str::to_owned)
    }

    fn watched(&self, path: &str) -> Option<String> {
        self.lock().watched.get(path).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panicking holder cannot leave the tables half changed.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the connection's messages from `stream`, and enters each task whose unit changed into `wakeups` for an
/// inspection. Runs until the bus is gone, or systemd has left the bus. Returns the reason as a text.
pub(super) async fn drain(mut stream: MessageStream, interest: Arc<Interest>, wakeups: Arc<Wakeups>) -> String {
    while let Some(message) = stream.next().await {
        match message {
            Ok(message) if message.message_type() == Type::Signal => {
                if let Some(lost) = signal(&message, &interest, &wakeups) {
                    return lost;
                }
            }
            // zbus routes replies to their callers.
            Ok(_) => {}
            Err(error) => return format!("the system bus is gone: {error}"),
        }
    }
    "the system bus is gone".to_owned()
}

/// Handles a D-Bus signal: requests an inspection of the task whose unit changed. Ignores a signal from any sender but
/// systemd and the bus. Returns a reason if systemd left the bus (daemon-reexec), because the agent must then connect
/// again. Returns `None` for every other signal.
fn signal(message: &Message, interest: &Interest, wakeups: &Wakeups) -> Option<String> {
    let header = message.header();
    let (interface, member) = (header.interface()?.as_str(), header.member()?.as_str());
    let sender = header.sender()?.as_str();
    let body = message.body();
    match (interface, member) {
        (MANAGER, "JobRemoved") if interest.is_systemd(sender) => {
            let (_, _, unit, _): (u32, zbus::ObjectPath<'_>, &str, &str) = body.deserialize().ok()?;
            if unit.starts_with(UNIT_PREFIX)
                && let Some(stem) = interest.ended_job(unit)
            {
                wakeups.now(&stem);
            }
        }
        (PROPERTIES, "PropertiesChanged") if interest.is_systemd(sender) => {
            if let Some(stem) = interest.watched(header.path()?.as_str()) {
                wakeups.now(&stem);
            }
        }
        (DBUS, "NameOwnerChanged") if sender == DBUS => {
            let (name, _, new): (&str, &str, &str) = body.deserialize().ok()?;
            if name == SYSTEMD {
                return Some(
                    if new.is_empty() { "systemd left the bus" } else { "systemd has another name on the bus" }
                        .to_owned(),
                );
            }
        }
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use zbus::ObjectPath;

    use super::*;
    use crate::systemd::names::{DBUS_PATH, MANAGER_PATH};

    const OURS: &str = "perilog-task-prolog-f1-3-0123456789ab";
    const SYSTEMD_IS: &str = ":1.2";
    const FORGER: &str = ":1.66";

    fn signal_from<B: serde::Serialize + zbus::DynamicType>(
        sender: &str,
        path: &str,
        (interface, member): (&str, &str),
        body: &B,
    ) -> Message {
        Message::signal(path, interface, member).sender(sender).build(body).unwrap()
    }

    fn job_removed(sender: &str) -> Message {
        let job = ObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap();
        signal_from(sender, MANAGER_PATH, (MANAGER, "JobRemoved"), &(7u32, job, unit_of(OURS).as_str(), "done"))
    }

    fn changed(sender: &str) -> Message {
        let nothing: (HashMap<&str, zbus::Variant<'_>>, &[&str]) = (HashMap::new(), &[]);
        let body = ("org.freedesktop.systemd1.Service", nothing.0, nothing.1);
        signal_from(sender, &unit_path(&unit_of(OURS)), (PROPERTIES, "PropertiesChanged"), &body)
    }

    fn owner_changed(sender: &str, name: &str, new: &str) -> Message {
        signal_from(sender, DBUS_PATH, (DBUS, "NameOwnerChanged"), &(name, SYSTEMD_IS, new))
    }

    /// Returns an [`Interest`] that knows systemd's unique name. For it, the agent's connection has started the test's
    /// unit and watches it.
    fn interested() -> Interest {
        let interest = Interest::default();
        interest.systemd_is(SYSTEMD_IS);
        interest.starts(OURS);
        interest.watch(OURS);
        interest
    }

    /// Returns `true` if these messages cause an inspection of the test's unit.
    async fn woken(interest: &Interest, messages: &[Message]) -> bool {
        let wakeups = Wakeups::default();
        for message in messages {
            assert_eq!(signal(message, interest, &wakeups), None);
        }
        // Stirs another unit, so that the call returns.
        wakeups.now("perilog-task-last");
        wakeups.next().await.contains(&OURS.to_owned())
    }

    #[tokio::test]
    async fn only_systemd_reports_jobs_and_units() {
        let interest = interested();
        for forger in [FORGER, ":1.20", DBUS] {
            assert!(!woken(&interest, &[job_removed(forger), changed(forger)]).await, "{forger}");
        }
        assert!(woken(&interest, &[changed(SYSTEMD_IS)]).await);
        // The forged signal has not replaced the genuine signal.
        interest.forget(OURS);
        interest.starts(OURS);
        assert!(!woken(&interest, &[job_removed(FORGER)]).await);
        assert!(woken(&interest, &[job_removed(SYSTEMD_IS)]).await);
        assert!(!woken(&interest, &[job_removed(SYSTEMD_IS)]).await, "a job ends once");
    }

    #[test]
    fn only_the_bus_reports_who_left_it() {
        let (interest, wakeups) = (interested(), Wakeups::default());
        // Only the bus proves a change of owner; systemd's own signal does not.
        for sender in [FORGER, SYSTEMD_IS] {
            for new in ["", FORGER] {
                assert_eq!(signal(&owner_changed(sender, SYSTEMD, new), &interest, &wakeups), None, "{sender} {new}");
            }
        }
        assert_eq!(signal(&owner_changed(DBUS, "org.freedesktop.login1", ""), &interest, &wakeups), None);
        let left = signal(&owner_changed(DBUS, SYSTEMD, ""), &interest, &wakeups);
        assert_eq!(left.as_deref(), Some("systemd left the bus"));
        let other = signal(&owner_changed(DBUS, SYSTEMD, ":1.99"), &interest, &wakeups);
        assert_eq!(other.as_deref(), Some("systemd has another name on the bus"));
    }

    /// systemd may leave the bus while the agent connects, before the agent knows systemd's unique name. The agent must
    /// notice this too.
    #[test]
    fn systemds_leave_is_noticed_before_its_unique_name_is_known() {
        let left = signal(&owner_changed(DBUS, SYSTEMD, ""), &Interest::default(), &Wakeups::default());
        assert!(left.is_some());
    }

    #[test]
    fn a_signal_that_nobody_sent_is_none() {
        let body = (SYSTEMD, SYSTEMD_IS, "");
        let message = Message::signal(DBUS_PATH, DBUS, "NameOwnerChanged").build(&body).unwrap();
        assert_eq!(signal(&message, &interested(), &Wakeups::default()), None);
    }
}
