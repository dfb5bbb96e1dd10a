//! Checks the order of attempts and of their actions.
//!
//! * After the setup actions of a rank an epilog runs, and no setup action begins beside or after the epilog.
//! * No attempt begins on a host where an older attempt of the job has work.
//! * The controller prunes no attempt for which it still has to make or deliver a release.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{ActionRow, AttemptRow, DrainRow, External};
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{ActionId, Attempt, HostName, IdSet, JobId};

use super::Truth;
use crate::world::site;

/// The actions on each host, according to the first controller's store: the open ones, and the epilogs that have ended
/// as `ok`.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    open: BTreeMap<ActionId, Open>,
    /// Attempt and host of each epilog that has ended as `ok`.
    cleaned: BTreeSet<(JobId, Attempt, String)>,
    /// Attempts that were abandoned or unlisted: a later attempt does not wait for their clean-up.
    apart: BTreeSet<(JobId, Attempt)>,
    /// External actions whose beginning was already checked.
    served: BTreeSet<ActionId>,
}

#[derive(Debug)]
struct Open {
    job: JobId,
    attempt: Attempt,
    name: String,
    hosts: BTreeSet<String>,
}

impl Attempts {
    pub(super) fn note(&mut self, store: &Snapshot, row: &ActionRow) {
        let open = row.open_ranks();
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt);
        let of = |ranks: &IdSet| -> BTreeSet<String> {
            let pairs = attempt.into_iter().flat_map(|attempt| attempt.ranks.iter().zip(attempt.hosts.iter()));
            pairs.filter(|(rank, _)| ranks.contains(*rank)).map(|(_, host)| host.to_owned()).collect()
        };
        if row.name.as_str() == "epilog" {
            let cleaned = of(&row.ok).into_iter().map(|host| (row.job.clone(), row.attempt, host));
            self.cleaned.extend(cleaned);
        }
        let hosts = of(&open);
        if hosts.is_empty() {
            self.open.remove(&row.id);
            return;
        }
        let open = Open { job: row.job.clone(), attempt: row.attempt, name: row.name.to_string(), hosts };
        self.open.insert(row.id, open);
    }

    /// Forgets the ended epilogs of a pruned attempt: the job may get an attempt with the same number again.
    pub(super) fn uncleaned(&mut self, job: &JobId, attempt: Attempt) {
        self.cleaned.retain(|(of, number, _)| of != job || *number != attempt);
    }

    /// Forgets everything, because another store replaces the first controller's.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.cleaned.clear();
        self.served.clear();
    }
}

/// Returns `true` if the action is a setup action under all settings of the simulated worlds.
pub(super) fn prepares(name: &str) -> bool {
    name != "epilog" && name != "sweep"
}

impl Truth {
    /// Records the abandoned and unlisted attempts in a batch that the first controller is about to commit: a later
    /// attempt does not wait for their clean-up.
    pub(crate) fn note_apart(&mut self, records: &[Record]) {
        for record in records {
            if let Record::Attempt(row) = record
                && (row.abandoned || row.silent)
            {
                self.attempts.apart.insert((row.job.clone(), row.attempt));
            }
        }
    }

    /// Checks a script that begins: no earlier attempt of the job has work on the host, and a setup action's script
    /// does not run beside or after the epilog. Skips doubtful tasks, because a controller cannot know the facts of a
    /// lost store.
    pub(super) fn check_turn(&mut self, index: usize) {
        let Some(run) = self.runs.get(index).filter(|run| !run.local) else { return };
        if self.is_doubtful(run.task, Some(run.node)) {
            return;
        }
        let (host, number) = (site::host(run.node), run.step.0);
        let is_apart = |open: &Open| self.attempts.apart.contains(&(open.job.clone(), open.attempt));
        let before = |open: &&Open| {
            let older = open.job == run.job && open.attempt < number && open.hosts.contains(host.as_str());
            older && !is_apart(open)
        };
        // Only the task's first script counts: a node that was away may bring back a pruned attempt whose scripts run
        // already.
        let begins = run.starts.as_slice() == [1];
        // Actions of a pruned attempt that a node brought back are doubtful, and no controller orders them.
        let known = || self.attempts.open.iter().filter(|(id, _)| !self.doubtful.contains(id)).map(|(_, open)| open);
        if let Some(open) = known().find(before).filter(|_| begins) {
            let text =
                format!("{} begins, and {} of attempt {} has not ended on {host}", run.stem, open.name, open.attempt);
            return self.broken(|| format!("6 attempts: {text}"));
        }
        let here = |open: &&Open| open.job == run.job && open.attempt == number && open.hosts.contains(host.as_str());
        let is_epilog = run.step.1.as_str() == "epilog";
        let beside = known().filter(here).find(|open| is_epilog && prepares(&open.name));
        if let Some(open) = beside {
            let text = format!("{} begins, and {} has not ended on {host}", run.stem, open.name);
            return self.broken(|| format!("5 epilog: {text}"));
        }
        let is_first = run.ends.is_empty() && prepares(run.step.1.as_str());
        let key = (run.job.clone(), number, host.as_str().to_owned());
        if is_first && self.attempts.cleaned.contains(&key) {
            let stem = run.stem.clone();
            self.broken(|| format!("5 epilog: {stem} begins, and the epilog has done its work there: nothing follows"));
        }
    }

