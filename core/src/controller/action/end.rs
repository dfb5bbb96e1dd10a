//! End of a task: only [`Jobs::give_outcome`] gives a task its outcome. The queued change `Change::Ended` then updates
//! the task's node, and may drain its host.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::limits::script_name;
use crate::controller::action::verdict::last_line;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{RankRow, Resolving};
use crate::controller::machine::Machine;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::Node;
use crate::controller::state::action::Fresh;
use crate::controller::state::change::{Change, End};
use crate::controller::state::context::Context;
use crate::defect;
use crate::duration::Span;
use crate::ids::{ActionName, HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::{ITS_START, Phase};
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, survives_reboot};

impl Jobs {
    /// Ends a task as `lost`, for the reason `why`.
    pub(crate) fn mark_lost(&mut self, task: TaskId, why: Loss, cx: &mut Context) {
        self.end_task(task, self.lost(task, why, cx), cx);
    }

    /// Ends a task with `ended`. If a resolution of the task waits, the resolution may become the outcome instead, or
    /// the task stays open ([`Self::apply_resolution`]).
    pub(crate) fn end_task(&mut self, task: TaskId, ended: Ended, cx: &mut Context) {
        if let Some(ended) = self.apply_resolution(task, ended, cx) {
            self.give_outcome(task, ended, cx);
        }
    }

    /// Gives a task its outcome; no other function does so. Queues the end for the event log and for the task's node,
    /// and records the milestones that the end reports.
    pub(crate) fn give_outcome(&mut self, task: TaskId, ended: Ended, cx: &mut Context) {
        let is_ok = ended.outcome.is_ok();
        let lacks_after_action = self.lacking_after_action(task, &ended).is_some();
        let milestones = ended.milestones.clone();
        let Some(action) = self.action_mut(task.action) else { return };
        // An end without a duration is none of the node's: the controller gave the script up, and the script may go on.
        let given_up = ended.elapsed_ms.is_none();
        // The controller drained the node when the script passed its limit, so no second drain follows. A drain for an
        // overdue start is none for its script: an operator may have lifted it while no script had begun.
        let counts = |script: &&str| {
            if defect!(StartCounts) {
                return true;
            }
            *script != ITS_START || given_up
        };
        let overdue = action.overdue(task.rank).filter(counts);
        let reported = overdue.is_some() && matches!(ended.outcome, Outcome::Timeout { .. });
        let blame = (!is_ok && !reported || lacks_after_action).then(|| ended.clone());
        let rebooted = action.expected.contains_key(&task.rank);
        let continues = matches!(ended.outcome, Outcome::Resolved { .. }) || reported && given_up;
        action.end(task.rank, ended);
        cx.changes.push_back(Change::Ended(End { task, rebooted, continues, is_ok, blame }));
        for name in milestones {
            self.on_task_milestone(task, &name, cx);
        }
        self.touch(task.action, cx);
    }

    /// Ends a task as `cancelled`, because it is never to begin; `note`: the reason, for people.
    pub(crate) fn withdraw_task(&mut self, task: TaskId, note: &str, cx: &mut Context) {
        let ended =
            Ended { note: Some(note.to_owned()), ..Ended::bare(Outcome::Cancelled { status: None }, cx.now.wall_ms) };
        self.end_task(task, ended, cx);
    }

