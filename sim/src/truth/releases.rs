//! Checks of releases:
//!
//! * the controller releases no rank twice;
//! * before the release of a rank whose end asks for a drain, or whose script still lives, the controller drains the
//!   host; it need not if an operator has undrained the host since;
//! * no script begins on a released rank of a host that was never drained.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{ActionRow, AttemptRow, DrainRow, OutboxEntry, RankRow};
use perilog_core::controller::{Record, Settings, Snapshot};
use perilog_core::{Attempt, HostList, HostName, IdSet, JobId, Outcome, Part, Rank, TaskId, Terms, Verdict};

use super::Truth;
use crate::world::site;

#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Hosts that the drain hook has drained in the resource manager.
    drained: BTreeSet<HostName>,
    /// The last undrain of each host that an operator asked perilog for.
    lifted: BTreeMap<HostName, Lifted>,
    /// The last undrain of each host that an operator did in the resource manager alone.
    lifted_outside: BTreeMap<HostName, Lifted>,
    /// The number (`notice_id`) of the last drain notice of each host that the hook has carried out.
    carried_out: BTreeMap<HostName, u64>,
    /// By attempt: the ranks and named resources that the release hook has released, by epoch and sequence number of
    /// the notice.
    received: BTreeMap<(JobId, Attempt), BTreeMap<(u64, u64), Part>>,
    last: BTreeMap<JobId, (u64, u64)>,
    /// The attempts of the committed releases that the hook has not carried out, by epoch and sequence number of the
    /// notice.
    pending: BTreeMap<(u64, u64), (JobId, Attempt)>,
    /// The part of each attempt that the first controller's store shows as released.
    shown: BTreeMap<(JobId, Attempt), Part>,
    /// Whether a second controller with its own store ran: it may have released parts a second time.
    forgetful: bool,
    /// Whether the first controller's store was replaced.
    replaced: bool,
    /// The jobs of which the present store lacks releases, after a restore, or the resource manager has forgotten
    /// releases, after a rollback.
    forgotten: BTreeSet<JobId>,
    /// Ranks that were given up, by attempt: they count as released, and no notice says so.
    given_up: BTreeMap<(JobId, Attempt), IdSet>,
    /// Ranks that a batch gives up, by attempt, until its commit is checked.
    newly_given_up: BTreeMap<(JobId, Attempt), IdSet>,
    /// Tasks whose Start had left when their ranks were given up, also those that were lost by then: the node may begin
    /// one before the Cancel comes.
    in_flight: BTreeSet<TaskId>,
    /// Whether settings were ever in force under which jobs tolerate the outcome `lost` and have a second after-action,
    /// `sweep`.
    lenient: bool,
    /// Whether settings were ever in force that let a reboot replace a missing clean-up (`reboot-cleans`).
    pub(super) boots_clean: bool,
    /// Whether a drain hook is configured now; `None`: no settings came so far.
    hook: Option<bool>,
    /// Whether a drain hook came after the first run began. Earlier drains were in force at once, and only the store
    /// has them until the hook carries them out.
    hooked_late: bool,
}

/// An undrain of a host. `t`: the world time (ms) of the operator's request, or of the commit that carried it out.
#[derive(Debug, Clone, Copy, Default)]
struct Lifted {
    t: u64,
    /// Number of runs in the world that had begun by the time `t`: the runs with this index or a higher one began after
    /// the undrain.
    runs: usize,
}

impl Releases {
    /// Returns `true` if releases of this job may be forgotten: an earlier store, or the resource manager before a
    /// rollback, may have known them.
    pub(super) fn is_forgetful(&self, job: &JobId) -> bool {
        self.forgetful || self.forgotten.contains(job)
    }

    /// Returns `true` if a second controller with a store of its own ever ran.
    pub(super) const fn has_second(&self) -> bool {
        self.forgetful
    }

    /// Returns `true` if the first controller's store was replaced, or a second controller ran: the present store may
    /// lack earlier releases and drains.
    pub(super) const fn has_forgotten(&self) -> bool {
        self.forgetful || self.replaced
    }

    pub(super) fn is_drained(&self, host: &str) -> bool {
        self.drained.contains(host)
    }

