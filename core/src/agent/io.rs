//! Inputs and effects of the agent's machine. The daemon around the machine makes the inputs, and carries out the
//! effects.
//!
//! An effect that can fail, or that must be durable before the next effect, has an input with its result: the machine
//! never assumes success. Times named `*_boottime_ms` are CLOCK_BOOTTIME; `Now` has both clocks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::{ActionName, BootId, ClusterId, Epoch, HostName, InvocationId, JobId, MachineId, TaskId};
use crate::mark::AcceptedEpoch;
use crate::message::{FromAgent, Phase, ToAgent};
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Hook, Intent, Plan, Process, RunResult, StepRecord, Tail, Tombstone, UnitFacts};

/// The clocks when an input arrives. `boot_ms`: CLOCK_BOOTTIME. `wall_ms`: milliseconds since 1970, for texts and
/// records that people read. The machine computes with `wall_ms` in two places only: the highest epoch that it accepts,
/// and the remaining limit in `ExpectsBoot`. The wall clock may step, so the task's age by `boot_ms` caps the elapsed
/// time of that limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Now {
    pub boot_ms: u64,
    pub wall_ms: u64,
}

/// The agent's node: its identity, its boot and its configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    pub version: String,
    pub policy: Policy,
}

/// The part of the node's configuration that the machine decides by. [`Input::Policy`] replaces all of the policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    pub actions: BTreeMap<ActionName, Plan>,
    /// Names of the variables that the node lets pass from a requester to scripts.
    pub env_allow: Vec<String>,
    /// Whether at most one task runs on this host at a time, even if the tasks belong to different jobs (`serialize =
    /// "host"`).
    pub serialize_host: bool,
    /// Maximum number of failed units that stay loaded for a post-mortem.
    pub keep_failed: usize,
    /// Maximum number of tasks and tombstones together. At the maximum the agent refuses setup actions. After-actions
    /// may exceed the maximum by `max_tasks`.
    pub max_tombstones: usize,
    /// Maximum number of tasks on this host that have not ended. At the maximum the agent refuses every new task.
    pub max_tasks: usize,
}

/// Traces of one task on the host, found when the agent started or the bus came back: its directory, its unit, or both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    pub stem: String,
    pub intent: Option<Intent>,
    pub claim: Option<Claim>,
    pub ended: Option<Ended>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// The facts that systemd reports about the unit; `None`: systemd knows no such unit (LoadState=not-found).
    pub unit: Option<UnitFacts>,
    /// Whether the task's directory has the file [`crate::task::STOP_ASKED`]: perilog was asked to stop the task.
    pub stop_asked: bool,
    /// Processes in the unit's cgroup, including the main process.
    pub processes: Vec<Process>,
    /// The ids in the unit's LogExtraFields; they name the task of a unit without a directory.
    pub unit_ids: Option<UnitIds>,
}

/// Ids of a task, read from the LogExtraFields of its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnitIds {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
}

impl UnitIds {
    /// Returns the stem of the task with these ids.
    pub fn stem(&self) -> String {
        crate::ids::stem(&self.action, &self.job, self.task)
    }
}

/// Result of an inspection: the daemon reads the unit first, then the files, so that the files of an ended unit are
/// complete.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Seen {
    /// The facts that systemd reports about the task's unit; `None`: systemd knows no such unit. If the daemon could
    /// not ask systemd, there is no `Seen`: [`Input::Inspected`] contains an `Err`.
    pub unit: Option<UnitFacts>,
    /// The ids in the unit's LogExtraFields: they show whether a unit with the task's name belongs to the task.
    pub unit_ids: Option<UnitIds>,
    pub processes: Vec<Process>,
    pub claim: Option<Claim>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// Whether the task's directory has the file [`crate::task::STOP_ASKED`]: perilog was asked to stop the task.
    pub stop_asked: bool,
    /// The reason why the runner handles no signal and no limit: for example, the runner is stopped or hangs in the
    /// kernel. `None`: the runner works, or is gone.
    pub deaf: Option<String>,
    /// The runner's process as text for operators: `pid 467, state D, in fuse_wait`. `None`: the unit has no main
    /// process, or /proc does not show it.
    pub runner: Option<String>,
    /// Whether the task's directory is missing, and with it any claim and result. The daemon checks this after it has
    /// read the files.
    pub gone: bool,
}

impl Seen {
    /// Returns the runner's process as text for operators, also for a runner without a process.
    pub(super) fn runner(&self) -> &str {
        self.runner.as_deref().unwrap_or("its process is gone")
    }
}

/// systemd's answer to StartTransientUnit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum StartReply {
    /// systemd queued the unit's start job.
    Queued,
    /// `UnitExists`: a unit of this name exists already.
    Exists,
    /// systemd answered with this error: the unit certainly does not start.
    Rejected(String),
    /// systemd gave no answer, for this reason (a time-out or a broken bus): the unit may start or not.
    Unknown(String),
}

