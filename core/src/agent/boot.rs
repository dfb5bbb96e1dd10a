//! Announced reboots (`perilog-report expect-reboot`): decides what the controller learns before the node goes down. A
//! reboot removes every trace of a task, /run included. So the machine reports beforehand how the reboot would end the
//! task: when a script announces it, again in each session, and again whenever that end changes. Once the controller
//! has stored the report, the runner may tell the script.
//!
//! ```text
//!   steps.jsonl: expect-reboot --> ExpectsBoot --> (committed) BootExpected
//!      --> `boot-expected` in the directory --> the script goes on
//! ```

use crate::ids::TaskId;
use crate::judge::{Evidence, if_it_boots, is_announced};
use crate::message::FromAgent;
use crate::task::{Ended, Reboot};

use super::io::{Effect, Now, Seen};
use super::machine::{Cx, Machine};
use super::task::Task;

impl Machine {
    /// Reports to the controller how an announced reboot would end the task, if an inspection shows the announcement.
    /// Reports nothing for a local task (`Exec`), and no end that this session has reported already.
    pub(super) fn foresee_boot(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.intent.local) else { return };
        if !is_announced(&seen.steps) {
            return;
        }
        let ended = task.if_it_boots(seen, cx.now);
        // `ended_ms` differs at every inspection: a change of this field alone needs no report.
        let known =
            task.boot.as_ref().is_some_and(|known| Ended { ended_ms: ended.ended_ms, ..(**known).clone() } == ended);
        if !known {
            task.boot = Some(Box::new(ended));
            task.boot_sent = false;
        }
        self.send_expected_boot(id, cx);
    }

    pub(super) fn send_expected_boot(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.boot_sent && self.session.is_open()) else {
            return;
        };
        let Some(ended) = task.boot.clone() else { return };
        task.boot_sent = true;
        let within_ms = task.left_ms(&ended, cx.now);
        cx.push(Effect::Send(FromAgent::ExpectsBoot { task: id, within_ms, ended }));
    }

    /// Sends `ExpectsBoot` once more, with the final end, if all scripts have ended well and only the reboot is still
    /// to come: an earlier `ExpectsBoot` may not have reached the controller.
    pub(super) fn send_last_boot(&self, id: TaskId, ended: &Ended, cx: &mut Cx) {
        let waits = ended.reboot() == Reboot::Expected && ended.outcome.went_well();
        if let Some(task) = self.tasks.get(&id).filter(|_| waits) {
            let (within_ms, ended) = (task.left_ms(ended, cx.now), Box::new(ended.clone()));
            self.send(cx, FromAgent::ExpectsBoot { task: id, within_ms, ended });
        }
    }

    /// Handles the controller's BootExpected: the daemon creates `boot-expected`, so that the runner lets the script go
    /// on.
    pub(super) fn on_boot_expected(&self, id: TaskId, cx: &mut Cx) {
        if let Some(task) = self.tasks.get(&id).filter(|task| task.is_open() && task.boot.is_some()) {
            cx.push(Effect::MarkBootExpected { stem: task.stem.clone() });
        }
    }
}

impl Task {
    pub(super) fn if_it_boots(&self, seen: &Seen, now: Now) -> Ended {
        let evidence = Evidence {
            unit: None,
            claim: self.claim.as_ref(),
            result: None,
            steps: &seen.steps,
            tails: &seen.tails,
            lingering: &[],
            cancelled: self.cancelled || seen.stop_asked,
        };
        if_it_boots(&evidence, &self.intent, now.wall_ms)
    }

    /// Returns the remaining part of the task's limit in milliseconds; `None`: no limit. Counts the limit from the
    /// begin of the first script. The begin is wall-clock time, which may step, so it counts as no earlier than the
    /// acceptance.
    fn left_ms(&self, ended: &Ended, now: Now) -> Option<u64> {
        let limit = self.intent.limit_ms()?;
        let run_ms = ended.began_ms.map_or(0, |began| now.wall_ms.saturating_sub(began)).min(self.age_ms(now));
        Some(limit.saturating_sub(run_ms))
    }
}
