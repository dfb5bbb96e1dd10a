//! A plan: the requests and faults of a simulated world, with their times. The plan's seed decides the rest, such as
//! durations and the behaviour of scripts. So shrinking can leave out parts of a plan, and a file can keep a plan
//! (`sim/regressions/*.json`).

mod chance;
mod effects;
mod generate;
mod spring;

use serde::{Deserialize, Serialize};

pub use effects::{AGENT_EFFECTS, CONTROLLER_EFFECTS};
pub(crate) use effects::{of_agent, of_controller};
pub use generate::{breadth, depth};
pub use spring::{Spring, Trap, possible};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// For a kept plan, one line about the violation that the plan showed; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    pub seed: u64,
    pub nodes: usize,
    /// Nodes, by index, on which all tasks queue (`serialize = "host"`).
    #[serde(default)]
    pub exclusive: Vec<usize>,
    /// The resource manager that gives hosts to jobs of its own ([`Op::Launch`]); `None`: the world has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// World time (ms) at which faults stop.
    pub horizon_ms: u64,
    pub steps: Vec<Step>,
    pub traps: Vec<Trap>,
}

/// The way in which the world's resource manager, which gives hosts to its own jobs, speaks to the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The resource manager has an edge, which reads the outbox and asserts all attempts at each connection.
    Edge,
    /// The resource manager has only hooks: in a recovery an operator states the truth about each job.
    Hooks,
}

/// An event of the plan, at its world time in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub at_ms: u64,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Do(Op),
    Fault(Fault),
}

/// An event of the plan that is no fault: an act of an operator, of the resource manager, of a service or of a caller
/// on a node, or a new configuration. `to`: 0 is the first controller, 1 the second controller while one exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Runs an action. `attempt`: `None` means the open attempt. `nodes`: the first node and the number of nodes;
    /// `None` means the attempt's nodes.
    Run {
        to: usize,
        job: u8,
        action: String,
        attempt: Option<u64>,
        nodes: Option<(usize, usize)>,
    },
    Cancel {
        to: usize,
        job: u8,
        action: Option<String>,
    },
    Resolve {
        to: usize,
        job: u8,
        ok: bool,
    },
    Signal {
        to: usize,
        job: u8,
        signal: u8,
    },
    TakeOver {
        to: usize,
    },
    /// An operator sends requests that only read: `ps`, `show`, `nodes`, `why`, `status`, and a read of the outbox.
    Query {
        to: usize,
        job: u8,
    },
    OutboxApplied {
        to: usize,
    },
    Exec {
        node: usize,
        job: u8,
        action: String,
        attempt: u64,
    },
    Hangup {
        node: usize,
    },
    CancelLocal {
        node: usize,
        job: u8,
        action: String,
        attempt: u64,
    },
    /// Makes a backup of the store of the first controller, the one that `to: 0` means. [`Fault::Restore`] can later
    /// start that controller on the backup.
    Backup,
    /// An operator asks, through the controller, the agents of all hosts or of a job's hosts for their status.
    Ask {
        to: usize,
        job: Option<u8>,
    },
    /// A program on the node requests the list of tasks from the agent.
    Status {
        node: usize,
    },
    /// The node's configuration changes to the one with this number, and the agent reloads it (`world::site` lists the
    /// numbers).
    Reload {
        node: usize,
        policy: u8,
    },
    /// The configuration of controllers changes to the one with this number (`world::site`); the first controller reads
    /// it at once.
    Configure {
        settings: u8,
    },
    AddJob {
        to: usize,
        job: u8,
        attempt: Option<u64>,
        nodes: (usize, usize),
        tolerate: u32,
        /// Whether `tolerate` is a percentage of the job's ranks; otherwise it is a number of ranks.
        #[serde(default)]
        percent: bool,
        keep: Option<u32>,
        shrink: bool,
        /// Whether the job also holds named resources.
        #[serde(default)]
        rabbits: bool,
    },
    /// Finishes the job on all its ranks; `ranks`: only on these, as the first rank and the number of ranks.
    Finish {
        to: usize,
        job: u8,
        ranks: Option<(u32, u32)>,
    },
    /// A service runs an external action of this job. `nodes`: the first node and the number of nodes; `None`: all
    /// nodes that the job holds, or, with `rabbits`, no node. `rabbits`: the action covers the job's named resources,
    /// in addition to `nodes`.
    Serve {
        job: u8,
        nodes: Option<(usize, usize)>,
        rabbits: bool,
        lease_ms: u64,
    },
    CancelJob {
        to: usize,
        job: u8,
    },
    Drain {
        to: usize,
        node: usize,
    },
    Undrain {
        to: usize,
        node: usize,
    },
    /// An operator lifts the drain of a node's host in the resource manager, and not in perilog.
    LiftOutside {
        node: usize,
    },
    /// An operator reports the milestone for all ranks of the job; `ranks`: only for these, as the first rank and the
    /// number of ranks.
    Milestone {
        to: usize,
        job: u8,
        ranks: Option<(u32, u32)>,
    },
    Quiesce {
        to: usize,
        wait: bool,
    },
    Resume {
        to: usize,
    },
    /// The resource manager launches one of its jobs on at most `count` free hosts, for `ms` milliseconds. A repetition
    /// launches another attempt.
    Launch {
        job: u8,
        count: usize,
        ms: u64,
    },
    /// A running job of the resource manager keeps this number of ranks and continues.
    Shrink {
        job: u8,
        keep: u32,
    },
    /// The resource manager ends one of its jobs.
    End {
        job: u8,
    },
}

