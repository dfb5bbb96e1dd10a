//! A plan: everything that is done to a world, and when. The seed of a plan decides only how long things take and what scripts do, so a plan
//! can be shrunk by leaving out parts of it, and be kept as a file (`sim/regressions/*.json`).

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
    /// When faults stop.
    pub horizon_ms: u64,
    pub steps: Vec<Step>,
    pub traps: Vec<Trap>,
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
    /// A service outside runs an action of this job: over these nodes, or all that it has, or with `rabbits` over those.
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
            | Self::Clone { node, .. } => Some(*node),
            Self::KillController { .. }
            | Self::ControllerClockStep { .. }
            | Self::FullStore { .. }
            | Self::HangHooks { .. }
            | Self::Restore { .. }
            | Self::SecondController { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Both,
    Agent,
    Controller,
}

/// The actions that nodes are configured with (`world::site` has what each is).
pub const ACTIONS: [&str; 6] = ["prolog", "epilog", "sweep", "mount", "unlimited", "firmware"];
