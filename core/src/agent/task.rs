//! Task as a node holds it: state, facts, and pending operations.

use crate::ids::{InvocationId, TaskId};
use crate::message::Phase;
use crate::task::{Claim, Ended, Intent, NO_TASK, NOT_OURS, Process, RAN_NOTHING, UnitFacts};

use super::backoff::Backoff;
use super::io::{Caller, Now};
use super::orphan::Orphan;
use super::watch::Watch;

/// State of a task; the drawing is in [`super`].
#[derive(Debug)]
pub(super) enum State {
    /// The edge is writing `intent.json`; the agent has reported nothing.
    Recording,
    /// The intent is on disk, the task has not begun, and no peer has requested the task in this agent's lifetime. The
    /// task needs a Begin, a Start or an Exec.
    Unconfirmed,
    /// The task is confirmed, and waits until the tasks before it on this host have ended.
    Queued,
    /// The agent asked systemd to start the unit; systemd has not answered.
    Starting,
    /// The unit may exist or not, and may belong to another program; an inspection decides.
    Doubt { why: String },
    /// The unit exists: queued, running, or ended with processes left.
    Live,
    /// The task must not begin: the agent takes the claim.
    Withdrawing,
    /// The task has ended; the edge is writing `outcome.json`.
    Concluding { ended: Box<Ended> },
    /// The outcome is on disk, but not acknowledged.
    Ended { ended: Box<Ended> },
    /// The end is acknowledged; the edge writes the tombstone and removes the directory.
    Burying { ended: Box<Ended> },
}

/// A claim that the edge is writing to disk.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) claim: Claim,
    pub(super) again: Backoff,
}

/// State of the inspections of unit and directory: at most one inspection runs at a time.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) asked: bool,
    /// Whether the task has changed since the inspection was requested.
    pub(super) again: bool,
    pub(super) backoff: Backoff,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) stem: String,
    pub(super) intent: Box<Intent>,
    /// Number that grows with each accepted task of this host; the queue has this order.
    pub(super) seq: u64,
    pub(super) state: State,
    /// Whether a controller or caller requested the task in this agent's lifetime.
    pub(super) confirmed: bool,
    pub(super) cancelled: bool,
    /// Whether the controller has forgotten the task's attempt. The host may belong to another job.
    pub(super) released: bool,

    pub(super) claim: Option<Claim>,
    /// Whether a runner has a claim whose invocation the agent has not read.
    pub(super) claimed_by_other: bool,
    pub(super) claiming: Option<Claiming>,

    /// The number of requested StartUnits.
    pub(super) starts: u32,
    pub(super) start_again: Backoff,
    pub(super) look: Look,
    /// Whether PID 1 reports changes of the unit on this connection.
    pub(super) watched: bool,
    /// Whether the unit is loaded, as far as known. `Some(true)`: loaded as a failed unit.
    pub(super) loaded: Option<bool>,
    pub(super) invocation: Option<InvocationId>,
    /// Whether the agent still has to send TERM to the runner; `signal`: the number of another signal to send.
    pub(super) term: bool,
    pub(super) signal: Option<u8>,
    pub(super) watch: Watch,
    /// Lingering processes that the agent killed.
    pub(super) killed: Vec<Process>,

    /// Backoff of writing the outcome or the tombstone.
    pub(super) write_again: Backoff,
    /// Last problem, as text for people; `None`: no problem, or a solved one.
    pub(super) trouble: Option<String>,

    pub(super) phase: Option<Phase>,
    /// CLOCK_BOOTTIME (ms) at the begin of the first script, if this agent started the task.
    pub(super) running_from_ms: Option<u64>,
    /// Whether the journal has a line that names the processes which outlive the scripts.
    pub(super) lingering_noted: bool,
    pub(super) milestones: Vec<String>,
    /// Number of milestones that the agent has reported in this session.
    pub(super) milestones_told: usize,
    /// The task's end by the reboot, if a script announced a reboot; `boot_told`: the agent has reported that end in
    /// this session.
    pub(super) boot: Option<Box<Ended>>,
    pub(super) boot_told: bool,
    /// Whether the controller lacks an event from after this session's Hello.
    pub(super) unsaid: bool,
    /// Callers of Exec that wait for the task's end.
    pub(super) callers: Vec<Caller>,
    pub(super) orphan: Orphan,
}

