//! A plan: everything that is done to a world, and when. The seed of a plan decides only how long things take and what scripts do, so a plan
//! can be shrunk by leaving out parts of it, and be kept as a file (`sim/regressions/*.json`).

mod generate;

use serde::{Deserialize, Serialize};

pub use generate::{breadth, depth};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Both,
    Agent,
    Controller,
}

/// A fault at the `nth` effect of a kind that somebody carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    /// `None`: the first controller.
    pub node: Option<usize>,
    pub effect: String,
    pub nth: u32,
    pub spring: Spring,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spring {
    /// The process dies.
    CrashBefore {
        down_ms: u64,
    },
    CrashAfter {
        down_ms: u64,
    },
    /// In the middle, where it has one: a burial (tombstone, then directory), a fan-out.
    CrashWithin {
        down_ms: u64,
    },
    /// The whole node dies.
    PowerBefore {
        down_ms: u64,
    },
    PowerAfter {
        down_ms: u64,
    },
    /// It fails, and says so.
    Fail,
    /// A start: it happens, or not, and the reply is lost.
    Unanswered {
        happens: bool,
    },
    /// A start: the call is delivered so much later.
    Late {
        ms: u64,
    },
}

impl Spring {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::CrashBefore { .. } => "crash before",
            Self::CrashAfter { .. } => "crash after",
            Self::CrashWithin { .. } => "crash within",
            Self::PowerBefore { .. } => "power before",
            Self::PowerAfter { .. } => "power after",
            Self::Fail => "fail",
            Self::Unanswered { happens: true } => "done, unanswered",
            Self::Unanswered { happens: false } => "not done, unanswered",
            Self::Late { .. } => "late",
        }
    }
}

/// The actions that nodes are configured with (`world::site` has what each is).
pub const ACTIONS: [&str; 5] = ["prolog", "epilog", "sweep", "mount", "unlimited"];

/// What an agent does, by the names that traps use.
#[rustfmt::skip]
pub const AGENT_EFFECTS: [&str; 24] = [
    "write-intent", "start-unit", "watch", "watch-empty", "inspect", "take-claim", "signal-runner", "kill-lingering", "write-outcome",
    "unload", "bury", "remove-tombstone", "write-epoch", "redial-window", "wake-at", "exec-reply", "note", "hang", "send-hello",
    "send-accepted", "send-moved", "send-finished", "send-probed", "send-epoch-refused",
];

/// What a controller does.
#[rustfmt::skip]
pub const CONTROLLER_EFFECTS: [&str; 15] = [
    "commit", "send-welcome", "send-turned-away", "send-start", "send-begin", "send-cancel", "send-signal", "send-ack", "send-forget",
    "send-probe", "fan", "close", "reply", "publish", "outbox-grew",
];
