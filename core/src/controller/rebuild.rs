//! What a controller does that lost its store, or has an old copy of it: it meets its own actions again in what the nodes hold.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::attempt::JobAttempt;
use crate::controller::io::{ActionRow, Now};
use crate::controller::layout::Layout;
use crate::controller::machine::Machine;
use crate::ids::{Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Terms;
use crate::message::{Held, HeldState};
use crate::outcome::Loss;

impl Machine {
    /// A task that this store has never heard of: it was lost, or restored from an old copy. Equal ids meet.
    pub(super) fn rebuild(&mut self, host: &HostName, held: &Held, now: Now) {
        if self.actions.contains_key(&held.task.action) || matches!(held.state, HeldState::Tombstone { .. }) {
            return;
        }
        let expected = crate::ids::ActionId::of(self.settings.cluster, &held.job, held.attempt, &held.action);
        let layout = match Layout::new(held.ranks.clone(), held.hosts.clone()) {
            Ok(layout) if expected == held.task.action && layout.host(held.task.rank).as_ref() == Some(host) => layout,
            _ => {
                self.note(
                    Level::Warning,
                    Some(&held.job),
                    Some(host),
                    format!("holds task {} which does not make sense here", held.task),
                );
                return;
            }
        };
        let job = self.jobs.entry(held.job.clone()).or_default();
        let merged = match job.attempts.get(&held.attempt) {
            Some(attempt) => attempt.layout.merge(&layout),
            None => Ok(layout),
        };
        let Ok(layout) = merged else {
            self.note(
                Level::Warning,
                Some(&held.job),
                Some(host),
                format!("holds task {} whose hosts contradict the attempt's", held.task),
            );
            return;
        };
        let newest = job.last_attempt().is_none_or(|last| held.attempt >= last);
        let older = job.attempts.iter().filter(|(number, a)| newest && a.open && **number < held.attempt);
        let closed: Vec<_> = older.map(|(number, _)| *number).collect();
        for number in closed {
            self.close_attempt(&held.job, number, held.attempt, now);
        }
        let job = self.jobs.entry(held.job.clone()).or_default();
        let attempt = job.attempts.entry(held.attempt).or_insert_with(|| {
            let attempt = JobAttempt::new(layout.clone(), held.userid, Terms::default(), false, now.wall_ms);
            JobAttempt { open: newest, ..attempt }
        });
        attempt.widen(layout);
        let released = attempt.released.clone();
        self.batch.attempts.insert((held.job.clone(), held.attempt));
        let row = ActionRow {
            userid: held.userid,
            waiting: IdSet::new(),
            unknown: held.ranks.clone(),
            events_from: self.jobs.get(&held.job).map_or(0, |j| j.events_last),
            ..ActionRow::new(
                held.task.action,
                held.job.clone(),
                held.attempt,
                held.action.clone(),
                held.ranks.clone(),
                now.wall_ms,
            )
        };
        let mut row = row;
        // A store that was put back may have given back what this one still had in hand.
        row.held.subtract(&released);
        self.load_action(Action::new(row, now.mono_ms));
        let context = json!({"action": held.action, "attempt": held.attempt, "id": held.task.action, "ranks": held.ranks,
            "hosts": held.hosts, "rebuilt": true});
        self.event(&held.job, now, "action-start", context);
        self.touch(held.task.action, now);
        self.note(
            Level::Warning,
            Some(&held.job),
            Some(host),
            format!("rebuilt action {} from what its nodes hold", held.action),
        );
        self.settle_rebuilt(held.task.action, host, now);
        self.settle_superseded(&held.job, held.attempt, now);
    }

    /// A newer attempt was heard of first: what is there of this one goes the way of what is superseded.
    fn settle_superseded(&mut self, job: &JobId, number: Attempt, now: Now) {
        let Some(entry) = self.jobs.get(job) else { return };
        let closed = entry.attempts.get(&number).is_some_and(|attempt| !attempt.open);
        if let Some(by) = entry.last_attempt().filter(|by| closed && *by > number) {
            self.close_attempt(job, number, by, now);
        }
    }

    /// Nodes that have said Hello in this controller's time, and did not tell of the action, hold nothing of it.
    fn settle_rebuilt(&mut self, id: crate::ids::ActionId, teller: &HostName, now: Now) {
        let Some(layout) = self.layout(id).cloned() else { return };
        let Some(action) = self.actions.get(&id) else { return };
        let ranks: Vec<Rank> = action.row.unknown.iter().map(Rank).collect();
        for rank in ranks {
            let answered = layout
                .host(rank)
                .filter(|host| host != teller)
                .is_some_and(|host| self.nodes.get(&host).is_some_and(|node| node.session.is_some()));
            if answered {
                self.lose(TaskId { action: id, rank }, Loss::Vanished, now);
            }
        }
    }
}
