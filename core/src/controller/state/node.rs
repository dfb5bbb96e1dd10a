//! A node: its row, its session, and the tasks that it holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::interface::io::{NodeRow, SessionId};
use crate::controller::state::recovery::Unsettled;
use crate::ids::{ActionName, BootId, TaskId};
use crate::message::Phase;

/// A node with which the controller has had a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) row: NodeRow,
    pub(crate) session: Option<SessionId>,
    /// Number of the last open session (`Hello::link`). A Hello of the same boot with this number or a lower number is
    /// old, even after the session ended. `None`: no session yet, or an operator had the controller forget the number.
    pub(crate) link: Option<u64>,
    /// Address of the last open session, without its port.
    pub(crate) address: String,
    /// Actions in the node's configuration, as its last Hello reported. `None`: the agent is older, the node has more
    /// than [`MAX_ACTIONS`](crate::message::MAX_ACTIONS), or no Hello has come since this controller started.
    pub(crate) actions: Option<BTreeSet<ActionName>>,
    /// Earlier boots of this machine, newest last. The machine never comes back in an earlier boot, so a Hello from one
    /// of them is old.
    pub(crate) over: Vec<BootId>,
    /// Time (CLOCK_MONOTONIC, ms) of the last change between connected and absent. The controller's own start counts as
    /// such a change.
    pub(crate) since_ms: u64,
    /// The node's tasks in actions that have no verdict.
    pub(crate) tasks: BTreeSet<TaskId>,
    /// Key: a live task that the session has reported. Value: the task's phase, and the time (monotonic) at which the
    /// phase began.
    pub(crate) live: BTreeMap<TaskId, (Phase, u64)>,
    /// The node's last few tasks that did not end as `ok`, oldest first.
    pub(crate) failed: Vec<TaskId>,
    /// Note for operators, for example about a second machine that claims the host.
    pub(crate) note: Option<String>,
    /// Tasks of the node about which the controller could not decide at the last Hello, such as its unknown tasks.
    pub(crate) unsettled: Unsettled,
}

impl Node {
    pub(crate) fn new(row: NodeRow, since_ms: u64) -> Self {
        Self {
            row,
            session: None,
            link: None,
            address: String::new(),
            actions: None,
            over: Vec::new(),
            since_ms,
            tasks: BTreeSet::new(),
            live: BTreeMap::new(),
            failed: Vec::new(),
            note: None,
            unsettled: Unsettled::default(),
        }
    }
}
