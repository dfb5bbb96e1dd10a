//! A task in the agent's machine: its state, what the agent knows of it, and its pending operations.

use crate::defect;
use crate::ids::{InvocationId, TaskId};
use crate::message::Phase;
use crate::task::{Claim, Ended, Intent, NO_TASK, NOT_OURS, Process, RAN_NOTHING, UnitFacts};

use super::backoff::Backoff;
use super::io::{Caller, Now};
use super::orphan::Orphan;
use super::watch::Watch;

/// State of a task. A drawing in [`super`] shows how the states follow each other.
#[derive(Debug)]
pub(super) enum State {
    /// The daemon is writing `intent.json`; the agent has not reported the task yet.
    Recording,
    /// The intent is on disk, and the task has not begun. Since this agent started, no Start, Begin or Exec has asked
    /// for the task: it waits for one.
    Unconfirmed,
    /// The task is confirmed and in the queue of this host (`guard`).
    Queued,
    /// The agent has asked systemd to start the unit, and has no answer yet.
    Starting,
    /// The unit may exist or not, or belong to another program; an inspection decides. `why`: the reason of the doubt.
    Doubt { why: String },
    /// The unit exists: systemd is starting the unit, the runner runs, or processes outlive the runner.
    Live,
    /// The task must not begin: the agent is taking the claim.
    Withdrawing,
    /// The task has ended; the daemon is writing `outcome.json`.
    Concluding { ended: Box<Ended> },
    /// The outcome is on disk. A task of the controller waits for the Ack. A local task (`Exec`) with a program in
    /// `Hook::orphan_program` waits until a caller or that program knows the end.
    Ended { ended: Box<Ended> },
    /// The agent need not keep the end any longer: the controller, a caller or the program in `Hook::orphan_program`
    /// knows it, or no caller waits for it. The daemon is writing the tombstone and removing the directory.
    WritingTombstone { ended: Box<Ended> },
}

/// A claim that the agent has requested for itself. `again`: the backoff after a failed write.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) claim: Claim,
    pub(super) again: Backoff,
}

/// The inspections of a task's unit and directory. At most one is under way at a time.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    /// Whether an inspection is under way.
    pub(super) asked: bool,
    /// Whether another inspection must follow the one under way, because the unit or directory has changed since that
    /// one began.
    pub(super) again: bool,
    pub(super) backoff: Backoff,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) stem: String,
    pub(super) intent: Box<Intent>,
    /// Sequence number of the task in this agent; the queue has the order of these numbers.
    pub(super) seq: u64,
    pub(super) state: State,
    /// Whether a Start, Begin or Exec has asked for the task since this agent started, or the agent has run the program
    /// for the task's orphaned hook.
    pub(super) confirmed: bool,
    pub(super) cancelled: bool,
    /// Whether the controller has sent Forget for the task: the resource manager may have given the host to another
    /// job.
    pub(super) released: bool,

    pub(super) claim: Option<Claim>,
    /// Whether a runner has, or may have had, a claim that the agent cannot read.
    pub(super) claimed_by_other: bool,
    pub(super) claiming: Option<Claiming>,

    /// Number of starts that the agent has requested from systemd.
    pub(super) starts: u32,
    pub(super) start_again: Backoff,
    pub(super) inspection: Inspection,
    /// Whether systemd reports changes of the unit on the current bus connection.
    pub(super) watched: bool,
    /// Whether the loaded unit has failed; `None`: the unit is not loaded, as far as the agent knows.
    pub(super) loaded: Option<bool>,
    pub(super) invocation: Option<InvocationId>,
    /// Whether the agent has still to send TERM to the runner.
    pub(super) term: bool,
    /// The number of another signal that the agent has still to send; `None`: there is no such signal.
    pub(super) signal: Option<u8>,
    pub(super) watch: Watch,
    /// Lingering processes that the agent killed.
    pub(super) killed: Vec<Process>,
    /// Whether the runner has run all scripts, and waits for lingering processes: signals for them go to the runner.
    pub(super) runner_waits: bool,

    /// Backoff after a failed write of the outcome or the tombstone.
    pub(super) write_again: Backoff,
    /// The current problem, as text for operators; `None`: no problem.
    pub(super) trouble: Option<String>,

    pub(super) phase: Option<Phase>,
    /// CLOCK_BOOTTIME (ms) when this agent saw the first script begin; `None` for a task that an earlier agent started.
    pub(super) running_from_ms: Option<u64>,
    /// Whether the agent has logged the processes that outlive the scripts.
    pub(super) lingering_noted: bool,
    pub(super) milestones: Vec<String>,
    /// Number of milestones that the agent has reported in this session.
    pub(super) milestones_sent: usize,
    /// The end that the task will have if the announced reboot comes now; `None`: the agent has seen no announcement,
    /// or the task is local (`Exec`).
    pub(super) boot: Option<Box<Ended>>,
    /// Whether the agent has reported the end in `boot` to the controller in this session.
    pub(super) boot_sent: bool,
    /// Whether the task has changed since this session's Hello, and the controller does not know it.
    pub(super) changed_since_hello: bool,
    /// Callers of Exec that wait for the task's end.
    pub(super) callers: Vec<Caller>,
    pub(super) orphan: Orphan,
}

