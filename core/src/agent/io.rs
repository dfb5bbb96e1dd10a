//! Inputs and effects of the agent's machine.
//!
//! Every effect that can fail, or that must be durable before the next one, has an input with its result; the machine
//! never assumes success. Times named `*_boottime_ms` are CLOCK_BOOTTIME; `Now` brings both clocks.

use std::collections::BTreeMap;

use crate::ids::{ActionName, BootId, ClusterId, Epoch, HostName, InvocationId, JobId, MachineId, TaskId};
use crate::mark::Obeyed;
use crate::message::{FromAgent, Phase, ToAgent};
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Hook, Intent, Plan, Process, RunResult, StepRecord, Tail, Tombstone, UnitFacts};

/// The clocks at an input. `boot_ms`: CLOCK_BOOTTIME. `wall_ms`: since the epoch; for people, never for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub boot_ms: u64,
    pub wall_ms: u64,
}

/// Identity of this agent, and its configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    pub version: String,
    pub policy: Policy,
}

/// The node's configuration as far as the machine decides by it. Replaced whole by [`Input::Policy`].
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub actions: BTreeMap<ActionName, Plan>,
    /// Variables admitted from outside, by name.
    pub env_allow: Vec<String>,
    /// Do all tasks of this host queue, whatever their job?
    pub serialize_host: bool,
    /// Failed units kept loaded for a post-mortem.
    pub keep_failed: usize,
    /// Most tasks and tombstones together; past it the agent refuses Starts.
    pub max_tombstones: usize,
    /// Most live tasks on this host; past it the agent refuses Starts.
    pub max_tasks: usize,
}

/// State of one task, found when the agent or its bus came up.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub stem: String,
    pub intent: Option<Intent>,
    pub claim: Option<Claim>,
    pub ended: Option<Ended>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// `None`: systemd knows no such unit (LoadState=not-found).
    pub unit: Option<UnitFacts>,
    /// [`crate::task::STOP_ASKED`] is there.
    pub stop_asked: bool,
    /// Processes in the unit's cgroup, the main process among them.
    pub processes: Vec<Process>,
    /// The ids a unit carries in its LogExtraFields, for a unit without a directory.
    pub unit_ids: Option<UnitIds>,
}

/// Ids read back from a unit that has no directory.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitIds {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
}

impl UnitIds {
    /// Returns the name of a unit with these ids.
    pub fn stem(&self) -> String {
        crate::ids::stem(&self.action, &self.job, self.task)
    }
}

/// Result of an inspection: the unit first, then the files, so that an ended unit's files are complete.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// `None`: not loaded. Absent altogether (`Input::Inspected { seen: Err }`) when systemd could not be asked.
    pub unit: Option<UnitFacts>,
    /// The ids in the unit's LogExtraFields: they tell whose unit it is after `UnitExists`.
    pub unit_ids: Option<UnitIds>,
    pub processes: Vec<Process>,
    pub claim: Option<Claim>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// [`crate::task::STOP_ASKED`] is there.
    pub stop_asked: bool,
    /// Why the runner ignores signals and limits, if it does: it is stopped, or hangs in the kernel.
    pub deaf: Option<String>,
    /// Read last: the directory was removed, with any claim and result in it.
    pub gone: bool,
}

/// How systemd answered StartTransientUnit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartReply {
    /// The job was queued.
    Queued,
    /// `UnitExists`: a unit of this name exists already.
    Exists,
    /// An error reply from systemd itself: the start failed for certain.
    Rejected(String),
    /// A time-out, a broken bus: nobody knows.
    Unknown(String),
}

/// A caller on the local socket, numbered by the edge.
pub type Caller = u64;

/// Starts, or attaches to, a task of the host's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
    pub rank: crate::ids::Rank,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// Plan instead of the configured one; only root may pass it (`perilog try`).
    pub plan: Option<Plan>,
    pub hook: Hook,
}

