//! Checks the contents of a controller's store at each commit. Each outcome is true when the controller commits it, and
//! does not change afterwards. Exception: before the verdict, a reboot may turn a prolog's success into `lost`.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{ActionRow, AttemptRow};
use perilog_core::controller::{Record, Snapshot};
use perilog_core::task::Lingering;
use perilog_core::{ActionId, Attempt, JobId, Loss, Outcome, Rank, TaskId, Tolerance, Verdict};

use super::runs::Run;
use super::{Truth, services, some};

#[derive(Debug, Default, Clone)]
pub(super) struct Shown {
    outcomes: BTreeMap<TaskId, Outcome>,
    /// By task: the world time (ms) at which a commit first showed the outcome.
    since: BTreeMap<TaskId, u64>,
    /// By task: the outcomes that commits of earlier stores, and of this one, have shown, each with the world time (ms)
    /// of the first. Forgotten attempts stay: a copy of the store may have them.
    first: BTreeMap<TaskId, Vec<(Outcome, u64)>>,
    verdicts: BTreeMap<ActionId, Verdict>,
    /// The attempt to which each action belongs.
    of: BTreeMap<ActionId, (JobId, Attempt)>,
    /// Tasks that a commit showed as accepted.
    accepted: BTreeSet<TaskId>,
}

impl Shown {
    /// Creates the record of a store that replaces another at world time `t` (ms). `before`: the record of the replaced
    /// store. An outcome that an earlier store had keeps the time at which a commit first showed it.
    pub(super) fn of(store: &Snapshot, before: &Self, t: u64) -> Self {
        let mut shown = Self::default();
        for row in &store.actions {
            shown.take(store, row, t);
        }
        shown.first.clone_from(&before.first);
        for (task, since) in &mut shown.since {
            // Another epoch may have given the task another outcome.
            let known = shown.first.get(task).into_iter().flatten();
            let same = known.filter(|(outcome, _)| shown.outcomes.get(task) == Some(outcome)).map(|(_, at)| *at);
            *since = same.min().unwrap_or(*since);
        }
        shown
    }

    /// Forgets an attempt with its actions, verdicts and outcomes.
    pub(super) fn forget(&mut self, job: &JobId, attempt: Attempt) {
        let of_it = |of: &(JobId, Attempt)| of.0 == *job && of.1 == attempt;
        let actions: BTreeSet<ActionId> = self.of.iter().filter(|(_, of)| of_it(of)).map(|(id, _)| *id).collect();
        self.outcomes.retain(|task, _| !actions.contains(&task.action));
        self.since.retain(|task, _| !actions.contains(&task.action));
        self.verdicts.retain(|action, _| !actions.contains(action));
        self.of.retain(|action, _| !actions.contains(action));
        self.accepted.retain(|task| !actions.contains(&task.action));
    }

    /// Returns the ended tasks of an attempt.
    pub(super) fn tasks_of(&self, job: &JobId, attempt: Attempt) -> impl Iterator<Item = &TaskId> {
        self.outcomes.keys().filter(move |task| self.is_of(task.action, job, attempt))
    }

    pub(super) fn is_of(&self, action: ActionId, job: &JobId, attempt: Attempt) -> bool {
        self.of.get(&action).is_some_and(|of| of.0 == *job && of.1 == attempt)
    }

    pub(super) fn outcome(&self, task: TaskId) -> Option<&Outcome> {
        self.outcomes.get(&task)
    }

    pub(super) fn ended_at(&self, task: TaskId) -> Option<(u64, &Outcome)> {
        Some((*self.since.get(&task)?, self.outcomes.get(&task)?))
    }

    fn take(&mut self, store: &Snapshot, row: &ActionRow, t: u64) {
        for (task, outcome) in ended(store, row) {
            self.since.entry(task).or_insert(t);
            let known = self.first.entry(task).or_default();
            if known.iter().all(|(of, _)| *of != outcome) {
                known.push((outcome.clone(), t));
            }
            self.outcomes.insert(task, outcome);
        }
        if let Some(verdict) = row.verdict {
            self.verdicts.insert(row.id, verdict);
        }
        self.of.entry(row.id).or_insert_with(|| (row.job.clone(), row.attempt));
        self.accepted.extend(row.accepted.iter().map(|rank| TaskId { action: row.id, rank: Rank(rank) }));
    }
}

