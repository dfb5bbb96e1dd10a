//! The resource manager of the world, with jobs of its own: gives each host to one job at a time. Normally a host
//! goes to another job only after perilog has sent the host's release. But a rollback, for example, may make the
//! resource manager forget the host's job ([`crate::plan::Fault::SchedulerRolledBack`]).
//!
//! ```text
//!   launch -> job add -> prolog -> runs -> job finish -> release sent -> the host is free
//! ```
//! One kind speaks as an edge. After each start of the controller, and at times in between, the edge reads the outbox,
//! asserts all attempts, and only then continues. The other kind uses hooks: each hook repeats its request until the
//! answer comes, and an operator finishes the jobs that no hook asks for.

mod away;
mod list;

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::Record;
use perilog_core::controller::io::{
    JobAdd, OutboxEntry, Reader, Refusal, Reply, Request, RunRequest, Source, SyncPage,
};
use perilog_core::{Attempt, HostList, IdSet, JobId, Targets, Terms, Tolerance, Verdict};

use super::World;
use super::event::Event;
use super::site;
use crate::plan::Scheduler as Kind;

/// Longest time (ms) between two turns in which the resource manager looks at its jobs.
const TURN_MS: u64 = 2_000;
/// Time (ms) after which an edge without an answer begins once more to connect to the same controller.
const UNANSWERED_MS: u64 = 20_000;

/// An attempt: the job's id and the attempt's number.
pub(crate) type Of = (JobId, Attempt);

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    book: Book,
    /// Number of each job's newest attempt. A rollback does not reset these numbers: a real resource manager takes them
    /// from a clock.
    attempts: BTreeMap<JobId, u64>,
    link: Link,
    asked: BTreeMap<u64, PendingRequest>,
    down_until: u64,
    is_turning: bool,
    /// Copies of `book` at earlier times, for rollbacks.
    copies: Vec<Book>,
    /// Attempts whose releases may name ranks that the resource manager does not hold for them: a rollback made it
    /// forget the attempts, or the controller refused them.
    forgotten: BTreeSet<Of>,
    /// Releases, by epoch and sequence number, that were sent before the resource manager was rolled back.
    notified_before: BTreeSet<(u64, u64)>,
}

