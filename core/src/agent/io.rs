//! Inputs and effects of the agent's machine.
//!
//! An effect that can fail, or that must be durable before the next effect, has an input with its result. The machine
//! never assumes success. Times named `*_boottime_ms` are CLOCK_BOOTTIME; `Now` has both clocks.

use std::collections::BTreeMap;

use crate::ids::{ActionName, BootId, ClusterId, Epoch, HostName, InvocationId, JobId, MachineId, TaskId};
use crate::mark::Obeyed;
use crate::message::{FromAgent, Phase, ToAgent};
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Hook, Intent, Plan, Process, RunResult, StepRecord, Tail, Tombstone, UnitFacts};

/// The clocks at an input. `boot_ms`: CLOCK_BOOTTIME. `wall_ms`: milliseconds since the epoch, for people, never for a
/// decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub boot_ms: u64,
    pub wall_ms: u64,
}

/// Identity of this agent, and the node's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    pub version: String,
    pub policy: Policy,
}

/// The part of the node's configuration that the machine decides by. [`Input::Policy`] replaces all of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub actions: BTreeMap<ActionName, Plan>,
    /// Names of the variables that the node admits from outside.
    pub env_allow: Vec<String>,
    /// At most one task runs on this host at a time, whatever its job.
    pub serialize_host: bool,
    /// Number of failed units that stay loaded for a post-mortem.
    pub keep_failed: usize,
    /// Maximum number of tasks and tombstones together; past it the agent refuses Starts.
    pub max_tombstones: usize,
    /// Maximum number of live tasks on this host; past it the agent refuses Starts.
    pub max_tasks: usize,
}

/// State of one task, found when the agent started or the bus came back.
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
    /// Whether the directory contains [`crate::task::STOP_ASKED`].
    pub stop_asked: bool,
    /// Processes in the unit's cgroup, including the main process.
    pub processes: Vec<Process>,
    /// The ids in the unit's LogExtraFields; they identify a unit without a directory.
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

/// Result of an inspection: the edge reads the unit first, then the files, so that the files of an ended unit are
/// complete.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// `None`: not loaded. If systemd could not be asked, the whole `seen` is `Err` (`Input::Inspected`).
    pub unit: Option<UnitFacts>,
    /// The ids in the unit's LogExtraFields: after `UnitExists` they identify the unit's task.
    pub unit_ids: Option<UnitIds>,
    pub processes: Vec<Process>,
    pub claim: Option<Claim>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// Whether the directory contains [`crate::task::STOP_ASKED`].
    pub stop_asked: bool,
    /// The reason why the runner ignores signals and limits, if it does: the runner is stopped, or hangs in the kernel.
    pub deaf: Option<String>,
    /// Whether the directory was removed, with any claim and result in it. The edge reads this last.
    pub gone: bool,
}

/// systemd's answer to StartTransientUnit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartReply {
    /// systemd queued the job.
    Queued,
    /// `UnitExists`: a unit of this name exists already.
    Exists,
    /// An error reply from systemd itself: the start failed for certain.
    Rejected(String),
    /// A time-out, or a broken bus: the unit may start or not.
    Unknown(String),
}

/// A caller on the local socket, numbered by the edge.
pub type Caller = u64;

/// A caller on the local socket asks for a task of the host's own: the machine starts the task or attaches to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
    pub rank: crate::ids::Rank,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// The plan in place of the configured plan; only root may pass one (`perilog try`).
    pub plan: Option<Plan>,
    pub hook: Hook,
    /// Whether the daemon that waits for the caller's status has died, as in [`Input::Bereft`].
    pub bereft: bool,
}

/// The event for the program of an orphaned task.
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