/// Returns the ended ranks of an action as tasks, each with its outcome.
fn ended(store: &Snapshot, row: &ActionRow) -> Vec<(TaskId, Outcome)> {
    let mut all = Vec::new();
    for rank in row.ok.iter() {
        all.push((TaskId { action: row.id, rank: Rank(rank) }, Outcome::Ok));
    }
    for rank in store.ranks.iter().filter(|rank| rank.task.action == row.id && row.not_ok.contains(rank.task.rank.0)) {
        all.push((rank.task, rank.ended.outcome.clone()));
    }
    all
}

impl Truth {
    pub(crate) fn was_accepted(&self, task: TaskId) -> bool {
        self.shown[0].accepted.contains(&task)
    }

    /// Checks a batch that controller `which` has committed, and records the new contents of the store.
    pub(crate) fn committed(&mut self, which: usize, store: &Snapshot, records: &[Record], t: u64) {
        let mut touched: BTreeSet<ActionId> = BTreeSet::new();
        for record in records.iter().filter(|_| which == 0) {
            match record {
                Record::Undrained { host } => self.lift_committed(host, t),
                Record::Drain(row) if row.lifted => self.lift_committed(&row.host, t),
                _ => {}
            }
        }
        for record in records {
            match record {
                Record::Action(row) => {
                    touched.insert(row.id);
                }
                Record::ActionDelta { action, .. } => {
                    touched.insert(*action);
                }
                Record::Rank(row) => {
                    touched.insert(row.task.action);
                }
                Record::AttemptDelta { job, attempt, .. } if which == 0 => {
                    let row = store.attempts.iter().find(|row| row.job == *job && row.attempt == *attempt);
                    if let Some(row) = row {
                        self.check_release(store, row, t);
                    }
                }
                Record::Prune { job, attempt, .. } => self.pruned(which, job, *attempt),
                Record::Attempt(row) => {
                    if row.open {
                        self.check_newest(which, store, row);
                    }
                    if which == 0 {
                        self.check_release(store, row, t);
                    }
                }
                Record::Drain(row) if which == 0 && store.drains.contains(row) => self.check_drain(row),
                Record::Event { job, event, .. } if which == 0 => match event.name() {
                    "milestone" => self.check_milestone(store, job, event),
                    "action-start" => self.check_start(job, event),
                    _ => {}
                },
                _ => {}
            }
        }
        if which == 0 {
            self.check_books(store, records);
        }
        if which == 1 {
            self.doubtful.extend(touched.iter().copied());
        }
        for row in store.actions.iter().filter(|row| touched.contains(&row.id)) {
            self.check_sets(which, row);
            if which == 0 {
                self.check_resources(row, t);
                self.check_service(store, row);
                self.attempts.note(store, row);
            }
            self.check_action(which, store, row, t);
            self.shown[which].take(store, row, t);
        }
    }

    /// Checks that each rank of an action has exactly one state.
    fn check_sets(&mut self, which: usize, row: &ActionRow) {
        let sets = [&row.waiting, &row.sent, &row.accepted, &row.ok, &row.not_ok];
        let sum: u64 = sets.iter().map(|set| set.len()).sum();
        let mut union = perilog_core::IdSet::new();
        sets.iter().for_each(|set| union.extend_with(set));
        if sum != row.ranks.len() || union != row.ranks {
            self.broken(|| {
                format!("c{which}: the sets of {} of {} are no partition of {}", row.name, row.job, row.ranks)
            });
        }
    }