/// The part of the resource manager's state that a rollback restores: its jobs, and the releases that it has applied.
#[derive(Debug, Clone, Default)]
struct Book {
    jobs: BTreeMap<Of, Job>,
    /// Releases that the resource manager has applied, by epoch and sequence.
    received: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Job {
    /// The index of each rank's node, in rank order.
    hosts: Vec<usize>,
    /// Ranks of the job that are not free yet.
    held: IdSet,
    /// Ranks that the running job has asked to drop.
    leaving: IdSet,
    phase: Phase,
    ms: u64,
    /// Whether the controller has confirmed that it has the attempt.
    added: bool,
    /// The controller's machine that got the resource manager's requests for the job's present phase; `None`: the
    /// resource manager has still to make them.
    asked_in: Option<Load>,
    /// Whether the controller refused the attempt, which then keeps its hosts.
    is_stuck: bool,
}

impl Job {
    /// Renumbers the job's remaining ranks from 0. Released ranks no longer belong to the job: the resource manager
    /// adds the job to the controller anew, without them.
    fn count_anew(&mut self) {
        self.hosts = self.held.iter().filter_map(|rank| self.hosts.get(rank as usize).copied()).collect();
        self.held = (0..self.hosts.len() as u32).collect();
        self.leaving = IdSet::new();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preparing,
    Running { until: u64 },
    Ended,
}

/// Identifies a machine that the controller loaded from its store: the number of the controller's process, and the
/// world time (ms) at which the process loaded the machine.
type Load = (u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Link {
    #[default]
    Down,
    /// The edge reads the outbox, or waits for the answer to its list. `since`: world time (ms) at which the edge
    /// began to read.
    Connecting {
        load: Load,
        since: u64,
    },
    Up {
        load: Load,
    },
}

#[derive(Debug, Clone)]
enum PendingRequest {
    Backlog(Load),
    /// A page of the edge's list; the further pages, and the attempts that earlier pages had refused.
    Sync(Load, Vec<SyncPage>, BTreeSet<Of>),
    Outbox,
    Add(Of),
    Other(Of),
}

impl World {
    fn load_of(&self) -> Load {
        (self.controllers[0].incarnation, self.controllers[0].loaded_at)
    }

    /// Returns `true` if no job has the host and the host is not drained.
    fn is_free(&self, at: usize) -> bool {
        let has = |job: &Job| job.held.iter().any(|rank| job.hosts.get(rank as usize) == Some(&at));
        !self.scheduler.book.jobs.values().any(has) && !self.is_drained_there(at)
    }

    /// Returns `true` if the resource manager shows the host as drained. If no drain hook is configured, a drain in the
    /// controller's store also counts.
    fn is_drained_there(&self, at: usize) -> bool {
        let host = site::host(at);
        let hooked = site::settings(self.settings).drain_hook;
        let mut drains = self.controllers[0].store.drains.iter();
        self.truth.is_drained_in_its_book(host.as_str())
            || !hooked && drains.any(|drain| drain.host == host && !drain.lifted)
    }

    pub(crate) fn launch(&mut self, number: u8, count: usize, ms: u64) {
        if self.plan.scheduler.is_none() || self.t < self.scheduler.down_until {
            return;
        }
        let free: Vec<usize> = (0..self.plan.nodes).filter(|at| self.is_free(*at)).take(count).collect();
        if free.is_empty() {
            return;
        }
        let job = site::job(number);
        // A launch ends the existing attempt of the job.
        self.end_of(&job);
        let last = self.scheduler.attempts.entry(job.clone()).or_default();
        *last += 1;
        let attempt = site::attempt(*last);
        let held = (0..free.len() as u32).collect();
        let new = Job {
            hosts: free,
            held,
            leaving: IdSet::new(),
            phase: Phase::Preparing,
            ms,
            added: false,
            asked_in: None,
            is_stuck: false,
        };
        self.log_line(|| format!("the resource manager launches {job} attempt {attempt}: {:?}", new.hosts));
        self.truth.asked_for_attempt(&job, Some(attempt));
        self.scheduler.book.jobs.insert((job, attempt), new);
        self.schedule(1);
    }

    /// Ends all attempts of the resource manager's job with this number.
    pub(crate) fn end_launched(&mut self, number: u8) {
        self.end_of(&site::job(number));
        self.schedule(1);
    }

    fn end_of(&mut self, job: &JobId) {
        let mut ended = false;
        for (_, one) in
            self.scheduler.book.jobs.iter_mut().filter(|((of, _), one)| of == job && one.phase != Phase::Ended)
        {
            (one.phase, one.asked_in, ended) = (Phase::Ended, None, true);
        }
        if ended {
            self.truth.asked_to_end(job.clone());
        }
    }

    /// Lets the resource manager's job with this number, if it runs, give up all but the first `keep` ranks that it
    /// holds.
    pub(crate) fn shrink_launched(&mut self, number: u8, keep: u32) {
        let job = site::job(number);
        let mut shrinks = false;
        for (_, one) in self.scheduler.book.jobs.iter_mut().filter(|((of, _), _)| *of == job) {
            if matches!(one.phase, Phase::Running { .. }) {
                let leaving: IdSet = one.held.iter().skip(keep.max(1) as usize).collect();
                one.leaving.extend_with(&leaving);
                (one.asked_in, shrinks) = (None, true);
            }
        }
        if shrinks {
            self.truth.asked_to_end(job);
            self.schedule(1);
        }
    }

    /// Schedules the resource manager's next look at its jobs, in `ms` milliseconds.
    pub(crate) fn schedule(&mut self, ms: u64) {
        if self.plan.scheduler.is_some() && !std::mem::replace(&mut self.scheduler.is_turning, true) {
            self.after(ms, Event::Scheduler);
        }
    }

    pub(crate) fn scheduler_turn(&mut self) {
        self.scheduler.is_turning = false;
        let down = self.scheduler.down_until;
        if self.t < down && !self.quiet {
            return self.schedule(down - self.t);
        }
        if self.quiet {
            let jobs: BTreeSet<JobId> = self.scheduler.book.jobs.keys().map(|(job, _)| job.clone()).collect();
            jobs.iter().for_each(|job| self.end_of(job));
        }
        let is_up = self.controllers[0].is_up();
        let is_edge = self.plan.scheduler == Some(Kind::Edge);
        if is_up && (!is_edge || self.is_linked()) {
            self.ask_outbox();
            let all: Vec<Of> = self.scheduler.book.jobs.keys().cloned().collect();
            for of in all {
                self.go_on_with(&of);
            }
            if is_edge && self.dice.one_in(30) {
                // The edge begins anew: it knows nothing that it has asked, and asks again.
                self.forget_asked();
            }
        }
        let waits = self.scheduler.book.jobs.values().any(|job| !job.is_stuck);
        let unlinked = is_edge && is_up && !self.is_linked();
        // An edge follows the outbox even if it has no job, because a clean-up may wait until a notice was read.
        let mut outbox = self.controllers[0].store.outbox.iter();
        let unread = is_edge && outbox.any(|entry| entry.reader == Reader::Manager);
        if (waits || unlinked || unread) && self.t < self.verdicts_at {
            let pause = self.dice.range(TURN_MS / 4, TURN_MS);
            self.schedule(pause);
        }
    }

    /// Returns `true` if the edge has asserted its attempts to the present load of the controller. If not, begins to
    /// connect and assert, unless the edge is already waiting for an answer.
    fn is_linked(&mut self) -> bool {
        let now = self.load_of();
        match self.scheduler.link {
            Link::Up { load } if load == now => true,
            Link::Connecting { load, since } if load == now && self.t < since + UNANSWERED_MS => false,
            _ => {
                self.scheduler.link = Link::Connecting { load: now, since: self.t };
                self.asks(PendingRequest::Backlog(now), Request::Outbox { after: 0, limit: usize::MAX });
                false
            }
        }
    }

    fn asks(&mut self, what: PendingRequest, request: Request) {
        self.scheduler.asked.insert(self.controllers[0].clients + 1, what);
        let is_edge = self.plan.scheduler == Some(Kind::Edge);
        self.ask(0, if is_edge { Request::OfEdge(Box::new(request)) } else { request });
    }

    fn ask_outbox(&mut self) {
        self.asks(PendingRequest::Outbox, Request::Outbox { after: 0, limit: usize::MAX });
    }

    fn source(&self) -> Option<Source> {
        (self.plan.scheduler == Some(Kind::Edge)).then(site::source)
    }

    fn terms_of((job, _): &Of, one: &Job) -> Terms {
        // Jobs get an R by their numbers, as all jobs do.
        let r = if site::has_r(job) { site::resources(&hosts_of(one.hosts.iter())).map(Box::new) } else { None };
        Terms { tolerate: Some(Tolerance::Ranks(0)), r, ..Terms::default() }
    }

    fn add_of(&self, of: &Of, one: &Job) -> JobAdd {
        let terms = Self::terms_of(of, one);
        let nodes = terms.r.is_none().then(|| hosts_of(one.hosts.iter()));
        let (source, attempt) = (self.source(), Some(of.1));
        JobAdd { source, job: of.0.clone(), attempt, nodes, userid: Some(1_000), terms }
    }

    /// Builds the request that adds an attempt with the hosts that it still holds.
    fn add_held(&self, of: &Of, one: &Job) -> JobAdd {
        let held = one.held.iter().filter_map(|rank| one.hosts.get(rank as usize));
        let terms = Terms { r: None, ..Self::terms_of(of, one) };
        JobAdd { nodes: Some(hosts_of(held)), terms, ..self.add_of(of, one) }
    }

    fn go_on_with(&mut self, of: &Of) {
        let (load, t) = (self.load_of(), self.t);
        let Some(one) = self.scheduler.book.jobs.get(of).filter(|one| !one.is_stuck) else { return };
        let (one, is_asked) = (one.clone(), one.asked_in == Some(load));
        // The end reached no hook: the waiting resource manager finds the attempt over.
        if one.phase == Phase::Ended && is_asked && self.is_closed(of) {
            return self.free_ranks(of, None, true);
        }
        if !one.added {
            if !is_asked {
                let add = self.add_of(of, &one);
                self.note_asked(of, load);
                self.asks(PendingRequest::Add(of.clone()), Request::JobAdd(Box::new(add)));
            }
            return;
        }
        let request = match one.phase {
            Phase::Preparing => match self.verdict_of(of) {
                Some(Verdict::Ok) => {
                    self.moves(of, Phase::Running { until: t + one.ms });
                    None
                }
                Some(_) => {
                    self.truth.asked_to_end(of.0.clone());
                    self.moves(of, Phase::Ended);
                    None
                }
                None => Some(Request::Run(RunRequest {
                    env: site::offered(&of.0),
                    job: of.0.clone(),
                    attempt: Some(of.1),
                    action: site::action("prolog"),
                    nodes: None,
                    targets: None,
                    userid: Some(1_000),
                    timeout_ms: None,
                    known: false,
                })),
            },
            Phase::Running { until } if t >= until => {
                self.truth.asked_to_end(of.0.clone());
                self.moves(of, Phase::Ended);
                None
            }
            Phase::Running { .. } => {
                let leaving = one.leaving.intersection(&one.held);
                (!leaving.is_empty()).then(|| finish(of, Some(Targets::Ranks(leaving))))
            }
            // The finish first names the remaining ranks, as a hook does, because the controller may have forgotten a
            // release. An edge has asserted its ranks. A site's retention is longer than its hooks wait.
            Phase::Ended
                if !is_asked
                    && (self.source().is_none() && !self.truth.was_pruned(of)
                        || one.held.len() < one.hosts.len() as u64) =>
            {
                let add = self.add_held(of, &one);
                self.asks(PendingRequest::Other(of.clone()), Request::JobAdd(Box::new(add)));
                Some(finish(of, None))
            }
            Phase::Ended => Some(finish(of, None)),
        };
        if let Some(request) = request.filter(|_| !is_asked) {
            self.note_asked(of, load);
            self.asks(PendingRequest::Other(of.clone()), request);
        }
    }

    fn moves(&mut self, of: &Of, phase: Phase) {
        if let Some(one) = self.scheduler.book.jobs.get_mut(of) {
            (one.phase, one.asked_in) = (phase, None);
        }
        self.schedule(1);
    }

    fn note_asked(&mut self, of: &Of, load: Load) {
        if let Some(one) = self.scheduler.book.jobs.get_mut(of) {
            one.asked_in = Some(load);
        }
    }

    /// Returns the verdict of the attempt's prolog, for which a hook of the resource manager waits; `None`: there is no
    /// verdict yet.
    fn verdict_of(&self, (job, attempt): &Of) -> Option<Verdict> {
        let mut rows = self.controllers[0].store.actions.iter();
        rows.find(|row| row.job == *job && row.attempt == *attempt && row.name.as_str() == "prolog")?.verdict
    }

    /// Handles a reply of the controller; returns `false` if it answers no request of the resource manager.
    pub(crate) fn scheduler_receives(&mut self, client: u64, reply: &Result<Reply, Refusal>) -> bool {
        let Some(asked) = self.scheduler.asked.remove(&client) else { return false };
        match (asked, reply) {
            (PendingRequest::Backlog(load), Ok(Reply::Outbox(entries))) => {
                self.apply(entries);
                let list = self.list();
                self.log_line(|| format!("the resource manager lists {list:?}"));
                for of in list.iter().flat_map(|page| &page.attempts) {
                    self.truth.listed(&of.job, of.attempt, &of.ranks);
                }
                self.send_page(load, list, BTreeSet::new());
            }
            (PendingRequest::Outbox, Ok(Reply::Outbox(entries))) => self.apply(entries),
            (PendingRequest::Sync(load, pages, mut refused), Ok(Reply::Synced(reported))) => {
                for (job, attempt, why) in &reported.refused {
                    self.log_line(|| format!("the resource manager is refused {job} attempt {attempt}: {why}"));
                    // The resource manager fails the job, and logs the refusal.
                    let of = (job.clone(), *attempt);
                    if let Some(one) = self.scheduler.book.jobs.remove(&of) {
                        one.hosts.iter().for_each(|at| self.truth.free_host(*at, &of));
                    }
                    self.scheduler.forgotten.insert(of.clone());
                    refused.insert(of);
                }
                if !pages.is_empty() {
                    let pages = pages.into_iter().map(|page| SyncPage { sync: Some(reported.sync), ..page });
                    self.send_page(load, pages.collect(), refused);
                    return true;
                }
                let added: Vec<Of> =
                    self.scheduler.book.jobs.keys().filter(|of| !refused.contains(of)).cloned().collect();
                added.iter().for_each(|of| self.is_added(of));
                self.scheduler.link = if refused.is_empty() { Link::Up { load } } else { Link::Down };
                self.truth.hosts_asserted(self.t);
                self.schedule(1);
            }
            (PendingRequest::Add(of), Ok(Reply::Added { over: false, .. })) => {
                self.is_added(&of);
                self.enter_again(&of);
            }
            // The job is over for the controller. Its ranks become free with their releases, or did so in a lost epoch.
            (PendingRequest::Add(of), Ok(Reply::Added { over: true, .. })) => {
                self.truth.asked_to_end(of.0.clone());
                self.moves(&of, Phase::Ended);
                self.is_added(&of);
                self.enter_again(&of);
            }
            (PendingRequest::Add(of) | PendingRequest::Other(of), Err(refusal)) => self.refused(&of, refusal),
            // The controller did not know the attempt, and now has it with the remaining ranks only.
            (PendingRequest::Other(of), Ok(Reply::Added { attached: false, .. })) => {
                if let Some(one) = self.scheduler.book.jobs.get_mut(&of) {
                    one.count_anew();
                }
            }
            (PendingRequest::Backlog(_) | PendingRequest::Sync(..), Err(_)) => self.scheduler.link = Link::Down,
            _ => {}
        }
        true
    }

    /// Returns `true` if perilog is done with the attempt: the first controller's store shows all of it as released,
    /// and its outbox has no notice about it.
    fn is_closed(&self, (job, attempt): &Of) -> bool {
        let store = &self.controllers[0].store;
        let is_pending = store.outbox.iter().any(|entry| entry.job == *job && entry.attempt == *attempt);
        let mut rows = store.attempts.iter();
        !is_pending && rows.any(|row| row.job == *job && row.attempt == *attempt && row.complete)
    }

    fn enter_again(&mut self, of: &Of) {
        if let Some(one) = self.scheduler.book.jobs.get_mut(of) {
            one.asked_in = None;
        }
        self.schedule(1);
    }

    fn refused(&mut self, of: &Of, refusal: &Refusal) {
        self.log_line(|| format!("the resource manager is refused {} attempt {}: {refusal:?}", of.0, of.1));
        let is_new = !self.truth.is_host_of(of);
        let mut rows = self.controllers[0].store.attempts.iter();
        let is_there = rows.any(|row| (&row.job, row.attempt) == (&of.0, of.1));
        // The controller has pruned the attempt past its retention: it had released every rank.
        if matches!(refusal, Refusal::NoSuchJob(_) | Refusal::NoSuchAttempt(_)) && self.truth.was_pruned(of) {
            return self.free_ranks(of, None, true);
        }
        let Some(one) = self.scheduler.book.jobs.get_mut(of) else { return };
        match refusal {
            Refusal::NoSuchJob(_) | Refusal::NoSuchAttempt(_) | Refusal::NoSuchAction(_) => {
                (one.added, one.asked_in) = (false, None);
                one.count_anew();
            }
            Refusal::Unavailable(_) => one.asked_in = None,
            // The controller has the attempt, and was stopped before its reply; or a later attempt came first.
            Refusal::AttemptClosed(_) if is_there && one.phase == Phase::Ended && one.added => {}
            Refusal::AttemptClosed(_) if is_there => {
                (one.added, one.phase, one.asked_in) = (true, Phase::Ended, None);
            }
            // The attempt itself is in no doubt; the controller has it unchanged. If a restored store has more hosts of
            // the attempt, a hook's finish means all of them.
            Refusal::Conflict(_) if one.added => drop(self.scheduler.forgotten.insert(of.clone())),
            // A job that never began frees its hosts itself.
            _ if is_new => drop(self.scheduler.book.jobs.remove(of)),
            _ => one.is_stuck = true,
        }
    }

    /// Records that the controller has confirmed the attempt. Also records, for the checks in `truth::hosts`, that both
    /// sides now agree on the attempt's hosts.
    fn is_added(&mut self, of: &Of) {
        let t = self.t;
        let Some(one) = self.scheduler.book.jobs.get_mut(of) else { return };
        one.added = true;
        let hosts: Vec<usize> = one.held.iter().filter_map(|rank| one.hosts.get(rank as usize).copied()).collect();
        for at in hosts {
            self.truth.host_released(at, of, t);
        }
    }

    /// Frees the ranks that the releases in these outbox entries name, each release once, and acknowledges the entries
    /// to the controller.
    fn apply(&mut self, entries: &[OutboxEntry]) {
        for entry in entries.iter().filter(|entry| entry.reader == Reader::Manager) {
            let of = (entry.job.clone(), entry.attempt);
            let body = entry.body.value();
            if body["event"] != "release" || !site::is_launched(&of.0) {
                continue;
            }
            if !self.scheduler.book.received.insert((entry.epoch, entry.sequence)) {
                continue;
            }
            let ranks: IdSet = body["ranks"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
            let is_new = !self.scheduler.notified_before.contains(&(entry.epoch, entry.sequence));
            self.free_ranks(&of, Some(ranks), is_new);
        }
        if let Some(last) = entries.last().map(|entry| entry.sequence) {
            self.ask(0, Request::OutboxApplied { through: last });
        }
    }

    /// Returns `true` if the first controller may repeat a release without a violation: it may have sent the release in
    /// a lost epoch, and cannot know.
    fn may_repeat(&self) -> bool {
        let hooks = self.plan.scheduler == Some(Kind::Hooks);
        self.truth.is_unseen() || hooks && !self.truth.reports_lost_tasks()
    }

    /// Frees these ranks of an attempt in the resource manager, because perilog has released them; `None`: all ranks.
    /// Reports a violation if a rank is released twice. `is_new`: the resource manager was not rolled back since
    /// perilog sent the release.
    fn free_ranks(&mut self, of: &Of, ranks: Option<IdSet>, is_new: bool) {
        let may_repeat = !is_new || self.may_repeat();
        let Some(one) = self.scheduler.book.jobs.get_mut(of) else {
            if !self.scheduler.forgotten.contains(of) && !may_repeat {
                let text = format!("{} attempt {} is reported free again: its hosts were given on", of.0, of.1);
                self.violate("4 released", &text);
            }
            return;
        };
        let ranks = ranks.unwrap_or_else(|| one.held.clone());
        let again = ranks.difference(&one.held);
        let is_ended = one.phase == Phase::Ended;
        one.held.subtract(&ranks);
        let hosts: Vec<usize> = ranks.iter().filter_map(|rank| one.hosts.get(rank as usize).copied()).collect();
        if one.held.is_empty() {
            self.scheduler.book.jobs.remove(of);
        }
        for at in hosts {
            self.truth.free_host(at, of);
        }
        // A hook's job has ended: its hosts are released in any case.
        let finished = self.plan.scheduler == Some(Kind::Hooks) && is_ended;
        if !again.is_empty() && !finished && !may_repeat {
            let text = format!(
                "ranks {again} of {} attempt {} are reported free again: their hosts were given \
                         on",
                of.0, of.1
            );
            self.violate("4 released", &text);
        }
    }

    /// Returns `true` if an operator who looks into the resource manager finishes this job manually: the job is over,
    /// no hook or edge asks for it, and no other job has one of `hosts`, the hosts that the controller knows for it.
    pub(crate) fn is_gone(&mut self, of: &Of, hosts: &HostList) -> bool {
        let book = &self.scheduler.book.jobs;
        let has = |one: &Job| {
            one.held
                .iter()
                .filter_map(|rank| one.hosts.get(rank as usize))
                .any(|at| hosts.iter().any(|host| host == site::host(*at).as_str()))
        };
        let is_over = !book.contains_key(of) && !book.iter().any(|(other, one)| other != of && has(one));
        if is_over {
            // A lost epoch may have sent the release.
            self.scheduler.forgotten.insert(of.clone());
        }
        is_over
    }

    pub(crate) fn is_in_book(&self, job: &JobId, attempt: Attempt) -> bool {
        self.scheduler.book.jobs.contains_key(&(job.clone(), attempt))
    }

    /// Records, for the checks in `truth`, the attempts that the controller prunes before the resource manager has read
    /// their release. The resource manager's edge adds these attempts again.
    pub(crate) fn note_forgotten_too_soon(&mut self, records: &[Record]) {
        for record in records {
            if let Record::Prune { job, attempt, .. } = record
                && self.is_in_book(job, *attempt)
            {
                self.truth.comes_again(job, *attempt);
            }
        }
    }

    /// Records, for the checks in `truth::hosts`, the hosts of ended jobs whose release the controller has committed
    /// and the resource manager has not applied.
    pub(crate) fn note_free(&mut self) {
        let ended = self.scheduler.book.jobs.iter().filter(|(_, one)| one.phase == Phase::Ended);
        let rows = &self.controllers[0].store.attempts;
        let free = ended.flat_map(|(of, one)| {
            let row = rows.iter().find(|row| (&row.job, row.attempt) == (&of.0, of.1));
            let ranks = row.map(|row| row.released.ranks.clone()).unwrap_or_default();
            ranks.iter().filter_map(|rank| Some((*one.hosts.get(rank as usize)?, of.clone()))).collect::<Vec<_>>()
        });
        for (at, of) in free.collect::<Vec<_>>() {
            self.truth.host_is_free(at, &of);
        }
    }

    /// Describes an ended attempt whose release the resource manager still lacks after everything has happened; `None`:
    /// there is none.
    pub(crate) fn unreleased(&self) -> Option<String> {
        let waits = |one: &&Job| one.added && !one.is_stuck;
        let (of, one) = self.scheduler.book.jobs.iter().find(|(_, one)| waits(one))?;
        Some(format!(
            "{} attempt {} ended, and the resource manager was never notified that ranks {} are free",
            of.0, of.1, one.held
        ))
    }
}

fn finish((job, attempt): &Of, targets: Option<Targets>) -> Request {
    Request::JobFinish { job: job.clone(), attempt: Some(*attempt), targets, resources: None }
}

fn hosts_of<'a>(hosts: impl Iterator<Item = &'a usize>) -> HostList {
    let names: Vec<_> = hosts.map(|at| site::host(*at)).collect();
    HostList::from_names(names.iter().map(|host| host.as_str())).unwrap_or_default()
}
