//! Operators' decisions in a recovery (`perilog controller recover`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::giveback::outbox::first_sequence;
use crate::controller::io::{ActionRow, Confirm, Now, Record, Recover, Refusal, Reply, SessionId};
use crate::controller::job::Jobs;
use crate::controller::job::attempt::JobAttempt;
use crate::controller::job::layout::Layout;
use crate::controller::machine::Machine;
use crate::controller::node::session::MAX_SEEN;
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::outcome::Outcome;
use crate::task::Ended;

/// Reason of tasks that never begin, because an operator said that the lost life had released the hosts.
const GIVEN_BACK: &str = "given back before the store was put back";

impl Jobs {
    /// Returns `true` if this attempt is unvouched.
    pub(in crate::controller) fn is_unvouched(&self, job: &JobId, number: Attempt) -> bool {
        self.attempt(job, number).is_some_and(|attempt| attempt.unvouched)
    }
}

impl Machine {
    pub(in crate::controller) fn recover(&mut self, asked: Recover, uid: u32, now: Now) -> Result<Reply, Refusal> {
        match asked {
            Recover::List => Ok(Reply::Recovery(Box::new(self.show(now).show_recovery()))),
            Recover::TakeOver => Ok(self.take_over(uid, now)),
            Recover::Confirm { job, attempt, word } => self.confirm(job.as_ref(), attempt, word, uid, now),
            Recover::Forget { host } => self.forget_told(&host, uid, now),
        }
    }

    /// Takes over: begins a new epoch above every epoch that agents reported. Commits of the reported epochs prove a
    /// lost life: recovery begins.
    fn take_over(&mut self, uid: u32, now: Now) -> Reply {
        let seen = self.highest_seen.as_ref().map_or(0, |(_, epoch)| epoch.number);
        let suspects = self.recovery.suspects.values().map(|commit| commit.epoch.number.min(MAX_SEEN)).max();
        let suspects = suspects.unwrap_or(0);
        self.raise_epoch(seen.max(suspects), now);
        self.enter_recovery(format!("uid {uid} said that this controller takes over"), now);
        Reply::TookOver { epoch: self.epoch.number }
    }

    /// Begins a life with an epoch above `above`, and ends every session; agents connect anew under the new epoch.
    pub(super) fn raise_epoch(&mut self, above: u64, now: Now) {
        self.epoch.number = self.epoch.number.max(above).saturating_add(1);
        self.outbox_last = first_sequence(now.wall_ms, self.outbox_last);
        self.history.begin(self.epoch, self.history.last + 1);
        self.batch.records.push(Record::Epoch(self.epoch));
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in sessions {
            self.end_session(id, "this controller takes over: a new epoch", now);
        }
    }