impl Task {
    /// Returns `true` if systemd has begun this task's unit again after its runner, which has the claim, had ended.
    pub(super) fn is_restarted(&self, unit: &UnitFacts) -> bool {
        let Some(Claim::Runner(claimed)) = &self.claim else { return false };
        if defect!(RestartIsAlive) {
            return false;
        }
        unit.invocation.as_ref().is_some_and(|invocation| invocation != claimed)
    }

    pub(super) fn new(stem: String, intent: Box<Intent>, seq: u64, state: State) -> Self {
        Self {
            stem,
            intent,
            seq,
            state,
            confirmed: false,
            cancelled: false,
            released: false,
            claim: None,
            claimed_by_other: false,
            claiming: None,
            starts: 0,
            start_again: Backoff::default(),
            inspection: Inspection::default(),
            watched: false,
            loaded: None,
            invocation: None,
            term: false,
            signal: None,
            watch: Watch::default(),
            killed: Vec::new(),
            runner_waits: false,
            write_again: Backoff::default(),
            trouble: None,
            phase: None,
            running_from_ms: None,
            lingering_noted: false,
            milestones: Vec::new(),
            milestones_sent: 0,
            boot: None,
            boot_sent: false,
            changed_since_hello: false,
            callers: Vec::new(),
            orphan: Orphan::default(),
        }
    }

    pub(super) fn id(&self) -> TaskId {
        self.intent.start.task
    }

    /// Returns the name for operators: `prolog of job f1, attempt 2, rank 3`.
    pub(super) fn name(&self) -> String {
        let start = &self.intent.start;
        format!("{} of job {}, attempt {}, rank {}", start.action, start.job, start.attempt, start.task.rank)
    }

    pub(super) fn age_ms(&self, now: Now) -> u64 {
        now.boot_ms.saturating_sub(self.intent.accepted_boottime_ms)
    }

    /// Returns the milliseconds since the begin of the first script; before, since the start call; or since the
    /// acceptance if the agent saw neither.
    pub(super) fn phase_age_ms(&self, now: Now) -> u64 {
        let asked = self.watch.asked_ms.filter(|_| self.awaits_script());
        now.boot_ms.saturating_sub(self.running_from_ms.or(asked).unwrap_or(self.intent.accepted_boottime_ms))
    }

    /// Returns `true` if a script of the task may be alive, or may begin without a further start of the unit. That
    /// includes an unconfirmed task, because systemd may still handle an earlier agent's start. It also includes a task
    /// that is being withdrawn, until the agent has the claim.
    pub(super) const fn may_live(&self) -> bool {
        matches!(
            self.state,
            State::Unconfirmed | State::Starting | State::Doubt { .. } | State::Live | State::Withdrawing
        )
    }

    /// Returns `true` while no outcome of the task is on disk.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended { .. } | State::WritingTombstone { .. })
    }

    /// Returns `true` if the task is unconfirmed or queued: the agent gives it up when its not-after passes.
    pub(super) const fn expires(&self) -> bool {
        matches!(self.state, State::Unconfirmed | State::Queued)
    }

    pub(super) const fn has_runner(&self) -> bool {
        matches!(self.claim, Some(Claim::Runner(_)))
    }
}

/// Returns `true` if the main process of this loaded unit has ended, and none will follow. While the unit is
/// `activating`, `deactivating` or waits for a start, its properties may still change. If a drop-in has systemd restart
/// the unit (`Restart=`), the task ends before the restart: a further runner would find its claim and run nothing.
pub(super) fn is_over(unit: &UnitFacts) -> bool {
    let restarts = unit.sub.starts_with("auto-restart");
    let restarts = if defect!(RestartIsAlive) { false } else { restarts };
    let settled = restarts || !matches!(unit.active.as_str(), "activating" | "deactivating" | "reloading");
    let never_ran = matches!(unit.active.as_str(), "failed" | "inactive");
    settled && !unit.is_to_start() && unit.main_pid == 0 && (unit.main_code != 0 || never_ran)
}

/// Returns `true` if the runner's exit status says that the runner did not claim the task and ran no script.
pub(super) fn ran_nothing(unit: &UnitFacts) -> bool {
    RAN_NOTHING.iter().any(|status| exited_with(unit, *status))
}

/// Returns `true` if the runner's exit status says that it found no directory or intent of its task, came too late, or
/// found the task claimed.
pub(super) fn had_no_task(unit: &UnitFacts) -> bool {
    [NO_TASK, NOT_OURS].iter().any(|status| exited_with(unit, *status))
}

fn exited_with(unit: &UnitFacts, status: u8) -> bool {
    const CLD_EXITED: i32 = 1;
    is_over(unit) && unit.main_code == CLD_EXITED && unit.main_status == i32::from(status)
}
