//! The stream of messages of one connection, drained by a task of its own into [`Stir`]: it waits for nothing but the stream, so that no call of
//! the connection is ever stalled by it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use perilog_core::ids::{UNIT_PREFIX, unit_of};
use zbus::message::Type;
use zbus::{Message, MessageStream};

use super::names::{DBUS, MANAGER, PROPERTIES, SYSTEMD, unit_path};
use crate::stir::Stir;

/// Whose signals matter. Holds no more than this host's live tasks.
#[derive(Debug, Default)]
pub(super) struct Interest(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// Units whose start job is ours, from before the call to its JobRemoved.
    starting: HashSet<String>,
    /// Object paths of units that are watched, and their stems.
    watched: HashMap<String, String>,
}

impl Interest {
    pub(super) fn starts(&self, stem: &str) {
        self.lock().starting.insert(unit_of(stem));
    }

    pub(super) fn does_not_start(&self, stem: &str) {
        self.lock().starting.remove(&unit_of(stem));
    }

    /// False if it was watched before.
    pub(super) fn watch(&self, stem: &str) -> bool {
        self.lock().watched.insert(unit_path(&unit_of(stem)), stem.to_owned()).is_none()
    }

    /// True if it was watched.
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
        // Both tables are whole whatever a panicking holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drains `stream` until the bus, or systemd on it, is gone; says why.
pub(super) async fn drain(mut stream: MessageStream, interest: Arc<Interest>, stir: Arc<Stir>) -> String {
    while let Some(message) = stream.next().await {
        match message {
            Ok(message) if message.message_type() == Type::Signal => {
                if let Some(lost) = signal(&message, &interest, &stir) {
                    return lost;
                }
            }
            // Replies find their callers without us.
            Ok(_) => {}
            Err(error) => return format!("the system bus is gone: {error}"),
        }
    }
    "the system bus is gone".to_owned()
}

/// One signal; `Some` if systemd left the bus (daemon-reexec): everything that is known has to be joined again.
fn signal(message: &Message, interest: &Interest, stir: &Stir) -> Option<String> {
    let header = message.header();
    let (interface, member) = (header.interface()?.as_str(), header.member()?.as_str());
    let body = message.body();
    match (interface, member) {
        (MANAGER, "JobRemoved") => {
            let (_, _, unit, _): (u32, zbus::ObjectPath<'_>, &str, &str) = body.deserialize().ok()?;
            if unit.starts_with(UNIT_PREFIX)
                && let Some(stem) = interest.ended_job(unit)
            {
                stir.now(&stem);
            }
        }
        (PROPERTIES, "PropertiesChanged") => {
            if let Some(stem) = interest.watched(header.path()?.as_str()) {
                stir.now(&stem);
            }
        }
        (DBUS, "NameOwnerChanged") => {
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