    /// Records a result that arrived after the task had ended. If the task had ended as `lost` although its scripts
    /// ran, the result may drain the host, for the same reasons as an end in time: the end is the node's fault, or no
    /// after-action cleans up.
    pub(crate) fn on_late(&mut self, host: &HostName, task: TaskId, ended: Ended, cx: &mut Context) {
        for name in &ended.milestones {
            self.on_task_milestone(task, name, cx);
        }
        let (outcome, has_run) = (ended.outcome.clone(), ended.has_run());
        let Some(action) = self.action_mut(task.action) else {
            return;
        };
        if defect!(LateDropped) {
            return;
        }
        if !action.late(task.rank, ended, cx.now.wall_ms) {
            return;
        }
        let context = json!({"action": action.row.name, "attempt": action.row.attempt, "rank": task.rank, "host": host,
            "outcome": outcome.as_str(), "result": outcome.to_string()});
        let (job, name) = (action.row.job.clone(), action.row.name.clone());
        let found = action.late_of_lost(task.rank);
        // A good result that a reboot has invalidated is no reason for a drain.
        let invalidated = |ended: &Ended| ended.outcome.went_well() && ended.reboot().is_past();
        // Drains the node again: the operator who undrained the node knew of the loss, but not how the task ended.
        // `reboot-cleans` does not apply to the new drain.
        let blame = found.filter(|ended| has_run && !invalidated(ended));
        cx.changes.push_back(Change::Ended(End { task, rebooted: false, continues: false, is_ok: true, blame }));
        self.event(&job, "late", context, cx);
        self.touch(task.action, cx);
        cx.note(
            Level::Warning,
            Some(&job),
            Some(host),
            format!("{name} on rank {} had ended for the controller when its result came: {outcome}", task.rank),
        );
    }

    /// Drains the host of a task that had ended as `lost`, because the node now reports that its scripts live. Does so
    /// even if the loss itself had led to a drain, which an operator may have lifted without knowing that scripts live.
    /// Each task causes this second drain only once.
    pub(crate) fn mark_alive_after_loss(&mut self, task: TaskId, phase: &Phase, cx: &mut Context) {
        let Some(action) = self.action_mut(task.action).filter(|_| !phase.is_before_its_begin()) else { return };
        if defect!(LostMayLive) {
            return;
        }
        if action.mark_alive_after_loss(task.rank) {
            self.touch(task.action, cx);
            let what = "still runs, although it was given up as lost".to_owned();
            cx.changes.push_back(Change::Drain { task, what, is_stuck: true });
        }
    }
}

impl Machine {
    /// Drains the node of a script past its limit, for the reason `what`. Gives up the script's rank once the drain is
    /// in force, if the job may go on without the rank: otherwise one straggler would hold all nodes of the job. The
    /// script goes on, and its own end is recorded as late.
    pub(crate) fn on_overdue(&mut self, task: TaskId, what: &str) {
        self.drain_task(task, &*format!(": {what}"), self.facts().stuck(task));
        let forgiveness = self.jobs.forgiveness(task.action, &self.cx);
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        let is_before = !self.cx.settings.after.contains(&action.row.name) && action.row.external.is_none();
        let is_open = action.is_open_on(task.rank) && action.resolving(task.rank).is_none();
        if !(forgiveness.timeout && forgiveness.others && forgiveness.ranks > 0 && is_before && is_open) {
            return;
        }
        let ranks = IdSet::from(task.rank.0..=task.rank.0);
        let resolution = Resolving { overdue: true, ..Resolving::new(ranks, false, what, 0) };
        match self.jobs.name_of(task).is_some_and(|host| self.drains.is_draining(host)) {
            true => self
                .jobs
                .action_mut(task.action)
                .into_iter()
                .for_each(|action| action.resolve_later(resolution.clone())),
            false => self.jobs.end_task(task, Ended::bare(resolution.outcome(), self.cx.now.wall_ms), &mut self.cx),
        }
    }
}

impl Facts<'_> {
    /// Returns `true` if a reboot has invalidated this good end of a prolog. After a soft reboot, /run still has the
    /// record of the end, so the node may report it.
    pub(crate) fn is_invalidated(&self, task: TaskId, ended: &Ended) -> bool {
        let Some(action) = self.jobs.action(task.action) else { return false };
        let node = self.nodes.of(&self.jobs, task);
        if self.jobs.is_suspended_action(task.action) {
            // The reboot is looked at when the attempt proceeds.
            return false;
        }
        if defect!(BootKeepsProlog) {
            return false;
        }
        let other = |node: &Node| action.boot(task.rank).is_some_and(|boot| boot != node.row.boot_number);
        self.jobs.counts_on(action, &ended.outcome) && !survives_reboot(&action.row.name) && node.is_some_and(other)
    }
}

