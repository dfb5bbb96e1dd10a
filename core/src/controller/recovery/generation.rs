//! Generations: decides what happens to each attempt when the store turns out to be behind, and how an attempt is taken
//! up again.
//!
//! | the attempt, when the generation begins | then |
//! |---|---|
//! | not fully released | abandoned; its notices to the resource manager are dropped |
//! | fully released, and a notice of it waits for the release hook | abandoned; sent when the job is finished again |
//! | fully released | stays; its notices to the resource manager are dropped |
//!
//! An abandoned attempt keeps its facts: outcomes, released ranks, requested cancels, and the ranks that got a Start.
//! An abandoned attempt is neither closed nor final. The controller records ends that nodes report. Until the attempt
//! is taken up, the controller begins and sends nothing of it, the attempt holds no host, and none of its tasks is lost
//! or past a limit.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::interface::io::{Record, Recovered, RecoveryRow};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::recovery::Recovery;
use crate::defect;
use crate::ids::{Attempt, JobId};

use super::gate::shut_ms;

/// Minimum length (ms) of the grace. The edges and the waiting clients connect again within seconds.
const GRACE_MS: u64 = 60_000;
/// Reason for which a setup task never begins: its attempt was taken up, and the job had begun or ended already.
pub(super) const BEGUN_BEFORE: &str = "the store was restored, and the job had already begun";

impl Jobs {
    /// Abandons every attempt that has pending work. `why`: the evidence, as a text for people.
    fn abandon_all(&mut self, why: &str, cx: &mut Context) {
        if defect!(NothingAbandoned) {
            return;
        }
        cx.drop_manager_notices();
        // An attempt that is not in memory has no pending work.
        let all: Vec<(JobId, Attempt, bool)> =
            self.all_attempts().map(|(job, number, attempt)| (job.clone(), number, attempt.complete)).collect();
        for (job, number, complete) in all {
            if !complete || cx.outbox.is_hooked(&job, number) {
                self.abandon(&job, number, why, cx);
            }
        }
    }

    /// Abandons an attempt: it is suspended until it is taken up. The event tells clients that follow the job to send
    /// their requests again.
    fn abandon(&mut self, job: &JobId, number: Attempt, why: &str, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        attempt.suspended = true;
        let is_new = !std::mem::replace(&mut attempt.abandoned, true);
        let actions = attempt.actions.clone();
        cx.attempt_changed(job, number);
        cx.touched.extend(actions);
        if is_new {
            self.event(job, "attempt-abandoned", json!({"attempt": number, "why": why}), cx);
        }
    }

    /// Takes up a suspended attempt, because an edge, a request or an operator asks for it. A setup action then counts
    /// as begun on every rank of an attempt that was abandoned: the store may lack tasks of a lost epoch.
    pub(crate) fn take_up(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        self.take_up_as(job, number, Recovered::TakenUp, cx);
    }

    /// Takes up an attempt whose job has begun or ended: setup tasks of the store that have not begun never do.
    pub(crate) fn take_up_begun(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        if defect!(StaleSetupBegins) {
        } else if self.is_abandoned(job, number) {
            let all = self.attempt(job, number).map(|attempt| attempt.layout.ranks().clone()).unwrap_or_default();
            self.withdraw(job, number, &all, BEGUN_BEFORE, cx);
        }
        self.take_up_as(job, number, Recovered::Begun, cx);
    }

    fn take_up_as(&mut self, job: &JobId, number: Attempt, how: Recovered, cx: &mut Context) {
        let newer = self.get(job).and_then(|entry| entry.last_attempt()).filter(|last| *last > number);
        let how = if newer.is_some() { Recovered::Begun } else { how };
        let Some(attempt) = self.attempt_mut(job, number).filter(|attempt| attempt.suspended) else { return };
        let was_abandoned = std::mem::replace(&mut attempt.abandoned, false);
        if was_abandoned {
            attempt.recovered = how;
            cx.attempt_changed(job, number);
            self.event(job, "attempt-taken-up", json!({"attempt": number}), cx);
            cx.changes.push_back(Change::TakenUp(job.clone(), number));
        }
        self.proceed(job, number, cx);
        if let Some(newer) = newer.filter(|_| was_abandoned) {
            self.close_attempt(job, number, &format!("attempt {newer} was opened"), cx);
        }
    }
}

impl Recovery {
    /// Starts the grace of a generation anew: when the generation begins, and when a controller starts on a store whose
    /// grace was not over. `nodes`: the number of nodes in the store.
    pub(crate) fn begin_grace(&mut self, nodes: usize, cx: &Context) {
        let wait = shut_ms(nodes, cx.settings.redial_per_second).saturating_mul(2).max(GRACE_MS);
        self.grace_ms = self.is_on().then(|| cx.now.mono_ms.saturating_add(wait));
    }
}

impl Machine {
    /// Begins a generation: drops the pending work of the store, and starts the grace. `why`: the evidence, as a text
    /// for people.
    pub(crate) fn begin_generation(&mut self, why: String) {
        let text = format!(
            "the open attempts of this store are on hold until they are asked for again (see perilog ps --abandoned), \
             because the store may be behind: {why}"
        );
        self.cx.note(Level::Error, None, None, text);
        let row = RecoveryRow { since_ms: self.cx.now.wall_ms, why, epoch: self.epoch.number, ended_ms: None };
        self.cx.records.push(Record::Recovery(row.clone()));
        self.recovery.suspects.clear();
        self.nodes.unjudge();
        self.jobs.abandon_all(&row.why, &mut self.cx);
        self.recovery.row = Some(row);
        self.drains.doubt(&mut self.cx);
        self.recovery.begin_grace(self.nodes.len(), &self.cx);
    }

    /// Ends the grace once its time is over, the gate is open, no list is half, and no agent refuses this controller's
    /// epoch. Judges every host, and sends the drain hook the drains that no list has confirmed.
    pub(crate) fn end_grace_if_due(&mut self) {
        let is_due = self.recovery.grace_ms.is_some_and(|at| at <= self.cx.now.mono_ms);
        let accepted_another = self.highest_seen.as_ref().is_some_and(|(_, seen)| !seen.admits(self.epoch));
        let is_half = if defect!(GraceEndsHalfListed) { false } else { self.lists.has_half() };
        if !is_due || self.recovery.is_settling() || accepted_another || is_half {
            return;
        }
        self.recovery.grace_ms = None;
        if let Some(row) = &mut self.recovery.row {
            row.ended_ms = Some(self.cx.now.wall_ms);
            self.cx.records.push(Record::Recovery(row.clone()));
        }
        self.drains.renotify_doubtful(&mut self.cx);
        self.judge_hosts(None);
        let left = self.jobs.table.live_attempts().filter(|(_, _, attempt)| attempt.abandoned).count();
        let text = match left {
            0 => "the grace of the recovery is over; no attempt is left on hold".to_owned(),
            1 => "the grace of the recovery is over; 1 attempt is left on hold (see perilog ps --abandoned)".to_owned(),
            n => {
                format!("the grace of the recovery is over; {n} attempts are left on hold (see perilog ps --abandoned)")
            }
        };
        self.cx.note(Level::Info, None, None, text);
    }
}
