//! Spelling: two spellings of a host's name that differ only in case or in a final dot name one host (RFC 4343,
//! RFC 1034 section 3.1). The first spelling that the controller knows is the host's name. Another one is refused, with
//! the name that was meant: as a node of its own it would have none of the host's jobs and drains.

use std::collections::BTreeMap;

use crate::controller::io::Refusal;
use crate::controller::node::Nodes;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::HostName;
use crate::nearest::nearest;

/// The known hosts by their names in small letters and without final dots.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spellings(BTreeMap<String, HostName>);

fn folded(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

impl Spellings {
    /// Records the name of a host, unless another spelling of it is recorded.
    pub(crate) fn learn(&mut self, host: &HostName) {
        self.0.entry(folded(host.as_str())).or_insert_with(|| host.clone());
    }

    pub(crate) fn forget(&mut self, host: &HostName) {
        let name = folded(host.as_str());
        if self.0.get(&name) == Some(host) {
            self.0.remove(&name);
        }
    }
}

impl Nodes {
    /// Returns the known host of which `host` is another spelling. `None`: the host is known as `host`, or not at all.
    pub(crate) fn other_spelling(&self, host: &str) -> Option<&HostName> {
        if defect!(CaseIgnored) {
            return None;
        }
        let known = self.spellings.0.get(&folded(host)).filter(|known| known.as_str() != host)?;
        (!self.contains_key(host)).then_some(known)
    }

    /// Checks that no host in the list is another spelling of a known host.
    ///
    /// # Errors
    /// `Invalid`: the first such host, with its name.
    pub(crate) fn check_spelling(&self, hosts: &HostList) -> Result<(), Refusal> {
        let other = hosts.iter().find_map(|host| Some((host, self.other_spelling(host)?)));
        match other {
            Some((host, known)) => Err(Refusal::Invalid(format!("host {host}: the node is {known}, not {host}"))),
            None => Ok(()),
        }
    }

    /// Returns the known host that an operator most likely meant by an unknown one: another spelling, the same host
    /// with or without its domain, or a name that differs by a slip of the fingers.
    pub(crate) fn meant(&self, host: &str) -> Option<&str> {
        let name = folded(host);
        let short = name.split_once('.').and_then(|(short, _)| self.spellings.0.get(short));
        let domain = format!("{name}.");
        let long = self.spellings.0.range(domain.clone()..).next().filter(|(known, _)| known.starts_with(&domain));
        let known = self.other_spelling(host).or(short).or(long.map(|(_, known)| known)).map(HostName::as_str);
        // A host that differs in its digits only is another host, and no slip of the fingers.
        let slips = || self.keys().map(HostName::as_str).filter(|known| !letters(known).eq(letters(host)));
        known.or_else(|| nearest(host, slips()))
    }

    /// Returns the question `; did you mean HOST?` for an unknown host; empty if no known host is like it.
    pub(crate) fn did_you_mean(&self, host: &str) -> String {
        self.meant(host).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
    }
}

/// Returns a host's name without its digits.
fn letters(host: &str) -> impl Iterator<Item = char> {
    host.chars().filter(|letter| !letter.is_ascii_digit())
}