impl Jobs {
    /// Logs a script past its limit, once for each script. Returns the reason to drain the task's node, for
    /// [`Machine::on_overdue`]. `None`: no script is past its limit, it was logged before, the task has ended otherwise
    /// than as `ok`, or the rank has its maximum number of events. The store keeps which scripts were logged, so a
    /// restarted controller does not drain the node again after an operator has lifted the drain.
    pub(crate) fn past_its_limit(
        &mut self,
        host: &HostName,
        task: TaskId,
        phase: &Phase,
        cx: &mut Context,
    ) -> Option<String> {
        let Phase::Overdue { script, limit_ms, doing } = phase else { return None };
        let script = script_name(script);
        let action = self.action_mut(task.action)?;
        if !action.is_overdue_now(task.rank, script) {
            return None;
        }
        let ended = action.row.not_ok.contains(task.rank.0);
        let context = json!({"ranks": task.rank.0.to_string(), "hosts": host, "script": script, "limit_ms": limit_ms,
            "doing": doing});
        self.action_event(task.action, "overdue", context, cx);
        self.touch(task.action, cx);
        // If the task has ended by a resolution, an operator may have lifted its drain since.
        let stalls = if script == ITS_START { format!(": {doing}") } else { String::new() };
        (!ended).then(|| format!("{script} is past its limit of {}{stalls}", Span::from_millis(*limit_ms)))
    }
}

/// Maximum number of late results kept for a rank, because a node may send any number.
const MAX_LATE: usize = 8;
/// Maximum number of different remarks kept for an action.
const MAX_REMARKS: usize = 16;
/// Maximum number of characters in a remark. A longer remark is cut.
const MAX_REMARK: usize = 200;

impl Action {
    /// Ends a rank with its outcome. The rank must be open, or have ended well before a reboot invalidated it.
    pub(crate) fn end(&mut self, rank: Rank, ended: Ended) {
        self.leave(rank);
        self.row.cancelling.remove(rank.0);
        if !self.row.resolving.is_empty() {
            self.forget_resolutions(&IdSet::from(rank.0..=rank.0));
        }
        let expected = self.expected.remove(&rank).is_some();
        self.freed.insert(rank.0);
        self.lingering.remove(&rank);
        self.row.lingering.remove(rank.0);
        self.forget_overdue(rank);
        if self.row.held.ranks.contains(rank.0) {
            self.done.insert(rank.0);
        }
        self.fresh.push(Fresh {
            rank,
            outcome: ended.outcome.clone(),
            result: ended.result(),
            elapsed_ms: ended.elapsed_ms,
            message: last_line(&ended),
            checks: ended.checks.clone(),
        });
        if ended.outcome == Outcome::Ok {
            self.row.ok.insert(rank.0);
            self.remark(rank, &ended);
            // A rank that expected a reboot has a stored row, which must now contain the end.
            if ended.note.is_none() && ended.lingering.is_empty() && ended.user_message.is_none() && !expected {
                return;
            }
        } else {
            self.row.not_ok.insert(rank.0);
        }
        // Late results stay, even if a reboot has invalidated the end before.
        let late = self.ended.remove(&rank).map(|row| row.late).unwrap_or_default();
        let row = RankRow { task: self.task(rank), ended, late, expects: None };
        self.ended.insert(rank, row);
        self.changed_ranks.insert(rank);
    }

    /// Stores the remark of an `ok` end, if it has one. Ranks with equal remarks share one entry. An action that has
    /// [`MAX_REMARKS`] different remarks gets no further one.
    fn remark(&mut self, rank: Rank, ended: &Ended) {
        let Some(remark) = ended.remark() else { return };
        let remark: String = remark.chars().take(MAX_REMARK).collect();
        let remarks = &mut self.row.remarks;
        if remarks.contains_key(&remark) || remarks.len() < MAX_REMARKS {
            remarks.entry(remark).or_default().insert(rank.0);
        }
    }