    /// Applies an operator's statement to one job, or to all attempts that wait for one.
    ///
    /// # Errors
    /// No named attempt waits for a statement, or the statement is `Running` and this store does not know the attempt.
    fn confirm(
        &mut self,
        job: Option<&JobId>,
        attempt: Option<Attempt>,
        word: Confirm,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let is_meant = |of: &JobId, number: Attempt| {
            job.is_none_or(|job| job == of) && attempt.is_none_or(|attempt| attempt == number)
        };
        // A job that the operator names needs no list of its edge, which may never come back.
        let waits = |attempt: &JobAttempt| attempt.waits_for_a_word() || job.is_some() && attempt.has_disowned();
        let waiting = self.jobs.attempts().filter(|(_, _, attempt)| waits(attempt));
        let mut waiting: BTreeSet<(JobId, Attempt)> = waiting.map(|(job, number, _)| (job.clone(), number)).collect();
        waiting.extend(self.facts().orphan_attempts());
        waiting.retain(|(of, number)| is_meant(of, *number));
        if let Some(job) = job.filter(|_| waiting.len() > 1) {
            let numbers: Vec<String> = waiting.iter().map(|(_, number)| number.to_string()).collect();
            let text =
                format!("attempts {} of job {job} wait for a word each: name one (--attempt N)", numbers.join(", "));
            return Err(Refusal::Conflict(text));
        }
        // Orphans show only the nodes that hold them, not the job's other nodes.
        let is_known = |of: &(JobId, Attempt)| word != Confirm::Running || self.jobs.attempt(&of.0, of.1).is_some();
        let unknown = waiting.iter().find(|of| !is_known(of)).cloned();
        waiting.retain(is_known);
        if waiting.is_empty() {
            let text = match job {
                Some(job) if let Some((_, number)) = unknown => format!(
                    "this store does not know attempt {number} of job {job}: if it runs, name all its nodes: perilog job add {job} --attempt {number} --nodes HOSTS"
                ),
                Some(job) => format!("nothing of job {job} waits for a word: look with: perilog controller recover"),
                None => "nothing waits for a word".to_owned(),
            };
            return Err(Refusal::Conflict(text));
        }
        let named = job.is_some();
        for (job, number) in &waiting {
            let said = match word {
                Confirm::Over => "is over",
                Confirm::Running => "goes on",
                Confirm::Gone => "is over and has given its nodes back",
            };
            self.note(Level::Info, Some(job), None, format!("uid {uid} says that attempt {number} {said}"));
            if word == Confirm::Gone {
                self.close_untold(job, *number, uid, now);
                continue;
            }
            // The resource manager vouches for the rest of the attempt: only disowned ranks and orphans are in
            // question.
            let is_vouched = self.jobs.attempt(job, *number).is_some_and(JobAttempt::is_vouched);
            let handed = self.adopt_orphans_of(job, *number, word, now);
            self.assert_attempt(job, *number, now);
            self.clean_by_hand(job, *number, named);
            match word {
                Confirm::Gone => {}
                Confirm::Over if is_vouched => drop(self.let_go(job, *number, &Part::of_ranks(handed), now)),
                Confirm::Over => {
                    let whole = self.jobs.attempt(job, *number).map(JobAttempt::whole).unwrap_or_default();
                    self.let_go(job, *number, &whole, now);
                }
                Confirm::Running => {
                    if let Some(attempt) = self.jobs.attempt_mut(job, *number).filter(|attempt| attempt.open) {
                        attempt.added = true;
                        self.batch.attempts.insert((job.clone(), *number));
                    }
                    self.let_go(job, *number, &Part::of_ranks(handed), now);
                }
            }
            let ids = self.jobs.attempt(job, *number).map(|attempt| attempt.actions.clone()).unwrap_or_default();
            for id in ids {
                let ranks = self.jobs.action(id).map(|action| action.row.ranks.clone()).unwrap_or_default();
                self.start_ready(id, &ranks, now);
            }
        }
        Ok(Reply::Reached { tasks: waiting.len() as u64 })
    }

    /// Closes an attempt whose nodes were released and cleaned up in the lost life, by an operator's statement. No task
    /// of the attempt begins, and no notice is sent. Running tasks go on to their end, services are asked to stop, and
    /// orphans are given up.
    fn close_untold(&mut self, job: &JobId, number: Attempt, uid: u32, now: Now) {
        let orphans = self.facts().orphans().filter(|(_, _, orphan)| orphan.job == *job && orphan.attempt == number);
        let orphans: Vec<(HostName, TaskId)> = orphans.map(|(host, task, _)| (host.clone(), task)).collect();
        for (host, task) in orphans {
            self.give_up_orphan(&host, task, now);
        }
        let Some(attempt) = self.jobs.attempt(job, number) else { return };
        if attempt.is_vouched() {
            let part = Part::of_ranks(attempt.in_doubt());
            return self.close_part(job, number, &part, uid, now);
        }
        self.drop_owed(job, number);
        let left = self.jobs.unreleased(job, number);
        self.close_part(job, number, &left, uid, now);
        if let Some(attempt) = self.jobs.attempt_mut(job, number) {
            attempt.open = false;
        }
        self.stop_services(job, number, GIVEN_BACK, now);
        self.event(job, now, "attempt-closed", json!({"attempt": number, "why": GIVEN_BACK, "by": uid}));
        self.assert_attempt(job, number, now);
    }

