//! Messages between controller and agent, as values. The crate `proto` encodes the messages; this module knows no
//! bytes.
//!
//! ```text
//!   agent                                        controller
//!     | Hello (pages, every held task)       ->    |
//!     |    <- Welcome | Turned away                |   compares the tasks with its store at once
//!     |    <- Start | Begin | Cancel | Ack ...     |
//!     | Accepted, Moved, Finished            ->    |   Finished again on every reconnect, until Ack
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{ActionName, Attempt, BootId, ClusterId, Epoch, HostName, JobId, MachineId, TaskId};
use crate::mark::{Commit, Mark};
use crate::outcome::Outcome;
use crate::task::{Ended, Process, Reboot, Start};

/// Messages from the controller to an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ToAgent {
    /// Welcomes the session: the agent may handle further messages. After the session has ended, the agent redials at a
    /// random moment within `redial_window_ms`.
    Welcome {
        epoch: Epoch,
        cluster: ClusterId,
        redial_window_ms: u64,
        /// Number of the controller's last commit; 0: an older controller, which does not number commits.
        commit: u64,
    },
    /// Refuses the session for the reason `why`: for example, another agent claims this host, or the agent's
    /// certificate names another host.
    TurnedAway {
        why: String,
    },
    Start(Start),
    /// Lets the agent begin a task that its `Hello` listed as unclaimed: the controller still wants the task.
    Begin {
        task: TaskId,
    },
    /// Cancels a task. A task that has not begun never begins. The runner of a begun task gets TERM. An agent that does
    /// not know the task normally leaves a tombstone, which refuses a later Start.
    Cancel {
        task: TaskId,
        job: JobId,
        attempt: Attempt,
        action: ActionName,
        why: String,
        /// Number of the controller's newest commit when it sent the message; 0: an older controller, which does not
        /// number commits.
        commit: u64,
    },
    /// Sends a signal to the scripts of a running task.
    Signal {
        task: TaskId,
        signal: u8,
    },
    /// Acknowledges `Finished`: the controller's store contains the end.
    Ack {
        task: TaskId,
        /// Number of the controller's newest commit when it sent the message; 0: an older controller, which does not
        /// number commits.
        commit: u64,
    },
    /// Acknowledges `ExpectsBoot`: the controller's store contains the announcement. A boot of the node now ends the
    /// task as announced.
    BootExpected {
        task: TaskId,
    },
    /// Lets the agent remove the tombstones of these tasks: the controller has closed and forgotten their attempts.
    Forget {
        tasks: Vec<TaskId>,
    },
    /// Asks whether the agent is alive, because another connection claims the agent's host. The agent answers with
    /// `Probed` and the same nonce.
    Probe {
        nonce: u64,
    },
    /// Passes on an operator's question. The agent answers with one or more `Answer` messages that repeat the number
    /// `question`.
    Ask {
        question: u64,
        ask: Ask,
    },
    /// Answers a message number that the controller does not know.
    Unsupported {
        message: u32,
    },
}

impl ToAgent {
    /// Sets the commit number of this message, if the message has one.
    pub fn set_commit(&mut self, number: u64) {
        match self {
            Self::Welcome { commit, .. } | Self::Cancel { commit, .. } | Self::Ack { commit, .. } => *commit = number,
            Self::Start(start) => start.commit = number,
            _ => {}
        }
    }
}

/// Messages from an agent to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromAgent {
    Hello(Hello),
    /// Refuses the Welcome: the agent has accepted the higher epoch `seen`, or an epoch of another controller with the
    /// same number.
    EpochRefused {
        seen: Epoch,
    },
    /// Accepts a task: the intent is on disk, and the task now ends in exactly one outcome. `limit_ms`: the limit by
    /// the node's configuration and the Start. `None`: the task has no limit, or an older agent does not say.
    Accepted {
        task: TaskId,
        limit_ms: Option<u64>,
    },
    PhaseChanged {
        task: TaskId,
        phase: Phase,
        age_ms: u64,
    },
    /// A script of the task reported a milestone. The agent repeats the message in each session, and the task's end has
    /// the milestone too.
    Milestone {
        task: TaskId,
        name: String,
    },
    Finished {
        task: TaskId,
        ended: Box<Ended>,
    },
    /// Announces that a boot of this host ends the task, because a script announced it. The agent repeats the message
    /// whenever the foreseen end changes.
    ExpectsBoot {
        task: TaskId,
        /// Milliseconds that remain of the task's limit when the agent sends this message. From a tombstone: the whole
        /// limit. `None`: the task has no limit.
        within_ms: Option<u64>,
        /// The task's end if the host boots now ([`crate::judge::if_it_boots`]).
        ended: Box<Ended>,
    },
    Probed {
        nonce: u64,
    },
    /// One part of the answer to the `Ask` with the number `question`; the last part has `last == true`.
    Answer {
        question: u64,
        text: String,
        last: bool,
    },
    Unsupported {
        message: u32,
    },
}

