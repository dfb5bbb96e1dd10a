//! Hello: tells the controller the identity of this host and all of its tasks, in pages that fit a frame.

use crate::ids::BootId;
use crate::message::{Held, HeldState, Hello, MAX_ACTIONS, Phase};
use crate::task::Tombstone;

use super::io::Now;
use super::machine::Machine;
use super::task::{State, Task};

/// Maximum number of tasks in a page of Hello.
const PAGE_TASKS: usize = 512;

impl Machine {
    /// Returns the pages of the Hello, at least one. Also resets the record of what the agent has reported about each
    /// task: a new session begins, and reports in an earlier session do not count.
    pub(super) fn hello(&mut self, link: u64, now: Now) -> Vec<Hello> {
        for task in self.tasks.values_mut() {
            task.changed_since_hello = false;
            task.milestones_sent = 0;
            task.boot_sent = false;
        }
        let mut pages = vec![Vec::new()];
        let held = self
            .tasks
            .values()
            .filter_map(|task| held(task, &self.node.boot, now))
            .chain(self.tombstones.iter().map(|entry| held_tombstone(&entry.tombstone, &self.node.boot, now)));
        for held in held {
            if pages.last().is_some_and(|page: &Vec<Held>| page.len() >= PAGE_TASKS) {
                pages.push(Vec::new());
            }
            if let Some(page) = pages.last_mut() {
                page.push(held);
            }
        }
        let (last, newest) = (pages.len() - 1, self.newest());
        let actions = &self.node.policy.actions;
        let actions = (actions.len() <= MAX_ACTIONS).then(|| actions.keys().cloned().collect());
        let page = |(i, tasks)| Hello {
            host: self.node.host.clone(),
            machine: self.node.machine.clone(),
            boot: self.node.boot.clone(),
            link,
            version: self.node.version.clone(),
            newest,
            actions: if i == 0 { actions.clone() } else { None },
            tasks,
            more: i < last,
        };
        pages.into_iter().enumerate().map(page).collect()
    }
}

/// Returns a task as Hello lists it; `None` for a new task whose intent the daemon is still writing.
fn held(task: &Task, boot: &BootId, now: Now) -> Option<Held> {
    let state = match &task.state {
        State::Recording => return None,
        State::Unconfirmed => HeldState::Unclaimed,
        State::Ended { .. } => HeldState::Ended,
        State::WritingTombstone { ended } => {
            let past_ms = now.boot_ms.saturating_sub(task.intent.kept_until_boottime_ms());
            HeldState::Tombstone {
                outcome: ended.outcome.clone(),
                past_ms,
                reboot: task.reported_end(ended, boot).reboot(),
            }
        }
        _ => HeldState::Live { phase: task.phase.clone().unwrap_or(Phase::Starting), age_ms: task.phase_age_ms(now) },
    };
    let start = &task.intent.start;
    Some(Held {
        task: start.task,
        job: start.job.clone(),
        attempt: start.attempt,
        action: start.action.clone(),
        userid: start.userid,
        commit: task.intent.commit,
        limit_ms: task.intent.limit_ms(),
        local: task.intent.local,
        state,
    })
}

fn held_tombstone(tombstone: &Tombstone, boot: &BootId, now: Now) -> Held {
    let past_ms = now.boot_ms.saturating_sub(tombstone.not_after_boottime_ms);
    Held {
        task: tombstone.task,
        job: tombstone.job.clone(),
        attempt: tombstone.attempt,
        action: tombstone.action.clone(),
        userid: None,
        commit: tombstone.commit,
        limit_ms: tombstone.limit_ms,
        local: tombstone.local,
        state: HeldState::Tombstone { outcome: tombstone.outcome.clone(), past_ms, reboot: tombstone.reboot(boot) },
    }
}
