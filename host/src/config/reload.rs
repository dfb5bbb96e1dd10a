//! What a reload changes, key by key: what counts from now on, and what counts from the next start of the daemon.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use toml::Value;

use super::Loaded;
use super::tree::{Step, dotted};

/// A key whose value is another now, and where the new one is from.
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

/// All that differs, in the order of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Against what was read last: it counts from now on.
    pub applied: Vec<Change>,
    /// Against what the daemon was started with: it counts from the next start on. Told at each reload until then.
    pub waiting: Vec<Change>,
}

impl Changes {
    /// `takes_restart`: keys, or tables with all in them, that a daemon looks at only when it starts.
    ///
    /// # Errors
    /// Text, if a value has no TOML form; none of ours does.
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
        })
    }

    /// Says it in the journal, a line for each key. `unit`: whose restart it takes.
    pub fn tell(&self, unit: &str) {
        if self.applied.is_empty() && self.waiting.is_empty() {
            tracing::info!("the configuration was read again; nothing has changed");
        }
        for change in &self.applied {
            tracing::info!(key = change.key, "reloaded: {change} is in force");
        }
        for change in &self.waiting {
            tracing::warn!(key = change.key, "not reloaded: {change} needs a restart: systemctl restart {unit}");
        }
    }

    /// For the line of `systemctl status`: what is still to be done, if anything is.
    pub fn remark(&self) -> Option<String> {
        let keys: Vec<&str> = self.waiting.iter().map(|change| change.key.as_str()).collect();
        (!keys.is_empty()).then(|| format!("restart needed for {}", keys.join(", ")))
    }
}

/// By dotted key; an array is one value.
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
                // So that a table without a key of its own, [action.noop], is seen to come and go.
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