    fn check_action(&mut self, which: usize, store: &Snapshot, row: &ActionRow, t: u64) {
        let (name, job) = (row.name.as_str(), row.job.as_str());
        let had_verdict = self.shown[which].verdicts.get(&row.id).copied();
        if let (Some(before), after) = (had_verdict, row.verdict)
            && after != Some(before)
        {
            self.broken(|| format!("2 verdict: {name} of {job} was {before}, is {after:?}"));
        }
        self.note_boots(store, row);
        if had_verdict.is_none() && row.verdict.is_some() {
            self.check_verdict(which, store, row);
        }
        let now: BTreeMap<TaskId, Outcome> = ended(store, row).into_iter().collect();
        let gone: BTreeSet<String> = self.shown[which]
            .outcomes
            .keys()
            .filter(|task| task.action == row.id && !now.contains_key(*task))
            .map(|task| task.rank.to_string())
            .collect();
        if !gone.is_empty() {
            self.broken(|| format!("2 one outcome: ranks {} of {name} of {job} had ended and have not", some(&gone)));
        }
        let back = row.waiting.union(&row.sent);
        let back = back.iter().map(|rank| TaskId { action: row.id, rank: Rank(rank) });
        if let Some(task) = back.into_iter().find(|task| self.shown[which].accepted.contains(task)) {
            self.broken(|| format!("5 shown: {task} of {name} of {job} was accepted and is not"));
        }
        for (task, outcome) in now {
            self.check_outcome(which, row, task, &outcome, had_verdict.is_some(), t);
        }
    }