/// A run of the program of an orphaned task, with the event as its argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    pub task: TaskId,
    pub stem: String,
    pub program: String,
    pub word: Word,
    pub env: BTreeMap<String, String>,
    /// The outcome of an ended task.
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// All tasks that the edge found: once at start, and again after the edge lost the bus or after a re-execution of
    /// systemd. Only the first `Joined` has `tombstones` and `obeyed`.
    Joined {
        found: Vec<Found>,
        tombstones: Vec<Tombstone>,
        obeyed: Option<Obeyed>,
    },
    /// The transport of a session with the controller is open; the edge has sent nothing yet.
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
    /// The task's unit or directory changed, so the machine inspects the task.
    Stirred {
        task: TaskId,
    },
    /// The answer to [`Effect::Inspect`]; `Err`: systemd could not be asked.
    Inspected {
        task: TaskId,
        seen: Result<Seen, String>,
    },
    /// The answer to [`Effect::TakeClaim`]: `Ok(true)`: the agent has the claim; `Ok(false)`: a runner has the claim.
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
    /// The answer to [`Effect::Unload`]. `Ok`: the unit is gone; `Err`: the unit may still be loaded.
    Unloaded {
        stem: String,
        result: Result<(), String>,
    },
    /// The system bus is lost; `Joined` follows when the bus is back. After a `Joined`, the edge drops answers to
    /// earlier calls.
    BusLost,
    /// The time requested by [`Effect::WakeAt`] has come.
    Tick,
    Policy(Policy),
    /// A caller on the local socket starts a task of the host's own, or attaches to one.
    Exec {
        caller: Caller,
        exec: Exec,
    },
    /// A caller of `Exec` disconnected; the task goes on.
    Hangup {
        caller: Caller,
    },
    /// The hook reports that its daemon has died: no process receives the hook's exit status.
    Bereft {
        caller: Caller,
        task: TaskId,
    },
    /// The answer to [`Effect::Tell`]; `Ok`: the program exited with 0.
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
    /// another life of the task: the edge removes that end first. Exception: a rebuilt intent stands for that life, and
    /// the end stays. Answer: `IntentWritten`.
    WriteIntent {
        stem: String,
        intent: Box<Intent>,
    },
    /// StartTransientUnit(name, "fail"); the edge registers its waiter before the call. Answer: `Started`, then
    /// `Stirred` when the unit's job ends. The edge watches the directory as in [`Effect::Watch`]. The edge may delay a
    /// stir of the directory to gather more changes, but never a stir of the unit.
    StartUnit {
        stem: String,
        intent: Box<Intent>,
    },
    /// Ref, match PropertiesChanged, then report `Stirred` once, also if the unit is gone. This closes the race. The
    /// edge also watches the directory for `claim` and steps.
    Watch {
        stem: String,
        task: TaskId,
    },
    /// Report `Stirred` when the unit's cgroup is empty, at once if the cgroup is empty already. The edge reads
    /// `cgroup.events`; without that file, it looks again with backoff.
    WatchEmpty {
        task: TaskId,
        cgroup: Option<String>,
    },
    /// Inspect the unit, its processes and its files. Answer: `Inspected`.
    Inspect {
        stem: String,
        task: TaskId,
    },
    /// Create `claim` with this content, unless `claim` exists; create a missing directory. The edge uses a temporary
    /// file and link(2), so that no reader sees half a claim. Answer: `ClaimTaken`.
    TakeClaim {
        stem: String,
        task: TaskId,
        claim: Claim,
    },
    /// KillUnit(main process): the runner forwards the signal. Never StopUnit, which would lose the status. Before
    /// TERM, the edge puts [`crate::task::STOP_ASKED`] into the directory, so that the next agent knows of the request.
    SignalRunner {
        stem: String,
        signal: u8,
    },
    /// Create `boot-expected` in the directory: the runner tells the script that the controller knows of the boot. The
    /// edge logs a failure; the script then learns that the controller may not know.
    MarkBootExpected {
        stem: String,
    },
    /// SIGKILL all processes that remain in the unit's cgroup (`lingering = "kill"`).
    KillLingering {
        stem: String,
    },
    /// Write `outcome.json` (temp, rename). If the directory or its intent is gone, the edge writes `rebuilt` first:
    /// the next agent could not match an outcome alone to a task. Answer: `OutcomeWritten`.
    WriteOutcome {
        stem: String,
        task: TaskId,
        ended: Box<Ended>,
        rebuilt: Box<Intent>,
    },
    /// StopUnit for an active/exited unit, ResetFailedUnit for a failed unit, no call for a missing unit. Answer:
    /// `Unloaded`.
    Unload {
        stem: String,
    },
    /// Write the tombstone, then remove the directory, if present. Answer: `Buried`.
    Bury {
        stem: String,
        tombstone: Box<Tombstone>,
    },
    RemoveTombstone {
        task: TaskId,
        stem: String,
    },
    /// Record the epoch before the machine obeys any message of this session; or record the newest commit of removed
    /// tombstones. Answer: `EpochWritten`.
    WriteEpoch {
        obeyed: Obeyed,
    },
    Send(FromAgent),
    /// End the session (a lower epoch, a protocol error); the edge redials within the window.
    Hang {
        why: String,
    },
    /// The milliseconds over which the edge spreads its next redial.
    RedialWindow {
        ms: u64,
    },
    /// Send a `Tick` at this time; replaces the time of an earlier `WakeAt`.
    WakeAt {
        boot_ms: u64,
    },
    /// Send an answer to a caller on the local socket.
    ExecReply {
        caller: Caller,
        reply: ExecReply,
    },
    StatusReply {
        caller: Caller,
        tasks: Vec<TaskStatus>,
    },
    /// Answer this question at the edge: only the edge knows where the output of scripts is.
    Answer {
        question: u64,
        ask: crate::message::Ask,
        tasks: Vec<TaskStatus>,
    },
    /// Run the program of an orphaned task. Answer: `Told`.
    Tell(Box<Telling>),
    /// Write a line for the operator to the journal.
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
    /// The agent started the task (`attached == false`) or found it (`true`); more replies follow.
    Attached {
        task: TaskId,
        stem: String,
        attached: bool,
    },
    Phase(Phase),
    Ended(Box<Ended>),
    /// The task ended before, and only the tombstone is left.
    EndedBefore(crate::outcome::Outcome),
    Refused(String),
    Cancelling,
    /// The agent has recorded a hook's report about its daemon.
    Noted,
}

/// A task as the method `io.perilog.Agent.Status` reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStatus {
    pub task: TaskId,
    pub stem: String,
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
    pub local: bool,
    /// The word for the task's state: `waiting`, `starting`, `running`, `overdue`, `lingering`, `ended`.
    pub state: String,
    pub why: Option<String>,
    pub phase: Option<Phase>,
    pub age_ms: u64,
    pub invocation: Option<InvocationId>,
    pub outcome: Option<crate::outcome::Outcome>,
    pub cluster: Option<ClusterId>,
}
