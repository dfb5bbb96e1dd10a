//! Optional unit properties of the running systemd. The agent probes the properties and never guesses from a version:
//! RHEL 8's 239 has some properties of later releases, and lacks others.

use std::collections::BTreeSet;

/// Properties that a task can do without; the second text of each pair names the loss.
pub(super) const OPTIONAL: &[(&str, &str)] = &[
    ("LogRateLimitIntervalUSec", "journald may drop lines of a script that prints much"),
    ("KeyringMode", "scripts have a session keyring of their own"),
    ("OOMScoreAdjust", "oom-score-adjust is not applied"),
    ("MemoryMax", "memory-max is not applied"),
    ("TasksMax", "tasks-max is not applied"),
    ("CPUWeight", "cpu-weight is not applied"),
];

/// The optional properties that this host's systemd lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probed {
    missing: BTreeSet<&'static str>,
}

impl Probed {
    /// Finds out which optional properties are missing. `names` are the names of all properties of a service, from
    /// systemd's reply to GetAll. Systemd gives the same names for every service, loaded or not.
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let present: BTreeSet<&str> = names.into_iter().collect();
        Self { missing: OPTIONAL.iter().map(|(name, _)| *name).filter(|name| !present.contains(name)).collect() }
    }

    pub fn has(&self, name: &str) -> bool {
        !self.missing.contains(name)
    }

    /// Returns the optional property that a PropertyReadOnly error names ("Cannot set property X, or unknown
    /// property."). Some properties can be read but not set on a transient unit.
    pub(super) fn named(text: &str) -> Option<&'static str> {
        let named = |name: &&str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *name);
        OPTIONAL.iter().map(|(name, _)| *name).find(named)
    }

    /// Marks a property as missing, so that units are started without it. Returns `true` if the property was not marked
    /// before.
    pub(super) fn leave_out(&mut self, name: &'static str) -> bool {
        self.missing.insert(name)
    }

    /// Returns each missing property, and what the node loses without it, for the log.
    pub(super) fn losses(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        OPTIONAL.iter().copied().filter(|(name, _)| self.missing.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_learnt_once() {
        let mut probed = Probed::of(OPTIONAL.iter().map(|(name, _)| *name).filter(|name| *name != "KeyringMode"));
        assert!(!probed.has("KeyringMode") && probed.has("TasksMax"));
        let named = Probed::named("Cannot set property TasksMax, or unknown property.").unwrap();
        assert!(probed.leave_out(named) && !probed.has(named));
        assert!(!probed.leave_out(named), "learnt twice");
        assert_eq!(Probed::named("Cannot set property ExecStart, or unknown property."), None);
        assert_eq!(probed.losses().map(|(name, _)| name).collect::<Vec<_>>(), ["KeyringMode", "TasksMax"]);
    }
}