    /// Closes a part of an attempt that the lost life had released: waiting tasks never begin, and no notice is sent.
    /// Running tasks go on to their end.
    fn close_part(&mut self, job: &JobId, number: Attempt, part: &Part, uid: u32, now: Now) {
        self.disown(job, number, &part.ranks);
        let Some(attempt) = self.jobs.attempt(job, number) else { return };
        for id in attempt.actions.clone() {
            let unbegun = |action: &Action| action.row.waiting.union(&action.row.sent).intersection(&part.ranks);
            let ranks = self.jobs.action(id).map(unbegun).unwrap_or_default();
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                if let Some(session) = self.facts().session_of(task) {
                    self.send_cancel(session, task, GIVEN_BACK);
                }
                let outcome = Outcome::Resolved { ok: true, reason: GIVEN_BACK.to_owned(), by: uid };
                self.end_task(task, Ended::bare(outcome, now.wall_ms), now);
            }
        }
        let Some(attempt) = self.jobs.attempt_mut(job, number) else { return };
        attempt.by_hand = true;
        let part = attempt.let_go(part);
        let last = attempt.hold.ranks.is_empty();
        self.batch.attempts.insert((job.clone(), number));
        if last {
            self.nothing_more(job, number);
        }
        self.batch.let_go.entry((job.clone(), number)).or_default().extend_with(&part);
    }

    /// Adopts the orphans of an attempt, each on the rank that the node reported. Gives up orphans that contradict the
    /// store: a running orphan gets TERM, and the controller acknowledges the end. Returns the ranks that the lost
    /// life had handed over, as an orphaned after-action there shows.
    fn adopt_orphans_of(&mut self, job: &JobId, number: Attempt, word: Confirm, now: Now) -> IdSet {
        let of: Vec<(HostName, TaskId, ActionName, Option<u32>, bool)> = self
            .facts()
            .orphans()
            .filter(|(_, _, orphan)| orphan.job == *job && orphan.attempt == number)
            .map(|(host, task, o)| (host.clone(), task, o.action.clone(), o.userid, o.is_unclaimed()))
            .collect();
        if of.is_empty() {
            return IdSet::new();
        }
        if self.jobs.attempt(job, number).is_none() {
            let by_rank: BTreeMap<u32, &HostName> = of.iter().map(|(host, task, ..)| (task.rank.0, host)).collect();
            let hosts = HostList::from_names(by_rank.values().map(|host| host.as_str())).unwrap_or_default();
            let userid = of.iter().find_map(|(.., userid, _)| *userid);
            let is_newer = self.jobs.get(job).and_then(|entry| entry.last_attempt()).is_none_or(|last| last < number);
            if let Ok(layout) = Layout::new(by_rank.keys().copied().collect(), hosts)
                && is_newer
            {
                let attempt = JobAttempt::new(layout, userid, Terms::default(), true, now.wall_ms);
                self.open_attempt(job, number, JobAttempt { recovered: true, ..attempt }, now);
            }
        }
        let mut handed = IdSet::new();
        let mut setup: BTreeMap<(ActionId, ActionName), IdSet> = BTreeMap::new();
        for (host, task, name, _, is_unclaimed) in of {
            let id = ActionId::of(self.settings.cluster, job, number, &name);
            let fits = self.jobs.attempt(job, number).is_some_and(|attempt| {
                let holds = attempt.hold.ranks.contains(task.rank.0);
                attempt.layout.host(task.rank).as_ref() == Some(&host) && holds && id == task.action
            });
            let follows = self.settings.after.contains(&name);
            let is_open = self.jobs.action(id).is_none_or(|action| action.row.verdict.is_none());
            let is_stale = is_unclaimed && word == Confirm::Over;
            if fits && follows && is_open {
                handed.insert(task.rank.0);
            } else if fits && !follows && !self.jobs.actions.contains_key(&id) && !is_stale {
                setup.entry((id, name)).or_default().insert(task.rank.0);
            } else {
                self.give_up_orphan(&host, task, now);
            }
        }
        for ((id, name), ranks) in setup {
            let userid = self.jobs.attempt(job, number).and_then(|attempt| attempt.userid);
            let mut row = ActionRow::new(id, job.clone(), number, name.clone(), ranks.clone(), now.wall_ms);
            row.timeout_ms = self.settings.timeouts.get(&name).copied();
            (row.userid, row.waiting, row.accepted) = (userid, IdSet::new(), ranks.clone());
            self.begin(row, now);
        }
        handed
    }

    /// Reduces an attempt to `ranks`: a request with fewer ranks names everything that is not released. If a hook or an
    /// operator made the request, no edge will vouch for the other hosts; they count as released by the lost life.
    pub(in crate::controller) fn shrink_to(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) {
        let gone = self.jobs.unreleased(job, number).ranks.difference(ranks);
        let gone = Part::of_ranks(gone);
        self.disown(job, number, &gone.ranks);
        self.let_go(job, number, &gone, now);
        if self.jobs.attempt(job, number).is_some_and(|attempt| attempt.source.is_none()) {
            self.close_part(job, number, &gone, 0, now);
        }
    }
}
