//! Superseding: decides the end of a job's open attempt when a newer attempt begins. No resource manager will finish
//! the older attempt, so superseding finishes it:
//!
//! * setup tasks that the controller has not sent never begin;
//! * running tasks go on, and external services are asked to stop;
//! * where a setup action has begun, the after-actions run, and hold the rank until they have ended.
//!
//! ```text
//!   held by the job --no setup action began--------------------> released
//!                  \-> held by its after-actions --all ended---> released      only then the new attempt begins there
//! ```
//! `action/order.rs` makes the newer attempt wait, host by host.

use serde_json::json;

use crate::controller::interface::io::Recovered;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{Attempt, JobId};

impl Jobs {
    /// Adds a new attempt to its job, and closes the job's open attempts with [`Self::close_attempt`], except abandoned
    /// ones: a client may still ask for them.
    pub(crate) fn open_attempt(&mut self, job: &JobId, number: Attempt, attempt: JobAttempt, cx: &mut Context) {
        let attempts = self.get(job).into_iter().flat_map(|entry| &entry.attempts);
        let older: Vec<Attempt> = attempts.filter(|(_, a)| a.open && !a.abandoned).map(|(number, _)| *number).collect();
        for older in older {
            self.close_attempt(job, older, &format!("attempt {number} was opened"), cx);
        }
        let context = json!({"attempt": number, "hosts": attempt.layout.hosts(), "userid": attempt.userid});
        let is_added = attempt.recovered == Recovered::Added;
        self.table.add_attempt(job, number, attempt);
        if is_added {
            cx.changes.push_back(Change::TakenUp(job.clone(), number));
        }
        cx.attempt_changed(job, number);
        self.event(job, "attempt", context, cx);
    }

    /// Closes an attempt, and drops the job's hold on its ranks and named resources. Ranks on which a setup action has
    /// begun go to the after-actions; all others are released. `why` goes into the event log.
    pub(crate) fn close_attempt(&mut self, job: &JobId, number: Attempt, why: &str, cx: &mut Context) {
        let Some(entry) = self.attempt_mut(job, number) else { return };
        let was_open = std::mem::replace(&mut entry.open, false);
        entry.touched_ms = cx.now.wall_ms;
        let part = entry.drop_hold(&entry.whole());
        cx.attempt_changed(job, number);
        let all = entry.layout.ranks().clone();
        self.withdraw(job, number, &all, why, cx);
        self.stop_services(job, number, why, cx);
        let begun = self.begun(job, number).intersection(&part.ranks);
        for name in cx.settings.after.clone() {
            if !defect!(SupersededWithoutAfterAction) {
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
