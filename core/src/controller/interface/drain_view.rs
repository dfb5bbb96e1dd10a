//! View of drains: hosts with equal drains share a row.

use serde::{Deserialize, Serialize};

use crate::controller::interface::io::{Again, DrainRow, Passing};
use crate::hostlist::HostList;
use crate::ids::HostName;

/// Maximum size (bytes of JSON) of a page of a list; further rows come in the next page. A longer row has a page of its
/// own.
pub const PAGE_BYTES: usize = 60 * 1_024;

/// Hosts with equal drains, as `Drains` shows them: all members but the host are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    pub hosts: HostList,
    pub since_ms: u64,
    pub reason: String,
    pub by: Option<u32>,
    pub confirmed: bool,
    pub lifted: bool,
    #[serde(default)]
    pub notified: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    #[serde(default)]
    pub notice_id: u64,
    #[serde(default)]
    pub asked_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<Passing>,
}

impl DrainView {
    /// Creates the row of `hosts`, whose drains are all like `drain`.
    pub fn new(drain: &DrainRow, hosts: HostList) -> Self {
        let DrainRow { host: _, since_ms, reason, by, confirmed, lifted, notified, stuck, again, notice_id, .. } =
            drain;
        let DrainRow { asked_ms, doubtful, passing, .. } = drain;
        Self {
            hosts,
            since_ms: *since_ms,
            reason: reason.clone(),
            by: *by,
            confirmed: *confirmed,
            lifted: *lifted,
            notified: *notified,
            stuck: *stuck,
            again: again.clone(),
            notice_id: *notice_id,
            asked_ms: *asked_ms,
            doubtful: *doubtful,
            passing: passing.clone(),
        }
    }

    /// Returns the drain of each of the hosts. Leaves out what is no name of a host.
    pub fn rows(self) -> impl Iterator<Item = DrainRow> {
        let Self { hosts, since_ms, reason, by, confirmed, lifted, notified, stuck, again, notice_id, .. } = self;
        let Self { asked_ms, doubtful, passing, .. } = self;
        let names: Vec<HostName> = hosts.iter().filter_map(|host| HostName::new(host).ok()).collect();
        names.into_iter().map(move |host| DrainRow {
            host,
            since_ms,
            reason: reason.clone(),
            by,
            confirmed,
            lifted,
            notified,
            stuck,
            again: again.clone(),
            notice_id,
            asked_ms,
            doubtful,
            passing: passing.clone(),
        })
    }
}
