//! Spelling: two spellings of a host's name that differ only in case or in a final dot name one host (RFC 4343,
//! RFC 1034 section 3.1). The first spelling that the controller knows is the host's name. Another one is refused, with
//! the name that was meant: as a node of its own it would have none of the host's jobs and drains.

use std::collections::BTreeMap;

use crate::ids::HostName;

/// The known hosts by their names in small letters and without final dots.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spellings(pub(crate) BTreeMap<String, HostName>);

pub(crate) fn folded(host: &str) -> String {
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
