//! What may begin on a rank: an action begins there when every action of that attempt that was begun before it has ended there. So an
//! epilog never runs beside its prolog, and wherever a prolog was started it waits for that prolog's end.
//!
//! The node's own guard keeps the same order. It is kept here as well, because a Start that waits on its node runs towards its not-after.

use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::machine::{Machine, Node};
use crate::ids::{ActionId, BootId, Rank, TaskId};
use crate::idset::IdSet;
use crate::outcome::Loss;

impl Machine {
    /// Has an earlier action of its attempt not ended on this rank?
    pub(super) fn is_behind(&self, id: ActionId, rank: Rank) -> bool {
        let Some(row) = self.actions.get(&id).map(|action| &action.row) else { return false };
        let attempt = self.jobs.get(&row.job).and_then(|job| job.attempts.get(&row.attempt));
        let mut earlier =
            attempt.into_iter().flat_map(|attempt| &attempt.actions).take_while(|earlier| **earlier != id);
        earlier.any(|earlier| self.actions.get(earlier).is_some_and(|action| action.is_open_on(rank)))
    }

    /// Ranks of an action ended: whoever waits for that may begin there.
    pub(super) fn start_later(&mut self, id: ActionId, now: Now) {
        let Some(action) = self.actions.get_mut(&id) else { return };
        let freed = action.take_freed();
        if freed.is_empty() {
            return;
        }
        let (job, number) = (action.row.job.clone(), action.row.attempt);
        let attempt = self.jobs.get(&job).and_then(|job| job.attempts.get(&number));
        let after = attempt.into_iter().flat_map(|attempt| &attempt.actions).skip_while(|at| **at != id).skip(1);
        for later in after.copied().collect::<Vec<_>>() {
            self.start_ready(later, &freed, now);
        }
    }

    /// Has this node been away for longer than a Start may take, while we listened? Its Hello fences what ended by that. One that is to boot
    /// is away on purpose.
    fn is_down(&self, node: &Node, now: Now) -> bool {
        let away = node.session.is_none() && now.mono_ms >= node.since_ms.saturating_add(self.settings.start_grace_ms);
        away && !self.is_to_boot(&node.row.host)
    }

    /// Starts what of these ranks may begin, on every node that is there; nodes that are known to be down are given up at once; nodes that nobody has heard of are named at once,
    /// unless none has had the time to be heard of.
    pub(super) fn start_ready(&mut self, id: ActionId, ranks: &IdSet, now: Now) {
        let Some(action) = self.actions.get(&id) else { return };
        let waiting = action.row.waiting.intersection(ranks);
        let ready: IdSet = waiting.iter().filter(|rank| !self.is_behind(id, Rank(*rank))).collect();
        let Some(layout) = self.layout(id).cloned().filter(|_| !ready.is_empty()) else { return };
        if let Some(action) = self.actions.get_mut(&id) {
            action.ready(&ready, now.mono_ms);
        }
        // What is sent is committed with the batch that sends it.
        self.touch(id, now);
        self.check_by(id, now.mono_ms.saturating_add(self.settings.start_grace_ms));
        let mut to: Vec<(SessionId, Rank, BootId)> = Vec::new();
        let (mut unknown, mut down) = (Vec::new(), Vec::new());
        for (rank, host) in layout.pairs(&ready) {
            match self.nodes.get(host) {
                // What is asked for may run there already, begun by the store that was lost.
                None if now.mono_ms < self.young_until_ms => {}
                None => unknown.push(rank),
                Some(node) if self.is_down(node, now) => down.push(rank),
                Some(node) => {
                    if let (Some(session), Some(action)) = (node.session, self.actions.get_mut(&id)) {
                        action.send(rank, node.row.boot_number);
                        to.push((session, rank, node.row.boot.clone()));
                    }
                }
            }
        }
        for rank in unknown {
            self.lose(TaskId { action: id, rank }, Loss::UnknownNode, now);
        }
        for rank in down {
            self.lose(TaskId { action: id, rank }, Loss::Offline, now);
        }
        if let (Some(action), Some((_, rank, boot))) = (self.actions.get(&id), to.first()) {
            let start = action.start(&layout, self.settings.not_after_ms, *rank, boot);
            self.batch.effects.push(Effect::Fan { start: Box::new(start), to });
        }
    }
}