    pub(super) fn given_up(&self, job: &JobId, attempt: Attempt) -> IdSet {
        self.given_up.get(&(job.clone(), attempt)).cloned().unwrap_or_default()
    }

    /// Returns `true` if an operator undrained the host in perilog after the run with this index had begun.
    pub(super) fn is_lifted_for(&self, host: &str, index: usize) -> bool {
        self.lifted.get(host).is_some_and(|lifted| index < lifted.runs)
    }

    /// Records a rollback of the resource manager, or the begin of a recovery: releases of launched jobs may repeat.
    pub(super) fn may_repeat(&mut self) {
        let launched = self.received.keys().map(|(job, _)| job.clone()).filter(site::is_launched);
        self.forgotten.extend(launched.collect::<Vec<_>>());
        let shown = self.shown.keys().map(|(job, _)| job.clone()).filter(site::is_launched);
        self.forgotten.extend(shown.collect::<Vec<_>>());
    }

    /// Records that perilog may send releases of this job once more without a violation.
    pub(super) fn expect_again(&mut self, job: &JobId) {
        self.forgotten.insert(job.clone());
    }

    /// Forgets a pruned attempt, because the job may get an attempt with the same number again.
    pub(super) fn forget(&mut self, job: &JobId, attempt: Attempt) {
        let key = (job.clone(), attempt);
        self.shown.remove(&key);
        self.received.remove(&key);
        self.given_up.remove(&key);
        self.pending.retain(|_, of| *of != key);
    }
}

impl Truth {
    /// Records the ranks that a batch of the first controller gives up.
    pub(crate) fn note_given_up(&mut self, records: &[Record]) {
        for record in records {
            let Record::Event { job, event, .. } = record else { continue };
            let Some(context) = event.context().filter(|_| event.name() == "given-up") else { continue };
            let attempt = serde_json::from_value(context["attempt"].clone());
            let ranks = context["ranks"].as_str().and_then(|text| text.parse::<IdSet>().ok());
            if let (Ok(attempt), Some(ranks)) = (attempt, ranks) {
                self.releases.given_up.entry((job.clone(), attempt)).or_default().extend_with(&ranks);
                self.releases.newly_given_up.entry((job.clone(), attempt)).or_default().extend_with(&ranks);
            }
        }
    }

    /// Returns `true` if an operator ever undrained the host in perilog.
    pub(crate) fn was_undrained(&self, host: &str) -> bool {
        self.releases.lifted.contains_key(host)
    }

    pub(crate) fn configured(&mut self, settings: &Settings) {
        let ran = !self.runs.is_empty();
        let releases = &mut self.releases;
        releases.hooked_late |= ran && settings.drain_hook && releases.hook != Some(true);
        releases.lenient |= settings.tolerate_lost;
        releases.boots_clean |= settings.reboot_cleans;
        releases.hook = Some(settings.drain_hook);
    }

    /// Returns `true` if settings were ever in force under which jobs tolerate the outcome `lost` and have a second
    /// after-action, `sweep`.
    pub(super) const fn is_lenient(&self) -> bool {
        self.releases.lenient
    }

    /// Checks a task that becomes `resolved`: no process of the task is alive, or its host is drained, or an operator
    /// undrained the host meanwhile.
    pub(super) fn check_resolved(&mut self, task: TaskId) {
        let releases = &self.releases;
        if releases.hook != Some(true) || self.is_doubtful(task, None) {
            return;
        }
        let alive = self.runs.iter().enumerate().find(|(at, run)| {
            let host = super::super::world::site::host(run.node);
            run.task == task
                && run.holds()
                && !releases.drained.contains(&host)
                && !releases.is_lifted_for(host.as_str(), *at)
        });
        if let Some(stem) = alive.map(|(_, run)| run.stem.clone()) {
            self.broken(|| format!("4 resolved: {stem} manually, it lives, and its node is not drained"));
        }
    }

    /// Returns `true` if a script of the job is alive on a host other than these.
    pub(crate) fn is_alive_elsewhere(&self, job: &JobId, hosts: &HostList) -> bool {
        let is_there = |run: &super::runs::Run| hosts.iter().any(|host| host == site::host(run.node).as_str());
        self.runs.iter().any(|run| run.job == *job && run.holds() && !is_there(run))
    }

