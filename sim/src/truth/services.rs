//! Checks the outcomes of external actions against the reports of their services, in the order of commits. The first
//! report on a rank or named resource gives its outcome. No rank or resource becomes lost before the lease is over, and
//! none is released while a service works on it.

use std::collections::BTreeMap;

use perilog_core::controller::io::{ActionRow, AttemptRow, External, Report, ReportKind, Request};
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{ActionId, Attempt, Failure, JobId, Loss, Outcome, Part, Rank, ResourceName, TaskId};

use super::Truth;
use crate::world::site;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Rank(u32),
    Resource(ResourceName),
}

#[derive(Debug, Default)]
pub(super) struct Services {
    /// The first report on each rank or resource: the word of its outcome, and the world time (ms) of its commit.
    reports: BTreeMap<(ActionId, What), (&'static str, u64)>,
    /// World times (ms) of the last report on each external action, and of the one before. Each report renews the
    /// lease; the start of the action counts as a report.
    received: BTreeMap<ActionId, (u64, u64)>,
    /// World time (ms) of the last repeated request to start each external action, and the lease (ms) before that
    /// request.
    leases: BTreeMap<ActionId, (u64, u64)>,
    /// World time (ms) from which on the running controller has taken reports of services.
    pub(super) listens_since: u64,
    /// The outcomes of resources that the first controller's store has shown.
    shown: BTreeMap<(ActionId, ResourceName), Outcome>,
}

impl Services {
    /// Forgets the external action of a pruned attempt: a later request makes a new action with the same id.
    pub(super) fn forget(&mut self, job: &JobId, attempt: Attempt) {
        let id = ActionId::of(site::cluster(), job, attempt, &site::action(site::SERVED));
        self.reports.retain(|(of, _), _| *of != id);
        self.shown.retain(|(of, _), _| *of != id);
        self.received.remove(&id);
        self.leases.remove(&id);
    }
}

impl Truth {
    /// Records the requests of services that the controller carries out in a batch, before the batch's commit.
    /// `records`: the batch.
    pub(crate) fn served(&mut self, store: &Snapshot, records: &[Record], requests: &[Request], t: u64) {
        for request in requests {
            match request {
                // Only the begin of an action starts its lease: a request that attaches to an action may be refused.
                Request::ActionStart(start) => {
                    let new = |row: &&ActionRow| store.actions.iter().all(|there| there.id != row.id);
                    let mine = |row: &&ActionRow| row.job == start.run.job && row.name == start.run.action;
                    let ids: Vec<ActionId> = rows(store, records).filter(mine).filter(new).map(|row| row.id).collect();
                    ids.into_iter().for_each(|id| self.service_answered(id, t));
                    let there = store.actions.iter().filter(mine);
                    let leases = there.filter_map(|row| Some((row.id, (t, row.external.as_ref()?.lease_ms))));
                    self.services.leases.extend(leases);
                }
                Request::ActionReport(report) => self.reported_by_service(store, records, report, t),
                _ => {}
            }
        }
    }

    fn reported_by_service(&mut self, store: &Snapshot, records: &[Record], report: &Report, t: u64) {
        let Some(attempt) = report.attempt else { return };
        let id = ActionId::of(site::cluster(), &report.job, attempt, &report.action);
        let Some(row) = rows(store, records).find(|row| row.id == id) else { return };
        let Some(external) = &row.external else { return };
        let covers = Part { ranks: row.ranks.clone(), resources: external.resources.clone() };
        let part = match (&report.targets, &report.resources) {
            (None, None) => covers.clone(),
            (targets, resources) => {
                let ranks = match targets {
                    Some(perilog_core::Targets::Ranks(ranks)) => ranks.clone(),
                    _ => perilog_core::IdSet::new(),
                };
                Part { ranks, resources: resources.clone().unwrap_or_default() }
            }
        };
        if part.intersection(&covers) != part {
            return;
        }
        self.service_answered(id, t);
        let word = match report.kind {
            ReportKind::Ok => "ok",
            ReportKind::Tolerable { .. } => "tolerable",
            ReportKind::Failed { .. } => "failed",
            ReportKind::Renew | ReportKind::Milestone(_) => return,
        };
        let resources = part.resources.into_iter().map(What::Resource);
        for what in part.ranks.iter().map(What::Rank).chain(resources) {
            self.services.reports.entry((id, what)).or_insert((word, t));
        }
    }

    fn service_answered(&mut self, id: ActionId, t: u64) {
        let received = self.services.received.entry(id).or_default();
        if received.0 != t {
            *received = (t, received.0);
        }
    }

    pub(crate) fn controller_listens(&mut self, t: u64) {
        self.services.listens_since = t;
    }

    /// Forgets the reports on doubtful actions: another store has replaced the controller's store, and may have other
    /// reports.
    pub(super) fn services_forget(&mut self) {
        let (services, doubtful) = (&mut self.services, &self.doubtful);
        services.reports.retain(|(id, _), _| !doubtful.contains(id));
        services.received.retain(|id, _| !doubtful.contains(id));
        services.shown.retain(|(id, _), _| !doubtful.contains(id));
    }

