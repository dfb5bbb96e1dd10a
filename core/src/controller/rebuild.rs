//! What a controller does that lost its store, or has an old copy of it: it meets its own actions again in what the nodes hold.
//!
//! Each task tells of the ranks that its action had when it was begun. What follows a job grows as the job lets go of ranks: those that are told of
//! later are added to what is known. Such an action has its verdict when the job is known to hold nothing more (`job finish`), when it was added
//! again and all of it is covered, or when whoever began it by hand is there again and says over what.
//!
//! A node's word is not the resource manager's. A newer attempt that it tells of is open beside one that was asked for here, until that newer one
//! is asked for too ([`crate::controller::superseded`]); only what itself is known from nodes gives way to it.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::attempt::JobAttempt;
use crate::controller::io::{ActionRow, Now};
use crate::controller::layout::Layout;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::message::{Held, HeldState};
use crate::outcome::Loss;

impl Machine {
    /// A task that this store has never heard of: it was lost, or restored from an old copy. Equal ids meet.
    pub(super) fn rebuild(&mut self, host: &HostName, held: &Held, now: Now) {
        let id = held.task.action;
        let known = self.actions.get(&id);
        let is_covered = known.is_some_and(|action| held.ranks.is_subset(&action.row.ranks));
        if is_covered || matches!(held.state, HeldState::Tombstone { .. }) {
            return;
        }
        if known.is_some_and(|action| !self.may_have_grown(action, held)) {
            return;
        }
        let is_known = known.is_some();
        let Some(layout) = self.layout_told(host, held) else { return };
        if !is_known {
            self.rebuild_attempt(host, held, &layout, now);
        }
        let Some(attempt) = self.jobs.get_mut(&held.job).and_then(|job| job.attempts.get_mut(&held.attempt)) else {
            return;
        };
        attempt.widen(layout);
        let released = attempt.released.clone();
        // What follows a job is begun on ranks as it lets go of them: there may be others, of which nobody has told yet.
        let open_end = attempt.open && !attempt.hold.ranks.is_empty() && self.settings.after.contains(&held.action);
        self.batch.attempts.insert((held.job.clone(), held.attempt));
        if is_known {
            self.rebuild_more(held, &released.ranks);
        } else {
            self.rebuild_action(held, &released, open_end, now);
        }
        self.touch(id, now);
        let what = if is_known { "more of" } else { "action" };
        let text = format!("rebuilt {what} {} from what its nodes hold", held.action);
        self.note(Level::Warning, Some(&held.job), Some(host), text);
        self.settle_rebuilt(id, host, now);
        self.settle_superseded(&held.job, held.attempt, now);
    }

    /// Only what follows a job grows, within the job, as far as that is known. Where outcomes have added up to a verdict more of them cannot be
    /// added; what runs goes on.
    fn may_have_grown(&self, action: &Action, held: &Held) -> bool {
        let row = &action.row;
        let attempt = self.jobs.get(&row.job).and_then(|job| job.attempts.get(&row.attempt));
        let fits = |attempt: &JobAttempt| attempt.rebuilt || held.ranks.is_subset(attempt.layout.ranks());
        row.verdict.is_none()
            && row.external.is_none()
            && self.settings.after.contains(&row.name)
            && attempt.is_some_and(fits)
            && !defect!(GrowthNotRebuilt)
    }

    /// The attempt's ranks and hosts, with those that this task tells of; `None`: it makes no sense here, or contradicts what is known.
    fn layout_told(&mut self, host: &HostName, held: &Held) -> Option<Layout> {
        let expected = ActionId::of(self.settings.cluster, &held.job, held.attempt, &held.action);
        let layout = Layout::new(held.ranks.clone(), held.hosts.clone());
        let told = layout
            .ok()
            .filter(|layout| expected == held.task.action && layout.host(held.task.rank).as_ref() == Some(host));
        let Some(layout) = told else {
            let text = format!("holds task {} which does not make sense here", held.task);
            self.note(Level::Warning, Some(&held.job), Some(host), text);
            return None;
        };
        let attempt = self.jobs.get(&held.job).and_then(|job| job.attempts.get(&held.attempt));
        let merged = match attempt {
            Some(attempt) => attempt.layout.merge(&layout),
            None => Ok(layout),
        };
        if merged.is_err() {
            let text = format!("holds task {} whose hosts contradict the attempt's", held.task);
            self.note(Level::Warning, Some(&held.job), Some(host), text);
        }
        merged.ok()
    }