    pub(crate) fn lifted(&mut self, host: HostName, t: u64) {
        self.releases.lifted.insert(host, Lifted { t, runs: self.runs.len() });
    }

    /// Records the time at which the controller committed an undrain. Does nothing if no operator asked for an undrain
    /// of the host.
    pub(super) fn lift_committed(&mut self, host: &HostName, t: u64) {
        if self.releases.lifted.contains_key(host) {
            self.lifted(host.clone(), t);
        }
    }

    /// Records that an operator undrained a host in the resource manager alone. `in_force`: the controller's store
    /// shows the drain as in force. Otherwise the controller may still confirm the drain, although the drain is already
    /// gone: the undrain then also counts as an undrain in perilog.
    pub(crate) fn lifted_outside(&mut self, host: &HostName, in_force: bool, t: u64) {
        if self.releases.drained.remove(host) {
            self.releases.lifted_outside.insert(host.clone(), Lifted { t, runs: self.runs.len() });
            if !in_force {
                self.lifted(host.clone(), t);
            }
        }
    }

    /// Returns `true` if the drain hook has drained the host in the resource manager. Always `true` if no drain hook is
    /// configured now.
    fn is_in_book(&self, host: &HostName) -> bool {
        self.releases.drained.contains(host) || self.releases.hook != Some(true)
    }

    /// Returns `true` if the host is drained, or if an operator undrained it in perilog or in the resource manager
    /// after the run with index `ran` had begun.
    pub(super) fn is_answered_for(&self, store: &Snapshot, host: &HostName, ran: usize) -> bool {
        let outside = self.releases.lifted_outside.get(host);
        let lifted = self.releases.is_lifted_for(host.as_str(), ran) || outside.is_some_and(|lifted| ran < lifted.runs);
        let is_drained = store.drains.iter().find(|drain| drain.host == *host).is_some_and(|drain| {
            // A reboot may have lifted the drain, if the settings allow it.
            if drain.lifted { self.releases.boots_clean } else { drain.confirmed && self.is_in_book(host) }
        });
        lifted || is_drained || self.releases.is_drained(host.as_str())
    }

    /// Returns `true` if this rank of the attempt ended on the host in a way that asks for a drain, and no operator has
    /// undrained the host since. `t`: the world time (ms) of the present commit.
    fn is_at_fault(&self, store: &Snapshot, row: &AttemptRow, rank: Rank, host: &HostName, t: u64) -> bool {
        let outside = self.releases.lifted_outside.get(host).map_or(0, |lifted| lifted.t);
        let lifted = outside.max(self.releases.lifted.get(host).map_or(0, |lifted| lifted.t));
        let of = |id| store.actions.iter().find(|a| a.id == id && a.job == row.job && a.attempt == row.attempt);
        let ends = store.ranks.iter().filter(|end| end.task.rank == rank);
        let failed = ends.filter(|end| of(end.task.action).is_some_and(|a| self.asks_for_drain(a, end, host)));
        // The end may come with this very commit: then it counts as later than an undrain of the same commit.
        let since = failed.map(|end| self.shown[0].ended_at(end.task).map_or(t, |(since, _)| since)).max();
        since.is_some_and(|since| since > lifted)
    }

    /// Returns `true` if the controller must drain the host for the end of this rank. `false` if an operator may have
    /// seen the fault and undrained the host before the end.
    fn asks_for_drain(&self, row: &ActionRow, end: &RankRow, host: &HostName) -> bool {
        match &end.ended.outcome {
            // A refusal of a setup action is no fault if the node does not configure the action, or is full. The text
            // tells, because the agent under test sets `excused`.
            Outcome::Refused { why } => {
                let excuses = ["is not configured on", "as many as it takes"];
                row.name.as_str() == "epilog" || !excuses.iter().any(|excuse| why.contains(excuse))
            }
            Outcome::Failed { .. } | Outcome::Tolerable => true,
            // A reboot may have ended the script. An operator who undrained the host while the script ran knew of it.
            Outcome::Timeout { .. } => {
                let mut runs = self.runs.iter().enumerate().filter(|(_, run)| run.task == end.task);
                let lifted = runs.any(|(at, _)| self.releases.is_lifted_for(host.as_str(), at));
                !self.releases.boots_clean && !lifted && !self.releases.lifted_outside.contains_key(host)
            }
            // The controller sent nothing for a rank without a boot, so the node is not at fault.
            Outcome::Lost { .. } => {
                let begun = row.boots.iter().any(|(boot, ranks)| *boot > 0 && ranks.contains(end.task.rank.0));
                begun && !self.releases.boots_clean
            }
            // Only a cancelled epilog leaves the host uncleaned.
            Outcome::Cancelled { .. } => row.name.as_str() == "epilog",
            Outcome::Ok | Outcome::Resolved { .. } => false,
        }
    }

