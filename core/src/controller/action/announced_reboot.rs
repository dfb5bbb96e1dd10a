//! Announced reboot (`perilog-report expect-reboot`): decides how a rank ends whose script announced a reboot of the
//! node. The reboot is the task's end, not its loss.
//!
//! The agent reports the announcement to the controller, with the outcome that the task gets once the node has
//! rebooted. The controller stores this outcome. The rank stays open until one of the following events:
//!
//! | event, while the rank expects a reboot    | then |
//! |-------------------------------------------|------|
//! | the node says Hello from another boot     | the rank ends as reported; a later reboot is an ordinary one |
//! | ... or says there that the task was lost  | the same: the node has lost its mark of the announcement |
//! | ... and the node is another machine       | `lost (rebooted)`, like every other task there |
//! | ... later than limit and grace            | `timeout` |
//! | the scripts end well, or by the shutdown  | the rank stays open: the reboot is the end |
//! | the scripts end in any other way          | the rank ends with the scripts |
//! | limit and grace pass, the node is away    | `lost (unreachable)` |
//! | limit and grace pass, the scripts ended   | `timeout`: no reboot came |
//! | the limit passes, a script lives          | the runner's watchdog acts; the reboot would end in `timeout` |
//! | the task is cancelled, its scripts ended  | `cancelled` |
//! | an operator resolves the task             | the resolution |
//!
//! If a script had failed before with a worse outcome, that outcome stands. An announcement that never reached the
//! controller does not count: the task is `lost (rebooted)`. So `perilog-report` waits until the controller has stored
//! the announcement (docs/decisions/0008-the-boot-is-the-end.md).

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Expects, RankRow, SessionId};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::context::Context;
use crate::controller::state::expected::Expected;
use crate::controller::state::{Action, RankState};
use crate::defect;
use crate::ids::{ActionId, HostName, MachineId, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::ToAgent;
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, Reboot, survives_reboot};

/// Number that stands for an earlier boot of a node, if this store has no number of that boot. No real boot has this
/// number.
const EARLIER: u32 = u32::MAX;

impl Jobs {
    /// Returns the ranks of the action's attempt whose hosts are to reboot, because a script of any job has announced a
    /// reboot there. Start-grace does not count on these ranks.
    pub(crate) fn to_boot(&self, id: ActionId) -> IdSet {
        let mut hosts = BTreeSet::new();
        for action in self.table.live_actions() {
            hosts.extend(action.expected.keys().filter_map(|rank| self.host_of(action.task(*rank))));
        }
        let Some(layout) = self.layout(id).filter(|_| !hosts.is_empty()) else { return IdSet::new() };
        let of = layout.ranks().iter().zip(layout.hosts().iter());
        of.filter(|(_, host)| hosts.contains(*host)).map(|(rank, _)| rank).collect()
    }

    /// Starts the time limits of the action's announced reboots anew, from now, for example when the attempt proceeds.
    pub(crate) fn arm_boots(&mut self, id: ActionId, cx: &Context) {
        let Some(action) = self.action_mut(id) else { return };
        let mut first = None::<u64>;
        for expected in action.expected.values_mut() {
            expected.until_ms = Expected::until(&expected.row, cx.now.mono_ms, cx.settings.unreachable_grace_ms);
            first = first.into_iter().chain(expected.until_ms).min();
        }
        if let Some(at) = first {
            self.check_by(id, at);
        }
    }

    /// Returns the end of a task that is `lost` for the reason `why`. If the rank waits for an announced reboot and its
    /// scripts had a worse outcome, the worse outcome is returned.
    pub(crate) fn lost(&self, task: TaskId, why: Loss, cx: &Context) -> Ended {
        let outcome = Outcome::Lost { why };
        match self.action(task.action).and_then(|action| action.expected.get(&task.rank)) {
            Some(expected) => expected.but(outcome, "a reboot of the node was announced", cx.now),
            None => Ended::bare(outcome, cx.now.wall_ms),
        }
    }