impl Task {
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
            look: Look::default(),
            watched: false,
            loaded: None,
            invocation: None,
            term: false,
            signal: None,
            watch: Watch::default(),
            killed: Vec::new(),
            write_again: Backoff::default(),
            trouble: None,
            phase: None,
            running_from_ms: None,
            lingering_noted: false,
            milestones: Vec::new(),
            milestones_told: 0,
            boot: None,
            boot_told: false,
            unsaid: false,
            callers: Vec::new(),
            orphan: Orphan::default(),
        }
    }

    pub(super) fn id(&self) -> TaskId {
        self.intent.start.task
    }

    /// Returns the name for people: `prolog of job f1, attempt 2, rank 3`.
    pub(super) fn name(&self) -> String {
        let start = &self.intent.start;
        format!("{} of job {}, attempt {}, rank {}", start.action, start.job, start.attempt, start.task.rank)
    }

    pub(super) fn age_ms(&self, now: Now) -> u64 {
        now.boot_ms.saturating_sub(self.intent.accepted_boottime_ms)
    }

    /// Returns the age of the phase. The age counts from the begin of the scripts, not from the acceptance.
    pub(super) fn phase_age_ms(&self, now: Now) -> u64 {
        now.boot_ms.saturating_sub(self.running_from_ms.unwrap_or(self.intent.accepted_boottime_ms))
    }

    /// Returns `true` if a script of the task may be alive, or may begin without another order. An unconfirmed task
    /// may: an earlier agent may have requested the unit, and PID 1 may not have handled the request yet. A task being
    /// withdrawn may, until the agent has the claim.
    pub(super) const fn may_live(&self) -> bool {
        matches!(
            self.state,
            State::Unconfirmed | State::Starting | State::Doubt { .. } | State::Live | State::Withdrawing
        )
    }

    /// Returns `true` if the task has not ended, according to the files on disk.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended { .. } | State::Burying { .. })
    }

    /// Returns `true` if the task has not begun, so that the agent gives it up past its not-after.
    pub(super) const fn expires(&self) -> bool {
        matches!(self.state, State::Unconfirmed | State::Queued)
    }

    pub(super) const fn has_runner(&self) -> bool {
        matches!(self.claim, Some(Claim::Runner(_)))
    }
}

/// Returns `true` if the main process of this loaded unit is gone for good. `activating` and `deactivating` are
/// transitions, and a pending start will change the properties.
pub(super) fn is_over(unit: &UnitFacts) -> bool {
    let settled = !matches!(unit.active.as_str(), "activating" | "deactivating" | "reloading");
    let never_ran = matches!(unit.active.as_str(), "failed" | "inactive");
    settled && !unit.is_to_start() && unit.main_pid == 0 && (unit.main_code != 0 || never_ran)
}

/// Returns `true` if the runner's exit status says that the runner had no claim and ran nothing.
pub(super) fn ran_nothing(unit: &UnitFacts) -> bool {
    RAN_NOTHING.iter().any(|status| exited_with(unit, *status))
}

/// Returns `true` if the runner found no directory, or the directory of another task.
pub(super) fn had_no_task(unit: &UnitFacts) -> bool {
    [NO_TASK, NOT_OURS].iter().any(|status| exited_with(unit, *status))
}

fn exited_with(unit: &UnitFacts, status: u8) -> bool {
    const CLD_EXITED: i32 = 1;
    is_over(unit) && unit.main_code == CLD_EXITED && unit.main_status == i32::from(status)
}
