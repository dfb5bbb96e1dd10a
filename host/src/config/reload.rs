//! Changes of a reload, key by key: changes in force at once, and changes that wait for a restart of the daemon.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use toml::Value;

use super::Loaded;
use super::tree::{Step, dotted};

/// A key with a changed value, and the origin of the new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    origin: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.origin)
    }
}

/// All changes that a reload found, in the order of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes against the last read configuration, in force from now on.
    pub applied: Vec<Change>,
    /// Changes that take effect only at the daemon's next start. Each reload reports them until then.
    pub waiting: Vec<Change>,
    /// The parts of the certificate files that have changed, for people: `certificate`, `authorities`, `revocation
    /// lists`.
    pub certificates: Vec<&'static str>,
}

impl Changes {
    /// Compares the `new` configuration with two earlier ones: keys that apply at once with those of `last`, which was
    /// read before, and keys that need a restart with those of `started`, with which the daemon started.
    /// `takes_restart` has the dotted keys that need a restart; a table's key stands for all keys of the table.
    ///
    /// # Errors
    /// Text, if a value has no TOML form; perilog's types all have a TOML form.
    pub fn between<T: Serialize>(
        started: &T,
        last: &T,
        new: &Loaded<T>,
        takes_restart: &[&str],
    ) -> Result<Self, String> {
        let (started, last, now) = (values(started)?, values(last)?, values(&new.value)?);
        let is_late = |key: &str| {
            let within = |of: &&str| key.strip_prefix(*of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            takes_restart.iter().any(within)
        };
        let change = |key: &String| Change { key: key.clone(), origin: new.origins.shown(key) };
        Ok(Self {
            applied: differing(&last, &now).filter(|key| !is_late(key)).map(change).collect(),
            waiting: differing(&started, &now).filter(|key| is_late(key)).map(change).collect(),
            certificates: Vec::new(),
        })
    }

    /// Writes one log line for each change, or a single line if nothing has changed. The line of a change that waits
    /// for a restart has the command for it: `systemctl restart` of `unit`.
    pub fn log(&self, unit: &str) {
        if self.applied.is_empty() && self.waiting.is_empty() && self.certificates.is_empty() {
            tracing::info!("the configuration was read again; nothing in it has changed");
        }
        if !self.certificates.is_empty() {
            tracing::info!("reloaded: new {} in force, for new connections", self.certificates.join(", "));
        }
        for change in &self.applied {
            tracing::info!(key = change.key, "reloaded: {change} is in force");
        }
        for change in &self.waiting {
            tracing::warn!(key = change.key, "not reloaded: {change} needs a restart: systemctl restart {unit}");
        }
    }

    /// Returns a remark for the status line of `systemctl status`, such as `restart needed for tls.ca`; `None` if no
    /// change waits for a restart.
    pub fn remark(&self) -> Option<String> {
        let keys: Vec<&str> = self.waiting.iter().map(|change| change.key.as_str()).collect();
        (!keys.is_empty()).then(|| format!("restart needed for {}", keys.join(", ")))
    }
}

/// Returns the values of a configuration by dotted key; an array is one value.
fn values<T: Serialize>(config: &T) -> Result<BTreeMap<String, Value>, String> {
    let mut found = BTreeMap::new();
    let table = toml::Table::try_from(config).map_err(|error| error.to_string())?;
    collect(table, &mut Vec::new(), &mut found);
    Ok(found)
}

fn collect(table: toml::Table, path: &mut Vec<Step>, found: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        path.push(Step::Key(key));
        match value {
            Value::Table(inner) => {
                // Records an empty table such as `[action.noop]`, so that adding or removing it shows as a change.
                if inner.is_empty() && path.len() > 1 {
                    found.insert(dotted(path), Value::Boolean(true));
                }
                collect(inner, path, found)
            }
            value => drop(found.insert(dotted(path), value)),
        }
        path.pop();
    }
}

fn differing<'a>(
    before: &'a BTreeMap<String, Value>,
    after: &'a BTreeMap<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let new = after.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, _)| key);
    let mut keys: Vec<&String> = gone.chain(new).collect();
    keys.sort_unstable();
    keys.into_iter()
}