    /// Ends a rank that expects a reboot, because its node is in another boot: with the announced end, as `timeout` if
    /// the reboot came too late, or as `lost` if another machine came or a second reboot has undone a prolog. Returns
    /// `false` if the rank expects no reboot, or the node is still in the same boot.
    pub(crate) fn booted(&mut self, task: TaskId, boot_number: u32, machine: &MachineId, cx: &mut Context) -> bool {
        let Some(action) = self.action_mut(task.action) else { return false };
        let Some(expected) = action.expected.get(&task.rank) else { return false };
        if defect!(ExpectedBootForgotten) {
            return false;
        }
        if action.boot(task.rank) == Some(boot_number) {
            return false;
        }
        if expected.row.expects.as_ref().map(|expects| &expects.machine) != Some(machine) {
            // A different machine has taken the node's place: the task's result is unknown.
            self.mark_lost(task, Loss::Rebooted, cx);
            return true;
        }
        let is_next = action.boot(task.rank).is_some_and(|boot| boot.saturating_add(1) == boot_number);
        if !is_next && !survives_reboot(&action.row.name) {
            // The node has rebooted again since the announced reboot. The second reboot has invalidated the prolog.
            self.mark_lost(task, Loss::Rebooted, cx);
            return true;
        }
        let ended = if expected.is_late(cx.now) {
            expected.but(Outcome::Timeout { status: None }, "the announced reboot came past its limit", cx.now)
        } else {
            expected.but(expected.row.ended.outcome.clone(), "the announced reboot ended the task", cx.now)
        };
        // From now on the rank belongs to the announced boot: a later reboot is an ordinary one.
        action.seen_in(task.rank, boot_number);
        self.end_task(task, Ended { booted: true, ..ended }, cx);
        true
    }
}

impl Machine {
    /// Records that a script of the task has announced a reboot of the node, and confirms the announcement to the node.
    /// Skips a rank that has ended: without the confirmation, the script does not reboot. `within_ms`: the rest
    /// of the task's limit; `None`: no limit. `ended`: the end that the task gets once the node has rebooted.
    pub(crate) fn on_expects_boot(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        within_ms: Option<u64>,
        ended: Ended,
    ) {
        if !self.nodes.speaks_for(host, task, &self.jobs, &mut self.cx) {
            return;
        }
        let grace = self.cx.settings.unreachable_grace_ms;
        let Some((boot_number, machine)) = self.facts().boot_of(task) else { return };
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        if !action.is_open_on(task.rank) {
            // The rank has ended, so no reboot will end it. Without a confirmation the script does not reboot.
            return;
        }
        if action.rank_state(task.rank) != RankState::Accepted {
            action.accept(task.rank);
        }
        let news = !action.expected.contains_key(&task.rank);
        // The stored boot may be missing or older: the task runs in the present boot.
        action.seen_in(task.rank, boot_number);
        action.expect(task.rank, Expects { within_ms, machine }, ended, self.cx.now.mono_ms, grace);
        let until_ms = action.expected.get(&task.rank).and_then(|expected| expected.until_ms);
        if news {
            let context = json!({"ranks": task.rank.0.to_string(), "hosts": host, "within_ms": within_ms});
            self.jobs.action_event(task.action, "expect-reboot", context, &mut self.cx);
        }
        if let Some(until) = until_ms {
            self.jobs.check_by(task.action, until);
        }
        self.jobs.touch(task.action, &mut self.cx);
        self.cx.send(id, ToAgent::BootExpected { task });
    }

    /// Decides what a node's report that the task ended means for a rank that may expect a reboot. Returns the end,
    /// which the caller must record. `None`: there is nothing to record, because the rank stays open until the reboot,
    /// or because the reboot has come and this call has ended the rank.
    pub(crate) fn end_or_boot(&mut self, task: TaskId, ended: Ended) -> Option<Ended> {
        let node = self.facts().boot_of(task);
        let (Some((boot_number, machine)), Some(action)) = (node, self.jobs.action_mut(task.action)) else {
            return Some(ended);
        };
        let report = action.report_of(task.rank, &ended, boot_number);
        action.boot_of_end(task.rank, &ended, boot_number);
        match report {
            Report::End => return Some(ended),
            Report::Booted => {
                self.jobs.booted(task, boot_number, &machine, &mut self.cx);
                return None;
            }
            Report::ScriptsEnded | Report::Cancelled => {}
        }
        if ended.outcome.went_well() {
            action.expect_end(task.rank, machine, ended, &self.cx);
        }
        let expected = action.expected.get_mut(&task.rank)?;
        if report == Report::Cancelled {
            let note = Some("cancelled while the task waited for the announced reboot".to_owned());
            let outcome = Outcome::Cancelled { status: None };
            return Some(Ended { outcome, note, ..expected.row.ended.clone() });
        }
        expected.is_over = true;
        let until_ms = expected.until_ms;
        if action.rank_state(task.rank) != RankState::Accepted {
            action.accept(task.rank);
        }
        if let Some(node) = self.nodes.of_mut(&self.jobs, task) {
            node.live.remove(&task);
        }
        if let Some(until) = until_ms {
            self.jobs.check_by(task.action, until);
        }
        self.jobs.touch(task.action, &mut self.cx);
        None
    }
}