    fn rebuild_attempt(&mut self, host: &HostName, held: &Held, layout: &Layout, now: Now) {
        let job = self.jobs.entry(held.job.clone()).or_default();
        let newest = job.last_attempt().is_none_or(|last| held.attempt >= last);
        let older = job.attempts.iter().filter(|(number, a)| newest && a.open && **number < held.attempt);
        let (closed, asked): (Vec<_>, Vec<_>) = older.partition(|(_, older)| older.rebuilt);
        let closed: Vec<Attempt> = closed.into_iter().map(|(number, _)| *number).collect();
        let asked = asked.last().map(|(number, _)| **number);
        for number in closed {
            self.close_attempt(&held.job, number, held.attempt, now);
        }
        if let Some(asked) = asked.filter(|_| !self.is_known(held)) {
            let (job, told) = (&held.job, held.attempt);
            let text = format!(
                "tells of attempt {told} of job {job}, and {asked} is open: it stays so until {told} is asked for (job add, run)"
            );
            self.note(Level::Warning, Some(job), Some(host), text);
        }
        let job = self.jobs.entry(held.job.clone()).or_default();
        job.attempts.entry(held.attempt).or_insert_with(|| {
            let attempt = JobAttempt::new(layout.clone(), held.userid, Terms::default(), false, now.wall_ms);
            JobAttempt { open: newest, rebuilt: true, ..attempt }
        });
    }

    fn is_known(&self, held: &Held) -> bool {
        self.jobs.get(&held.job).is_some_and(|job| job.attempts.contains_key(&held.attempt))
    }

    /// `open_end`: it may have more ranks than are told of.
    fn rebuild_action(&mut self, held: &Held, released: &Part, open_end: bool, now: Now) {
        let events_from = self.jobs.get(&held.job).map_or(0, |j| j.events_last);
        let (id, job, name) = (held.task.action, held.job.clone(), held.action.clone());
        let row = ActionRow::new(id, job, held.attempt, name, held.ranks.clone(), now.wall_ms);
        let (waiting, unknown) = (IdSet::new(), held.ranks.clone());
        let mut row = ActionRow { userid: held.userid, waiting, unknown, events_from, growing: open_end, ..row };
        // A store that was put back may have given back what this one still had in hand.
        row.held.subtract(released);
        self.load_action(Action::new(row, now.mono_ms));
        let context = json!({"action": held.action, "attempt": held.attempt, "id": id, "ranks": held.ranks,
            "hosts": held.hosts, "rebuilt": true});
        self.event(&held.job, now, "action-start", context);
    }

    /// A newer attempt was heard of first: what is there of this one goes the way of what is superseded.
    fn settle_superseded(&mut self, job: &JobId, number: Attempt, now: Now) {
        let Some(entry) = self.jobs.get(job) else { return };
        let closed = entry.attempts.get(&number).is_some_and(|attempt| !attempt.open);
        if let Some(by) = entry.last_attempt().filter(|by| closed && *by > number) {
            self.close_attempt(job, number, by, now);
        }
    }

    /// It had grown when this task was begun, after those of which nodes told before.
    fn rebuild_more(&mut self, held: &Held, released: &IdSet) {
        let id = held.task.action;
        let Some(action) = self.actions.get_mut(&id) else { return };
        let new = held.ranks.difference(&action.row.ranks);
        action.grow_unknown(&new, released);
        self.index(id, &new);
    }

    /// A job that nodes had told of was added: that is all of it. What follows it grows by what it has not covered.
    pub(super) fn rebuilt_whole(&mut self, job: &JobId, number: Attempt, now: Now) {
        let Some(attempt) = self.jobs.get(job).and_then(|job| job.attempts.get(&number)) else { return };
        let all = attempt.layout.ranks().clone();
        for id in attempt.actions.clone() {
            if let Some(action) = self.actions.get_mut(&id).filter(|action| all.is_subset(&action.row.ranks)) {
                action.grown();
                self.touch(id, now);
            }
        }
    }

    /// Nodes that have said Hello in this controller's time, and did not tell of the action, hold nothing of it.
    fn settle_rebuilt(&mut self, id: ActionId, teller: &HostName, now: Now) {
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