    /// Checks the row of an external action after its commit. No service begins where an older attempt of the job has
    /// work. A superseded attempt's service is asked to stop.
    pub(super) fn check_service(&mut self, store: &Snapshot, row: &ActionRow) {
        let Some(external) = row.external.as_deref() else { return };
        let attempt = |number: Attempt| store.attempts.iter().find(|a| a.job == row.job && a.attempt == number);
        let open = row.open_ranks();
        let work = external.resources.iter().any(|name| !external.ended.contains_key(name));
        let unnotified = !open.is_subset(&row.cancelling) || work && !external.cancelling;
        if attempt(row.attempt).is_some_and(|attempt| !attempt.open) && unnotified {
            let (name, job, number) = (&row.name, &row.job, row.attempt);
            return self.broken(|| {
                format!(
                    "8 services: {name} of {job} attempt {number} is over, and that is not \
                                           reported"
                )
            });
        }
        if !self.attempts.served.insert(row.id) {
            return;
        }
        let hosts = |row: &ActionRow, ranks: &IdSet| -> BTreeSet<String> {
            let pairs = attempt(row.attempt).into_iter().flat_map(|of| of.ranks.iter().zip(of.hosts.iter()));
            pairs.filter(|(rank, _)| ranks.contains(*rank)).map(|(_, host)| host.to_owned()).collect()
        };
        let mine = hosts(row, &row.ranks);
        let beside = store.actions.iter().filter(|a| a.job == row.job && a.attempt < row.attempt).find(|other| {
            let works = |of: &External| {
                of.resources.iter().any(|n| external.resources.contains(n) && !of.ended.contains_key(n))
            };
            let at_work = !self.doubtful.contains(&other.id) && !mine.is_disjoint(&hosts(other, &other.open_ranks()));
            at_work || other.external.as_deref().is_some_and(works)
        });
        if let Some(other) = beside {
            let text = format!("{} of {} begins, and {} of attempt {}", row.name, row.job, other.name, other.attempt);
            self.broken(|| format!("6 attempts: {text} has not ended there"));
        }
    }

    /// Checks released ranks: where a setup action's script began, an epilog has ended.
    pub(super) fn check_followed(&mut self, store: &Snapshot, row: &AttemptRow, releases: &IdSet) {
        let is_epilog = |a: &&ActionRow| a.job == row.job && a.attempt == row.attempt && a.name.as_str() == "epilog";
        let epilog = store.actions.iter().find(is_epilog);
        // An epilog with a verdict does not extend to ranks that the job hands over later. The controller logs this,
        // and runs no second epilog.
        let followed = |rank: u32| {
            epilog.is_some_and(|epilog| {
                let over = epilog.verdict.is_some() && !epilog.ranks.contains(rank);
                over || epilog.ok.contains(rank) || epilog.not_ok.contains(rank)
            })
        };
        let without_caller = self.runs.iter().find(|run| {
            let here = run.begun && !run.local && run.job == row.job && run.step.0 == row.attempt;
            here && releases.contains(run.task.rank.0) && prepares(run.step.1.as_str()) && !followed(run.task.rank.0)
        });
        let without_caller = without_caller.filter(|run| !self.is_doubtful(run.task, None)).map(|run| run.stem.clone());
        if let Some(stem) = without_caller {
            let (job, attempt) = (&row.job, row.attempt);
            self.broken(|| {
                format!("5 epilog: {stem} began, and its rank of {job} attempt {attempt} is released without one")
            });
        }
    }

    /// Checks a batch that the first controller is about to commit: it prunes no attempt with releases to make or to
    /// deliver.
    pub(crate) fn check_pruned(&mut self, store: &Snapshot, records: &[Record]) {
        for (at, record) in records.iter().enumerate() {
            let Record::Prune { job, attempt, .. } = record else { continue };
            let Some(row) = store.attempts.iter().find(|row| row.job == *job && row.attempt == *attempt) else {
                continue;
            };
            let before = records.get(..at).unwrap_or_default();
            if let Some(why) = self.pending_of(store, row, before) {
                self.broken(|| format!("4 forgotten: {job} attempt {attempt}, and {why}"));
            }
            // An absent node may bring the attempt back, without the tasks of other nodes: the actions become doubtful.
            let of_it = |row: &&ActionRow| row.job == *job && row.attempt == *attempt;
            let actions: Vec<ActionId> = store.actions.iter().filter(of_it).map(|row| row.id).collect();
            self.doubtful.extend(actions);
        }
    }

    /// Returns the pending work of a pruned attempt, as text; `None`: nothing. `before`: the earlier records of the
    /// batch.
    fn pending_of(&self, store: &Snapshot, row: &AttemptRow, before: &[Record]) -> Option<String> {
        if let Some(sequence) = self.first_pending(&row.job, row.attempt) {
            return Some(format!("the hook has no notice of release {sequence}"));
        }
        if row.complete {
            return None;
        }
        // Only the attempt of a bare `perilog run`, which still holds its ranks, may be pruned without a release.
        if row.added || !row.open || row.hold.is_empty() {
            return Some(format!("only {} of it was released", row.released));
        }
        let stored = |host: &str| store.drains.iter().find(|drain| drain.host.as_str() == host).cloned();
        let drain = |host: &str| before.iter().fold(stored(host), |drain, record| after(drain, record, host));
        let awaited = |drain: DrainRow| (!drain.confirmed && !drain.lifted).then_some(drain.host);
        let awaited: Option<HostName> = row.hosts.iter().find_map(|host| drain(host).and_then(awaited));
        awaited.map(|host| format!("the drain of {host} is not in force"))
    }
}

fn after(drain: Option<DrainRow>, record: &Record, host: &str) -> Option<DrainRow> {
    match record {
        Record::Drain(row) if row.host.as_str() == host => Some(row.clone()),
        Record::Undrained { host: of } if of.as_str() == host => None,
        _ => drain,
    }
}
