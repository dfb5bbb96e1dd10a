//! `/etc/perilog/controller.toml` and the drop-ins of `controller.d/`: every key with its default.
//! `controller.toml.example` documents the keys; a test compares the two.
//!
//! A value validates itself, so that an error points at its line. The result of [`Config::read`] needs no further
//! check.

mod check;
mod failover;
mod values;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use perilog_core::controller::Settings;
use perilog_core::controller::io::ReleasePolicy;
use perilog_core::{ActionName, ClusterId, Span};
use perilog_host::authority::{self, CA_CERT, CRL, ISSUED};
use perilog_host::clock;
use perilog_host::config::{AbsolutePath, ConfigError, Loaded, LogLevel, MainFile};
use perilog_host::munge::UNMUNGE;
use perilog_host::tls::{Clients, ServerTls, TlsError, TlsFiles};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::enroll::Munged;
use crate::hooks;

pub use check::warnings;
pub use failover::{Failover, FailoverError};
pub use values::{Argv, ClusterName, Hosts, Limit, Read};

/// The configuration file, unless `--config` names another.
pub const FILE: &str = "/etc/perilog/controller.toml";

/// Time in milliseconds that an older session of a host has to answer a liveness probe, when another session claims the
/// host.
const PROBE_MS: u64 = 5_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "Self")]
pub struct Config {
    /// The cluster's name. Every action's id depends on the name, so an operator must not change it while jobs run.
    pub cluster: ClusterName,
    #[serde(default = "defaults::listen")]
    pub listen: SocketAddr,
    #[serde(default = "defaults::store")]
    pub store: AbsolutePath,
    #[serde(default)]
    pub log: LogLevel,
    #[serde(default = "defaults::start_grace")]
    pub start_grace: Limit,
    #[serde(default = "defaults::unreachable_grace")]
    pub unreachable_grace: Limit,
    #[serde(default = "defaults::not_after")]
    pub not_after: Limit,
    #[serde(default = "defaults::retention")]
    pub retention: Limit,
    #[serde(default = "defaults::keep_attempts")]
    pub keep_attempts: usize,
    #[serde(default = "defaults::max_hosts")]
    pub max_hosts: usize,
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub api: Api,
    #[serde(default)]
    pub action: BTreeMap<ActionName, Action>,
    #[serde(default = "defaults::after")]
    pub after: Vec<ActionName>,
    #[serde(default = "defaults::keep_after")]
    pub keep_after: ActionName,
    #[serde(default)]
    pub tolerate_lost: bool,
    #[serde(default)]
    pub tolerate_timeout: bool,
    #[serde(default)]
    pub reboot_cleans: bool,
    #[serde(default)]
    pub release: Hook,
    #[serde(default)]
    pub drain: Hook,
    #[serde(default)]
    pub edge: Edge,
    #[serde(default)]
    pub metrics: Metrics,
    #[serde(default)]
    pub enroll: Enroll,
    #[serde(default)]
    pub failover: Failover,
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `remote` makes the derived function an inherent function.
        let config = Self::deserialize(deserializer)?;
        let authority = config.enroll.listen.map(|_| &*config.enroll.directory);
        config.failover.check_paths(&config.store, authority).map_err(de::Error::custom)?;
        Ok(config)
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// The HTTP listener: figures for Prometheus, and the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Metrics {
    /// Address of the server; without an address the controller runs no server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Whether the server also has the page, which shows names of jobs and nodes to every visitor of `listen`.
    pub page: bool,
}

/// The enrolment server, where nodes ask for a certificate, and later renew it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, remote = "Self")]
pub struct Enroll {
    /// Address of the enrolment server; without an address the controller enrols no node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Directory of the enrolment authority.
    pub directory: AbsolutePath,
    pub lifetime: Limit,
    /// Whether a munge credential can replace a token, for the hosts in `munge_hosts`.
    pub munge: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub munge_hosts: Option<Hosts>,
    pub unmunge_program: AbsolutePath,
}

impl<'de> Deserialize<'de> for Enroll {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `remote` makes the derived function an inherent function.
        let enroll = Self::deserialize(deserializer)?;
        if enroll.munge && enroll.munge_hosts.is_none() {
            return Err(de::Error::custom(
                "`munge` needs `munge-hosts`, the nodes that may enrol by it, such as \"n[0-3]\"",
            ));
        }
        Ok(enroll)
    }
}