/// A fault that the plan injects into the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The connection between agent and controller ends for both sides, or for one side only.
    Drop {
        node: usize,
        side: Side,
    },
    Partition {
        node: usize,
        ms: u64,
    },
    KillAgent {
        node: usize,
        down_ms: u64,
    },
    /// The agent gets SIGSTOP, and later SIGCONT.
    StopAgent {
        node: usize,
        ms: u64,
    },
    PowerFail {
        node: usize,
        down_ms: u64,
    },
    /// The node loses its power, and never boots again.
    Burn {
        node: usize,
    },
    /// The user space restarts: processes end, and /run stays.
    SoftReboot {
        node: usize,
        down_ms: u64,
    },
    /// The node, a container, restarts: processes end, PID 1 is another, and the kernel with its boot id stays.
    /// `keeps_run`: /run stays, too.
    Restart {
        node: usize,
        keeps_run: bool,
        down_ms: u64,
    },
    /// The agent loses its connection to the system bus for `ms` milliseconds, as when dbus-daemon restarts.
    LoseBus {
        node: usize,
        ms: u64,
    },
    /// PID 1 re-executes (daemon-reexec): PID 1 does nothing for `ms` milliseconds, and the agent has to connect to it
    /// again.
    Reexec {
        node: usize,
        ms: u64,
    },
    /// The machine sleeps: all processes stop, and CLOCK_BOOTTIME continues.
    Suspend {
        node: usize,
        ms: u64,
    },
    /// The kernel kills a script for its memory; systemd stops the rest of the unit.
    OomKill {
        node: usize,
    },
    /// PID 1 does nothing for `ms` milliseconds.
    StallSystemd {
        node: usize,
        ms: u64,
    },
    /// For `ms` milliseconds no runner takes its claim or begins a script: a directory or the name service does not
    /// answer.
    HangRunners {
        node: usize,
        ms: u64,
    },
    FullRun {
        node: usize,
        ms: u64,
    },
    KillRunner {
        node: usize,
    },
    /// An operator stops the unit of a task with systemctl.
    StopUnit {
        node: usize,
    },
    /// Another program's unit takes the name of a task's unit, and ends with success after `ms` milliseconds.
    TakeName {
        node: usize,
        ms: u64,
    },
    /// A program cleans up /run: the directories of all tasks are gone; tombstones stay.
    RemoveSpool {
        node: usize,
    },
    ClockStep {
        node: usize,
        by_ms: i64,
    },
    /// A second machine starts with this host's name and certificate.
    Clone {
        node: usize,
        ms: u64,
    },
    KillController {
        which: usize,
        down_ms: u64,
    },
    ControllerClockStep {
        by_ms: i64,
    },
    FullStore {
        ms: u64,
    },
    /// For `ms` milliseconds the hooks of the resource manager carry out no notice.
    HangHooks {
        ms: u64,
    },
    /// The controller stops, and starts on an old backup of its store; with `empty`, or without a backup, on an empty
    /// store.
    Restore {
        empty: bool,
    },
    /// A copy of the store is made when the fault strikes, and replaces the store `ms` milliseconds later. `raw`: `cp`
    /// makes the copy, which therefore has no backup stamp. The anchor stays.
    CopyRestored {
        raw: bool,
        ms: u64,
    },
    /// The controller's directory, with store and anchor, is copied when the fault strikes, and returns to that state
    /// `ms` milliseconds later.
    DirectoryRolledBack {
        ms: u64,
    },
    /// The controller's host, with its processes and disk, is copied when the fault strikes. It returns to that state
    /// `ms` milliseconds later, and continues from there.
    MemoryRolledBack {
        ms: u64,
    },
    /// A thief has the node's key. For `ms` milliseconds the node's Hello names a forged commit: of an epoch above all
    /// others (`far`), or of the accepted epoch with a number that no controller reached.
    ForgedMark {
        node: usize,
        far: bool,
        ms: u64,
    },
    /// A resource manager with an edge is copied when the fault strikes, and returns to that state `ms` milliseconds
    /// later.
    SchedulerRolledBack {
        ms: u64,
    },
    /// The resource manager is down for `ms` milliseconds.
    SchedulerDown {
        ms: u64,
    },
    /// A second controller of the same name runs for `ms` milliseconds, on a copy of the store or on an empty store.
    SecondController {
        empty: bool,
        ms: u64,
    },
}

