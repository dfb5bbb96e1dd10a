//! A plan: everything that is done to a world, and when. The seed of a plan decides only how long things take and what
//! scripts do, so a plan can be shrunk by leaving out parts of it, and be kept as a file (`sim/regressions/*.json`).

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
    /// One line: what a kept plan showed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    pub seed: u64,
    pub nodes: usize,
    /// Nodes, by index, on which all tasks queue (`serialize = "host"`).
    #[serde(default)]
    pub exclusive: Vec<usize>,
    /// A resource manager gives hosts to jobs of its own ([`Op::Launch`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// When faults stop.
    pub horizon_ms: u64,
    pub steps: Vec<Step>,
    pub traps: Vec<Trap>,
}

/// How a resource manager that gives hosts to jobs speaks to the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// An edge, which asserts what there is each time that it connects.
    Edge,
    /// Hooks only: after a recovery a person says what is true.
    Hooks,
}

/// Something that happens at its time.
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

/// What people and resource managers ask. `to`: 0 the controller, 1 the second one, while there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// `attempt`: `None` the open one. `nodes`: first and number of them; `None` those that the attempt has.
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
    /// Looks at everything that can be looked at.
    Look {
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
    /// Copies the first controller's store.
    Backup,
    /// A live question to all hosts, or to those of a job.
    Ask {
        to: usize,
        job: Option<u8>,
    },
    /// Somebody on the node asks its agent what it has in hand.
    Status {
        node: usize,
    },
    /// The node's configuration is another from now on, and its agent is told (`world::site` has which there are).
    Reload {
        node: usize,
        policy: u8,
    },
    /// The controllers' configuration.
    Configure {
        settings: u8,
    },
    AddJob {
        to: usize,
        job: u8,
        attempt: Option<u64>,
        nodes: (usize, usize),
        tolerate: u32,
        /// ... of a hundred ranks.
        #[serde(default)]
        percent: bool,
        keep: Option<u32>,
        shrink: bool,
        /// It holds resources that are no ranks too.
        #[serde(default)]
        rabbits: bool,
    },
    /// Of all its ranks, or of so many from the first named one on.
    Finish {
        to: usize,
        job: u8,
        ranks: Option<(u32, u32)>,
    },
    /// A service outside runs an action of this job: over these nodes, or all that it has, or with `rabbits` over
    /// those.
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
    /// Its drain is lifted in the resource manager alone.
    LiftOutside {
        node: usize,
    },
    /// Of all its ranks, or of so many from the first named one on.
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
    /// The resource manager launches a job of its own on so many hosts that are free, for so long; again, as another
    /// attempt.
    Launch {
        job: u8,
        count: usize,
        ms: u64,
    },
    /// The resource manager's job keeps so many of its ranks, and goes on.
    Shrink {
        job: u8,
        keep: u32,
    },
    /// The resource manager ends this job of its own.
    End {
        job: u8,
    },
}

