//! SIGHUP: the controller reads settings and certificates again. The controller applies the changed keys, and logs each
//! key that needs a restart. The controller applies no part of a wrong configuration.

use std::path::{Path, PathBuf};

use perilog_host::config::Changes;
use perilog_host::{journal, notify};
use tokio::sync::watch;

use super::inlet::{Entry, Inlet};
use super::start::{Certificates, Hooks};
use super::whole_status;
use crate::config::Config;

/// Keys of the configuration whose change needs a restart: for example files and sockets that the controller opens once
/// at its start, and `cluster`, which is part of every action's id.
const TAKES_RESTART: [&str; 9] =
    ["cluster", "listen", "store", "max-hosts", "api", "edge.group", "metrics", "enroll.listen", "enroll.directory"];

pub(super) struct Reload {
    file: PathBuf,
    started: Config,
    last: Config,
    inlet: Inlet,
    certificates: Certificates,
    hooks: Hooks,
    /// The problem that the last reload left: keys that need a restart, or a wrong configuration; `None`: no problem.
    /// `systemctl status` and `perilog status` show the text.
    remark: watch::Sender<Option<String>>,
}

impl Reload {
    pub(super) fn new(
        file: &Path,
        config: Config,
        inlet: Inlet,
        certificates: Certificates,
        hooks: Hooks,
        remark: watch::Sender<Option<String>>,
    ) -> Self {
        Self { file: file.to_owned(), last: config.clone(), started: config, inlet, certificates, hooks, remark }
    }

    /// Reads the configuration and the certificates again, applies them, and reports the result to systemd. `status`:
    /// the writer's part of the status line.
    pub(super) async fn now(&mut self, status: &watch::Receiver<String>) {
        notify::reloading();
        let remark = match self.apply().await {
            Ok(changes) => {
                changes.log("perilog-controller");
                changes.remark()
            }
            Err(text) => {
                for line in text.lines() {
                    tracing::error!("{line}");
                }
                tracing::error!("the configuration that was read before stays in force");
                let problem = text.lines().next().unwrap_or_default();
                Some(format!("the reload failed, and the earlier configuration stays in force: {problem}"))
            }
        };
        let line = whole_status(&status.borrow(), remark.as_deref());
        self.remark.send_replace(remark);
        notify::ready(&line);
    }

    async fn apply(&mut self) -> Result<Changes, String> {
        let new = Config::read(&self.file).map_err(|error| error.to_string())?;
        let mut changes = Changes::between(&self.started, &self.last, &new, &TAKES_RESTART)?;
        let config = new.value;
        let certificates =
            Certificates::read(&with_authority_of(&self.started, &config)).map_err(|error| error.to_string())?;
        if config.log != self.last.log {
            journal::set_level(config.log.as_str()).map_err(|error| error.to_string())?;
        }
        let mut settings = config.settings();
        settings.cluster = self.started.settings().cluster;
        changes.certificates = self.certificates.apply(certificates);
        self.hooks.configure(&config);
        // An ending writer needs no settings.
        let _ = self.inlet.put(Entry::Settings(settings)).await;
        self.last = config;
        Ok(changes)
    }
}

/// Returns the configuration `new` with the enrolment directory of `started`, if that directory still has an authority.
/// Enrolment signs with that authority until a restart, so the controller must accept its certificates until then.
fn with_authority_of(started: &Config, new: &Config) -> Config {
    let mut config = new.clone();
    if let Ok(Some(_)) = started.enroll.clients() {
        config.enroll.directory = started.enroll.directory.clone();
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a reload with another `enroll.directory` made the controller refuse the nodes that it had
    /// enrolled.
    #[test]
    fn a_reload_accepts_the_authority_that_signs() {
        let dir = tempfile::tempdir().unwrap();
        let config = |name: &str| {
            let (file, enroll) = (dir.path().join("controller.toml"), dir.path().join(name));
            std::fs::write(&file, format!("cluster = 'tiny'\nenroll = {{ directory = '{}' }}", enroll.display()))
                .unwrap();
            Config::read(&file).unwrap().value
        };
        let (started, new) = (config("started"), config("new"));
        // The directory was moved to its new place.
        let moved = with_authority_of(&started, &new);
        assert_eq!(moved.enroll.directory, new.enroll.directory);
        std::fs::create_dir(dir.path().join("started")).unwrap();
        std::fs::write(dir.path().join("started/ca.pem"), "").unwrap();
        let kept = with_authority_of(&started, &new);
        assert_eq!(kept.enroll.directory, started.enroll.directory);
    }

    /// The administrators' guide names each key that takes a restart. Otherwise, an operator who changed one and only
    /// reloaded would wait for ever.
    #[test]
    fn the_guide_names_each_key_that_takes_a_restart() {
        let guide = include_str!("../../../docs/administration.md");
        let row = guide.lines().find(|line| line.starts_with("| controller | everything else |")).unwrap();
        for key in TAKES_RESTART {
            assert!(row.contains(&format!("`{key}`")) || row.contains(&format!("`[{key}]`")), "{key}: {row}");
        }
    }
}