    /// Records that the drain hook has carried out the notice with number `notice_id`: a drain, or (`lifted`) an
    /// undrain.
    pub(crate) fn carried_out(&mut self, host: &HostName, notice_id: u64, lifted: bool) {
        if lifted {
            self.releases.drained.remove(host);
        } else {
            self.releases.drained.insert(host.clone());
            self.releases.carried_out.insert(host.clone(), notice_id);
        }
    }

    pub(super) fn releases_forget(&mut self, which: usize, before: &Snapshot, store: &Snapshot) {
        if which != 0 {
            self.releases.forgetful = true;
            return;
        }
        self.releases.replaced = true;
        // A restored store may lack the epochs that the numbers of earlier notices had.
        self.releases.last.clear();
        let known = before.attempts.iter().chain(&store.attempts).map(|row| row.job.clone());
        self.releases.forgotten.extend(known.chain(self.runs.iter().map(|run| run.job.clone())));
        let rows = store.attempts.iter().map(|row| ((row.job.clone(), row.attempt), row.released.clone()));
        self.releases.shown = rows.collect();
    }

    pub(super) fn pending(&mut self, entry: &OutboxEntry) {
        self.releases.pending.insert((entry.epoch, entry.sequence), (entry.job.clone(), entry.attempt));
    }

    /// Forgets the pending releases of a job that this batch drops from the outbox, because the resource manager no
    /// longer needs them.
    pub(super) fn dropped_from_outbox(&mut self, job: &JobId, records: &[Record]) {
        let is_dropped =
            |of: u64| records.iter().any(|record| matches!(record, Record::OutboxDone { sequence } if *sequence == of));
        self.releases.pending.retain(|(_, sequence), (of, _)| of != job || !is_dropped(*sequence));
    }

    /// Records that the notice with this sequence number has left the outbox. Without a configured hook, no hook has to
    /// carry out the notice's release.
    pub(super) fn done(&mut self, sequence: u64) {
        if self.releases.hook != Some(true) {
            self.releases.pending.retain(|(_, of), _| *of != sequence);
        }
    }

