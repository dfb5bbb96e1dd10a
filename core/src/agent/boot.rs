//! Announced reboot (`perilog-report expect-reboot`). The reboot ends everything on the node, including /run, so the
//! controller must know beforehand how the task ends by the reboot. The machine reports that end as soon as it sees the
//! announcement, again in each session, and again whenever the end changes. Once the report is durable at the
//! controller, the runner may tell the script.
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
    /// Checks whether an inspection shows an announced reboot, or changes how the task ends by the reboot.
    pub(super) fn foresee_boot(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.intent.local) else { return };
        if !is_announced(&seen.steps) {
            return;
        }
        let ended = task.if_it_boots(seen, cx.now);
        // The time of the end always moves on; the machine reports only a different end.
        let known =
            task.boot.as_ref().is_some_and(|known| Ended { ended_ms: ended.ended_ms, ..(**known).clone() } == ended);
        if !known {
            task.boot = Some(Box::new(ended));
            task.boot_told = false;
        }
        self.tell_boot(id, cx);
    }

    pub(super) fn tell_boot(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.boot_told && self.session.is_open()) else {
            return;
        };
        let Some(ended) = task.boot.clone() else { return };
        task.boot_told = true;
        let within_ms = task.left_ms(&ended, cx.now);
        cx.push(Effect::Send(FromAgent::ExpectsBoot { task: id, within_ms, ended }));
    }

    /// Reports that the scripts have ended well and only the reboot is left, with the time that the reboot may take.
    /// The controller may not know yet.
    pub(super) fn say_last_boot(&self, id: TaskId, ended: &Ended, cx: &mut Cx) {
        let waits = ended.reboot() == Reboot::Expected && ended.outcome.went_well();
        if let Some(task) = self.tasks.get(&id).filter(|_| waits) {
            let (within_ms, ended) = (task.left_ms(ended, cx.now), Box::new(ended.clone()));
            self.say(cx, FromAgent::ExpectsBoot { task: id, within_ms, ended });
        }
    }

    /// Marks the directory of a task whose report the controller has on disk: the script may reboot.
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

    /// Returns the rest of the limit, which counts from the begin of the first script. The wall clock may step, so the
    /// begin counts as no earlier than the acceptance.
    fn left_ms(&self, ended: &Ended, now: Now) -> Option<u64> {
        let limit = self.intent.limit_ms()?;
        let run_ms = ended.began_ms.map_or(0, |began| now.wall_ms.saturating_sub(began)).min(self.age_ms(now));
        Some(limit.saturating_sub(run_ms))
    }
}
