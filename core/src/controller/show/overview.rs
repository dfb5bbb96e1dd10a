//! Overview of the cluster, for the web page. The page asks every few seconds, so most lists group equal entries and
//! have a bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::controller::action::verdict::{blamed, last_line};
use crate::controller::facts::Facts;
use crate::controller::interface::io::Refusal;
use crate::controller::interface::overview::{
    DrainGroup, Fault, MAX_HOSTS, MAX_NODES, MAX_ROWS, MAX_TEXT, MAX_VERDICTS, NodeGroup, OpenRow, Overview,
    OverviewReply, OverviewRequest, VerdictRow,
};
use crate::controller::interface::view::{PsRow, WhyView};
use crate::controller::state::Action;
use crate::controller::state::Node;
use crate::hostlist::{HostList, by_number};
use crate::ids::ActionName;
use crate::idset::IdSet;
use crate::message::Phase;
use crate::output;

/// Maximum number of failed ranks of an action that are grouped into faults, in rank order. Further failed ranks count
/// in the number of bad ranks, but belong to no fault.
const COMPARED: usize = 512;

/// Activity of a node. Nodes with equal activity share a group of the overview, and the groups are sorted as the values
/// of this type are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Doing<'a> {
    state: &'static str,
    after: bool,
    action: Option<&'a ActionName>,
    stuck: bool,
    drained: bool,
    held: bool,
}

impl Facts<'_> {
    pub(crate) fn overview_reply(&self, request: &OverviewRequest) -> Result<OverviewReply, Refusal> {
        match request {
            OverviewRequest::Cluster => Ok(OverviewReply::Cluster(Box::new(self.overview()))),
            OverviewRequest::Job(job) => self.timeline(job).map(|line| OverviewReply::Job(Box::new(line))),
            OverviewRequest::Node(host) => self.why(host).map(|mut view| {
                bound(&mut view);
                OverviewReply::Node(Box::new(view))
            }),
        }
    }

    fn overview(&self) -> Overview {
        let (groups, nodes_left_out) = self.groups();
        let (drains, drains_left_out) = self.drain_groups();
        let mut rows = self.ps(0, false);
        // The sort is stable, and the rows are in order of age already.
        rows.sort_by_key(|row| !is_stuck(&row.state));
        let open_left_out = rows.len().saturating_sub(MAX_ROWS) as u64;
        let open = rows.into_iter().take(MAX_ROWS).map(open_row).collect();
        Overview {
            status: self.status(),
            groups,
            nodes_left_out,
            drains,
            drains_left_out,
            open,
            open_left_out,
            verdicts: self.verdicts(),
        }
    }

    fn groups(&self) -> (Vec<NodeGroup>, u64) {
        let held = self.held_hosts();
        let mut by: BTreeMap<Doing<'_>, Vec<&str>> = BTreeMap::new();
        for node in self.nodes.values() {
            by.entry(self.doing(node, &held)).or_default().push(node.row.host.as_str());
        }
        let mut room = MAX_NODES;
        let groups = by.into_iter().map(|(doing, mut hosts)| {
            let count = hosts.len() as u64;
            hosts.sort_unstable_by(|a, b| by_number(a, b));
            hosts.truncate(room);
            room -= hosts.len();
            NodeGroup {
                state: doing.state.to_owned(),
                action: doing.action.cloned(),
                after: doing.after,
                stuck: doing.stuck,
                drained: doing.drained,
                held: doing.held,
                count,
                hosts: HostList::from_names(hosts).unwrap_or_default(),
            }
        });
        (groups.collect(), self.nodes.len().saturating_sub(MAX_NODES) as u64)
    }

    fn doing(&self, node: &Node, held: &BTreeSet<&str>) -> Doing<'_> {
        let drained = self.drains.get(&node.row.host).is_some_and(|drain| !drain.lifted);
        let is_held = held.contains(node.row.host.as_str());
        let action = self.first_open(node);
        let state = match node.session {
            None => "offline",
            Some(_) if drained => "drained",
            Some(_) if action.is_some() => "busy",
            Some(_) if is_held => "held",
            Some(_) => "free",
        };
        let is_late = |(phase, _): &(Phase, u64)| matches!(phase, Phase::Overdue { .. } | Phase::Lingering { .. });
        Doing {
            state,
            after: action.is_some_and(|action| self.is_after(action)),
            action: action.map(|action| &action.row.name),
            stuck: node.live.values().any(is_late),
            drained: drained && state != "drained",
            held: is_held && state != "held",
        }
    }

    /// Returns the open action whose rank state on the node is the furthest: `accepted` before `sent`, `sent` before
    /// `waiting`. Of two actions in the same state, returns the one that began first. `None`: no action is open there.
    fn first_open(&self, node: &Node) -> Option<&Action> {
        let open = self.open_on(node);
        open.max_by_key(|(action, state)| (*state, Reverse(action.row.began_ms))).map(|(action, _)| action)
    }

    pub(super) fn is_after(&self, action: &Action) -> bool {
        self.cx.settings.after.contains(&action.row.name)
    }

    fn drain_groups(&self) -> (Vec<DrainGroup>, u64) {
        let mut by: BTreeMap<&str, (Vec<&str>, u64)> = BTreeMap::new();
        for (host, drain) in self.drains.iter().filter(|(_, drain)| !drain.lifted) {
            let (hosts, since_ms) = by.entry(&drain.reason).or_insert((Vec::new(), drain.since_ms));
            hosts.push(host.as_str());
            *since_ms = drain.since_ms.min(*since_ms);
        }
        let left_out = by.len().saturating_sub(MAX_ROWS) as u64;
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|(_, (_, since_ms))| *since_ms);
        let groups = by.into_iter().take(MAX_ROWS).map(|(reason, (mut hosts, since_ms))| {
            hosts.sort_unstable_by(|a, b| by_number(a, b));
            let count = hosts.len() as u64;
            let hosts = HostList::from_names(hosts.into_iter().take(MAX_HOSTS)).unwrap_or_default();
            DrainGroup { reason: clip(reason), age_ms: self.cx.now.wall_ms.saturating_sub(since_ms), count, hosts }
        });
        (groups.collect(), left_out)
    }

    fn verdicts(&self) -> Vec<VerdictRow> {
        let newest = self.jobs.table.newest_verdicts().take(MAX_VERDICTS);
        newest.filter_map(|action| self.verdict_row(action.row.ended_ms?, action)).collect()
    }

    fn verdict_row(&self, ended_ms: u64, action: &Action) -> Option<VerdictRow> {
        let row = &action.row;
        let bad = action.bad();
        Some(VerdictRow {
            job: row.job.clone(),
            attempt: row.attempt,
            action: row.name.clone(),
            verdict: row.verdict?,
            age_ms: self.cx.now.wall_ms.saturating_sub(ended_ms),
            elapsed_ms: ended_ms.saturating_sub(row.began_ms),
            count: row.ranks.len(),
            bad: bad.len(),
            fault: self.faults(action).into_iter().next(),
        })
    }

    /// Returns the faults of an action: ranks that failed with the same result, script and last line share one. The
    /// fault of the most ranks comes first, named resources come last.
    pub(super) fn faults(&self, action: &Action) -> Vec<Fault> {
        let mut by: BTreeMap<(String, Option<String>, Option<String>), IdSet> = BTreeMap::new();
        let bad =
            action.ended.iter().filter(|(rank, row)| action.row.not_ok.contains(rank.0) && !row.ended.outcome.is_ok());
        for (rank, row) in bad.take(COMPARED) {
            let script = blamed(&row.ended).map(|step| clip(&step.script));
            let line = last_line(&row.ended).map(|line| output::end(&line, MAX_TEXT));
            by.entry((clip(&row.ended.outcome.to_string()), script, line)).or_default().insert(rank.0);
        }
        let layout = self.jobs.layout(action.row.id);
        let mut faults: Vec<Fault> = by
            .into_iter()
            .map(|((result, script, line), ranks)| {
                let hosts = layout.map(|layout| layout.hosts_of(&first(&ranks))).unwrap_or_default();
                Fault { result, script, line, count: ranks.len(), hosts }
            })
            .collect();
        faults.sort_by_key(|fault| Reverse(fault.count));
        let resources = action.row.external.iter().flat_map(|external| external.bad());
        faults.extend(resources.take(MAX_ROWS).map(|(name, ended)| Fault {
            result: clip(&format!("{name}: {}", ended.outcome)),
            script: None,
            line: last_line(ended).map(|line| output::end(&line, MAX_TEXT)),
            count: 0,
            hosts: HostList::new(),
        }));
        faults
    }
}