/// Page of a Hello, in which an agent states its identity and every task that it holds. The pages of the Hello are the
/// first messages of a session. Each page has the identity and a part of the tasks; the last has `more == false`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    /// Number of the session within this boot: of two sessions of one agent, the higher number is newer.
    pub link: u64,
    /// The version of the agent's program, as text for people, such as `0.1.0`.
    pub version: String,
    /// The newest commit that this host has accepted; `None`: no commit, or an older agent that does not say.
    pub newest: Option<Mark>,
    /// The actions that this node configures, in the first page; `None`: an older agent does not say, or the node has
    /// more than [`MAX_ACTIONS`].
    pub actions: Option<BTreeSet<ActionName>>,
    pub tasks: Vec<Held>,
    pub more: bool,
}

/// Maximum number of actions that a Hello names: a site has a handful.
pub const MAX_ACTIONS: usize = 64;
/// Maximum number of lines in a node's answer to [`Ask::Logs`] from the journal. Without lines there, the node answers
/// from the files that runners keep, and the maximum applies to each file.
pub const MAX_LOG_LINES: u32 = 10_000;
/// Maximum number of tasks on a node that have not ended. The agent accepts no more, even if the node's `max-tasks` is
/// higher.
pub const MAX_TASKS: usize = 400;

/// A task that an agent holds, live or ended, as its Hello lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub userid: Option<u32>,
    /// The commit that caused the intent or the tombstone; `None`: an older agent or controller did not say.
    pub commit: Option<Commit>,
    /// The task's limit in milliseconds, as in [`FromAgent::Accepted`]. For a tombstone: normally `None`, unless a
    /// script announced a reboot that is to end the task.
    pub limit_ms: Option<u64>,
    /// Whether the task is local: a caller on the node's own socket requested it (`io.perilog.Agent.Exec`). The
    /// controller ignores such a task.
    pub local: bool,
    pub state: HeldState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum HeldState {
    /// The task is recorded and has not begun. Since the agent's last start no controller has confirmed the task: the
    /// task waits for `Begin` or `Cancel`.
    Unclaimed,
    /// The task waits for its turn, starts or runs, and needs no further message to begin. `age_ms`: milliseconds since
    /// the begin of the first script, or since the acceptance if this agent did not see that begin.
    Live { phase: Phase, age_ms: u64 },
    /// The task has ended, and the end is not acknowledged: `Finished` follows.
    Ended,
    /// The task has ended, and the node keeps only its tombstone: normally, the controller has acknowledged the end.
    /// `past_ms`: milliseconds since the task's not-after, 0 before it. `reboot`: whether a script announced a reboot
    /// as the task's end, and whether the node has rebooted since.
    Tombstone { outcome: Outcome, past_ms: u64, reboot: Reboot },
}

/// The name instead of a script's, in [`Phase::Overdue`]: the limit passed, and no script has begun.
pub const ITS_START: &str = "its start";

/// The phase of a live task, for `perilog ps` and `perilog why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// The task waits on the host before the begin; `why` names the reason. A task whose unit was asked for, and whose
    /// first script does not begin within some seconds, says so here, too.
    Waiting { why: String },
    /// The agent has asked systemd to start the task's unit.
    Starting,
    /// A script runs; `index` counts from 1.
    Running { script: String, index: u32, of: u32, progress: Option<String> },
    /// The script is past its limit. `doing` describes the process that best explains the delay when the limit passed
    /// (pid, state, command, wait channel); empty if the agent saw none. `script` is [`ITS_START`] if no script has
    /// begun: then `doing` says for what the task waits.
    Overdue {
        script: String,
        limit_ms: u64,
        #[serde(default)]
        doing: String,
    },
    /// The scripts have ended; these processes of the task have not.
    Lingering { processes: Vec<Process> },
}

impl Phase {
    /// Returns `true` if no script of the task has begun: the task waits for its turn on the node, or for systemd.
    pub(crate) const fn is_before_its_begin(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Starting)
    }

    /// Returns `true` if no script of the task has begun, also where the limit has passed meanwhile: a Cancel keeps its
    /// scripts from beginning.
    pub(crate) fn may_still_begin(&self) -> bool {
        self.is_before_its_begin() || matches!(self, Self::Overdue { script, .. } if script == ITS_START)
    }
}

/// Questions that operators ask an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Output of a job's scripts on this node, from the task's directory and the journal; `lines`: the maximum number
    /// of lines from each of the two.
    Logs { job: JobId, action: Option<ActionName>, attempt: Option<Attempt>, rank: Option<u32>, lines: u32 },
    /// The state of all tasks of the agent except tombstones, as JSON.
    Status,
}