/// A fault at its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The connection ends for both, or for one of the two only.
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
    /// SIGSTOP, and SIGCONT.
    StopAgent {
        node: usize,
        ms: u64,
    },
    PowerFail {
        node: usize,
        down_ms: u64,
    },
    /// For good.
    Burn {
        node: usize,
    },
    /// User space anew: processes end, /run stays.
    SoftReboot {
        node: usize,
        down_ms: u64,
    },
    /// dbus-daemon restarts, or PID 1 is re-executed.
    LoseBus {
        node: usize,
        ms: u64,
    },
    /// daemon-reexec: PID 1 does nothing for a while, and comes back under another name on the bus.
    Reexec {
        node: usize,
        ms: u64,
    },
    /// The machine sleeps: nothing on it goes on, and CLOCK_BOOTTIME does.
    Suspend {
        node: usize,
        ms: u64,
    },
    /// The kernel kills a script for its memory; systemd stops the rest of the unit.
    OomKill {
        node: usize,
    },
    /// PID 1 does nothing for a while.
    StallSystemd {
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
    /// An operator stops a unit of ours.
    StopUnit {
        node: usize,
    },
    /// Somebody's unit takes the name of a task of ours.
    TakeName {
        node: usize,
        ms: u64,
    },
    /// A cleaner removes the directories of all tasks; tombstones stay.
    LoseSpool {
        node: usize,
    },
    ClockStep {
        node: usize,
        by_ms: i64,
    },
    /// A second machine with this host's certificate.
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
    /// The resource manager does not come to its hooks.
    HangHooks {
        ms: u64,
    },
    /// The controller is stopped and comes up on an old copy of its store; without any, on an empty one.
    Restore {
        empty: bool,
    },
    /// A copy of the store that is made now takes the store's place so much later. `raw`: by `cp`, so that it has no
    /// backup's stamp. The anchor stays.
    CopyPutBack {
        raw: bool,
        ms: u64,
    },
    /// The controller's directory, store and anchor, is so much later as it is now.
    DirectoryRolledBack {
        ms: u64,
    },
    /// The controller's machine, process and disk, is so much later as it is now, and goes on from there.
    MemoryRolledBack {
        ms: u64,
    },
    /// A stolen key: for so long this node's Hello names a commit of a far epoch, or one that nobody made.
    ForgedMark {
        node: usize,
        far: bool,
        ms: u64,
    },
    /// What the resource manager knows is so much later as it is now.
    SchedulerRolledBack {
        ms: u64,
    },
    /// The resource manager is down.
    SchedulerDown {
        ms: u64,
    },
    /// Another controller of the same name, on a copy of the store or on none.
    SecondController {
        empty: bool,
        ms: u64,
    },
}

impl Fault {
    /// The node that it is done to; `None`: controllers and their stores.
    pub const fn node(&self) -> Option<usize> {
        match self {
            Self::Drop { node, .. }
            | Self::Partition { node, .. }
            | Self::KillAgent { node, .. }
            | Self::StopAgent { node, .. }
            | Self::PowerFail { node, .. }
            | Self::Burn { node }
            | Self::SoftReboot { node, .. }
            | Self::LoseBus { node, .. }
            | Self::Reexec { node, .. }
            | Self::Suspend { node, .. }
            | Self::OomKill { node }
            | Self::StallSystemd { node, .. }
            | Self::FullRun { node, .. }
            | Self::KillRunner { node }
            | Self::StopUnit { node }
            | Self::TakeName { node, .. }
            | Self::LoseSpool { node }
            | Self::ClockStep { node, .. }
            | Self::ForgedMark { node, .. }
            | Self::Clone { node, .. } => Some(*node),
            Self::KillController { .. }
            | Self::ControllerClockStep { .. }
            | Self::FullStore { .. }
            | Self::HangHooks { .. }
            | Self::Restore { .. }
            | Self::CopyPutBack { .. }
            | Self::DirectoryRolledBack { .. }
            | Self::MemoryRolledBack { .. }
            | Self::SchedulerRolledBack { .. }
            | Self::SchedulerDown { .. }
            | Self::SecondController { .. } => None,
        }
    }

    /// Its name in reports, where it is about what a controller or a resource manager remembers.
    pub const fn of_memory(&self) -> Option<&'static str> {
        Some(match self {
            Self::Restore { empty: true } => "store lost",
            Self::Restore { empty: false } => "backup put back",
            Self::CopyPutBack { raw: false, .. } => "backup of the current epoch put back",
            Self::CopyPutBack { raw: true, .. } => "copy of the current epoch put back",
            Self::DirectoryRolledBack { .. } => "directory rolled back",
            Self::MemoryRolledBack { .. } => "memory rolled back",
            Self::ForgedMark { .. } => "forged mark",
            Self::SchedulerRolledBack { .. } => "resource manager rolled back",
            Self::SecondController { .. } => "second controller",
            _ => return None,
        })
    }
}

/// What comes of them: recoveries that were entered, and left.
pub const RECOVERIES: [&str; 2] = [ENTERED, LEFT];
pub(crate) const ENTERED: &str = "recovery entered";
pub(crate) const LEFT: &str = "recovery left";

/// All that [`Fault::of_memory`] names.
pub const OF_MEMORY: [&str; 9] = [
    "store lost",
    "backup put back",
    "backup of the current epoch put back",
    "copy of the current epoch put back",
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

/// The actions that nodes are configured with (`world::site` has what each is).
pub const ACTIONS: [&str; 6] = ["prolog", "epilog", "sweep", "mount", "unlimited", "firmware"];
