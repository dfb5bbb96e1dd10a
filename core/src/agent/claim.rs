//! Claim, cancel and signals: decides how a task is stopped. The creator of the claim file (O_EXCL) decides whether the
//! scripts run. To withdraw a task that must not begin, the machine takes the claim. To stop a begun task, the machine
//! signals the task's runner.

use crate::defect;
use crate::ids::{self, ActionId, ActionName, Attempt, JobId, TaskId};
use crate::message::{FromAgent, Phase};
use crate::outcome::{Outcome, check_sent};
use crate::task::{Claim, Tombstone};

use super::io::{Effect, Level, Seen};
use super::machine::{Cx, Machine};
use super::task::{Claiming, State};
use super::tombstones::KeptTombstone;

const TERM: u8 = 15;
const KILL: u8 = 9;
/// SIGRTMIN+9: tells the runner to send SIGKILL to the script, or to the processes that its scripts left behind.
/// SIGKILL itself would kill the runner and leave the script alive.
pub(super) const KILL_SCRIPT: u8 = 43;

impl Machine {
    /// Handles the controller's Cancel: stops a live task, reports the end of an ended one again, and normally leaves a
    /// tombstone for an unknown one. A local task goes on. `key`: the task's job, attempt and action.
    pub(super) fn on_cancel(&mut self, id: TaskId, key: (&JobId, Attempt, &ActionName), commit: u64, cx: &mut Cx) {
        if let Some(task) = self.tasks.get(&id) {
            if task.intent.local {
                let text =
                    format!("{} was not cancelled: the controller cannot cancel a local task of a node", task.name());
                return cx.note(Level::Warning, Some(id), Some(key.0), text);
            }
            return self.cancel(id, cx);
        }
        if let Some(entry) = self.tombstones.get(id) {
            return self.send_tombstone(cx, &entry.tombstone);
        }
        if !self.tombstones.is_writing(id) {
            self.refuse_later(id, key, commit, cx);
        }
    }

    /// Handles the Cancel of an unknown task: leaves a tombstone, so that the agent refuses a Start that arrives later.
    /// If the host has no room for a tombstone, or the agent refuses such a Start anyway, only reports the task as
    /// cancelled. `key`: the task's job, attempt and action. `commit`: the commit number in the Cancel.
    fn refuse_later(&mut self, id: TaskId, key: (&JobId, Attempt, &ActionName), commit: u64, cx: &mut Cx) {
        let (job, attempt, action) = key;
        self.make_room(cx);
        let outcome = Outcome::Cancelled { status: None };
        let stem = ids::stem(action, job, id);
        let full = self.tasks.len() + self.tombstones.len() >= self.node.policy.max_tombstones;
        let named = self.session.cluster.is_some_and(|c| id.action == ActionId::of(c, job, attempt, action));
        if defect!(CancelLeavesNothing) {
            return self.send_bare_end(cx, id, outcome);
        }
        if full || !named || self.stems.contains_key(&stem) {
            // No tombstone: the host has no room for one, or the agent refuses a Start with this id or stem anyway.
            return self.send_bare_end(cx, id, outcome);
        }
        let tombstone = Tombstone {
            task: id,
            job: job.clone(),
            attempt,
            action: action.clone(),
            outcome,
            not_after_boottime_ms: cx.now.boot_ms,
            local: false,
            boot: None,
            expects_boot: false,
            limit_ms: None,
            after: false,
            commit: self.commit(commit),
            instance: None,
        };
        cx.push(Effect::WriteTombstone { stem: stem.clone(), tombstone: Box::new(tombstone.clone()) });
        self.stems.insert(stem.clone(), id);
        self.tombstones.write(KeptTombstone { tombstone, stem, acked: false, forgotten: false });
    }

    /// Cancels a task. The agent takes the claim of a task that has not begun, so that the task never begins. The
    /// runner of a begun task gets TERM, and the agent reports the end as always. The end of an ended task is reported
    /// again.
    pub(super) fn cancel(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match &task.state {
            State::Recording => (task.cancelled, task.term) = (true, true),
            State::Unconfirmed | State::Queued => {
                // An earlier agent may have started the unit, and its runner may claim first; then the runner gets
                // TERM.
                (task.cancelled, task.term) = (true, true);
                self.withdraw(id, Claim::Cancelled, cx);
            }
            State::Starting | State::Doubt { .. } | State::Live => {
                (task.cancelled, task.term) = (true, true);
                if task.claim.is_none() && !task.claimed_by_other {
                    self.take_claim(id, Claim::Cancelled, cx);
                }
                self.deliver_signals(id, cx);
            }
            State::Withdrawing => (task.cancelled, task.term) = (true, true),
            State::Concluding { .. } => {}
            State::Ended { ended } | State::WritingTombstone { ended } => {
                let finished =
                    FromAgent::Finished { task: id, ended: Box::new(task.reported_end(ended, &self.node.boot)) };
                self.notify(id, finished, cx);
            }
        }
    }

