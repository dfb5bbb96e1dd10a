//! Changes: the consequences that an act on one part of the machine has for another part.

use crate::controller::interface::io::{Passing, SessionId};
use crate::controller::state::drain_order::DrainOrder;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::Hello;
use crate::task::Ended;

/// Consequence of an act for another part of the machine, which the acting part cannot reach. `Machine::react` carries
/// out each change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The session's Hello is complete, and no other session speaks for its host: the session normally opens. The text
    /// is a note about the node, for operators; `None`: no note.
    Greeted(SessionId, Box<Hello>, Option<String>),
    /// No session speaks for the host. The machine checks the limits of the node's tasks once unreachable-grace has
    /// passed, and checks tasks at once that the node's unknown tasks may have held back.
    Away(HostName),
    /// The attempt gives up the rank, because another job (`to`) may have its host.
    GiveUp { job: JobId, attempt: Attempt, rank: Rank, to: JobId },
    /// The attempt gave up ranks of the action. Tasks that their nodes have not begun get a Cancel.
    GivenUp(ActionId, IdSet),
    /// The host has no unknown task. The drain for them is lifted, and waiting tasks on the host may begin.
    NoUnknown(HostName),
    /// An abandoned attempt was taken up, or an attempt was added that a lost epoch may have had. Its unknown tasks are
    /// adopted, and drains for its clean-ups are lifted.
    TakenUp(JobId, Attempt),
    /// These ranks have joined the action, when the action began or later. Their nodes' task lists get the tasks, and
    /// unknown tasks on these ranks are adopted.
    Joined(ActionId, IdSet),
    /// These ranks of the action may be able to begin. Each waits for its Start, or its task is unclaimed on the node.
    /// A rank begins unless an earlier action, its node or recovery keeps it waiting.
    Ready(ActionId, IdSet),
    /// An earlier batch left the Starts of these ranks for this one. Their limits count from this time (monotonic).
    Continuing(ActionId, IdSet, u64),
    /// An operator's request to drain hosts, or to lift drains, is to be carried out.
    Ordered(Box<DrainOrder>),
    /// The action's attempt proceeds. The action's waiting tasks may begin.
    Proceeds(ActionId),
    /// The action has its verdict. Its tasks leave the task lists of their nodes.
    Decided(ActionId),
    /// The task must stop or never begin, for this reason. The task's node gets a Cancel if the node is connected,
    /// unless the attempt is suspended and the task is still to be decided about.
    Cancelled(TaskId, String),
    /// A task has ended. The node's task lists are updated, and the host may be drained.
    Ended(End),
    /// A script of the host ended, or its node said Hello. With `reboot-cleans`, this may lift a drain for a stuck
    /// script that a reboot has ended.
    ScriptsEnded(HostName),
    /// The host of the task is to be drained for the reason `what`. `is_stuck`: a script of the task lives, and a
    /// reboot of the node ends the script.
    Drain { task: TaskId, what: String, is_stuck: bool },
    /// The hosts need no clean-up. The machine lifts their drains for the cause `Passing`.
    Cleaned(Vec<HostName>, Passing),
}

/// End of a task, for the update of its node and the drain of its host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct End {
    pub(crate) task: TaskId,
    /// `true` if the rank waited for an announced reboot of its node. Start-grace then counts again for the node's
    /// other tasks.
    pub(crate) rebooted: bool,
    /// `true` if the task's scripts may go on after the end: an operator resolved the task, or the controller gave up a
    /// script past its limit.
    pub(crate) continues: bool,
    pub(crate) is_ok: bool,
    /// The end with its details, if it may be a reason to drain the host; else `None`.
    pub(crate) blame: Option<Ended>,
}
