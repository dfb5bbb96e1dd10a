//! The tombstone: the record of a task on its node after the controller acknowledged the end.

use serde::{Deserialize, Serialize};

use crate::defect;
use crate::ids::{ActionName, Attempt, BootId, JobId, TaskId};
use crate::mark::Commit;
use crate::outcome::{Loss, Outcome};

/// The record of a task after the controller acknowledged its end, until the controller forgets the attempt. At most
/// 512 bytes on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub outcome: Outcome,
    /// CLOCK_BOOTTIME in milliseconds; the agent does not remove the tombstone before.
    pub not_after_boottime_ms: u64,
    pub local: bool,
    /// The boot in which a successful task ended. A soft reboot keeps /run, and undoes the work of a prolog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// A script of the task had announced the next boot, which ends the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_boot: bool,
    /// Limit of the task in milliseconds, if a script announced a boot ([`crate::task::Intent::limit_ms`]); otherwise
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// The task belonged to an after-action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    /// The commit that caused the tombstone: for an acknowledged task, the commit that contains the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The instance of the resource manager that the hook named ([`crate::task::Hook::instance`]); `None` for a
    /// controller's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl Tombstone {
    /// Returns the state of the boot, as seen in the boot `now`.
    pub fn reboot(&self, now: &BootId) -> Reboot {
        let expects = self.expects_boot && !defect!(StoneForgetsBoot);
        self.boot.as_ref().map_or(Reboot::None, |of| Reboot::since(of, expects, now))
    }

    /// Returns `true` if a boot has undone a host's own task, so that the task has to run again. A full boot empties
    /// /run, and leaves no tombstone either.
    pub fn is_undone(&self, now: &BootId) -> bool {
        let is_gone = self.reboot(now) == Reboot::Since && !survives_reboot(&self.action);
        is_gone || self.outcome == (Outcome::Lost { why: Loss::Rebooted })
    }
}

/// Returns `true` if the work of an action on a node outlives a reboot of the node. The work of a prolog does not.
pub fn survives_reboot(action: &ActionName) -> bool {
    action.as_str() != "prolog"
}

/// The boots since the boot of a task, and whether a script announced one of them as the task's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reboot {
    /// No boot has come, and no script announced one.
    #[default]
    None,
    /// The announced boot is still to come.
    Expected,
    /// The announced boot has come.
    Come,
    /// An unannounced boot has come, or more boots than the announced one.
    Since,
}

impl Reboot {
    /// Compares the boot of the task with the current boot.
    pub fn since(of: &BootId, announced: bool, now: &BootId) -> Self {
        match (of == now, announced) {
            (true, false) => Self::None,
            (true, true) => Self::Expected,
            (false, true) if of.soft_reboots_until(now) == Some(1) => Self::Come,
            (false, _) => Self::Since,
        }
    }

    /// Creates the state from two members of [`crate::task::Ended`], which are also fields on the wire.
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