    /// Checks a notice that the release hook carries out: each part is released once, and notices come in order.
    pub(crate) fn received(&mut self, entry: &OutboxEntry) {
        let body = entry.body.value();
        let ranks: IdSet = body["ranks"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        let resources = serde_json::from_value(body["resources"].clone()).unwrap_or_default();
        let part = Part { ranks, resources };
        let (key, job) = ((entry.epoch, entry.sequence), entry.job.clone());
        self.releases.pending.remove(&key);
        let forgetful = self.releases.is_forgetful(&job);
        let of_job = self.releases.received.entry((job.clone(), entry.attempt)).or_default();
        let before = of_job.insert(key, part.clone());
        if before.as_ref().is_some_and(|before| *before != part) && !forgetful {
            return self.broken(|| format!("4 released: sequence {key:?} of {job} was sent as two releases"));
        }
        let twice = of_job.iter().any(|(other, of)| *other != key && !of.intersection(&part).is_empty());
        let late = before.is_none() && self.releases.last.get(&job).is_some_and(|last| *last > key);
        if before.is_none() {
            self.releases.last.insert(job.clone(), key);
        }
        if (twice || late) && !forgetful {
            let how = if twice { "twice" } else { "out of order" };
            self.broken(|| format!("4 released: the hook gets notice of {part} of {job} {how}"));
        }
    }

    /// Returns the sequence number of the first committed release of the attempt that the hook has not carried out.
    /// `None`: there is none, or the checks cannot know.
    pub(super) fn first_pending(&self, job: &JobId, attempt: Attempt) -> Option<u64> {
        let releases = &self.releases;
        let sure = releases.hook == Some(true) && !releases.is_forgetful(job);
        let of = |of: &(JobId, Attempt)| of.0 == *job && of.1 == attempt;
        releases.pending.iter().find(|(_, pending)| sure && of(pending)).map(|((_, sequence), _)| *sequence)
    }

    /// Checks, when nothing is left to happen, that the release hook has carried out every release of the attempts in
    /// the store. Checks nothing unless a hook is configured.
    pub(super) fn all_received(&mut self, store: &Snapshot) {
        let releases = &self.releases;
        if releases.hook != Some(true) {
            return;
        }
        let there = |job: &JobId, attempt| store.attempts.iter().any(|row| row.job == *job && row.attempt == attempt);
        let pending = releases.pending.iter().filter(|(_, (job, _))| !releases.is_forgetful(job));
        let mut deaf = pending.filter(|(_, (job, attempt))| there(job, *attempt));
        if let Some((key, (job, attempt))) = deaf.next().map(|(key, of)| (*key, of.clone())) {
            self.broken(|| {
                format!(
                    "5 reported:  the hook has no notice of release {key:?}, of {job} attempt \
                                    {attempt}"
                )
            });
        }
    }

    /// Checks the row of a drain. A drain by an operator is lifted only at an operator's request. A drain in force was
    /// carried out by the hook, or listed by an edge.
    pub(super) fn check_drain(&mut self, row: &DrainRow) {
        let asked = self.releases.lifted.contains_key(&row.host);
        if row.lifted && row.by.is_some() && !asked {
            self.broken(|| format!("drain: that of {} was asked for by an operator, and it was not lifted", row.host));
        }
        let reported = self.releases.carried_out.get(&row.host) == Some(&row.notice_id);
        // An edge may have listed the drain as standing in the resource manager.
        let reported = reported || self.releases.is_drained(row.host.as_str());
        let reported = reported || self.releases.hook != Some(true);
        if row.confirmed && !row.lifted && !reported {
            self.broken(|| {
                format!(
                    "4 released: the drain of {} is in force, and the hook was never \
                                    notified",
                    row.host
                )
            });
        }
    }

    pub(super) fn check_release(&mut self, store: &Snapshot, row: &AttemptRow, t: u64) {
        let (job, attempt) = (row.job.clone(), row.attempt);
        let before = self.releases.shown.insert((job.clone(), attempt), row.released.clone()).unwrap_or_default();
        let whole = Part { ranks: row.ranks.clone(), resources: row.terms.resources.clone() };
        let actions = || store.actions.iter().filter(|a| a.job == job && a.attempt == attempt);
        let held: Vec<&Part> = actions().map(|a| &a.held).collect();
        let mut to_do = IdSet::new();
        actions().flat_map(|a| [&a.waiting, &a.sent, &a.accepted]).for_each(|ranks| to_do.extend_with(ranks));
        let ranks = &row.released.ranks;
        let given_up = self.releases.given_up(&job, attempt);
        let newly = self.releases.newly_given_up.remove(&(job.clone(), attempt)).unwrap_or_default();
        for action in actions() {
            let tasks = newly.iter().map(|rank| TaskId { action: action.id, rank: Rank(rank) });
            let is_lost = |row: &RankRow| matches!(row.ended.outcome, Outcome::Lost { .. });
            let lost = |task: &TaskId| store.ranks.iter().any(|row| row.task == *task && is_lost(row));
            let sent = |task: &TaskId| action.sent.contains(task.rank.0) || lost(task);
            let has = |task: &TaskId| sent(task) || self.stops.has_read_start(*task);
            self.releases.in_flight.extend(tasks.filter(has));
        }
        let wrong = [
            (before.intersection(&row.released) != before, "takes back what was released"),
            (whole.intersection(&row.released) != row.released, "releases what is not there"),
            (!row.released.intersection(&row.hold).is_empty(), "releases what the job holds"),
            (held.iter().any(|part| !row.released.intersection(part).is_empty()), "releases what an action holds"),
            (
                !to_do.is_disjoint(&ranks.difference(&before.ranks).difference(&given_up)),
                "releases what an action has still to do",
            ),
            (row.complete != (row.released == whole), "says final too early, or not at all"),
            (!row.open && !row.hold.is_empty(), "holds for itself what another attempt has taken the place of"),
            (row.hold.ranks.is_empty() && !row.hold.resources.is_empty(), "has no rank left and keeps resources"),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is, _)| *is) {
            return self.broken(|| format!("4 released: c0 {what}: {job} attempt {attempt}, {}", row.released));
        }
        let mut releases = row.released.clone();
        releases.subtract(&before);
        releases.ranks.subtract(&given_up);
        self.check_not_served(store, row, &releases);
        self.check_followed(store, row, &releases.ranks);
        self.check_cleaned(store, row, &releases.ranks);
        for rank in releases.ranks.iter().map(Rank) {
            let Some((_, host)) = row.ranks.iter().zip(row.hosts.iter()).find(|(of, _)| *of == rank.0) else {
                continue;
            };
            let drain = store.drains.iter().find(|drain| drain.host.as_str() == host);
            // A fault in the batch of the release makes the controller send the drain again. The row of the drain is
            // then unconfirmed, although the resource manager still has the drain.
            let is_kept = self.releases.is_drained(host);
            if drain.is_some_and(|drain| !drain.confirmed && !drain.lifted) && !is_kept {
                self.broken(|| {
                    format!(
                        "4 released: rank {rank} of {job} attempt {attempt}, before the drain of {host} is in force"
                    )
                });
            }
            let Ok(host) = HostName::new(host) else { continue };
            let in_force = drain.filter(|drain| drain.confirmed && !drain.lifted);
            let is_in_book = self.is_in_book(&host);
            let is_drained = in_force.is_some() && is_in_book || is_kept;
            if !is_drained && self.is_at_fault(store, row, rank, &host, t) {
                self.broken(|| {
                    format!(
                        "4 released: rank {rank} of {job} attempt {attempt}, it was at fault, and {host} is not drained"
                    )
                });
            }
            // The hook has carried out the newest notice. If the host is not drained all the same, an operator has
            // undrained it in the resource manager alone.
            let done = self.releases.carried_out.get(&host);
            // With a drain in force, a live script may stay on the released rank.
            if is_kept || in_force.is_some_and(|drain| is_in_book || done == Some(&drain.notice_id)) {
                continue;
            }
            let alive = self.runs.iter().enumerate().find(|(at, run)| {
                let mine = run.job == job && run.step.0 == attempt && run.task.rank == rank && !run.local;
                mine && run.holds() && !self.releases.is_lifted_for(host.as_str(), *at)
            });
            let alive = alive.filter(|(_, run)| !self.is_doubtful(run.task, None)).map(|(_, run)| run.stem.clone());
            if let Some(stem) = alive {
                self.broken(|| format!("4 released: rank {rank} of {job} attempt {attempt}, and {stem} lives"));
            }
        }
    }

