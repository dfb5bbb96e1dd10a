//! What stays of a task on its node after its end was acknowledged.

use serde::{Deserialize, Serialize};

use crate::defect;
use crate::ids::{ActionName, Attempt, BootId, JobId, TaskId};
use crate::mark::Commit;
use crate::outcome::{Loss, Outcome};

/// What stays of a task after its end was acknowledged, until the controller forgets the attempt. At most 512 bytes on
/// disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub outcome: Outcome,
    /// CLOCK_BOOTTIME in milliseconds: not removed before.
    pub not_after_boottime_ms: u64,
    pub local: bool,
    /// Of what went well: the boot that it was for. A soft reboot leaves /run, and undoes what a prolog did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// A script of it had announced another one, which is its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_boot: bool,
    /// Of such a one: as [`crate::task::Intent::limit_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// It cleaned up after its attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    /// The commit that caused it: of what was acknowledged, the one that has its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// Of the host's own: as [`crate::task::Hook::instance`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl Tombstone {
    /// What it says of boots in this one.
    pub fn reboot(&self, now: &BootId) -> Reboot {
        let expects = self.expects_boot && !defect!(StoneForgetsBoot);
        self.boot.as_ref().map_or(Reboot::None, |of| Reboot::since(of, expects, now))
    }

    /// Is what it stands for to be done again, where that was for the host itself? A boot that leaves nothing in /run
    /// leaves no tombstone either.
    pub fn is_undone(&self, now: &BootId) -> bool {
        let is_gone = self.reboot(now) == Reboot::Since && !survives_reboot(&self.action);
        is_gone || self.outcome == (Outcome::Lost { why: Loss::Rebooted })
    }
}

/// Does what an action did to a node outlive its reboot? A prolog's preparations do not.
pub fn survives_reboot(action: &ActionName) -> bool {
    action.as_str() != "prolog"
}

/// Boots since the one that a task was for, and whether one was announced as its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reboot {
    /// None, and none was announced.
    #[default]
    None,
    /// The one that was announced is to come.
    Expected,
    /// It has come.
    Come,
    /// One that was not announced, or more than that one.
    Since,
}

impl Reboot {
    /// As it stands in this boot.
    pub fn since(of: &BootId, announced: bool, now: &BootId) -> Self {
        match (of == now, announced) {
            (true, false) => Self::None,
            (true, true) => Self::Expected,
            (false, true) if of.soft_reboots_until(now) == Some(1) => Self::Come,
            (false, _) => Self::Since,
        }
    }

    /// By [`crate::task::Ended`]'s two members, as the wire has them, too.
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