impl Facts<'_> {
    /// Returns the number of the present boot of the task's node, and the node's machine; `None`: the controller does
    /// not know the task or its node.
    fn boot_of(&self, task: TaskId) -> Option<(u32, MachineId)> {
        let node = self.nodes.of(&self.jobs, task);
        node.map(|node| (node.row.boot_number, node.row.machine.clone()))
    }

    /// Returns `true` if a task of the node has announced a reboot that has not come yet.
    pub(crate) fn is_to_boot(&self, host: &HostName) -> bool {
        let expects = |task: &TaskId| {
            self.jobs.action(task.action).is_some_and(|action| action.expected.contains_key(&task.rank))
        };
        self.nodes.get(host).is_some_and(|node| node.tasks.iter().any(expects))
    }
}

/// Consequence of a node's report that a task ended, for a rank that may expect a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    /// The rank ends as reported: no reboot is expected, or the scripts failed.
    End,
    /// The node has rebooted as announced, and has lost its record of the announcement.
    Booted,
    /// The scripts ended well, or a shutdown of the node ended them: the rank waits for the reboot.
    ScriptsEnded,
    /// The scripts ended well, and the task is to be cancelled: the rank does not wait for the reboot.
    Cancelled,
}

impl Action {
    /// Returns the consequence for the rank if its node reports that the task ended. Any other rank than an open one
    /// with an announced reboot just ends. `boot_number`: the node's present boot.
    fn report_of(&self, rank: Rank, ended: &Ended, boot_number: u32) -> Report {
        let expects = self.expected.contains_key(&rank);
        if defect!(BootNotAwaited) {
            return Report::End;
        }
        if !(expects || ended.expect_reboot) || !self.is_open_on(rank) {
            return Report::End;
        }
        let is_same_boot = self.boot(rank) == Some(boot_number);
        // If the node reports that a reboot is still to come, the task began in the present boot.
        let in_its_boot = is_same_boot || ended.reboot() == Reboot::Expected;
        let has_booted = expects && !is_same_boot;
        let has_booted = if defect!(UnmarkedBootIsLoss) { false } else { has_booted };
        match &ended.outcome {
            Outcome::Lost { why: Loss::Rebooted } if has_booted => Report::Booted,
            _ if ended.booted || !in_its_boot => Report::End,
            Outcome::Lost { .. } if expects => Report::ScriptsEnded,
            outcome if !outcome.went_well() => Report::End,
            _ if self.row.cancelling.contains(rank.0) => Report::Cancelled,
            _ => Report::ScriptsEnded,
        }
    }

    /// Updates the recorded boot of an open rank's task ([`Action::boot`]) when its node reports `ended`. Does nothing
    /// if the scripts did not end well, or if the report tells of neither a reboot nor an announcement. Records:
    ///
    /// * the node's present boot (`boot_number`), if a script announced a reboot that is still to come or has come;
    /// * [`EARLIER`], if the node has rebooted without an announcement, or again after the announced reboot.
    fn boot_of_end(&mut self, rank: Rank, ended: &Ended, boot_number: u32) {
        if !ended.outcome.went_well() || !self.is_open_on(rank) {
            return;
        }
        let expects = if defect!(BootNotAwaited) { false } else { ended.expect_reboot };
        if expects {
            // The present boot may be the announced one: after a soft reboot the node still has the task's record and
            // the announcement.
            self.seen_in(rank, boot_number);
        } else if ended.reboot() == Reboot::Since {
            // A lost epoch of the controller sent the Start, and only the node knows in which boot.
            self.seen_in(rank, EARLIER);
        }
    }

