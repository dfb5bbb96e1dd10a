//! `max-hosts`: the most hosts that one list of a request may name. The API counts the hosts before it expands a list,
//! because twelve characters can name a million hosts, and a job of a million hosts stalls the controller.

use perilog_core::controller::io::Refusal;
use perilog_core::{HostList, Targets};
use serde_json::Value;

use super::invalid;

#[derive(Debug, Clone, Copy)]
pub(crate) struct MaxHosts(pub(crate) usize);

impl MaxHosts {
    /// Checks the hosts that these texts name together. A malformed text counts as no host: its parser refuses it.
    pub(super) fn check<'a>(self, lists: impl IntoIterator<Item = &'a str>) -> Result<(), Refusal> {
        let counts = lists.into_iter().map(|text| (text, HostList::count(text).unwrap_or(0)));
        let (first, count) = counts.fold(("", 0_u64), |(first, sum), (text, count)| {
            (if first.is_empty() { text } else { first }, sum.saturating_add(count))
        });
        if count <= self.0 as u64 {
            return Ok(());
        }
        let first: String = first.chars().take(64).collect();
        let most = self.0;
        Err(invalid(format_args!("{first}: {count} hosts, at most {most} are taken: max-hosts in controller.toml")))
    }

    /// Checks targets, unless they are ranks.
    pub(super) fn check_targets(self, targets: Option<&str>) -> Result<(), Refusal> {
        self.check(targets.filter(|text| !Targets::are_ranks(text)))
    }

    /// Checks the hosts of an R (RFC 20).
    pub(super) fn check_r(self, r: &Value) -> Result<(), Refusal> {
        self.check(r["execution"]["nodelist"].as_array().into_iter().flatten().filter_map(Value::as_str))
    }
}
