//! What a controller does that lost its store, or has an old copy of it: it meets its own actions again in what the nodes hold.
//!
//! Each task tells of the ranks that its action had when it was begun. What follows a job grows as the job lets go of ranks: those that are told of
//! later are added to what is known. Such an action has its verdict when the job is known to hold nothing more (`job finish`), when it was added
//! again and all of it is covered, or when whoever began it by hand is there again and says over what.
//!
//! A node's word is not the resource manager's, nor another node's. A newer attempt that it tells of is open beside one that was asked for here, until
//! that newer one is asked for too ([`crate::controller::superseded`]). Of other ranks it may have heard ([`crate::controller::hearsay`]): they are
//! `unknown` until their own nodes have said Hello; one that has, and told nothing of it, is asked whether its session lives
//! ([`crate::controller::asked`]). What was asked for has the ranks that it was asked for with.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::attempt::JobAttempt;
use crate::controller::io::{ActionRow, Now};
use crate::controller::layout::Layout;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::message::{Held, HeldState};

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
        let attempt = self.jobs.get(&held.job).and_then(|job| job.attempts.get(&held.attempt));
        let late = attempt.is_some_and(|attempt| self.is_over_without(attempt, held.task.rank));
        let Some(attempt) = self.jobs.get_mut(&held.job).and_then(|job| job.attempts.get_mut(&held.attempt)) else {
            return;
        };
        attempt.widen(layout);
        let mut not_held = attempt.released.clone();
        not_held.ranks.extend_with(&attempt.told);
        // What follows a job is begun on ranks as it lets go of them: there may be others, of which nobody has told yet.
        let open_end = attempt.open && !attempt.hold.ranks.is_empty() && self.settings.after.contains(&held.action);
        self.batch.attempts.insert((held.job.clone(), held.attempt));
        if is_known {
            self.rebuild_more(held, &not_held.ranks);
        } else {
            self.rebuild_action(held, &not_held, open_end, now);
        }
        self.touch(id, now);
        let what = if is_known { "more of" } else { "action" };
        let text = format!("rebuilt {what} {} from what its nodes hold", held.action);
        self.note(Level::Warning, Some(&held.job), Some(host), text);
        if late {
            // It goes where the rest has gone.
            let one = IdSet::from(held.task.rank.0..=held.task.rank.0);
            self.own(&held.job, held.attempt, &one, now);
            self.let_go(&held.job, held.attempt, &Part::of_ranks(one), now);
        }
        self.stones_told(&held.job, held.attempt, now);
        self.settle_rebuilt(id, host, now);
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
            Some(attempt) => attempt.layout.merge(&layout).ok().filter(|all| attempt.rebuilt || *all == attempt.layout),
            None => Some(layout),
        };
        if merged.is_none() {
            // What it holds is of no use here; that something of this attempt was there is.
            if let Some(node) = self.nodes.get_mut(host).filter(|_| !defect!(ContradictedUnfollowed)) {
                node.stones.spoke(&held.job, held.attempt);
            }
            let text = format!("holds task {} whose hosts contradict the attempt's", held.task);
            self.note(Level::Warning, Some(&held.job), Some(host), text);
        }
        merged
    }

    fn rebuild_attempt(&mut self, host: &HostName, held: &Held, layout: &Layout, now: Now) {
        let job = self.jobs.entry(held.job.clone()).or_default();
        if job.attempts.contains_key(&held.attempt) {
            return;
        }
        // Nothing asks for an attempt before one that was asked for.
        let open = !job.attempts.range(held.attempt..).any(|(_, newer)| newer.asked);
        let asked =
            job.attempts.iter().rev().find(|(_, attempt)| attempt.open && attempt.asked).map(|(number, _)| *number);
        let attempt = JobAttempt::told_by(layout.clone(), held.task.rank, held.userid, now.wall_ms);
        job.attempts.insert(held.attempt, JobAttempt { open, ..attempt });
        if let Some(asked) = asked.filter(|_| open) {
            let (job, told) = (&held.job, held.attempt);
            let text = format!(
                "tells of attempt {told} of job {job}, and {asked} is open: it stays so until {told} is asked for (job add, run)"
            );
            self.note(Level::Warning, Some(job), Some(host), text);
        }
    }

    /// `open_end`: it may have more ranks than are told of.
    fn rebuild_action(&mut self, held: &Held, not_held: &Part, open_end: bool, now: Now) {
        let events_from = self.jobs.get(&held.job).map_or(0, |j| j.events_last);
        let (id, job, name) = (held.task.action, held.job.clone(), held.action.clone());
        let row = ActionRow::new(id, job, held.attempt, name, held.ranks.clone(), now.wall_ms);
        let (waiting, unknown) = (IdSet::new(), held.ranks.clone());
        let timeout_ms = self.settings.timeouts.get(&held.action).copied();
        let mut row =
            ActionRow { userid: held.userid, timeout_ms, waiting, unknown, events_from, growing: open_end, ..row };
        // A store that was put back may have given back what this one still had in hand; and of other nodes this one has only heard.
        row.held.subtract(not_held);
        self.load_action(Action::new(row, now.mono_ms));
        let context = json!({"action": held.action, "attempt": held.attempt, "id": id, "ranks": held.ranks,
            "hosts": held.hosts, "rebuilt": true});
        self.event(&held.job, now, "action-start", context);
    }

    /// It had grown when this task was begun, after those of which nodes told before.
    fn rebuild_more(&mut self, held: &Held, not_held: &IdSet) {
        let id = held.task.action;
        let Some(action) = self.actions.get_mut(&id) else { return };
        let new = held.ranks.difference(&action.row.ranks);
        action.grow_unknown(&new, not_held);
        self.index(id, &new);
    }

    /// A job that nodes had told of was added, and that is all of it: what follows it and is known to cover that grows no more.
    pub(super) fn rebuilt_whole(&mut self, id: ActionId) {
        let Some(row) = self.actions.get(&id).map(|action| &action.row) else { return };
        let attempt = self.jobs.get(&row.job).and_then(|job| job.attempts.get(&row.attempt));
        let whole = |attempt: &JobAttempt| attempt.added && attempt.layout.ranks().is_subset(&row.ranks);
        if row.growing && row.unknown.is_empty() && attempt.is_some_and(whole) {
            self.actions.get_mut(&id).into_iter().for_each(Action::grown);
        }
    }

    /// Nodes that have said Hello in this controller's time have told by their tombstones how it ended there, or hold nothing of it where their session
    /// lives.
    fn settle_rebuilt(&mut self, id: ActionId, teller: &HostName, now: Now) {
        let Some(layout) = self.layout(id).cloned() else { return };
        let Some(action) = self.actions.get(&id) else { return };
        let there = layout.pairs(&action.row.unknown).filter(|(_, host)| *host != teller.as_str());
        let there: Vec<(Rank, HostName)> =
            there.filter_map(|(rank, host)| Some((rank, self.nodes.get(host)?.row.host.clone()))).collect();
        for (rank, host) in there {
            let task = TaskId { action: id, rank };
            let Some(node) = self.nodes.get_mut(&host) else { continue };
            match (node.session, node.stones.take(task)) {
                (None, _) => {}
                (Some(session), Some((stone, limit_ms))) => {
                    self.settle_held(session, &host, task, &stone, limit_ms, now);
                }
                // Its next Hello tells.
                (Some(session), None) if node.stones.is_cut() => {
                    self.end_session(session, "it told of more tombstones than are kept: it is asked again", now);
                }
                // What it said in its Hello holds for as long as its session lives: where that is half open it may have had another controller since.
                (Some(session), None) => self.ask_whether_it_lives(session, now),
            }
        }
    }
}
