//! Checks that an epilog really began on a rank after its last setup action, before the rank is released. The check
//! uses the runs themselves, so it also holds across lost and restored stores. It leaves out a run if the first
//! controller's store does not show that the controller sent the run's task.

use std::collections::BTreeMap;

use perilog_core::controller::Snapshot;
use perilog_core::controller::io::{ActionRow, AttemptRow};
use perilog_core::{Attempt, IdSet, JobId, Outcome, Rank, TaskId};

use super::Truth;
use super::attempts::prepares;
use super::runs::Run;
use crate::world::site;

const EPILOG: &str = "epilog";

#[derive(Debug, Default)]
pub(super) struct Cleaned {
    /// By attempt: the number of runs in the world when the attempt was last pruned. The nodes may forget these runs.
    pruned: BTreeMap<(JobId, Attempt), usize>,
}

impl Cleaned {
    pub(super) fn pruned(&mut self, job: &JobId, attempt: Attempt, runs: usize) {
        self.pruned.insert((job.clone(), attempt), runs);
    }
}

impl Truth {
    pub(crate) fn was_pruned(&self, of: &(JobId, Attempt)) -> bool {
        self.cleaned.pruned.contains_key(of)
    }

    /// Returns `true` if the attempt was pruned, and no run of the task on node `at` began later. The agent then got
    /// the order to forget the task, and does not report it again.
    pub(crate) fn ran_before_its_prune(&self, job: &JobId, attempt: Attempt, task: TaskId, at: usize) -> bool {
        let before = self.cleaned.pruned.get(&(job.clone(), attempt)).copied().unwrap_or_default();
        self.runs.iter().skip(before).all(|run| run.task != task || run.node != at) && before > 0
    }

    /// Checks released ranks: on each rank an epilog has begun after the rank's last setup action.
    pub(super) fn check_cleaned(&mut self, store: &Snapshot, row: &AttemptRow, releases: &IdSet) {
        let mine = |a: &&ActionRow| a.job == row.job && a.attempt == row.attempt;
        if row.open {
            // In the store, an epilog covers each released rank, even if no script ran there. A superseded attempt's
            // remaining hold is followed by no after-action.
            let mut left = releases.clone();
            let epilogs = store.actions.iter().filter(mine).filter(|a| a.name.as_str() == EPILOG);
            epilogs.for_each(|a| left.subtract(&a.ranks));
            if !left.is_empty() {
                let (job, attempt) = (&row.job, row.attempt);
                return self
                    .broken(|| format!("5 epilog: ranks {left} of {job} attempt {attempt} were released without one"));
            }
        }
        let on_hosts = row.ranks.iter().zip(row.hosts.iter()).filter(|(rank, _)| releases.contains(*rank));
        let without_caller =
            on_hosts.filter_map(|(rank, host)| Some((self.uncleaned(store, row, Rank(rank), host)?, rank, host)));
        let without_caller = without_caller.map(|(run, rank, host)| {
            let (stem, job, attempt) = (&run.stem, &row.job, row.attempt);
            format!(
                "5 cleaned: {stem} ran on {host}, and no epilog began there after it: rank {rank} of {job} attempt \
                 {attempt} is released"
            )
        });
        if let Some(text) = without_caller.into_iter().next() {
            self.broken(|| text);
        }
    }

    /// Returns a run of a setup action on this rank that no epilog followed, if the controller could know of the run.
    /// `None`: there is none, or a drain or an operator makes the clean-up unnecessary.
    fn uncleaned(&self, store: &Snapshot, row: &AttemptRow, rank: Rank, host: &str) -> Option<&Run> {
        let key = (row.job.clone(), row.attempt);
        let pruned = self.cleaned.pruned.get(&key).copied().unwrap_or_default();
        let here = |run: &Run| {
            let mine = !run.local && run.job == row.job && run.step.0 == row.attempt && run.task.rank == rank;
            mine && self.is_one(run.node) && site::host(run.node).as_str() == host
        };
        let runs = || self.runs.iter().enumerate().filter(|(_, run)| here(run));
        let cleaned = runs().filter(|(_, run)| run.step.1.as_str() == EPILOG).map(|(at, _)| at).next_back();
        let since = cleaned.map_or(pruned, |at| pruned.max(at));
        let dirty =
            |run: &Run| run.begun && !self.is_undone(run) && prepares(run.step.1.as_str()) && self.is_known(store, run);
        let (at, run) = runs().skip_while(|(at, _)| *at < since).find(|(_, run)| dirty(run))?;
        (!self.is_settled(store, row, rank, run.node, at)).then_some(run)
    }

    /// Returns `true` if a reboot of the node undid the run's work: always for a prolog, and for another action only if
    /// the settings say so (`reboot-cleans`).
    fn is_undone(&self, run: &Run) -> bool {
        run.rebooted && (run.step.1.as_str() == "prolog" || self.releases.boots_clean)
    }

    /// Returns `true` if the first controller's store shows that the controller sent this run's task.
    fn is_known(&self, store: &Snapshot, run: &Run) -> bool {
        let sent =
            |row: &ActionRow| row.id == run.task.action && row.boots.values().any(|of| of.contains(run.task.rank.0));
        store.actions.iter().any(sent)
    }

    /// Returns `true` if rank and host need no clean-up after the run with index `ran` on node `at`: the host is
    /// drained, or an operator has since undrained the host or resolved the attempt's epilog on the rank.
    fn is_settled(&self, store: &Snapshot, row: &AttemptRow, rank: Rank, at: usize, ran: usize) -> bool {
        let epilog = |a: &&ActionRow| a.job == row.job && a.attempt == row.attempt && a.name.as_str() == EPILOG;
        let by_operator = store.actions.iter().filter(epilog).any(|a| {
            let task = TaskId { action: a.id, rank };
            store.ranks.iter().any(|of| of.task == task && matches!(of.ended.outcome, Outcome::Resolved { .. }))
        });
        by_operator || self.is_answered_for(store, &site::host(at), ran)
    }
}
