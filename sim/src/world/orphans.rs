//! Checks of orphans: tasks of a lost epoch that a node holds and the controller's store does not know. The controller
//! must not acknowledge, forget or cancel an orphan on its own, nor begin setup actions of other jobs beside it.

use perilog_core::controller::Snapshot;
use perilog_core::controller::io::{Effect, SessionId};
use perilog_core::mark::Place;
use perilog_core::message::ToAgent;
use perilog_core::task::Intent;
use perilog_core::{BootId, Commit, JobId, Rank, TaskId};

use super::World;
use super::site;
use crate::truth::recovery::is_on;

/// Time (ms) within which an agent that could not write a tombstone tries again: the longest pause of its backoff, and
/// a second.
const TOMBSTONE_BY_MS: u64 = 61_000;

/// A Start that the controller is about to send: session, job, task and boot of the node, and `true` if the action is a
/// setup action.
type Begins<'a> = (SessionId, &'a JobId, TaskId, &'a BootId, bool);

impl World {
    /// Checks an effect before the controller carries it out: it breaks no rule about orphans.
    pub(crate) fn check_orphans(&mut self, which: usize, effect: &Effect) {
        let begins: Vec<Begins<'_>> = match effect {
            Effect::Send { session, message } => {
                let wrong = match message {
                    ToAgent::Ack { task, .. } => {
                        self.is_orphan(which, *session, *task).then(|| format!("acknowledges {task}"))
                    }
                    ToAgent::Cancel { task, .. } => {
                        self.is_orphan(which, *session, *task).then(|| format!("cancels {task}"))
                    }
                    ToAgent::Forget { tasks } => {
                        let lost = tasks.iter().find(|task| self.is_lost_tombstone(which, *session, **task));
                        lost.map(|task| format!("forgets {task}"))
                    }
                    _ => None,
                };
                if let Some(what) = wrong {
                    return self.violate("orphan", &format!("c{which} {what}, which its store does not know, unasked"));
                }
                match message {
                    ToAgent::Start(start) => {
                        let setup = is_setup(start.action.as_str());
                        vec![(*session, &start.job, start.task, &start.boot, setup)]
                    }
                    _ => Vec::new(),
                }
            }
            Effect::Fan { start, to } => {
                let setup = is_setup(start.action.as_str());
                let task = |rank: Rank| TaskId { rank, ..start.task };
                to.iter().map(|(session, rank, boot)| (*session, &start.job, task(*rank), boot, setup)).collect()
            }
            _ => Vec::new(),
        };
        let wrong = begins.into_iter().filter(|(.., setup)| *setup).find_map(|(session, job, task, boot, _)| {
            let (orphan, at) = self.orphan_of_another(which, session, job)?;
            // A Start for an earlier boot begins nothing, and neither does one that no agent reads.
            if *boot != self.nodes[at].boot_id() || !self.agent_reads(which, session) {
                return None;
            }
            // The node answers from its own intents.
            let has = self.nodes[at].spool.tasks.values().filter_map(|dir| dir.intent.as_ref());
            if has.into_iter().any(|intent| intent.start.task == task) || self.truth.is_cleared(task) {
                return None;
            }
            let start = &orphan.start;
            Some(format!(
                "c{which} begins a setup action of {job} on n{at}, beside the orphan {} of {}",
                start.action, start.job
            ))
        });
        if let Some(text) = wrong {
            self.violate("orphan", &text);
        }
    }

    /// Checks a Welcome of controller `which` to node `at`. `reported`: the node's newest commit at its Hello. If the
    /// store never made that commit, the controller must enter a recovery before it sends the Welcome: a welcomed node
    /// accepts this controller, and no longer reports the other commit.
    pub(crate) fn check_welcome(&mut self, which: usize, at: usize, reported: Option<Commit>) {
        let store = &self.controllers[which].store;
        let lost_before = store.recovery.as_ref().map_or(0, |row| row.epoch);
        let newest = reported.filter(|commit| commit.epoch.number >= lost_before);
        // The controller left recovery with this very Hello: it has no pending work.
        let now_ms = self.wall_of(which);
        let is_entered =
            store.recovery.as_ref().is_some_and(|row| row.since_ms == now_ms || row.ended_ms == Some(now_ms));
        if is_on(store) || is_entered || !self.is_foreign(which, newest) {
            return;
        }
        let text = format!("c{which} lets n{at} in, which has accepted {newest:?}: its store never made that commit");
        self.violate("recovery", &text);
    }

    fn node_of_session(&self, which: usize, session: SessionId) -> Option<usize> {
        let conn = self.controllers[which].sessions.get(&session)?;
        Some(self.conns.get(conn)?.node)
    }

    fn is_foreign(&self, which: usize, commit: Option<Commit>) -> bool {
        let store = &self.controllers[which].store;
        commit.is_some_and(|commit| store.history.place(commit) == Place::Foreign)
    }

    /// Returns `true` if the task is an orphan on the session's node, and no operator has decided about it.
    fn is_orphan(&self, which: usize, session: SessionId, task: TaskId) -> bool {
        let Some(at) = self.node_of_session(which, session) else { return false };
        let intents = self.nodes[at].spool.tasks.values().filter_map(|dir| dir.intent.as_ref());
        let intent = intents.filter(|intent| !intent.local).find(|intent| intent.start.task == task);
        intent.is_some_and(|intent| {
            self.is_foreign(which, intent.commit)
                && !is_known(&self.controllers[which].store, task)
                && !self.truth.was_undrained(self.nodes[at].host.as_str())
        })
    }

    /// Returns `true` if the node has this task's tombstone from a lost epoch, and a recovery may still take the
    /// outcome from it.
    fn is_lost_tombstone(&self, which: usize, session: SessionId, task: TaskId) -> bool {
        let Some(at) = self.node_of_session(which, session) else { return false };
        let mut tombstones = self.nodes[at].spool.tombstones.values();
        let lost = tombstones
            .any(|tombstone| tombstone.task == task && !tombstone.local && self.is_foreign(which, tombstone.commit));
        let store = &self.controllers[which].store;
        // A Hello earlier in the batch of the evidence was answered as usual.
        let is_new = store.recovery.as_ref().is_some_and(|row| row.since_ms == self.wall_of(which));
        lost && is_on(store) && !is_new && !is_known(store, task)
    }

    /// Returns the intent of an orphan of another job on this session's node, and the node's index. `None`: the node
    /// holds no such orphan.
    fn orphan_of_another(&self, which: usize, session: SessionId, job: &JobId) -> Option<(&Intent, usize)> {
        let at = self.node_of_session(which, session).filter(|at| self.truth.is_one(*at))?;
        let store = &self.controllers[which].store;
        let intents = self.nodes[at].spool.tasks.values().filter_map(|dir| dir.intent.as_ref());
        // An ended orphan that an operator gave up counts as acknowledged.
        let stems = self.nodes[at].spool.tasks.values().filter(|dir| dir.ended.is_some());
        let ended: Vec<TaskId> = stems.filter_map(|dir| Some(dir.intent.as_ref()?.start.task)).collect();
        // A full node, and a node before its agent's next try, has not written the tombstone to disk, and reports it.
        let is_full = self.t < self.nodes[at].full_until + TOMBSTONE_BY_MS;
        let is_done = |intent: &Intent| {
            let undrained = self.truth.was_undrained(self.nodes[at].host.as_str());
            (is_full || undrained) && ended.contains(&intent.start.task)
        };
        let mut others = intents.filter(|intent| !intent.local && intent.start.job != *job && !is_done(intent));
        let orphan = others.find(|intent| self.is_foreign(which, intent.commit) && !is_known(store, intent.start.task));
        orphan.map(|intent| (intent, at))
    }
}

fn is_known(store: &Snapshot, task: TaskId) -> bool {
    store.actions.iter().any(|row| row.id == task.action && row.ranks.contains(task.rank.0))
}

fn is_setup(action: &str) -> bool {
    !site::FOLLOWING.contains(&action)
}