    /// Checks the run with this index when a script begins: the rank is not released, or the host is drained, or an
    /// operator undrained the host.
    pub(super) fn check_not_released(&mut self, index: usize) {
        let Some(run) = self.runs.get(index).filter(|run| !run.local) else { return };
        // What runs on a rank goes on when the rank is given up.
        let goes_on = run.starts.as_slice() != [1];
        let goes_on = goes_on || self.releases.in_flight.contains(&run.task);
        if goes_on && self.releases.given_up(&run.job, run.step.0).contains(run.task.rank.0) {
            return;
        }
        let releases = self.releases.shown.get(&(run.job.clone(), run.step.0));
        if releases.is_some_and(|part| part.ranks.contains(run.task.rank.0)) && !self.is_doubtful(run.task, None) {
            let host = super::super::world::site::host(run.node);
            let releases = &self.releases;
            // By undraining the host, in perilog or in the resource manager, an operator answered for the processes
            // there.
            let lifted = releases.lifted.contains_key(&host) || releases.lifted_outside.contains_key(&host);
            let known = releases.drained.contains(&host) || lifted;
            // Without a hook, drains are in force at once and only the store has them.
            let hookless = releases.hook != Some(true) || releases.hooked_late;
            if known || hookless && (releases.has_forgotten() || self.is_drained_here(&host)) {
                return;
            }
            let stem = run.stem.clone();
            self.broken(|| format!("4 released: {stem} begins on a rank that was released"));
        }
    }