/// Event for the program of a task whose hook is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The task goes on.
    Begun,
    Ended,
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Begun => "begun",
            Self::Ended => "ended",
        })
    }
}

/// Run of such a program, with the event as its argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    pub task: TaskId,
    pub stem: String,
    pub program: String,
    pub word: Word,
    pub env: BTreeMap<String, String>,
    /// Outcome of an ended task.
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Everything that was found, once at start and again after the bus was lost, or systemd re-executed.
    /// `tombstones` and `obeyed` are given at start only.
    Joined {
        found: Vec<Found>,
        tombstones: Vec<Tombstone>,
        obeyed: Option<Obeyed>,
    },
    /// A session with the controller stands at the transport; the edge has sent nothing yet.
    LinkUp {
        counter: u64,
    },
    LinkDown,
    Message(ToAgent),
    IntentWritten {
        task: TaskId,
        result: Result<(), String>,
    },
    Started {
        task: TaskId,
        reply: StartReply,
    },
    /// Something happened to this task's unit or directory: worth an inspection.
    Stirred {
        task: TaskId,
    },
    /// The answer to [`Effect::Inspect`]; `Err` when systemd could not be asked.
    Inspected {
        task: TaskId,
        seen: Result<Seen, String>,
    },
    /// The answer to [`Effect::TakeClaim`]: `Ok(true)` the claim is ours; `Ok(false)` a runner has it.
    ClaimTaken {
        task: TaskId,
        result: Result<bool, String>,
    },
    OutcomeWritten {
        task: TaskId,
        result: Result<(), String>,
    },
    Buried {
        task: TaskId,
        result: Result<(), String>,
    },
    EpochWritten {
        epoch: Epoch,
        result: Result<(), String>,
    },
    /// The answer to [`Effect::Unload`]: the unit is gone, or nobody knows.
    Unloaded {
        stem: String,
        result: Result<(), String>,
    },
    /// The system bus is lost; `Joined` follows when it is back. Answers to calls from before a `Joined` are not handed
    /// in after it.
    BusLost,
    /// The moment asked for by [`Effect::WakeAt`], or later.
    Tick,
    Policy(Policy),
    /// A caller on the local socket starts a task of the host's own, or attaches to it.
    Exec {
        caller: Caller,
        exec: Exec,
    },
    /// A caller of `Exec` went away; its task goes on.
    Hangup {
        caller: Caller,
    },
    /// The hook reports that its daemon has died: the hook's status reaches no process.
    Bereft {
        caller: Caller,
        task: TaskId,
    },
    /// The answer to [`Effect::Tell`]: has the program exited with 0?
    Told {
        task: TaskId,
        word: Word,
        result: Result<(), String>,
    },
    /// A local request to stop a task of the host's own.
    CancelLocal {
        caller: Caller,
        task: TaskId,
    },
    /// A local request for the status of all tasks.
    Status {
        caller: Caller,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Create the directory and `intent.json` in it (temp, rename). An end in a directory without an intent belongs to
    /// another life of the task and is removed first, except under a rebuilt intent, which stands for that life.
    /// Answer: `IntentWritten`.
    WriteIntent {
        stem: String,
        intent: Box<Intent>,
    },
    /// StartTransientUnit(name, "fail"), its waiter registered before. Answer: `Started`, then `Stirred` when its job
    /// ends. The directory is watched as in [`Effect::Watch`]; the edge may delay a stir of the directory to gather
    /// more, but not one of the unit.
    StartUnit {
        stem: String,
        intent: Box<Intent>,
    },
    /// Ref, match PropertiesChanged, then `Stirred` once, which closes the race (also if the unit is gone). Also
    /// watches the directory for `claim` and steps.
    Watch {
        stem: String,
        task: TaskId,
    },
    /// Report by `Stirred` when the unit's cgroup is empty, at once if it is (`cgroup.events`; with backoff where that
    /// is missing).
    WatchEmpty {
        task: TaskId,
        cgroup: Option<String>,
    },
    /// Inspect the unit, its processes and its files. Answer: `Inspected`.
    Inspect {
        stem: String,
        task: TaskId,
    },
    /// Create `claim` with this content, unless it exists (a temporary file and link(2), so that no reader sees half of
    /// it); create a missing directory. Answer: `ClaimTaken`.
    TakeClaim {
        stem: String,
        task: TaskId,
        claim: Claim,
    },
    /// KillUnit(main process): the runner forwards it. Never StopUnit, which would lose the status. Before TERM, the
    /// directory gets [`crate::task::STOP_ASKED`]: it tells the next agent that TERM was requested.
    SignalRunner {
        stem: String,
        signal: u8,
    },
    /// Create `boot-expected` in the directory: the runner tells the script that the controller knows. The edge logs a
    /// failure; the script then learns that the controller may not know.
    MarkBootExpected {
        stem: String,
    },
    /// SIGKILL what is left in the unit's cgroup (`lingering = "kill"`).
    KillLingering {
        stem: String,
    },
    /// Write `outcome.json` (temp, rename). If the directory or its intent is gone, `rebuilt` is written first: an
    /// outcome alone would belong to no task, which the next agent would not know. Answer: `OutcomeWritten`.
    WriteOutcome {
        stem: String,
        task: TaskId,
        ended: Box<Ended>,
        rebuilt: Box<Intent>,
    },
    /// StopUnit for an active/exited unit, ResetFailedUnit for a failed one; nothing if it is gone. Answer: `Unloaded`.
    Unload {
        stem: String,
    },
    /// Write the tombstone, then remove the directory, if it exists. Answer: `Buried`.
    Bury {
        stem: String,
        tombstone: Box<Tombstone>,
    },
    RemoveTombstone {
        task: TaskId,
        stem: String,
    },
    /// Record the epoch before obeying any message of this session; or a commit that a vanishing tombstone was the last
    /// to know. Answer: `EpochWritten`.
    WriteEpoch {
        obeyed: Obeyed,
    },
    Send(FromAgent),
    /// End the session (a lower epoch, a protocol error); the edge redials within the window.
    Hang {
        why: String,
    },
    /// How long to spread the next redial over.
    RedialWindow {
        ms: u64,
    },
    /// A `Tick` is wanted then; takes the place of the one asked for before.
    WakeAt {
        boot_ms: u64,
    },
    /// Answers for callers on the local socket.
    ExecReply {
        caller: Caller,
        reply: ExecReply,
    },
    StatusReply {
        caller: Caller,
        tasks: Vec<TaskStatus>,
    },
    /// Answer this question at the edge, which knows where output is.
    Answer {
        question: u64,
        ask: crate::message::Ask,
        tasks: Vec<TaskStatus>,
    },
    /// Run the program of a task whose hook is gone. Answer: `Told`.
    Tell(Box<Telling>),
    /// Something an operator should find in the journal.
    Note {
        level: Level,
        task: Option<TaskId>,
        job: Option<JobId>,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExecReply {
    /// Started (`attached == false`) or found; more follows.
    Attached {
        task: TaskId,
        stem: String,
        attached: bool,
    },
    Phase(Phase),
    Ended(Box<Ended>),
    /// Ended before, only the tombstone is left.
    EndedBefore(crate::outcome::Outcome),
    Refused(String),
    Cancelling,
    /// A hook's report about its daemon was recorded.
    Noted,
}

/// A task as `io.perilog.Agent.Status` tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStatus {
    pub task: TaskId,
    pub stem: String,
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
    pub local: bool,
    /// The word of its state: `waiting`, `starting`, `running`, `overdue`, `lingering`, `ended`.
    pub state: String,
    pub why: Option<String>,
    pub phase: Option<Phase>,
    pub age_ms: u64,
    pub invocation: Option<InvocationId>,
    pub outcome: Option<crate::outcome::Outcome>,
    pub cluster: Option<ClusterId>,
}