impl Fault {
    /// Returns the node that the fault hits; `None`: the fault hits a controller, a store, the resource manager or its
    /// hooks.
    pub const fn node(&self) -> Option<usize> {
        match self {
            Self::Drop { node, .. }
            | Self::Partition { node, .. }
            | Self::KillAgent { node, .. }
            | Self::StopAgent { node, .. }
            | Self::PowerFail { node, .. }
            | Self::Burn { node }
            | Self::SoftReboot { node, .. }
            | Self::Restart { node, .. }
            | Self::LoseBus { node, .. }
            | Self::Reexec { node, .. }
            | Self::Suspend { node, .. }
            | Self::OomKill { node }
            | Self::StallSystemd { node, .. }
            | Self::HangRunners { node, .. }
            | Self::FullRun { node, .. }
            | Self::KillRunner { node }
            | Self::StopUnit { node }
            | Self::TakeName { node, .. }
            | Self::RemoveSpool { node }
            | Self::ClockStep { node, .. }
            | Self::ForgedMark { node, .. }
            | Self::Clone { node, .. } => Some(*node),
            Self::KillController { .. }
            | Self::ControllerClockStep { .. }
            | Self::FullStore { .. }
            | Self::HangHooks { .. }
            | Self::Restore { .. }
            | Self::CopyRestored { .. }
            | Self::DirectoryRolledBack { .. }
            | Self::MemoryRolledBack { .. }
            | Self::SchedulerRolledBack { .. }
            | Self::SchedulerDown { .. }
            | Self::SecondController { .. } => None,
        }
    }

    /// Returns the name under which reports count the fault, if it is a fault of memory. Such a fault loses or restores
    /// a store, rolls back a controller or the resource manager, forges a mark, or starts a second controller.
    pub const fn of_memory(&self) -> Option<&'static str> {
        Some(match self {
            Self::Restore { empty: true } => "store lost",
            Self::Restore { empty: false } => "backup restored",
            Self::CopyRestored { raw: false, .. } => "backup of the current epoch restored",
            Self::CopyRestored { raw: true, .. } => "copy of the current epoch restored",
            Self::DirectoryRolledBack { .. } => "directory rolled back",
            Self::MemoryRolledBack { .. } => "memory rolled back",
            Self::ForgedMark { .. } => "forged mark",
            Self::SchedulerRolledBack { .. } => "resource manager rolled back",
            Self::SecondController { .. } => "second controller",
            _ => return None,
        })
    }
}

/// The names of two counters in reports: the recoveries that controllers entered, and those that they left.
pub const RECOVERIES: [&str; 2] = [ENTERED, LEFT];
pub(crate) const ENTERED: &str = "recovery entered";
pub(crate) const LEFT: &str = "recovery left";

/// The names that [`Fault::of_memory`] returns.
pub const OF_MEMORY: [&str; 9] = [
    "store lost",
    "backup restored",
    "backup of the current epoch restored",
    "copy of the current epoch restored",
    "directory rolled back",
    "memory rolled back",
    "forged mark",
    "resource manager rolled back",
    "second controller",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Both,
    Agent,
    Controller,
}

/// The actions that most `Run` requests of plans name. The nodes also have the actions of `site::CHECKS`.
/// `site::usual_policy` configures all these actions.
pub const ACTIONS: [&str; 6] = ["prolog", "epilog", "sweep", "mount", "unlimited", "firmware"];
