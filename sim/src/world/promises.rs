//! Checks what an agent says and does, at the moment it happens: against the node's files, the node's clock, and what
//! really happened (`truth`).

use std::collections::BTreeMap;

use perilog_core::agent::io::Effect;
use perilog_core::message::FromAgent;
use perilog_core::task::{Intent, Plan};
use perilog_core::{AcceptedEpoch, Outcome};

use super::{World, site};

impl World {
    /// Checks an effect of an agent before the world carries it out, and reports a violation. For example, an agent
    /// must not say that it has accepted a task without an intent on its disk.
    pub(crate) fn check_effect(&mut self, at: usize, effect: &Effect) {
        let node = &self.nodes[at];
        let wrong = match effect {
            // This check avoids `Epoch::admits`, which belongs to the machine under test.
            Effect::WriteEpoch { accepted: AcceptedEpoch { epoch, .. } } => node
                .spool
                .accepted
                .map(|seen| seen.epoch)
                .filter(|seen| epoch.number < seen.number || (epoch.number == seen.number && epoch.nonce != seen.nonce))
                .map(|seen| ("epoch", format!("n{at} has accepted {seen:?} and accepts {epoch:?}"))),
            Effect::RemoveTombstone { stem, .. } => node
                .spool
                .tombstones
                .get(stem)
                .filter(|tombstone| !tombstone.local && node.boottime(self.t) < tombstone.not_after_boottime_ms)
                // Acknowledged tombstones make room on a full node. The agent also counts tombstones that a full /run
                // kept it from writing.
                .filter(|_| !node.is_crowded() && self.t >= node.full_until)
                .map(|_| ("tombstone", format!("n{at} removes that of {stem} before its not-after"))),
            Effect::StartUnit { stem, intent, .. } if !intent.local => {
                let came_up = node.agent.as_ref().map_or(0, |agent| agent.came_up);
                self.truth.ended_before(intent.start.task, came_up).map(|outcome| {
                    let text =
                        format!("n{at} starts {stem}, which was shown as ended ({outcome}) before its agent came up");
                    ("2 one outcome", text)
                })
            }
            Effect::Send(FromAgent::Accepted { task, .. }) => {
                let recorded = node
                    .spool
                    .tasks
                    .values()
                    .any(|dir| dir.intent.as_ref().is_some_and(|intent| intent.start.task == *task));
                (!recorded && !self.truth.is_cleared(*task)).then(|| {
                    ("5 acknowledged", format!("n{at} says it has accepted {task}, and its disk has no intent of it"))
                })
            }
            _ => None,
        };
        if let Some((invariant, text)) = wrong {
            self.violate(invariant, &text);
        }
        match effect {
            Effect::Send(FromAgent::Finished { task, ended })
                if ended.outcome == (Outcome::Cancelled { status: None }) =>
            {
                let (machine, boot) = (self.nodes[at].machine, self.nodes[at].boot);
                // Past the cap, a cancel of an unknown task leaves no tombstone: another controller's Start finds no
                // trace.
                let spool = &self.nodes[at].spool;
                let full =
                    spool.tasks.len() + spool.tombstones.len() >= self.nodes[at].identity().policy.max_tombstones;
                if !full {
                    self.truth.cancel_reported(machine, boot, *task);
                }
            }
            // A forgotten task may be requested again.
            Effect::RemoveTombstone { task, .. } => self.truth.forgotten(at, *task),
            Effect::WriteIntent { stem, intent } => {
                if let Some(why) = self.not_configured(at, intent) {
                    self.violate("7 configured", &format!("n{at} takes on {stem}, and {why}"));
                }
            }
            Effect::StartUnit { stem, intent, .. } => {
                let recorded = self.nodes[at].spool.tasks.get(stem).and_then(|dir| dir.intent.as_ref());
                if recorded.is_some_and(|recorded| *recorded != **intent) {
                    self.violate("7 configured", &format!("n{at} starts {stem}, and not as its intent on disk says"));
                }
                if let Some(why) = self.truth.in_the_way(at, self.nodes[at].incarnation, intent.start.task) {
                    let text = format!("n{at} starts {stem}, and {why}");
                    self.violate("host guard", &text);
                }
            }
            _ => {}
        }
    }