    /// Handles the controller's signal for a task's scripts. KILL also reaches lingering processes.
    pub(super) fn on_signal(&mut self, id: TaskId, signal: u8, cx: &mut Cx) {
        if let Err(text) = check_sent(signal) {
            return cx.note(Level::Warning, Some(id), None, text);
        }
        let begun = |state: &State| matches!(state, State::Starting | State::Doubt { .. } | State::Live);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| begun(&task.state) && !task.intent.local) else {
            let why = self.tasks.get(&id).map_or_else(
                || "this node has no such task".to_owned(),
                |task| format!("{} runs no script that the controller may signal", task.name()),
            );
            return cx.note(Level::Warning, Some(id), None, format!("signal {signal} was not sent: {why}"));
        };
        if matches!(task.phase, Some(Phase::Lingering { .. })) && signal != KILL {
            let text = format!(
                "signal {signal} was not sent: the scripts of {} have ended; the processes that they left behind can \
                 be sent only KILL",
                task.name()
            );
            return cx.note(Level::Warning, Some(id), None, text);
        }
        task.signal = Some(if signal == KILL { KILL_SCRIPT } else { signal });
        self.deliver_signals(id, cx);
    }

    /// Sends the task's pending signals to its runner, if the runner has the claim. A runner without the claim runs no
    /// script, and may not handle signals yet. Once only lingering processes are left, KILL goes to these processes, by
    /// their runner if it lives, and no other signal is sent. While the system bus is lost, the signals stay pending.
    pub(super) fn deliver_signals(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|_| self.bus) else { return };
        if let Some(Phase::Lingering { processes }) = &task.phase {
            let kills = task.signal.take() == Some(KILL_SCRIPT);
            if kills && task.runner_waits {
                task.sent(KILL_SCRIPT, cx.now.boot_ms);
                cx.push(Effect::SignalRunner { stem: task.stem.clone(), signal: KILL_SCRIPT });
            } else if kills {
                let known: Vec<u32> = task.killed.iter().map(|process| process.pid).collect();
                task.killed.extend(processes.iter().filter(|process| !known.contains(&process.pid)).cloned());
                task.killed.truncate(crate::judge::MAX_LISTED);
                cx.push(Effect::KillLingering { stem: task.stem.clone() });
            }
            return;
        }
        if !matches!(task.state, State::Live) || !task.has_runner() {
            return;
        }
        let term = std::mem::take(&mut task.term).then_some(TERM);
        for signal in term.into_iter().chain(task.signal.take()) {
            task.sent(signal, cx.now.boot_ms);
            cx.push(Effect::SignalRunner { stem: task.stem.clone(), signal });
        }
    }

    /// Withdraws a task that must not begin. Once the agent has the claim, the task ends as `claim` says. If a runner
    /// has claimed the task first, the task goes on.
    pub(super) fn withdraw(&mut self, id: TaskId, claim: Claim, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = State::Withdrawing;
        if defect!(WithdrawWithoutClaim) {
            task.claim = Some(claim);
            return self.withdrawn(id, cx);
        }
        if task.claim.is_some() {
            self.withdrawn(id, cx);
        } else {
            self.take_claim(id, claim, cx);
        }
    }

    /// Asks the daemon to create the task's claim file with the content `claim`, unless the file exists. Does nothing
    /// if such a request is already pending: the daemon has not answered it, or the machine is to repeat it after a
    /// failed write.
    pub(super) fn take_claim(&mut self, id: TaskId, claim: Claim, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.claiming.is_none()) else {
            return;
        };
        cx.push(Effect::TakeClaim { stem: task.stem.clone(), task: id, claim: claim.clone() });
        task.claiming = Some(Claiming { claim, again: Default::default() });
    }

    pub(super) fn on_claim_taken(&mut self, id: TaskId, result: Result<bool, String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(claiming) = &mut task.claiming else { return };
        let result = if defect!(LostClaimTaken) { result.map(|_| true) } else { result };
        match result {
            Err(text) => {
                task.trouble = Some(format!("cannot take its claim: {text}"));
                claiming.again.failed(cx.now);
                return;
            }
            Ok(true) => {
                task.claim = Some(claiming.claim.clone());
                task.claiming = None;
                task.trouble = None;
            }
            Ok(false) => {
                task.claimed_by_other = true;
                task.claiming = None;
                task.trouble = None;
                if matches!(task.state, State::Withdrawing) {
                    // The claim may be a runner's. Or the directory is missing, and a unit with the task's name may
                    // belong to another program. An inspection decides.
                    task.state = State::Doubt { why: "another process has claimed the task".to_owned() };
                }
            }
        }
        match task.state {
            State::Withdrawing => self.withdrawn(id, cx),
            State::Starting => {
                task.inspection.again = true;
                self.watch_start(id, None, cx);
            }
            State::Live | State::Doubt { .. } => {
                if !task.can_be_inspected() {
                    self.watch_start(id, None, cx);
                }
                self.inspect(id, cx);
            }
            _ => {}
        }
    }

    /// Ends a withdrawn task whose claim the agent has: no script began, and none will.
    fn withdrawn(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let ended = task.judge(None, &Seen::default(), &[], &self.node.boot, cx.now);
        self.conclude(id, ended, cx);
    }
}
