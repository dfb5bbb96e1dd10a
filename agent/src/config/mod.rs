//! agent.toml and its drop-ins: the schema, and its conversion for the machine and the daemon's I/O.
//! `agent.toml.example` documents every key; a test compares the two.
//!
//! The node decides what runs: the node refuses every action without a table here, also from the controller. Only root
//! on this node can name other directories (`perilog try`).

mod action;
mod check;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perilog_core::agent::io::Policy;
use perilog_core::ids::{ActionName, HostName};
use perilog_core::message::MAX_TASKS;
use perilog_host::config::{self, ConfigError, Loaded, LogLevel, MainFile};
use perilog_host::munge::MUNGE;
use perilog_host::tls::TlsFiles;
use serde::{Deserialize, Serialize};

pub use action::Action;
pub use check::warnings;
use values::{AbsolutePath, Address, VariableName, Within};

/// The configuration file, unless `--config` names another. Drop-ins are in `agent.d` beside the file.
pub const FILE: &str = "/etc/perilog/agent.toml";

/// All keys of agent.toml.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// Name of this node in certificates and hostlists; defaults to the kernel's host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Addresses of the controllers, dialled half a second apart; the first that answers counts. Without a controller
    /// this host runs only its own tasks.
    pub controller: Vec<Address>,
    pub env_allow: Vec<VariableName>,
    pub serialize: Queue,
    pub keep_failed: Within<0, 64>,
    /// Maximum number of tasks and tombstones together. Each tombstone is a file, which takes a page of /run. For one
    /// more task than that, the agent deletes the oldest tombstone whose end the controller has acknowledged.
    pub max_tombstones: Within<16, 16_384>,
    /// Maximum number of tasks that have not ended. dbus-daemon gives a connection 512 match rules; after a restart of
    /// the agent, each running task needs one.
    pub max_tasks: Within<1, { MAX_TASKS as i64 }>,
    pub log: LogLevel,
    pub tls: Tls,
    pub enroll: Enroll,
    pub local: Local,
    pub action: BTreeMap<ActionName, Action>,
}

/// The key `serialize`: the tasks of this host that run one after the other, not at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Tasks of one job run one after the other, except those of one action on several ranks of this host.
    #[default]
    Job,
    /// All tasks of the host run one after the other, also those of different jobs (for nodes that jobs never share).
    Host,
}

/// `[tls]`: the certificates by which this node and its controller authenticate each other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Tls {
    pub enabled: bool,
    pub ca: AbsolutePath,
    pub cert: AbsolutePath,
    pub key: AbsolutePath,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<AbsolutePath>,
    /// Name that the controller's certificate must have; the default is the host of the controller's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

/// `[enroll]`: how this node gets its certificate, unless an administrator installs one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Enroll {
    /// Addresses at which controllers accept enrolment requests. The agent tries each in turn. Without an address, an
    /// administrator installs the files of `[tls]`.
    pub controller: Vec<Address>,
    /// File with the one-time token for the first certificate; `None`: the node has no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<AbsolutePath>,
    /// Whether the agent shows a munge credential if no token works.
    pub munge: bool,
    pub munge_program: AbsolutePath,
}

/// `[local]`: who may use the socket /run/perilog/agent.sock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Local {
    pub status: Readers,
}

impl Local {
    /// Returns the mode of the local socket. A user without permission to read the status cannot connect.
    pub fn socket_mode(self) -> u32 {
        match self.status {
            Readers::Root => 0o600,
            Readers::Anyone => 0o666,
        }
    }
}

/// Users who may call `Status` on the local socket; only root may call the other methods of `io.perilog.Agent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readers {
    #[default]
    Root,
    Anyone,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: None,
            controller: Vec::new(),
            env_allow: Vec::new(),
            serialize: Queue::default(),
            keep_failed: Within(0),
            max_tombstones: Within(4096),
            max_tasks: Within(128),
            log: LogLevel::default(),
            tls: Tls::default(),
            enroll: Enroll::default(),
            local: Local::default(),
            action: BTreeMap::new(),
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        let path = |name: &str| AbsolutePath(format!("/etc/perilog/tls/{name}.pem"));
        Self { enabled: true, ca: path("ca"), cert: path("cert"), key: path("key"), crl: None, server_name: None }
    }
}

impl Default for Enroll {
    fn default() -> Self {
        Self { controller: Vec::new(), token: None, munge: false, munge_program: AbsolutePath(MUNGE.to_owned()) }
    }
}

impl Config {
    /// Reads `file`, which may be absent, and the drop-ins beside it (`agent.toml`: `agent.d/*.toml`).
    ///
    /// # Errors
    /// [`ConfigError`]: all problems, each with file, line, column, key and the expected value.
    pub fn read(file: &Path) -> Result<Loaded<Self>, ConfigError> {
        let loaded = config::load::<Self>(file, MainFile::Optional, Some(&file.with_extension("d")))?;
        Ok(loaded.map(Self::complete))
    }

    /// Parses the configuration from `text`, the content of one TOML file, and fills in the defaults. `name` is the
    /// name of the file for error messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Ok(config::parse::<Self>(name, text)?.complete())
    }

    fn complete(mut self) -> Self {
        for (name, action) in &mut self.action {
            action.complete(name);
        }
        self
    }

    /// Returns the part of the configuration by which the machine decides.
    pub fn policy(&self) -> Policy {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Policy {
            actions: self.action.iter().map(|(name, action)| (name.clone(), action.plan())).collect(),
            env_allow: self.env_allow.iter().map(|name| name.0.clone()).collect(),
            serialize_host: self.serialize == Queue::Host,
            keep_failed: count(self.keep_failed.unsigned()),
            max_tombstones: count(self.max_tombstones.unsigned()),
            max_tasks: count(self.max_tasks.unsigned()),
        }
    }

    /// Returns the plan of an action without a table, for a call of `Exec` (`perilog try`) that names its own
    /// directories.
    pub fn default_plan() -> perilog_core::task::Plan {
        // An empty table satisfies every rule.
        Action::default().plan()
    }

    /// Returns the effective configuration as TOML text; parsing the text gives the same values.
    ///
    /// # Errors
    /// Text, if a value has no TOML form; perilog's types all have a TOML form.
    pub fn print(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }
}

impl Enroll {
    pub fn is_on(&self) -> bool {
        !self.controller.is_empty()
    }

    /// Returns the path of the program that makes a munge credential; `None` if munge is not enabled.
    pub fn munge(&self) -> Option<PathBuf> {
        self.munge.then(|| PathBuf::from(&self.munge_program.0))
    }
}

impl Tls {
    /// Returns the paths of the certificate files, as [`perilog_host::tls`] takes them.
    pub fn files(&self) -> TlsFiles {
        let path = |path: &AbsolutePath| PathBuf::from(&path.0);
        TlsFiles { ca: path(&self.ca), cert: path(&self.cert), key: path(&self.key), crl: self.crl.as_ref().map(path) }
    }
}

#[cfg(test)]
mod tests;