/// The number that the daemon gives to a caller on the local socket.
pub type Caller = u64;

/// The request of a caller on the local socket for a local task, which no controller orders. The machine starts the
/// task, or attaches the caller to the task if it exists already.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exec {
    pub job: JobId,
    pub attempt: crate::ids::Attempt,
    pub action: ActionName,
    pub rank: crate::ids::Rank,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// The plan that replaces the configured plan; only root may pass one (`perilog try`).
    pub plan: Option<Plan>,
    pub hook: Hook,
    /// Whether the resource manager's daemon that waits for the caller's exit status has died, as in
    /// [`Input::DaemonDied`].
    pub daemon_died: bool,
}

/// The event for which the agent runs the program in [`Hook::orphan_program`]; the program gets this word as its
/// argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum HookEvent {
    /// The task goes on, but the hook is gone, or the resource manager's daemon that runs the hook has died.
    Begun,
    Ended,
}

impl std::fmt::Display for HookEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Begun => "begun",
            Self::Ended => "ended",
        })
    }
}

/// A run of a task's [`Hook::orphan_program`], with `event` as the argument of the program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookCall {
    pub task: TaskId,
    pub stem: String,
    pub program: String,
    pub event: HookEvent,
    pub env: BTreeMap<String, String>,
    /// The outcome of the task, for [`HookEvent::Ended`]; otherwise `None`.
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Input {
    /// All traces of tasks that the daemon found: once at start, and again after the daemon lost the bus or systemd was
    /// re-executed. Only the first `Joined` has `tombstones` and `accepted`.
    Joined {
        found: Vec<Found>,
        tombstones: Vec<Tombstone>,
        accepted: Option<AcceptedEpoch>,
    },
    /// The daemon has connected to the controller and sent nothing yet. `counter` becomes the Hello's `link`.
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
    /// The task's unit or directory may have changed: the machine inspects both.
    TaskChanged {
        task: TaskId,
    },
    /// The answer to [`Effect::Inspect`]; `Err`: the daemon could not ask systemd.
    Inspected {
        task: TaskId,
        seen: Result<Seen, String>,
    },
    /// The answer to [`Effect::TakeClaim`]. `Ok(true)`: the agent has the claim. `Ok(false)`: the claim is not the
    /// agent's, or the directory is missing and a runner may have had the claim.
    ClaimTaken {
        task: TaskId,
        result: Result<bool, String>,
    },
    OutcomeWritten {
        task: TaskId,
        result: Result<(), String>,
    },
    TombstoneWritten {
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
    /// The daemon lost the system bus; `Joined` follows when the bus is back. After that `Joined`, the daemon drops the
    /// answers to calls on the lost bus.
    BusLost,
    /// The time requested by [`Effect::WakeAt`] has come.
    Tick,
    Policy(Policy),
    /// A caller on the local socket asks for a local task, which no controller orders. The machine starts the task, or
    /// attaches the caller to the task if it exists already.
    Exec {
        caller: Caller,
        exec: Exec,
    },
    /// A caller of `Exec` disconnected; the task goes on.
    Hangup {
        caller: Caller,
    },
    /// The resource manager's hook on this host, for example Slurm's prolog, reports that the resource manager's daemon
    /// has died. So no process reads the hook's exit status.
    DaemonDied {
        caller: Caller,
        task: TaskId,
    },
    /// The answer to [`Effect::CallHook`]. `Ok`: the program exited with 0. `Err`: the program did not run, or failed;
    /// the machine has it run again.
    HookCalled {
        task: TaskId,
        event: HookEvent,
        result: Result<(), String>,
    },
    /// A caller on the local socket asks to stop a local task (`Exec`).
    CancelLocal {
        caller: Caller,
        task: TaskId,
    },
    /// A local request for the status of all tasks.
    Status {
        caller: Caller,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Effect {
    /// Create the task's directory with `intent.json` (temp, rename). The daemon first removes the remains of an
    /// earlier run of the same task: outcome, `boot-expected`, `stop-asked` and tombstone. Exception: a rebuilt intent
    /// stands for that earlier run, so its remains stay. Answer: `IntentWritten`.
    WriteIntent {
        stem: String,
        intent: Box<Intent>,
    },
    /// Call StartTransientUnit(name, "fail"). The daemon waits for the end of the unit's job, and registers that wait
    /// before the call. Answer: `Started`, then `TaskChanged` when the job ends. The daemon watches the task's
    /// directory as in [`Effect::Watch`]. It may delay a `TaskChanged` of the directory to gather more changes, but
    /// never one of the unit. The task's limit counts from `since_boot_ms`, the CLOCK_BOOTTIME (ms) of the task's first
    /// start call: the daemon passes it on to the runner.
    StartUnit {
        stem: String,
        intent: Box<Intent>,
        since_boot_ms: u64,
    },
    /// Watch the task's unit and directory. The daemon calls Ref and adds a match for PropertiesChanged, then reports
    /// `TaskChanged` once, even if the unit is gone: a change before the match is not missed. In the directory it
    /// watches `claim` and the steps.
    Watch {
        stem: String,
        task: TaskId,
    },
    /// Report `TaskChanged` when the unit's cgroup is empty, at once if it is empty already. The daemon reads
    /// `cgroup.events`; without that file, it checks again with backoff.
    WatchEmpty {
        task: TaskId,
        cgroup: Option<String>,
    },
    /// Inspect the task's unit with its processes, then the files in the task's directory. Answer: `Inspected`.
    Inspect {
        stem: String,
        task: TaskId,
    },
    /// Create the file `claim` with this content, unless the file exists or the task's directory is missing. The daemon
    /// uses a temporary file and link(2), so that no reader sees half a claim. Answer: `ClaimTaken`.
    TakeClaim {
        stem: String,
        task: TaskId,
        claim: Claim,
    },
    /// Send a signal with KillUnit to the main process: the runner forwards it to the scripts. The daemon never calls
    /// StopUnit here, which would lose the status. Before TERM, it creates [`crate::task::STOP_ASKED`] in the
    /// task's directory, so that a restarted agent knows of the request. `TaskChanged` follows when the runner should
    /// have handled the signal.
    SignalRunner {
        stem: String,
        signal: u8,
    },
    /// Create `boot-expected` in the task's directory: the runner then tells the script that the controller knows of
    /// the announced boot. If the daemon cannot create the file, it logs that, and the script does not learn it.
    MarkBootExpected {
        stem: String,
    },
    /// Send SIGKILL to all processes that remain in the unit's cgroup.
    KillLingering {
        stem: String,
    },
    /// Write `outcome.json` (temp, rename). If the task's directory is gone or has no readable intent, the daemon first
    /// writes the intent `rebuilt`: without an intent, a restarted agent could match the outcome to no task. Then the
    /// daemon removes the hook's note ([`crate::task::Hook::note`]), also at a start that finds the outcome. The note
    /// stays if a signal may have cut the scripts off. Answer: `OutcomeWritten`.
    WriteOutcome {
        stem: String,
        task: TaskId,
        ended: Box<Ended>,
        rebuilt: Box<Intent>,
    },
    /// Unload the unit: StopUnit for an active/exited unit, ResetFailedUnit for a failed unit, both if the state is
    /// unknown. A missing unit counts as unloaded. Answer: `Unloaded`.
    Unload {
        stem: String,
    },
    /// Write the task's tombstone, then remove the task's directory, if present. Answer: `TombstoneWritten`.
    WriteTombstone {
        stem: String,
        tombstone: Box<Tombstone>,
    },
    RemoveTombstone {
        task: TaskId,
        stem: String,
    },
    /// Write `epoch.json`. The machine asks for this before it accepts a session whose epoch or cluster the file does
    /// not have, and when it removes a tombstone with a newer commit than the file has. Answer: `EpochWritten`.
    WriteEpoch {
        accepted: AcceptedEpoch,
    },
    Send(FromAgent),
    /// End the session for the reason `why`, such as a lower epoch, a protocol error or newly configured actions. The
    /// daemon redials within the redial window.
    Hang {
        why: String,
    },
    /// Set the time in milliseconds over which the daemon spreads its next redial.
    RedialWindow {
        ms: u64,
    },
    /// Send a `Tick` at this CLOCK_BOOTTIME; replaces the time of an earlier `WakeAt`.
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
    /// Answer a question of the controller. The daemon does so, because only the daemon can read the output of scripts.
    Answer {
        question: u64,
        ask: crate::message::Ask,
        tasks: Vec<TaskStatus>,
    },
    /// Run the program in [`Hook::orphan_program`] of a task. Answer: `HookCalled`.
    CallHook(Box<HookCall>),
    /// Write a line for the operator to the journal.
    Note {
        level: Level,
        task: Option<TaskId>,
        job: Option<JobId>,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ExecReply {
    /// The agent has accepted the caller, and more replies follow. `attached`: whether the task existed before;
    /// `false`: the agent started it for this caller.
    Attached {
        task: TaskId,
        stem: String,
        attached: bool,
    },
    Phase(Phase),
    /// A script has reported a milestone of this name.
    Milestone(String),
    Ended(Box<Ended>),
    /// The task had ended before the request; contains its outcome. The agent sends no [`Ended`], because the details
    /// are gone, or because the caller only asked to cancel the task.
    EndedBefore(crate::outcome::Outcome),
    Refused(String),
    Cancelling,
    /// Answers [`Input::DaemonDied`]: the agent has recorded that the hook's daemon died.
    Noted,
}

/// A task as the method `io.perilog.Agent.Status` reports it.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