    /// Records the boot in which the store first shows a task with an announced reboot as `ok`.
    fn note_boots(&mut self, store: &Snapshot, row: &ActionRow) {
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt);
        for rank in row.ok.iter() {
            let task = TaskId { action: row.id, rank: Rank(rank) };
            if self.ok_in.contains_key(&task) || !self.runs_of(task).any(|run| run.announced) {
                continue;
            }
            let host = attempt.and_then(|a| a.ranks.iter().zip(a.hosts.iter()).find(|(of, _)| *of == rank));
            let node = host.and_then(|(_, host)| store.nodes.iter().find(|node| node.host.as_str() == host));
            self.ok_in.extend(node.map(|node| (task, node.boot.clone())));
        }
    }

    /// Checks a new verdict: all ranks and resources have ended, the verdict fits their outcomes, and each `ok` of a
    /// prolog ran in its node's current boot.
    fn check_verdict(&mut self, which: usize, store: &Snapshot, row: &ActionRow) {
        let (name, job) = (&row.name, &row.job);
        let open = row.ranks.difference(&row.ok.union(&row.not_ok));
        if !open.is_empty() {
            self.broken(|| format!("2 verdict: c{which} says {name} of {job} is over, and ranks {open} are not"));
        }
        let ended = ended(store, row);
        // Outcomes of ranks come first: `verdicts` leaves out handed-over ranks from the front.
        let mut outcomes: Vec<Outcome> = ended.iter().map(|(_, outcome)| outcome.clone()).collect();
        outcomes.extend(row.external.iter().flat_map(|external| services::ends(external)).map(|(_, end)| end.clone()));
        let unended = row.external.as_ref().map_or(0, |external| external.resources.len() - external.ended.len());
        if unended > 0 {
            self.broken(|| {
                format!("2 verdict: c{which} says {name} of {job} is over, and {unended} of its resources are not")
            });
        }
        let may = self.verdicts(store, row, &outcomes);
        if !row.verdict.is_some_and(|verdict| may.contains(&verdict)) {
            self.broken(|| {
                format!("2 verdict: c{which} says {name} of {job} is {:?}; its outcomes say {may:?}", row.verdict)
            });
        }
        let attempt = store.attempts.iter().find(|a| a.job == *job && a.attempt == row.attempt);
        // Calculates the percentage itself: `Tolerance::of` belongs to the code under test.
        if let Some((of, Tolerance::Percent(share))) = attempt.and_then(|of| Some((of, of.terms.tolerate?)))
            && row.verdict == Some(Verdict::Ok)
        {
            let failed = outcomes.iter().filter(|outcome| **outcome == Outcome::Tolerable).count() as u64;
            let ranks = of.ranks.len();
            if failed * 100 > u64::from(share) * ranks {
                self.broken(|| {
                    format!(
                        "2 verdict: c{which} says {name} of {job} is ok: {failed} of {ranks} ranks failed, {share}% may"
                    )
                });
            }
        }
        if name.as_str() != "prolog" {
            return;
        }
        for (task, _) in ended.iter().filter(|(_, outcome)| *outcome == Outcome::Ok) {
            if self.is_doubtful(*task, None) {
                continue;
            }
            let host = attempt.and_then(|a| a.ranks.iter().zip(a.hosts.iter()).find(|(rank, _)| *rank == task.rank.0));
            let node = host.and_then(|(_, host)| store.nodes.iter().find(|node| node.host.as_str() == host));
            let Some(node) = node else { continue };
            // If the announced reboot brought the node into this boot, the prolog's work counts.
            let by_boot = self.runs_of(*task).any(|run| run.announced) && self.ok_in.get(task) == Some(&node.boot);
            let is_in = |run: &Run| run.meant_for == node.boot && node.version == format!("sim.{}", run.boot);
            if !by_boot && !self.runs_of(*task).any(is_in) {
                let (rank, boot) = (task.rank, node.boot.clone());
                self.broken(|| {
                    format!("3 true: c{which} says rank {rank} of {name} of {job} is ok in {boot}, where it never ran")
                });
            }
        }
    }

    /// Checks that the open attempt of a job is its newest.
    fn check_newest(&mut self, which: usize, store: &Snapshot, row: &AttemptRow) {
        let newer = |other: &&AttemptRow| other.job == row.job && other.attempt > row.attempt;
        // A client may still ask for an abandoned attempt.
        let newer = store.attempts.iter().find(newer).filter(|_| !row.abandoned);
        if let Some(newer) = newer {
            let (job, attempt, newer) = (&row.job, row.attempt, newer.attempt);
            self.broken(|| format!("6 attempts: c{which} has attempt {attempt} of {job} open, and {newer} was there"));
        }
    }

    /// Checks the outcome `lost (vanished)`: no process of the task is alive.
    fn check_vanished(&mut self, which: usize, row: &ActionRow, task: TaskId, outcome: &Outcome) {
        let alive = |run: &&Run| run.alive || (run.left_behind && run.lingering != Lingering::Keep);
        let vanished = *outcome == Outcome::Lost { why: Loss::Vanished } && !self.is_doubtful(task, None);
        let Some(run) = self.runs_of(task).find(alive).filter(|_| vanished) else { return };
        let text =
            format!("4 alive: c{which} says {} of {} is {outcome}, and it lives on n{}", run.stem, row.job, run.node);
        self.broken(|| text);
    }

    fn check_outcome(&mut self, which: usize, row: &ActionRow, task: TaskId, outcome: &Outcome, judged: bool, t: u64) {
        let rank = task.rank;
        let (name, job) = (row.name.clone(), row.job.clone());
        match self.shown[which].outcomes.get(&task) {
            Some(before) if before == outcome => return,
            Some(before) => {
                let invalidated = before.went_well()
                    && *outcome == (Outcome::Lost { why: Loss::Rebooted })
                    && name.as_str() == "prolog"
                    && !judged;
                if !invalidated {
                    let before = before.to_string();
                    self.broken(|| format!("2 one outcome: rank {rank} of {name} of {job} was {before}, is {outcome}"));
                }
            }
            None => {
                self.outcomes += 1;
                if which == 0 && matches!(outcome, Outcome::Resolved { .. }) {
                    self.check_resolved(task);
                }
            }
        }
        if row.external.is_some() {
            return self.check_served(which, row, task, outcome, t);
        }
        self.check_vanished(which, row, task, outcome);
        if *outcome == (Outcome::Cancelled { status: None })
            && !self.was_to_end(&job, task)
            && !self.is_doubtful(task, None)
        {
            return self.broken(|| {
                format!("3 true: c{which} says rank {rank} of {name} of {job} is {outcome}, and that was not asked for")
            });
        }
        if let Err(truth) = self.agrees(task, outcome) {
            // A lost store had recorded this outcome, and the store now in use knew nothing of the run.
            let unknown = self.is_doubtful(task, None) && super::agree::nothing_ran(outcome);
            // Two machines with one name may each have a unit of the task, and each reports the end of its own.
            let is_twins = self.runs_of(task).any(|run| !self.is_one(run.node));
            let by_unit = matches!(outcome, Outcome::Failed { why: perilog_core::Failure::NoResult(_) });
            if !(unknown || is_twins && by_unit) {
                self.broken(|| format!("3 true: c{which} says rank {rank} of {name} of {job} is {outcome}; {truth}"));
            }
        }
    }
}
