//! Tombstone: decides how a reboot of the node changes the end of a task.

use serde::{Deserialize, Serialize};

use crate::defect;
use crate::ids::{ActionName, Attempt, BootId, JobId, TaskId};
use crate::mark::Commit;
use crate::outcome::{Loss, Outcome};

/// The record of an ended task on its node, at most 512 bytes on disk. The agent writes it in three cases: when the
/// controller has acknowledged the end, when a local task (`Exec`) is over, or when a Cancel names an unknown task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub outcome: Outcome,
    /// The task's not-after (CLOCK_BOOTTIME in milliseconds). Until this time the tombstone stays despite a Forget. The
    /// agent normally removes it sooner only if the host has too many tombstones.
    pub not_after_boottime_ms: u64,
    pub local: bool,
    /// The boot for which the task was meant; `None`: the task did not succeed. A soft reboot keeps this file in /run,
    /// but undoes the work of a prolog: the agent sees that from this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// Whether a script announced a reboot as the task's end, and the task had succeeded until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_boot: bool,
    /// Limit of the task in milliseconds ([`crate::task::Intent::limit_ms`]). The agent stores it only if a script
    /// announced a reboot that is to end the task. `None`: no such announcement, or no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// Whether the task belonged to an after-action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    /// The commit that caused the tombstone: for an acknowledged task, the commit that contains the end. `None`: the
    /// task is local (`Exec`), or the agent or controller was an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The instance of the job that the hook named ([`crate::task::Hook::instance`]). `None`: the hook named none, or
    /// a controller started the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl Tombstone {
    /// Returns whether the node has rebooted from the task's boot to the boot `now`, and whether a script announced
    /// that. `Reboot::None` for a task that did not succeed.
    pub fn reboot(&self, now: &BootId) -> Reboot {
        let expects = if defect!(TombstoneForgetsBoot) { false } else { self.expects_boot };
        self.boot.as_ref().map_or(Reboot::None, |of| Reboot::since(of, expects, now))
    }

    /// Returns `true` if a reboot has undone the work of this local task (`Exec`), so that the next request runs the
    /// task again. Only a soft reboot leaves the tombstone: a full reboot empties /run.
    pub fn is_invalidated(&self, now: &BootId) -> bool {
        let is_gone = self.reboot(now) == Reboot::Since && !survives_reboot(&self.action);
        is_gone || self.outcome == (Outcome::Lost { why: Loss::Rebooted })
    }
}

/// Returns `true` if the work of an action on a node outlives a reboot of the node. Only the work of a prolog does not.
pub fn survives_reboot(action: &ActionName) -> bool {
    action.as_str() != "prolog"
}

/// Says whether the node has rebooted since the task's boot, and whether a script had announced the reboot as the
/// task's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reboot {
    /// The node has not rebooted, and no script announced a reboot.
    #[default]
    None,
    /// The node has not rebooted; the announced reboot is still to come.
    Expected,
    /// The node has rebooted once, as announced.
    Come,
    /// The node has rebooted without an announcement, or again after the announced reboot.
    Since,
}

impl Reboot {
    /// Returns whether the node has rebooted from the boot `of` to the boot `now`. `announced`: whether a script
    /// announced one reboot as the task's end.
    pub fn since(of: &BootId, announced: bool, now: &BootId) -> Self {
        match (of == now, announced) {
            (true, false) => Self::None,
            (true, true) => Self::Expected,
            (false, true) if of.soft_reboots_until(now) == Some(1) => Self::Come,
            (false, _) => Self::Since,
        }
    }

    /// Creates the value from the two fields of [`crate::task::Ended`] that store it: `expect_reboot` and `booted`.
    pub const fn of(expected: bool, booted: bool) -> Self {
        match (expected, booted) {
            (true, true) => Self::Come,
            (true, false) => Self::Expected,
            (false, true) => Self::Since,
            (false, false) => Self::None,
        }
    }

    pub const fn is_announced(self) -> bool {
        matches!(self, Self::Expected | Self::Come)
    }

    pub const fn is_past(self) -> bool {
        matches!(self, Self::Come | Self::Since)
    }
}