    /// Records `ended` as the end that the rank gets when the node has rebooted. The time limit for the reboot counts
    /// from the first report of the announcement to this controller.
    fn expect_end(&mut self, rank: Rank, machine: MachineId, ended: Ended, cx: &Context) {
        let known = self.expected.get(&rank).map(|known| (known.row.expects.clone(), known.until_ms));
        let (expects, until_ms) = known.unwrap_or_default();
        let within_ms = expects.and_then(|expects| expects.within_ms).or(self.limit(rank));
        let grace_ms = cx.settings.unreachable_grace_ms;
        self.expect(rank, Expects { within_ms, machine }, ended, cx.now.mono_ms, grace_ms);
        if let (Some(expected), Some(_)) = (self.expected.get_mut(&rank), until_ms) {
            expected.until_ms = until_ms;
        }
    }

    /// Records the end that the rank gets once its node reboots. The rest of the task's limit, and then `grace_ms`,
    /// count from `mono_ms`. If `ended` comes from a tombstone, which lists no steps, takes over only its outcome and
    /// keeps the details of the earlier report.
    fn expect(&mut self, rank: Rank, expects: Expects, ended: Ended, mono_ms: u64, grace_ms: u64) {
        let reported = self.expected.get(&rank).map(|expected| &expected.row.ended).filter(|_| ended.steps.is_empty());
        let ended = match reported {
            Some(reported) => Ended { outcome: ended.outcome, ..reported.clone() },
            None => ended,
        };
        let row = RankRow { task: self.task(rank), ended, late: Vec::new(), expects: Some(expects) };
        let is_over = self.expected.get(&rank).is_some_and(|expected| expected.is_over);
        self.expected.insert(rank, Expected { is_over, ..Expected::stored(row, mono_ms, grace_ms) });
        self.changed_ranks.insert(rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::interface::io::ActionRow;
    use crate::ids::{ActionName, Attempt, ClusterId, JobId};
    use crate::outcome::Failure;

    /// Returns an action whose rank 0 is accepted in boot 1 of its node. `announced`: the store knows the announcement
    /// of a reboot. `cancelling`: the rank is to be cancelled.
    fn action(announced: bool, cancelling: bool) -> Action {
        let ranks: IdSet = "0".parse().unwrap();
        let (job, name) = (JobId::new("j").unwrap(), ActionName::new("prolog").unwrap());
        let id = ActionId::of(ClusterId::LOCAL, &job, Attempt::FIRST, &name);
        let row = ActionRow::new(id, job, Attempt::FIRST, name, ranks, 0);
        let mut action = Action::new(row, 0);
        action.send(Rank(0), 1);
        action.accept(Rank(0));
        if announced {
            let expects = Expects { within_ms: None, machine: MachineId::new("m").unwrap() };
            action.expect(Rank(0), expects, Ended::bare(Outcome::Ok, 0), 0, 0);
        }
        if cancelling {
            action.cancelling(Rank(0), "stop");
        }
        action
    }

    #[test]
    fn a_report_of_an_end_is_read_by_the_table() {
        let failed = Outcome::Failed { why: Failure::Exit(1) };
        let lost = |why| Outcome::Lost { why };
        // (announced in the store, cancelling, outcome, boots by the node's report, the node's boot) -> read as
        for (announced, cancelling, outcome, reboot, boot_number, expect) in [
            (false, false, Outcome::Ok, Reboot::None, 1, Report::End),
            (false, false, Outcome::Ok, Reboot::Expected, 1, Report::ScriptsEnded),
            (true, false, Outcome::Ok, Reboot::Expected, 1, Report::ScriptsEnded),
            (true, false, Outcome::Ok, Reboot::None, 1, Report::ScriptsEnded),
            (true, false, Outcome::Ok, Reboot::Come, 2, Report::End),
            (true, false, Outcome::Ok, Reboot::None, 2, Report::End),
            (true, true, Outcome::Ok, Reboot::Expected, 1, Report::Cancelled),
            (true, false, failed.clone(), Reboot::Expected, 1, Report::End),
            (true, true, failed, Reboot::Expected, 1, Report::End),
            (true, false, lost(Loss::Rebooted), Reboot::None, 2, Report::Booted),
            (true, false, lost(Loss::Rebooted), Reboot::None, 1, Report::ScriptsEnded),
            (true, true, lost(Loss::Vanished), Reboot::None, 1, Report::ScriptsEnded),
            (false, false, lost(Loss::Rebooted), Reboot::None, 2, Report::End),
        ] {
            let ended = Ended::bare(outcome, 0).in_boot(reboot);
            let read = action(announced, cancelling).report_of(Rank(0), &ended, boot_number);
            assert_eq!(read, expect, "{announced} {cancelling} {ended:?} in boot {boot_number}");
        }
    }
}
