//! "Which ranks": as an idset or as a hostlist, wherever an operator or a program names some.
//!
//! A text of nothing but digits, `,`, `-`, `[` and `]` is an idset; anything else is a hostlist. (A host whose name is a bare number can
//! be named by its rank only.)

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{HostList, IdSet, ParseError};

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Targets {
    Ranks(IdSet),
    Hosts(HostList),
}

/// The first target that the hostlist it was looked up in does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTarget {
    #[error("no rank {rank}: there are {hosts} ranks, counted from 0")]
    Rank { rank: u32, hosts: usize },
    #[error("no host {host:?} among {hosts} hosts")]
    Host { host: String, hosts: usize },
}

impl Targets {
    /// The ranks that are meant where `hosts` are those of ranks 0, 1, 2...; a host that stands for several ranks means all of them.
    ///
    /// # Errors
    /// [`UnknownTarget`]: the first rank or host named here that is not in `hosts`.
    pub fn resolve(&self, hosts: &HostList) -> Result<IdSet, UnknownTarget> {
        match self {
            Self::Ranks(ranks) => check_ranks(ranks, hosts.len()).map(|()| ranks.clone()),
            Self::Hosts(names) => ranks_of(names, hosts),
        }
    }
}

fn check_ranks(ranks: &IdSet, hosts: usize) -> Result<(), UnknownTarget> {
    // No rank fits past u32::MAX, so a longer list knows every rank.
    let Ok(end) = u32::try_from(hosts) else { return Ok(()) };
    match ranks.ranges().find(|&(_, hi)| hi >= end) {
        Some((lo, _)) => Err(UnknownTarget::Rank { rank: lo.max(end), hosts }),
        None => Ok(()),
    }
}

/// One walk over each list, however many names are asked for.
fn ranks_of(names: &HostList, hosts: &HostList) -> Result<IdSet, UnknownTarget> {
    let mut found: HashMap<&str, bool> = names.iter().map(|name| (name, false)).collect();
    let mut ranks = IdSet::new();
    for (rank, host) in (0..=u32::MAX).zip(hosts.iter()) {
        if let Some(found) = found.get_mut(host) {
            *found = true;
            ranks.insert(rank);
        }
    }
    match names.iter().find(|name| found.get(name) == Some(&false)) {
        Some(host) => Err(UnknownTarget::Host { host: host.to_owned(), hosts: hosts.len() }),
        None => Ok(ranks),
    }
}

impl FromStr for Targets {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.bytes().all(|b| b.is_ascii_digit() || b",-[]".contains(&b)) {
            text.parse().map(Self::Ranks)
        } else {
            text.parse().map(Self::Hosts)
        }
    }
}

/// The text that was read, in its canonical form.
impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(ranks) => ranks.fmt(f),
            Self::Hosts(hosts) => hosts.fmt(f),
        }
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(ranks) => write!(f, "Ranks({ranks})"),
            Self::Hosts(hosts) => write!(f, "Hosts({hosts})"),
        }
    }
}

impl Serialize for Targets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
