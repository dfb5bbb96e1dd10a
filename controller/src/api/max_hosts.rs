//! `max-hosts`: the most hosts that one list of a request may name. The API counts the hosts before it expands a list,
//! because twelve characters can name a million hosts, and a job of a million hosts stalls the controller.

use perilog_core::controller::io::Refusal;
use perilog_core::{HostList, Targets};
use perilog_host::varlink::Call;
use serde::Deserialize;

use super::invalid;
use super::request::Wrong;

#[derive(Debug, Clone, Copy)]
pub(crate) struct MaxHosts(pub(crate) usize);

impl MaxHosts {
    /// Checks the total number of hosts that these texts name. A malformed text counts as no host: its parser refuses
    /// it.
    pub(super) fn check<'a>(self, lists: impl IntoIterator<Item = &'a str>) -> Result<(), Refusal> {
        let mut lists = lists.into_iter().peekable();
        let first: String = lists.peek().into_iter().flat_map(|text| text.chars()).take(64).collect();
        let counts = lists.map(|text| HostList::count(text).unwrap_or(0));
        let (parts, count) = counts.fold((0, 0_u64), |(parts, sum), count| (parts + 1, sum.saturating_add(count)));
        if count <= self.0 as u64 {
            return Ok(());
        }
        let what = if parts == 1 { first } else { format!("the list that begins with {first}") };
        let most = self.0;
        Err(invalid(format_args!("{what} has {count} hosts, and the limit is {most} (max-hosts in controller.toml)")))
    }

    /// Checks the number of hosts in targets; targets that are ranks always pass.
    pub(super) fn check_targets(self, targets: Option<&str>) -> Result<(), Refusal> {
        self.check(targets.filter(|text| !Targets::are_ranks(text)))
    }

    /// Checks the number of hosts in each list of a call.
    pub(super) fn check_call(self, call: &Call) -> Result<(), Wrong> {
        let Lists { nodes, targets, r } = call.parameters()?;
        self.check(nodes.as_deref())?;
        self.check_targets(targets.as_deref())?;
        Ok(self.check(r.iter().flat_map(|r| &r.execution.nodelist).map(String::as_str))?)
    }
}

/// The parameters in which a call may have a list of hosts; a method has some of them or none. `Sync` checks the lists
/// of its attempts itself.
#[derive(Deserialize)]
struct Lists {
    nodes: Option<String>,
    targets: Option<String>,
    #[serde(rename = "R")]
    r: Option<R>,
}

/// The hosts of an R (RFC 20).
#[derive(Deserialize)]
struct R {
    #[serde(default)]
    execution: Execution,
}

#[derive(Default, Deserialize)]
struct Execution {
    #[serde(default)]
    nodelist: Vec<String>,
}
