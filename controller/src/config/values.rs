//! Types of the configuration's values. Each type accepts only valid values.

use std::path::Path;

use perilog_core::{HostList, HostName, JobId, Span};
use serde::{Deserialize, Serialize};

/// A finite duration in milliseconds, above zero (RFC 23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Span", into = "Span")]
pub struct Limit(u64);

impl Limit {
    pub(super) const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl TryFrom<Span> for Limit {
    type Error = &'static str;

    fn try_from(span: Span) -> Result<Self, Self::Error> {
        match span.as_millis() {
            None => Err("expected a finite duration"),
            Some(0) => Err("expected a duration above zero"),
            Some(millis) => Ok(Self(millis)),
        }
    }
}

impl From<Limit> for Span {
    fn from(limit: Limit) -> Self {
        Self::from_millis(limit.0)
    }
}

/// The name of a cluster: 1-64 of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

impl ClusterName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClusterName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // The same alphabet as a job's id.
        JobId::new(&name)
            .map_err(|e| format!("malformed cluster name at character {}: expected {}", e.column(), e.expected))?;
        Ok(Self(name))
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

/// A hostlist with at least one host, and without names that a resolver would read as an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "HostList", into = "HostList")]
pub struct Hosts(HostList);

impl Hosts {
    pub fn list(&self) -> &HostList {
        &self.0
    }
}

impl TryFrom<HostList> for Hosts {
    type Error = String;

    fn try_from(hosts: HostList) -> Result<Self, String> {
        if hosts.is_empty() {
            return Err("expected at least one host".to_owned());
        }
        let wrong = hosts.iter().find_map(|host| HostName::new(host).err().map(|error| error.to_string()));
        let number = || {
            let number = hosts.iter().find(|host| is_number(host))?;
            Some(format!("a resolver takes {number} for an IP address, so it cannot be the name of a host"))
        };
        wrong.or_else(number).map_or(Ok(Self(hosts)), Err)
    }
}

/// Returns `true` if a resolver may read the name as an address, as with `10.0.0.3`, `167772163` and `0xa000003`. Such
/// a name does not show which host has the address.
fn is_number(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit())
}

impl From<Hosts> for HostList {
    fn from(hosts: Hosts) -> Self {
        hosts.0
    }
}

/// A program by its absolute path, and the program's arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Argv(Vec<String>);

impl Argv {
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl TryFrom<Vec<String>> for Argv {
    type Error = &'static str;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        match words.first() {
            Some(program) if Path::new(program).is_absolute() => Ok(Self(words)),
            _ => Err("expected the absolute path of a program, then its arguments"),
        }
    }
}

impl From<Argv> for Vec<String> {
    fn from(argv: Argv) -> Self {
        argv.0
    }
}

/// Users, beside root and the groups of `[api]` and `[edge]`, who may read jobs, nodes and events. Output of scripts
/// stays hidden from them, except for the last line in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Read {
    /// No other users: only root and members of these groups may read.
    Group,
    Anyone,
}
