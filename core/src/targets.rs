//! Targets: ranks of a job that an operator or a program names, as an idset or as a hostlist.
//!
//! A text of only digits, `,`, `-`, `[` and `]` is an idset; any other text is a hostlist. (A host whose name is a bare
//! number has to be named by rank.)

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::{HostList, IdSet, ParseError};

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Targets {
    Ranks(IdSet),
    Hosts(HostList),
}

/// The error for a target that the job does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTarget {
    #[error("no rank {rank}: there are {hosts} ranks, counted from 0")]
    Rank { rank: u32, hosts: usize },
    #[error("no host {host:?} among {hosts} hosts")]
    Host { host: String, hosts: usize },
}

impl Targets {
    /// Returns `true` if the text can only be an idset, well formed or not. Any other text is read as a hostlist.
    pub fn are_ranks(text: &str) -> bool {
        text.bytes().all(|b| b.is_ascii_digit() || b",-[]".contains(&b))
    }

    /// Returns the ranks of the job that the targets name. `hosts`: the hosts of ranks 0, 1, 2 and so on. If several
    /// ranks have the same host, the name of that host means all of them.
    ///
    /// # Errors
    ///
    /// [`UnknownTarget`]: the first rank or host that is not in `hosts`.
    pub fn resolve(&self, hosts: &HostList) -> Result<IdSet, UnknownTarget> {
        match self {
            Self::Ranks(ranks) => check_ranks(ranks, hosts.len()).map(|()| ranks.clone()),
            Self::Hosts(names) => ranks_of(names, hosts),
        }
    }
}

fn check_ranks(ranks: &IdSet, hosts: usize) -> Result<(), UnknownTarget> {
    // No rank exceeds u32::MAX, so a longer list has every rank.
    let Ok(end) = u32::try_from(hosts) else { return Ok(()) };
    match ranks.ranges().find(|&(_, hi)| hi >= end) {
        Some((lo, _)) => Err(UnknownTarget::Rank { rank: lo.max(end), hosts }),
        None => Ok(()),
    }
}

/// Returns the ranks of the hosts `names`; `hosts`: the hosts of ranks 0, 1, 2 and so on. Walks each list at most
/// twice.
///
/// # Errors
///
/// [`UnknownTarget`]: the first of the `names` that is not in `hosts`.
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
        if Self::are_ranks(text) { text.parse().map(Self::Ranks) } else { text.parse().map(Self::Hosts) }
    }
}

/// Writes the canonical form. The form parses back as the same targets, except hosts whose names are bare numbers.
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
        let text = self.to_string();
        // Hosts whose names are bare numbers come from code, not from a text. The receiver would take their text for
        // ranks.
        if matches!(self, Self::Hosts(hosts) if !hosts.is_empty()) && Self::are_ranks(&text) {
            return Err(ser::Error::custom(format!("hosts {text} cannot be distinguished from ranks")));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn targets(text: &str) -> Targets {
        text.parse().unwrap()
    }

    #[test]
    fn digits_and_marks_are_an_idset_and_other_text_a_hostlist() {
        #[rustfmt::skip]
        let table = [
            ("", "Ranks()"), ("3", "Ranks(3)"), ("[0-2,7]", "Ranks(0-2,7)"), ("1,2", "Ranks(1-2)"),
            ("n[0-2]", "Hosts(n[0-2])"), ("login1", "Hosts(login1)"), ("n0,3", "Hosts(n0,3)"), ("all", "Hosts(all)"),
        ];
        for (text, expect) in table {
            assert_eq!(format!("{:?}", targets(text)), expect, "{text:?}");
        }
        #[rustfmt::skip]
        let refused = [("3-1", "idset", 2), ("[00-02]", "idset", 1), ("n[3-1]", "hostlist", 4), ("0 1", "hostlist", 1),
                       ("1-2x[", "hostlist", 5)];
        for (text, what, at) in refused {
            let error = text.parse::<Targets>().unwrap_err();
            assert_eq!((error.what, error.at), (what, at), "{text:?}");
        }
    }

    #[test]
    fn targets_resolve_to_positions_or_name_the_first_unknown() {
        let hosts: HostList = "n[0-3],login,n1".parse().unwrap();
        let rank = |rank| Err(UnknownTarget::Rank { rank, hosts: 6 });
        let host = |host: &str| Err(UnknownTarget::Host { host: host.to_owned(), hosts: 6 });
        #[rustfmt::skip]
        let table = [
            ("", Ok("")), ("0-5", Ok("0-5")), ("4", Ok("4")), ("6", rank(6)), ("1,5-8", rank(6)), ("9,12", rank(9)),
            ("0-4294967295", rank(6)),
            ("login,n3", Ok("3-4")), ("n1", Ok("1,5")), ("n1,n1", Ok("1,5")), ("n[2-4,9]", host("n4")),
            ("N0", host("N0")),
        ];
        for (text, expect) in table {
            assert_eq!(
                targets(text).resolve(&hosts).map(|ranks| ranks.to_string()),
                expect.map(str::to_owned),
                "{text:?}"
            );
        }
        assert_eq!(targets("n9").resolve(&hosts).unwrap_err().to_string(), "no host \"n9\" among 6 hosts");
        assert_eq!(
            targets("6").resolve(&hosts).unwrap_err().to_string(),
            "no rank 6: there are 6 ranks, counted from 0"
        );
    }

    #[test]
    fn hosts_that_read_back_as_ranks_are_not_sent() {
        assert_eq!(serde_json::to_string(&targets("n[0-1]")).unwrap(), "\"n[0-1]\"");
        assert_eq!(serde_json::from_str::<Targets>("\"0-1\"").unwrap(), targets("[0,1]"));
        let numbers = Targets::Hosts(HostList::from_names(["0", "1"]).unwrap());
        assert!(serde_json::to_string(&numbers).is_err());
    }

    #[test]
    fn a_million_names_are_found_in_one_walk() {
        let hosts: HostList = "n[0-1048575]".parse().unwrap();
        let ranks = Targets::Hosts(hosts.clone()).resolve(&hosts).unwrap();
        assert_eq!(ranks, IdSet::from(0..=1_048_575));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}|[n0-9,\\[\\]-]{0,16}") {
            if let Ok(targets) = text.parse::<Targets>() {
                prop_assert_eq!(targets.to_string().parse::<Targets>().unwrap(), targets);
            }
        }
    }
}
