//! Scripts that go on although their tasks are over: the job forgave a script past its limit and went on without it, or
//! an operator resolved its task. No job waits for such a script, but it runs, and keeps its node busy.

use std::collections::BTreeMap;

use crate::controller::facts::Facts;
use crate::controller::interface::view::PsRow;
use crate::controller::show::job::describe;
use crate::controller::state::Node;
use crate::controller::state::{Action, RankState};
use crate::defect;
use crate::ids::{ActionId, Rank, TaskId};
use crate::idset::IdSet;

/// A script that goes on although its task is over.
pub(super) struct Continuing {
    pub(super) task: TaskId,
    /// Description of the script for people: for example `10-mount is past its limit of 1m`.
    does: String,
    /// How its task ended, for people.
    pub(super) why: String,
    pub(super) age_ms: u64,
}

impl Facts<'_> {
    /// Returns the scripts on a node that go on although their tasks are over.
    pub(super) fn continues<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Continuing> + 'a {
        let live = node.live.iter().filter(|(task, (phase, _))| {
            if defect!(ContinuingUnseen) {
                return false;
            }
            !node.tasks.contains(task) && !phase.is_before_its_begin()
        });
        live.filter_map(|(task, (phase, since_ms))| {
            let action = self.jobs.action(task.action)?;
            let is_over = matches!(action.rank_state(task.rank), RankState::Ok | RankState::NotOk);
            let age_ms = self.cx.now.mono_ms.saturating_sub(*since_ms);
            let does = describe(phase).1;
            is_over.then(|| Continuing { task: *task, does, why: why(action, task.rank), age_ms })
        })
    }

    /// Returns the rows of `perilog ps` for scripts that go on although their tasks are over. Ranks of an action with
    /// the same reason share a row, with the age of the oldest.
    pub(super) fn continuing_rows(&self) -> Vec<PsRow> {
        let mut groups: BTreeMap<(ActionId, String), (IdSet, u64)> = BTreeMap::new();
        for Continuing { task, does, why, age_ms } in self.nodes.values().flat_map(|node| self.continues(node)) {
            let (ranks, oldest) = groups.entry((task.action, format!("{does}: {why}"))).or_default();
            ranks.insert(task.rank.0);
            *oldest = (*oldest).max(age_ms);
        }
        let row = |((id, why), (ranks, age_ms)): ((ActionId, String), (IdSet, u64))| {
            let (action, layout) = (&self.jobs.action(id)?.row, self.jobs.layout(id)?);
            let hosts = layout.hosts_of(&ranks);
            let (job, name) = (Some(action.job.clone()), action.name.clone());
            Some(PsRow { hosts, ranks, ..PsRow::new(job, action.attempt, name, "running", why, age_ms) })
        };
        groups.into_iter().filter_map(row).collect()
    }
}

fn why(action: &Action, rank: Rank) -> String {
    let ended = action.ended.get(&rank).map(|row| row.ended.outcome.to_string()).unwrap_or_default();
    format!("it still runs, although its task has ended: {ended}")
}