    /// Returns the verdicts that are right for these outcomes by the job's terms. The list has several where the checks
    /// cannot see which settings, or which order of events, applied.
    pub(super) fn verdicts(&self, store: &Snapshot, row: &ActionRow, outcomes: &[Outcome]) -> Vec<Verdict> {
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt);
        let (terms, of) = attempt.map_or((Terms::default(), 0), |a| (a.terms.clone(), a.ranks.len()));
        let hold = attempt.map(|a| a.hold.ranks.clone()).unwrap_or_default();
        // Ranks that the job handed over before a task began on them do not count, if the job goes on and the action
        // covered other ranks too.
        let never_begun = |row: &ActionRow| -> IdSet {
            let ends = store.ranks.iter().filter(|rank| rank.task.action == row.id);
            let never = ends.filter(|rank| rank.ended.outcome == (Outcome::Cancelled { status: None }));
            let mut never = never.map(|rank| rank.task.rank.0).collect::<IdSet>().intersection(&row.not_ok);
            row.boots.values().for_each(|sent| never.subtract(sent));
            never
        };
        let shed = never_begun(row).difference(&hold);
        let shed = if hold.is_empty() || shed == row.ranks { IdSet::new() } else { shed };
        let mut left_out = 0;
        let mut counts = |outcome: &&Outcome| {
            let out = **outcome == (Outcome::Cancelled { status: None }) && left_out < shed.len();
            left_out += u64::from(out);
            !out
        };
        let of_all = Verdict::of(outcomes);
        let outcomes: Vec<Outcome> = outcomes.iter().filter(|outcome| counts(outcome)).cloned().collect();
        let bad: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.is_ok()).collect();
        let strict = Verdict::of(&outcomes);
        // `used` and `more`: the failures that other actions of the attempt have already forgiven.
        let bad_of = |id| -> IdSet {
            let rows = store.ranks.iter().filter(|rank| rank.task.action == id && !rank.ended.outcome.is_ok());
            rows.map(|rank| rank.task.rank.0).collect()
        };
        let mine = bad_of(row.id).intersection(&row.not_ok).difference(&shed);
        let (mut used, mut more) = (IdSet::new(), 0);
        let of_attempt = |a: &&ActionRow| a.job == row.job && a.attempt == row.attempt && a.id != row.id;
        let forgiven = |a: &&ActionRow| a.verdict == Some(Verdict::Ok) && a.name.as_str() != "epilog";
        let mut others = false;
        for other in store.actions.iter().filter(of_attempt) {
            // The two verdicts came in one batch: the checks cannot see the order.
            others |= other.ended_ms == row.ended_ms;
            if forgiven(&other) {
                used.extend_with(&bad_of(other.id).intersection(&other.not_ok).difference(&never_begun(other)));
                let ends = other.external.iter().flat_map(|external| external.ended.values());
                more += ends.filter(|end| !end.ended.outcome.is_ok()).count() as u64;
            }
        }
        let used = used.difference(&mine).len() + more;
        let forgiving = |lost: bool| {
            let soft = |outcome: &&Outcome| {
                matches!(outcome, Outcome::Tolerable) || (lost && matches!(outcome, Outcome::Lost { .. }))
            };
            let left = hold.difference(&mine).len();
            let enough = hold.is_empty()
                || left >= terms.keep.map_or(0, u64::from).max(u64::from(terms.shrink || terms.keep.is_some()));
            let most = bad.len() as u64 + used <= terms.forgives(of);
            if bad.iter().all(soft) && most && enough { Verdict::Ok } else { strict }
        };
        let mut may = match row.name.as_str() {
            // An after-action forgives nothing and leaves out no rank.
            "epilog" => vec![of_all],
            _ => vec![forgiving(false)],
        };
        if self.releases.lenient || others {
            may.extend([strict, of_all, forgiving(true)]);
        }
        may
    }
}