    /// Checks the outcome of a rank or resource against the reports of its service.
    /// `t`: the world time (ms) of the check.
    ///
    /// # Errors
    ///
    /// A text with the first report, the lease and its beginning, if the outcome contradicts them.
    pub(super) fn service_agrees(&self, row: &ActionRow, what: What, outcome: &Outcome, t: u64) -> Result<(), String> {
        let Some(external) = &row.external else { return Ok(()) };
        let reports = self.services.reports.get(&(row.id, what));
        let word = reports.map(|(word, _)| *word);
        let asked = row.cancel_why.is_some() || external.cancelling;
        let fits = match outcome {
            Outcome::Ok => word == Some("ok"),
            Outcome::Tolerable => word == Some("tolerable"),
            Outcome::Failed { why: Failure::Reported } => word == Some("failed"),
            Outcome::Cancelled { .. } => word == Some("failed") && asked,
            // A report in the same batch may have come after the tick at which the lease ended. A process that was
            // restored with its memory does not know the reports of its lost epoch.
            Outcome::Lost { why: Loss::Lease } => {
                !self.reports_lost_tasks()
                    || reports.is_none_or(|(_, at)| *at == t)
                        && t >= self.lease_since(row.id, t) + self.lease_ms(row.id, external, t)
            }
            Outcome::Resolved { .. } => true,
            _ => false,
        };
        let since = self.lease_since(row.id, t);
        let reported =
            || format!("its service said {reports:?}, and its lease of {} counts since {since}", external.lease_ms);
        if fits { Ok(()) } else { Err(reported()) }
    }

    /// Returns the lease in milliseconds. If a request changed the lease at `t`, the old lease may have ended before
    /// that request: the function then returns the shorter of both.
    fn lease_ms(&self, id: ActionId, external: &External, t: u64) -> u64 {
        let before = self.services.leases.get(&id).filter(|(at, _)| *at == t);
        before.map_or(external.lease_ms, |(_, lease_ms)| external.lease_ms.min(*lease_ms))
    }

    /// Returns the world time (ms) from which the lease counts: the last report before `t`, or the time since when the
    /// controller takes reports.
    fn lease_since(&self, id: ActionId, t: u64) -> u64 {
        let (last, before) = self.services.received.get(&id).copied().unwrap_or_default();
        let received = if last == t { before } else { last };
        received.max(self.services.listens_since)
    }

    /// Checks the outcomes of an external action's resources: each ends once, as its service reported.
    pub(super) fn check_resources(&mut self, row: &ActionRow, t: u64) {
        let Some(external) = row.external.as_deref() else { return };
        if self.doubtful.contains(&row.id) {
            return;
        }
        for (name, outcome) in ends(external) {
            let before = self.services.shown.insert((row.id, name.clone()), outcome.clone());
            if before.as_ref() == Some(outcome) {
                continue;
            }
            let wrong = match before {
                Some(before) => Some(format!("2 one outcome: {name} of {} was {before}, is {outcome}", row.job)),
                None => {
                    let agrees = self.service_agrees(row, What::Resource(name.clone()), outcome, t);
                    agrees.err().map(|truth| format!("3 true: {name} of {} is {outcome}; {truth}", row.job))
                }
            };
            if let Some(text) = wrong {
                self.broken(|| text);
            }
        }
    }

    /// Checks a part of an attempt that the controller releases: no service still works on any of it.
    pub(super) fn check_not_served(&mut self, store: &Snapshot, row: &AttemptRow, releases: &Part) {
        let of = |action: &&ActionRow| action.job == row.job && action.attempt == row.attempt;
        for action in store.actions.iter().filter(of) {
            let Some(external) = action.external.as_deref().filter(|_| !self.doubtful.contains(&action.id)) else {
                continue;
            };
            let open = |rank: &u32| !action.ok.contains(*rank) && !action.not_ok.contains(*rank);
            let ranks = releases.ranks.intersection(&action.ranks);
            let resources = releases.resources.iter().filter(|name| external.resources.contains(*name));
            let rank = ranks.iter().find(open).map(|rank| format!("rank {rank}"));
            let resource = resources.map(ToString::to_string).find(|name| !external.ended.contains_key(name.as_str()));
            if let Some(what) = rank.or(resource) {
                let text =
                    format!("4 released: {what} of {}, and the service of {} is at work on it", row.job, action.name);
                self.broken(|| text);
            }
        }
    }

    /// Checks the outcome of a rank of an external action against the reports of its service.
    pub(super) fn check_served(&mut self, which: usize, row: &ActionRow, task: TaskId, outcome: &Outcome, t: u64) {
        let Rank(rank) = task.rank;
        if which != 0 || self.doubtful.contains(&row.id) {
            return;
        }
        if let Err(truth) = self.service_agrees(row, What::Rank(rank), outcome, t) {
            let text = format!("3 true: rank {rank} of {} of {} is {outcome}; {truth}", row.name, row.job);
            self.broken(|| text);
        }
    }
}

pub(super) fn ends(external: &External) -> impl Iterator<Item = (&ResourceName, &Outcome)> {
    external.ended.iter().map(|(name, end)| (name, &end.ended.outcome))
}

/// Returns the rows of the actions that a batch writes, and then those of the actions in the store.
fn rows<'a>(store: &'a Snapshot, records: &'a [Record]) -> impl Iterator<Item = &'a ActionRow> {
    let new = records.iter().filter_map(|record| match record {
        Record::Action(row) => Some(&**row),
        _ => None,
    });
    new.chain(&store.actions)
}