impl Serialize for Enroll {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl Default for Enroll {
    fn default() -> Self {
        Self {
            listen: None,
            directory: AbsolutePath::fixed("/var/lib/perilog/enroll"),
            lifetime: Limit::from_secs(30 * 24 * 3600),
            munge: false,
            munge_hosts: None,
            unmunge_program: AbsolutePath::fixed(UNMUNGE),
        }
    }
}

impl Enroll {
    /// Returns the paths of the enrolment authority's certificate and revocation list; `None` if no authority exists.
    /// The authority's certificates count even after enrolment is switched off. The revocation list is mandatory,
    /// because every authority has one from the start. Without the list, the controller would accept revoked hosts.
    ///
    /// # Errors
    /// [`TlsError::Read`]: the authority's certificate cannot be examined.
    pub fn clients(&self) -> Result<Option<Clients>, TlsError> {
        let ca = self.directory.join(CA_CERT);
        match ca.metadata() {
            Ok(_) => Ok(Some(Clients { ca, crl: self.directory.join(CRL) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TlsError::Read { path: ca, source }),
        }
    }

    /// Returns the directory of the authority if the controller uses it: to enrol nodes, or to know those that have
    /// enrolled.
    pub(crate) fn authority(&self) -> Option<&Path> {
        let is_used = self.listen.is_some() || self.directory.join(CA_CERT).exists();
        is_used.then_some(&*self.directory)
    }

    /// Returns the serial numbers of expired certificates of revoked hosts. The revocation list does not name these
    /// certificates, but a session that began with one may still be open.
    fn run_out(&self, Clients { crl, .. }: &Clients) -> Result<HashSet<String>, TlsError> {
        let read = |path: &Path| std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source });
        let malformed =
            |why| TlsError::Read { path: crl.clone(), source: io::Error::new(io::ErrorKind::InvalidData, why) };
        let revoked = authority::revoked(&read(crl)?).map_err(malformed)?;
        if revoked.is_empty() {
            return Ok(HashSet::new());
        }
        let issued = match read(&self.directory.join(ISSUED)) {
            // The authority has issued no certificate yet.
            Err(TlsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        Ok(authority::run_out(&authority::known(&issued).issued, &revoked, clock::wall_ms()))
    }

    /// Returns the hosts that may enrol with a munge credential, and the `unmunge` program; `None` if munge is
    /// disabled, or no host is named.
    pub(crate) fn munged(&self) -> Option<Munged> {
        let hosts = self.munge_hosts.as_ref().filter(|_| self.munge)?;
        Some(Munged::new(self.unmunge_program.to_path_buf(), hosts.list()))
    }
}

/// Settings for the edge, the program such as perilog-flux that connects a resource manager to the local API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Edge {
    /// Group whose members may read the controller's state and call the API methods for edges, but no other methods.
    /// `None`: no such group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether the edge drains hosts in the resource manager. A drain is in force once the edge has confirmed it.
    pub drains: bool,
}

/// A hook: a program of the site that carries out releases or drains in the resource manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Hook {
    /// The program of the hook, with its arguments. `None`: the site has no such hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Argv>,
    pub timeout: Limit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Tls {
    /// Whether agents connect by TLS. `false` means plain text, for closed fabrics: the controller then cannot verify
    /// the identity of a peer.
    pub enabled: bool,
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Api {
    pub socket: AbsolutePath,
    /// Group whose members have the permissions of root; `None`: only root has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether users who are neither root, nor in `group`, nor in the group of edges may read the controller's state.
    pub read: Read,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Action {
    /// Limit of the action's tasks, for requests that name no limit; `None`: only the limit that each node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Limit>,
    /// When the action releases its finished ranks. `0`: each rank as soon as it has finished. Another finite duration:
    /// in batches, the first after this time. `None` or infinity: all ranks together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Span>,
    /// Longest time between two batches of ranks. Each batch waits twice as long as the batch before, up to this time.
    /// `None`: 64 times `release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_ceiling: Option<Limit>,
}

impl Action {
    fn policy(&self) -> Option<ReleasePolicy> {
        let first_ms = self.release?.as_millis()?;
        let ceiling_ms = self.release_ceiling.map_or(first_ms.saturating_mul(64), Limit::as_millis).max(first_ms);
        Some(if first_ms == 0 { ReleasePolicy::Each } else { ReleasePolicy::Batches { first_ms, ceiling_ms } })
    }
}

mod defaults {
    use std::net::{Ipv6Addr, SocketAddr};

    use perilog_core::ActionName;

    use super::{AbsolutePath, Limit};

    pub(super) fn listen() -> SocketAddr {
        (Ipv6Addr::UNSPECIFIED, 5115).into()
    }

    pub(super) fn store() -> AbsolutePath {
        AbsolutePath::fixed("/var/lib/perilog/controller.db")
    }

    pub(super) const fn start_grace() -> Limit {
        Limit::from_secs(60)
    }

    pub(super) const fn unreachable_grace() -> Limit {
        Limit::from_secs(5 * 60)
    }

    pub(super) const fn not_after() -> Limit {
        Limit::from_secs(10 * 60)
    }

    pub(super) const fn retention() -> Limit {
        Limit::from_secs(14 * 24 * 3600)
    }

    pub(super) fn after() -> Vec<ActionName> {
        vec![ActionName::new("epilog").expect("lower-case letters make an action's name")]
    }

    pub(super) fn keep_after() -> ActionName {
        ActionName::new("prolog").expect("lower-case letters make an action's name")
    }

    pub(super) const fn max_hosts() -> usize {
        65_536
    }

    pub(super) const fn keep_attempts() -> usize {
        50_000
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self { command: None, timeout: Limit::from_secs(60) }
    }
}

impl Hook {
    /// Returns the hook's command with its limit; `None` if no command is configured.
    pub(crate) fn command(&self) -> Option<hooks::Command> {
        let limit = std::time::Duration::from_millis(self.timeout.as_millis());
        self.command.as_ref().map(|argv| hooks::Command { argv: argv.words().to_vec(), limit })
    }
}

impl Default for Tls {
    fn default() -> Self {
        let file = |name: &str| Path::new("/etc/perilog/tls").join(name);
        Self { enabled: true, ca: file("ca.pem"), cert: file("cert.pem"), key: file("key.pem"), crl: None }
    }
}

impl Default for Api {
    fn default() -> Self {
        Self { socket: AbsolutePath::fixed("/run/perilog/controller.sock"), group: None, read: Read::Group }
    }
}

impl Tls {
    /// Returns the paths of the TLS files: authority, certificate, key and revocation list. `None` if TLS is switched
    /// off.
    pub fn files(&self) -> Option<TlsFiles> {
        let files =
            || TlsFiles { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone(), crl: self.crl.clone() };
        self.enabled.then(files)
    }
}

impl Config {
    /// Reads `file` and the drop-ins of the directory with the same name: `controller.toml`, `controller.d/*.toml`.
    ///
    /// # Errors
    /// [`ConfigError`]: all problems, with lines.
    pub fn read(file: &Path) -> Result<Loaded<Self>, ConfigError> {
        perilog_host::config::load(file, MainFile::Required, Some(&file.with_extension("d")))
    }

    /// Returns the whole configuration as the text of a usable file, with defaults filled in.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts, numbers and tables are always TOML")
    }

    /// Returns the TLS settings of the agents' port; `None` if TLS is off.
    ///
    /// # Errors
    /// A file is unreadable or invalid.
    pub fn server_tls(&self) -> Result<Option<ServerTls>, TlsError> {
        let Some(files) = self.tls.files() else { return Ok(None) };
        let clients = self.enroll.clients()?;
        let tls = ServerTls::load_with(&files, clients.as_ref())?;
        let run_out = clients.map(|clients| self.enroll.run_out(&clients)).transpose()?;
        Ok(Some(tls.and_revoked(run_out.unwrap_or_default())))
    }

    /// Returns the TLS settings of the enrolment server; `None` if enrolment or TLS is off, or no authority exists.
    ///
    /// # Errors
    /// The errors of [`Self::server_tls`].
    pub fn enroll_tls(&self) -> Result<Option<ServerTls>, TlsError> {
        match (self.tls.files(), self.enroll.listen, self.enroll.clients()?) {
            (Some(files), Some(_), Some(clients)) => ServerTls::load_open(&files, &clients).map(Some),
            _ => Ok(None),
        }
    }

    /// Converts the configuration to the settings by which the controller's machine decides.
    pub fn settings(&self) -> Settings {
        let timeouts =
            self.action.iter().filter_map(|(name, action)| Some((name.clone(), action.timeout?.as_millis())));
        Settings {
            cluster: ClusterId::from_name(self.cluster.as_str()),
            start_grace_ms: self.start_grace.as_millis(),
            unreachable_grace_ms: self.unreachable_grace.as_millis(),
            not_after_ms: self.not_after.as_millis(),
            probe_ms: PROBE_MS,
            redial_per_second: if self.tls.enabled { 2_000 } else { 5_000 },
            timeouts: timeouts.collect(),
            retention_ms: self.retention.as_millis(),
            keep_attempts: self.keep_attempts,
            after: self.after.clone(),
            keep_after: self.keep_after.clone(),
            release: self.action.iter().filter_map(|(name, action)| Some((name.clone(), action.policy()?))).collect(),
            tolerate_lost: self.tolerate_lost,
            tolerate_timeout: self.tolerate_timeout,
            reboot_cleans: self.reboot_cleans,
            drain_hook: self.drain.command.is_some() || self.edge.drains,
            release_hook: self.release.command.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
