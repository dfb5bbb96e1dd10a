//! Time limits of actions: keeps the time from which each limit counts, and the limits that nodes reported.
//! [`super::deadlines`] decides which limits have passed. All limits count on the monotonic clock while this controller
//! runs, so neither a restart nor a clock step makes a task late.

use std::collections::BTreeSet;

use crate::controller::interface::io::Now;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::context::Context;
use crate::controller::stored::delta::take_out;
use crate::defect;
use crate::ids::{ActionId, HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::Phase;

/// Longest delay (ms) between a Start and the task's first script with which the time limit still counts from the
/// Start. After a longer delay the limit counts from the script, and the rank gets an entry in `ready_ms`. Most ranks
/// of a large action begin faster, and need no entry.
const AT_ONCE_MS: u64 = 1_000;
/// Maximum number of events about overdue scripts and lingering processes that one task may cause in its job's log. No
/// honest node reports more.
const MAX_LOGGED: u8 = 32;
/// Longest name of a script, in bytes; no file name is longer.
const MAX_SCRIPT: usize = 255;

impl Action {
    /// Counts an event that a report about the rank adds to the job's log. Returns `false` past the maximum: the caller
    /// then adds no event.
    pub(crate) fn may_log(&mut self, rank: Rank) -> bool {
        let logged = self.logged.entry(rank).or_default();
        *logged = logged.saturating_add(1);
        *logged <= MAX_LOGGED
    }

    /// Records that a script of the rank is overdue. Returns `false` if the controller knows that already, or if the
    /// rank has caused its maximum number of events.
    pub(crate) fn is_overdue_now(&mut self, rank: Rank, script: &str) -> bool {
        if self.row.overdue.get(script).is_some_and(|ranks| ranks.contains(rank.0)) || !self.may_log(rank) {
            return false;
        }
        self.forget_overdue(rank);
        self.row.overdue.entry(script.to_owned()).or_default().insert(rank.0);
        self.dirty.insert(rank.0);
        true
    }

    /// Returns the script of the rank that is recorded as overdue, or [`crate::message::ITS_START`].
    pub(crate) fn overdue(&self, rank: Rank) -> Option<&str> {
        let mut scripts = self.row.overdue.iter().filter(|(_, ranks)| ranks.contains(rank.0));
        scripts.next().map(|(script, _)| script.as_str())
    }

    pub(crate) fn forget_overdue(&mut self, rank: Rank) {
        take_out(&mut self.row.overdue, rank);
    }

    /// Records that the controller drains the rank's node for live processes: they outlived the rank's scripts for too
    /// long, or the rank is `lost` and its scripts turned out to live.
    pub(crate) fn lingers_too_long(&mut self, rank: Rank) {
        self.lingering.remove(&rank);
        self.row.lingering.insert(rank.0);
        self.dirty.insert(rank.0);
    }

    /// Records the time limit that the node reported for the rank; does nothing if `limit_ms` is `None`.
    pub(crate) fn limited(&mut self, rank: Rank, limit_ms: Option<u64>) {
        if defect!(NodesLimitUnknown) {
            return;
        }
        let Some(limit) = limit_ms.filter(|limit| Some(*limit) != self.limit(rank)) else { return };
        let limits = &mut self.row.limits;
        take_out(limits, rank);
        if Some(limit) != self.row.timeout_ms {
            limits.entry(limit).or_default().insert(rank.0);
        }
        self.dirty.insert(rank.0);
    }

    /// Returns the time limit (ms) of a rank's scripts: the limit that the node reported, or else the limit of the
    /// action. `None`: no limit.
    pub(crate) fn limit(&self, rank: Rank) -> Option<u64> {
        let reported = self.row.limits.iter().find_map(|(limit, ranks)| ranks.contains(rank.0).then_some(*limit));
        reported.or(self.row.timeout_ms)
    }

    pub(crate) fn has_limits(&self) -> bool {
        self.row.timeout_ms.is_some() || !self.row.limits.is_empty()
    }
}

/// Returns the name of a script, cut at the length of the longest file name.
pub(crate) fn script_name(script: &str) -> &str {
    let end = (0..=script.len().min(MAX_SCRIPT)).rev().find(|end| script.is_char_boundary(*end));
    &script[..end.unwrap_or(0)]
}

impl Jobs {
    /// Schedules a check of the action's limits at `at_ms` (monotonic), unless an earlier check is scheduled.
    pub(crate) fn check_by(&mut self, id: ActionId, at_ms: u64) {
        if let Some(action) = self.action_mut(id) {
            action.check_ms = Some(action.check_ms.map_or(at_ms, |before| before.min(at_ms)));
        }
    }

    /// Schedules a check of limits at `at_ms` (monotonic) for each action that one of `tasks` belongs to.
    pub(crate) fn check_all(&mut self, tasks: &BTreeSet<TaskId>, at_ms: u64) {
        tasks.iter().for_each(|task| self.check_by(task.action, at_ms));
    }

    /// Starts the limits of an action anew, from now, for example when the action begins or its attempt is no longer
    /// suspended. Ranks with a time of their own (`ready_ms`) and announced reboots keep their times.
    pub(crate) fn arm(&mut self, id: ActionId, cx: &Context) {
        if let Some(action) = self.action_mut(id) {
            let first = action.row.external.as_ref().map_or(cx.settings.start_grace_ms, |external| external.lease_ms);
            action.armed_ms = cx.now.mono_ms;
            action.check_ms = Some(cx.now.mono_ms.saturating_add(first));
        }
    }

    /// Starts the start-grace of a rank whose node has just connected.
    pub(crate) fn arm_start(&mut self, task: TaskId, cx: &Context) {
        if let Some(action) = self.action_mut(task.action) {
            action.ready(&IdSet::from(task.rank.0..=task.rank.0), cx.now.mono_ms);
        }
        self.check_by(task.action, cx.now.mono_ms.saturating_add(cx.settings.start_grace_ms));
    }

    /// Lets a task's time limit count from the start of its first script (`since_ms`, monotonic) if that was more than
    /// [`AT_ONCE_MS`] after the Start, for example because the task waited on its node.
    pub(crate) fn begins(&mut self, task: TaskId, since_ms: u64) {
        if let Some(action) = self.action_mut(task.action)
            && since_ms > action.armed(task.rank).saturating_add(AT_ONCE_MS)
        {
            action.ready(&IdSet::from(task.rank.0..=task.rank.0), since_ms);
        }
    }

    /// Records the time limit of an open task, as the node `host` reported it. Ignores a report about a task of another
    /// host.
    pub(crate) fn limit_reported(&mut self, host: &HostName, task: TaskId, limit_ms: Option<u64>) {
        if self.host_of(task).as_ref() != Some(host) {
            return;
        }
        if let Some(action) = self.action_mut(task.action).filter(|action| action.is_open_on(task.rank)) {
            action.limited(task.rank, limit_ms);
        }
    }

    /// If `phase` says that processes of the task linger, schedules the check that drains the node when they linger too
    /// long. The processes may linger as long as the task's time limit, from the first such report to this controller
    /// on. Schedules no check for a task without a limit.
    pub(crate) fn watch_lingering(&mut self, task: TaskId, phase: &Phase, now: Now) {
        let lingers = matches!(phase, Phase::Lingering { .. });
        let Some(action) = self.action_mut(task.action).filter(|a| lingers && a.is_open_on(task.rank)) else {
            return;
        };
        if action.row.lingering.contains(task.rank.0) {
            return;
        }
        let since = *action.lingering.entry(task.rank).or_insert(now.mono_ms);
        if let Some(limit) = action.limit(task.rank) {
            self.check_by(task.action, since.saturating_add(limit));
        }
    }
}
