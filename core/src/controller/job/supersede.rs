//! Superseding: a newer attempt of a job takes the place of the open one. No resource manager finishes the older
//! attempt any more, so superseding is its finish:
//!
//! * tasks that no node was sent never begin;
//! * running tasks continue;
//! * on each rank where a setup action had begun, the after-actions run, and hold the rank until they end.
//!
//! ```text
//!   held by the job --no setup action began--------------------> released
//!                  \-> held by its after-actions --all ended---> released      only then the new attempt begins there
//! ```
//! [`crate::controller::action::order`] makes the new attempt wait, host by host.

use serde_json::json;

use crate::controller::context::Context;
use crate::controller::job::Jobs;
use crate::controller::job::attempt::JobAttempt;
use crate::defect;
use crate::ids::{Attempt, JobId};

impl Jobs {
    /// Disowns the ranks of an unvouched attempt that is superseded: the resource manager has moved on.
    pub(crate) fn disown_superseded(&mut self, job: &JobId, older: Attempt, cx: &mut Context) {
        if self.is_unvouched(job, older) {
            let left = self.unreleased(job, older);
            self.disown(job, older, &left.ranks, cx);
            self.assert_attempt(job, older, cx);
        }
    }

    /// Opens a new attempt, which supersedes the open attempt ([`crate::controller::job::supersede`]).
    pub(crate) fn open_attempt(&mut self, job: &JobId, number: Attempt, attempt: JobAttempt, cx: &mut Context) {
        let entry = self.entry(job.clone()).or_default();
        let older: Vec<Attempt> = entry.attempts.iter().filter(|(_, a)| a.open).map(|(number, _)| *number).collect();
        for older in older {
            self.disown_superseded(job, older, cx);
            self.close_attempt(job, older, &format!("attempt {number} was opened"), cx);
        }
        let context = json!({"attempt": number, "hosts": attempt.layout.hosts(), "userid": attempt.userid});
        self.entry(job.clone()).or_default().attempts.insert(number, attempt);
        cx.attempt_changed(job, number);
        self.event(job, "attempt", context, cx);
    }

    /// Closes an attempt: hands its ranks to the after-actions, or releases the ranks; `why`: for the event log.
    pub(crate) fn close_attempt(&mut self, job: &JobId, number: Attempt, why: &str, cx: &mut Context) {
        let Some(entry) = self.attempt_mut(job, number) else { return };
        let was_open = std::mem::replace(&mut entry.open, false);
        entry.touched_ms = cx.now.wall_ms;
        let part = entry.let_go(&entry.whole());
        cx.attempt_changed(job, number);
        let all = entry.layout.ranks().clone();
        self.withdraw(job, number, &all, why, cx);
        self.stop_services(job, number, why, cx);
        let begun = self.begun(job, number).intersection(&part.ranks);
        for name in cx.settings.after.clone() {
            if !defect!(SupersededUnfollowed) {
                self.follow(job, number, &name, &begun, true, cx);
            }
        }
        self.seal(job, number, cx);
        cx.hold_dropped(job, number, &part);
        if was_open {
            self.event(job, "attempt-closed", json!({"attempt": number, "why": why}), cx);
        }
    }
}