/// Returns `true` if work in this state ([`PsRow::state`]) may never end without an operator.
fn is_stuck(state: &str) -> bool {
    matches!(state, "overdue" | "lingering" | "resolving" | "draining" | "notifying" | "held")
}

pub(super) fn open_row(row: PsRow) -> OpenRow {
    let hosts = HostList::from_names(row.hosts.iter().take(MAX_HOSTS)).unwrap_or_default();
    OpenRow {
        stuck: is_stuck(&row.state),
        job: row.job,
        attempt: row.attempt,
        action: row.action,
        state: row.state,
        why: clip(&row.why),
        age_ms: row.age_ms,
        count: row.hosts.len() as u64,
        hosts,
        resources: row.resources.into_iter().take(MAX_HOSTS).collect(),
    }
}

/// Returns the first ranks of `ranks`, at most [`MAX_HOSTS`].
pub(super) fn first(ranks: &IdSet) -> IdSet {
    ranks.iter().take(MAX_HOSTS).collect()
}

fn clip(text: &str) -> String {
    output::beginning(text, MAX_TEXT)
}

/// Cuts the lists of tasks and holds in a node's view to [`MAX_ROWS`], and removes the output of scripts.
fn bound(view: &mut WhyView) {
    view.open.truncate(MAX_ROWS);
    view.failed.truncate(MAX_ROWS);
    view.held.truncate(MAX_ROWS);
    for ended in view.open.iter_mut().chain(&mut view.failed).filter_map(|task| task.ended.as_mut()) {
        ended.tails.clear();
        ended.forensics = None;
    }
}