    /// Returns `true` if the store already has the outcome of `ended` for the rank, as its end or as a late result. A
    /// `timeout` that the controller itself gave a script past its limit does not count, if `ended` has the script's
    /// own steps.
    pub(crate) fn knows(&self, rank: Rank, ended: &Ended) -> bool {
        let given_up = |known: &Ended| matches!(known.outcome, Outcome::Timeout { .. }) && known.steps.is_empty();
        let is_news = |known: &Ended| {
            if defect!(StragglerEndDropped) {
                return false;
            }
            given_up(known) && !ended.steps.is_empty()
        };
        let is_same = |known: &Ended| known.outcome == ended.outcome && !is_news(known);
        match self.ended.get(&rank) {
            Some(row) => is_same(&row.ended) || row.late.iter().any(is_same),
            None => self.row.ok.contains(rank.0) && ended.outcome == Outcome::Ok,
        }
    }

    /// Stores a result that arrived after the rank had ended, and returns `true`. Stores nothing and returns `false` if
    /// the rank has an end or late result with this outcome, or has [`MAX_LATE`] late results.
    pub(crate) fn late(&mut self, rank: Rank, ended: Ended, wall_ms: u64) -> bool {
        if self.knows(rank, &ended) {
            return false;
        }
        let task = self.task(rank);
        let row = self.ended.entry(rank).or_insert_with(|| RankRow {
            task,
            ended: Ended::bare(Outcome::Ok, wall_ms),
            late: Vec::new(),
            expects: None,
        });
        if row.late.len() >= MAX_LATE {
            return false;
        }
        row.late.push(ended);
        self.changed_ranks.insert(rank);
        true
    }

    /// Records that scripts live on a rank that had ended as `lost`. Returns `false` if this was recorded before, or if
    /// the rank did not end as `lost`.
    pub(crate) fn mark_alive_after_loss(&mut self, rank: Rank) -> bool {
        let lost = self.ended.get(&rank).is_some_and(|row| matches!(row.ended.outcome, Outcome::Lost { .. }));
        let is_news = lost && !self.row.lingering.contains(rank.0);
        if is_news {
            self.lingers_too_long(rank);
        }
        is_news
    }

    /// Returns the last late result of a rank that ended as `lost`; `None`: the rank ended otherwise, or has no late
    /// result.
    pub(crate) fn late_of_lost(&self, rank: Rank) -> Option<Ended> {
        let row = self.ended.get(&rank).filter(|row| matches!(row.ended.outcome, Outcome::Lost { .. }))?;
        row.late.last().cloned()
    }
}

impl Jobs {
    /// Returns `true` if a job goes on with a rank that ended with this outcome in `action`: after `ok`, and after
    /// `tolerable` unless the job hands failed ranks over.
    pub(crate) fn counts_on(&self, action: &Action, outcome: &Outcome) -> bool {
        let row = &action.row;
        let sheds = || {
            let attempt = self.attempt(&row.job, row.attempt);
            attempt.is_some_and(|attempt| attempt.terms.sheds())
        };
        outcome.went_well() && (*outcome == Outcome::Ok || !sheds())
    }

    /// Returns the after-action that should have cleaned up after this task, but was cancelled before a Start was sent.
    /// The caller then drains the task's host, even if an operator has lifted an earlier drain: that operator did not
    /// know how the task ended. `None`: there is no such after-action, the task is itself one of an after-action, or
    /// neither scripts nor a service did any work.
    pub(crate) fn lacking_after_action(&self, task: TaskId, ended: &Ended) -> Option<&ActionName> {
        let action = self.action(task.action).filter(|action| !self.follows(action))?;
        // A cancelled service may have worked, but reports no work.
        let by_service = action.row.external.is_some() && matches!(ended.outcome, Outcome::Cancelled { .. });
        if !(ended.has_run() || by_service) {
            return None;
        }
        let attempt = self.attempt(&action.row.job, action.row.attempt)?;
        let was_cancelled = |other: &&Action| {
            let ended = other.ended.get(&task.rank).map(|row| &row.ended.outcome);
            let was_sent = || other.boot(task.rank).is_some();
            matches!(ended, Some(Outcome::Cancelled { .. })) && !was_sent()
        };
        let follower = self.of(attempt).filter(|other| self.follows(other)).find(was_cancelled)?;
        Some(&follower.row.name)
    }
}
