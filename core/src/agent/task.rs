//! Task as its node holds it: state, facts, and pending operations.

use crate::ids::{InvocationId, TaskId};
use crate::message::Phase;
use crate::task::{Claim, Ended, Intent, NO_TASK, NOT_OURS, Process, RAN_NOTHING, UnitFacts};

use super::backoff::Backoff;
use super::io::{Caller, Now};
use super::orphan::Orphan;
use super::watch::Watch;

/// Where a task stands; the drawing is in [`super`].
#[derive(Debug)]
pub(super) enum State {
    /// `intent.json` is being written; nobody was told anything.
    Recording,
    /// On disk, not begun, and not requested in this agent's lifetime: it needs a Begin, a Start or an Exec.
    Unconfirmed,
    /// Wanted; waits for its turn on this host.
    Queued,
    /// systemd was asked to start its unit, and has not answered.
    Starting,
    /// The unit may exist or not, and may belong to another program; only an inspection tells.
    Doubt { why: String },
    /// The unit exists: queued, running, or over with processes left.
    Live,
    /// Must not begin: the agent takes the claim.
    Withdrawing,
    /// Ended; `outcome.json` is being written.
    Concluding { ended: Box<Ended> },
    /// Outcome on disk; not acknowledged.
    Ended { ended: Box<Ended> },
    /// Acknowledged; tombstone and directory are under way.
    Burying { ended: Box<Ended> },
}

/// A claim on its way to disk.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) claim: Claim,
    pub(super) again: Backoff,
}

/// Looks at unit and directory: one at a time.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) asked: bool,
    /// Something happened since it was asked for.
    pub(super) again: bool,
    pub(super) backoff: Backoff,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) stem: String,
    pub(super) intent: Box<Intent>,
    /// Order of acceptance on this host, which is the queue's.
    pub(super) seq: u64,
    pub(super) state: State,
    /// Was it requested in this agent's lifetime?
    pub(super) confirmed: bool,
    pub(super) cancelled: bool,
    /// Has the controller forgotten its attempt? The host may belong to another job.
    pub(super) released: bool,

    pub(super) claim: Option<Claim>,
    /// A runner has the claim; its invocation has not been read.
    pub(super) claimed_by_other: bool,
    pub(super) claiming: Option<Claiming>,

    /// StartUnits that were asked for.
    pub(super) starts: u32,
    pub(super) start_again: Backoff,
    pub(super) look: Look,
    /// Does PID 1 report its changes on this connection?
    pub(super) watched: bool,
    /// Is its unit loaded, as far as known? `Some(true)`: as a failed one.
    pub(super) loaded: Option<bool>,
    pub(super) invocation: Option<InvocationId>,
    /// Signals still to be sent to its runner: TERM, and another.
    pub(super) term: bool,
    pub(super) signal: Option<u8>,
    pub(super) watch: Watch,
    /// Processes that were killed because they lingered.
    pub(super) killed: Vec<Process>,

    /// Outcome or tombstone could not be written.
    pub(super) write_again: Backoff,
    /// Last problem, until it is solved.
    pub(super) trouble: Option<String>,

    pub(super) phase: Option<Phase>,
    /// CLOCK_BOOTTIME at the begin of its first script, if this agent started it.
    pub(super) running_from_ms: Option<u64>,
    pub(super) milestones: Vec<String>,
    /// Number of milestones that this session knows.
    pub(super) milestones_told: usize,
    /// A script announced a reboot: the task's end by it; and does this session know?
    pub(super) boot: Option<Box<Ended>>,
    pub(super) boot_told: bool,
    /// Does the controller lack an event from after this session's Hello?
    pub(super) unsaid: bool,
    /// Callers of Exec that wait for its end.
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

    /// For people: `prolog of job f1, attempt 2, rank 3`.
    pub(super) fn name(&self) -> String {
        let start = &self.intent.start;
        format!("{} of job {}, attempt {}, rank {}", start.action, start.job, start.attempt, start.task.rank)
    }

    pub(super) fn age_ms(&self, now: Now) -> u64 {
        now.boot_ms.saturating_sub(self.intent.accepted_boottime_ms)
    }

    /// Returns the age of its phase: from the begin of its scripts, however long they had waited.
    pub(super) fn phase_age_ms(&self, now: Now) -> u64 {
        now.boot_ms.saturating_sub(self.running_from_ms.unwrap_or(self.intent.accepted_boottime_ms))
    }

    /// Returns `true` if one of its scripts may be alive, or begin without another order. That of an unconfirmed task
    /// may: an earlier agent may have requested its unit, and PID 1 not have handled it. A task being withdrawn may,
    /// until the agent has the claim.
    pub(super) const fn may_live(&self) -> bool {
        matches!(
            self.state,
            State::Unconfirmed | State::Starting | State::Doubt { .. } | State::Live | State::Withdrawing
        )
    }

    /// Returns `true` if the task has not ended, as far as the disk knows.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended { .. } | State::Burying { .. })
    }

    /// Has it not begun, and is it given up past its not-after?
    pub(super) const fn expires(&self) -> bool {
        matches!(self.state, State::Unconfirmed | State::Queued)
    }

    pub(super) const fn has_runner(&self) -> bool {
        matches!(self.claim, Some(Claim::Runner(_)))
    }
}

/// Returns `true` if the main process of this loaded unit is gone for good. `activating` and `deactivating` are
/// transitions, whatever the last main process did, and a pending start will change the properties.
pub(super) fn is_over(unit: &UnitFacts) -> bool {
    let settled = !matches!(unit.active.as_str(), "activating" | "deactivating" | "reloading");
    let never_ran = matches!(unit.active.as_str(), "failed" | "inactive");
    settled && !unit.is_to_start() && unit.main_pid == 0 && (unit.main_code != 0 || never_ran)
}

/// Returns `true` if the runner's exit status says that the runner had no claim, and ran nothing.
pub(super) fn ran_nothing(unit: &UnitFacts) -> bool {
    RAN_NOTHING.iter().any(|status| exited_with(unit, *status))
}

/// Did the runner find no directory, or that of another task?
pub(super) fn had_no_task(unit: &UnitFacts) -> bool {
    [NO_TASK, NOT_OURS].iter().any(|status| exited_with(unit, *status))
}

fn exited_with(unit: &UnitFacts, status: u8) -> bool {
    const CLD_EXITED: i32 = 1;
    is_over(unit) && unit.main_code == CLD_EXITED && unit.main_status == i32::from(status)
}
