//! SIGHUP: the agent reads its configuration again, in another thread and within a limit: the files may be on a file
//! system that does not answer, and the event loop waits for none. The agent applies the changed keys, and logs each
//! key that needs a restart. The agent applies no part of a wrong configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use perilog_core::agent::io::Input;
use perilog_host::config::{Changes, Loaded};
use perilog_host::limited::Lookup;
use perilog_host::{journal, notify};

use super::{Daemon, identity, start};
use crate::config::Config;

/// Keys whose new values a running agent does not use. All other keys apply at once, except `controller`, `tls` and
/// `enroll`: these three apply at the next dial.
const TAKES_RESTART: [&str; 1] = ["host"];

/// The configurations to compare a new configuration with: that of the agent's start, and the last one that was
/// applied.
pub(super) struct Read {
    started: Config,
    pub(super) last: Config,
}

impl Read {
    pub(super) fn new(started: Config) -> Self {
        Self { last: started.clone(), started }
    }
}

/// The configuration that a reload has read, or a text with the reason why it read none.
pub(super) type Found = Result<Loaded<Config>, String>;

impl Daemon {
    /// Begins to read the configuration again; [`Self::on_read`] gets the result.
    pub(super) fn reload(&self) {
        notify::reloading();
        let (file, reads) = (self.places.config.clone(), self.reads.clone());
        tokio::task::spawn_blocking(move || {
            let what = format!("configuration {}", file.display());
            let found = match Lookup::begin(what, move || Config::read(&file)).answer() {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(none) => Err(none.to_string()),
            };
            // The loop has ended and needs no configuration.
            let _ = reads.blocking_send(found);
        });
    }

    pub(super) fn on_read(&mut self, found: Found) {
        let remark = match found.and_then(|new| self.apply(new)) {
            Ok(changes) => {
                changes.log("perilog-agent");
                changes.remark()
            }
            Err(text) => {
                tracing::error!("{text}\nthe configuration that was read before stays in force");
                let problem = text.lines().next().unwrap_or_default();
                Some(format!("the reload failed, and the earlier configuration stays in force: {problem}"))
            }
        };
        self.status.remark(remark);
        notify::ready(&self.status.whole(self.machine.status_line()));
    }

    fn apply(&mut self, new: Loaded<Config>) -> Result<Changes, String> {
        let changes = Changes::between(&self.read.started, &self.read.last, &new, &TAKES_RESTART)?;
        let config = new.value;
        // Calls that can fail come first: after an error, the earlier configuration stays in force. The node keeps its
        // identity until the next start.
        let host = identity::host(self.read.started.host.as_ref()).map_err(|error| error.to_string())?;
        let (socket, mode) = (self.places.socket(), config.local.socket_mode());
        fs::set_permissions(&socket, fs::Permissions::from_mode(mode))
            .map_err(|error| format!("cannot set the mode of {}: {error}", socket.display()))?;
        if config.log != self.read.last.log {
            journal::set_level(config.log.as_str()).map_err(|error| error.to_string())?;
        }
        self.controllers.send_if_modified(|current| {
            let new = start::controllers(&config, &host);
            let changed = *current != new;
            *current = new;
            changed
        });
        self.inputs.push_back(Input::Policy(config.policy()));
        self.agent.configure(config.clone());
        self.read.last = config;
        Ok(changes)
    }
}