    /// Describes where an intent differs from the agent's configuration, or has a variable that was not offered;
    /// `None`: nowhere, or the agent rebuilt the intent.
    fn not_configured(&self, at: usize, intent: &Intent) -> Option<String> {
        let (start, releases) = (&intent.start, &self.nodes[at].agent.as_ref()?.releases);
        // A rebuilt intent stands for a begun task, and no runner claims by it.
        if intent.not_after_boottime_ms == 0 {
            return None;
        }
        let Some(configured) = releases.actions.get(&start.action) else {
            return Some(format!("its configuration names no {}", start.action));
        };
        let timeout_ms = start.timeout_ms.into_iter().chain(configured.timeout_ms).min();
        if intent.plan != (Plan { timeout_ms, ..configured.clone() }) {
            return Some(format!("its plan is not the one that is configured for {}", start.action));
        }
        let offered = site::offered(&start.job);
        // The controller also begins an after-action on its own, without offered variables.
        let unasked = site::FOLLOWING.contains(&start.action.as_str()) && start.env.is_empty();
        if start.env != offered && !unasked {
            return Some(format!("is offered {:?}, and it was {offered:?}", start.env));
        }
        // This check avoids `environment::admit`, which belongs to the machine under test.
        let is_listed = |name: &str| releases.env_allow.iter().any(|one| one == name) && !name.starts_with("PERILOG_");
        let listed: BTreeMap<_, _> = start.env.clone().into_iter().filter(|(name, _)| is_listed(name)).collect();
        let dropped = (start.env.len() - listed.len()) as u32;
        (intent.env != listed || intent.dropped_env != dropped).then(|| {
            format!("its scripts see {:?} ({} dropped), and {listed:?} is listed", intent.env, intent.dropped_env)
        })
    }

    /// Returns the name of an after-action of the task's attempt that ran on this node in this boot, by the node's
    /// tombstones. `None`: there is none, or the task's own action is no setup action.
    fn after_action_of(&self, at: usize, intent: &Intent) -> Option<String> {
        let (start, spool) = (&intent.start, &self.nodes[at].spool);
        // `sweep` is an after-action under one of the settings only.
        let is_setup = start.action.as_str() != "epilog" && start.action.as_str() != "sweep" && !intent.local;
        let of = |tombstone: &&perilog_core::task::Tombstone| {
            tombstone.job == start.job
                && tombstone.attempt == start.attempt
                && tombstone.action.as_str() == "epilog"
                && !tombstone.local
                // If an agent lost the task's directory, the agent rebuilt the directory from the unit, which does not
                // name after-actions.
                && !self.truth.is_cleared(tombstone.task)
        };
        let tombstone = spool.tombstones.values().filter(|_| is_setup).find(of)?;
        tombstone.outcome.is_of_scripts().then(|| tombstone.action.to_string())
    }

    /// Checks a runner that has just taken the claim of a task, and reports a violation if it must not begin: for
    /// example, the Start was meant for another boot, or the agent has reported the task as cancelled.
    pub(crate) fn check_claim(&mut self, at: usize, stem: &str, intent: &Intent) {
        let node = &self.nodes[at];
        let (meant, is) = (&intent.start.boot, node.identity().boot);
        let wrong = if *meant != is {
            Some(format!("n{at} begins {stem}, meant for {meant}, in {is}"))
        } else if self.truth.was_cancel_reported(node.machine, node.boot, intent.start.task) {
            Some(format!("n{at} begins {stem}, and has reported that it never will: cancelled"))
        } else if let Some(tombstone) = self.after_action_of(at, intent) {
            Some(format!("n{at} begins {stem}, and has a tombstone of {tombstone} of that attempt"))
        } else {
            let against = if intent.local { None } else { self.check_begin(at, intent.start.task) };
            against.map(|why| format!("n{at} begins {stem}, and {why}"))
        };
        if let Some(text) = wrong {
            self.violate("2 one outcome", &text);
        }
    }
}
