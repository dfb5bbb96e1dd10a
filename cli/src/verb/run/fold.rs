//! Folds equal results that arrive close together into one line.

use std::collections::BTreeMap;

use perilog_core::task::Check;
use perilog_core::{HostList, IdSet};

use crate::log::{Finish, Roster, result_line};

/// Ranks that ended with equal results.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    outcome: String,
    result: String,
    message: Option<String>,
    checks: Vec<Check>,
    pub(super) ranks: IdSet,
    hosts: BTreeMap<u32, String>,
    elapsed: Option<(u64, u64)>,
}

/// Results that are not printed yet: groups of ranks, in the order in which their first ranks arrived.
#[derive(Debug, Default)]
pub(super) struct Fold {
    groups: Vec<Group>,
}

impl Fold {
    pub(super) fn push(&mut self, finish: Finish, roster: &Roster) {
        let like = |group: &&mut Group| {
            group.outcome == finish.outcome
                && group.result == finish.result
                && group.message == finish.message
                && group.checks == finish.checks
        };
        let group = match self.groups.iter_mut().find(like) {
            Some(group) => group,
            None => {
                self.groups.push(Group {
                    outcome: finish.outcome,
                    result: finish.result,
                    message: finish.message,
                    checks: finish.checks,
                    ..Group::default()
                });
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            }
        };
        group.ranks.extend_with(&finish.ranks);
        let hosts = finish.hosts.unwrap_or_default();
        if hosts.len() as u64 == finish.ranks.len() {
            group.hosts.extend(finish.ranks.iter().zip(hosts.iter().map(str::to_owned)));
        } else {
            group.hosts.extend(roster.of(&finish.ranks).map(|(rank, host)| (rank, host.to_owned())));
        }
        if let Some(elapsed) = finish.elapsed_ms {
            let (min, max) = group.elapsed.unwrap_or((elapsed.min, elapsed.max));
            group.elapsed = Some((min.min(elapsed.min), max.max(elapsed.max)));
        }
    }

    pub(super) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.groups)
    }
}

impl Group {
    /// Returns the line of the group, such as `n[0-2]: ok  800ms-1.2s`.
    pub(super) fn line(&self) -> String {
        let hosts = HostList::from_names(self.hosts.values()).map(|hosts| hosts.to_string());
        let at = hosts.ok().filter(|hosts| !hosts.is_empty()).unwrap_or_else(|| crate::text::ranks(&self.ranks));
        format!(
            "{at}: {}",
            result_line(&self.outcome, &self.result, self.message.as_deref(), &self.checks, self.elapsed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Spread;

    fn finish(
        ranks: &str,
        hosts: Option<&str>,
        result: &str,
        message: Option<&str>,
        elapsed: Option<(u64, u64)>,
    ) -> Finish {
        Finish {
            ranks: ranks.parse().unwrap(),
            hosts: hosts.map(|h| h.parse().unwrap()),
            outcome: result.split(' ').next().unwrap().to_owned(),
            result: result.to_owned(),
            elapsed_ms: elapsed.map(|(min, max)| Spread { min, max }),
            message: message.map(str::to_owned),
            checks: Vec::new(),
        }
    }

    #[test]
    fn equal_results_are_one_line_whatever_their_order() {
        let roster = Roster { ranks: "0-3".parse().unwrap(), hosts: "n[0-3]".parse().unwrap() };
        let mut fold = Fold::default();
        for finish in [
            finish("2", Some("n2"), "ok", None, Some((1200, 1200))),
            finish("3", Some("n3"), "failed (exit 7)", Some("mount: no such device"), None),
            finish("0-1", None, "ok", None, Some((800, 900))),
        ] {
            fold.push(finish, &roster);
        }
        let lines: Vec<String> =
            fold.take().iter().map(Group::line).map(|l| anstream::adapter::strip_str(&l).to_string()).collect();
        assert_eq!(lines, ["n[0-2]: ok  800ms-1.2s", "n3: failed (exit 7): \"mount: no such device\""]);
        assert!(fold.take().is_empty());
    }

    #[test]
    fn ranks_without_hosts_are_named_as_ranks() {
        let mut fold = Fold::default();
        fold.push(finish("4-5", None, "ok", None, None), &Roster::default());
        assert_eq!(anstream::adapter::strip_str(&fold.take()[0].line()).to_string(), "ranks 4-5: ok");
    }
}
