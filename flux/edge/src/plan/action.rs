//! Actions of the edge: calls to the controller or to Flux. The edge may send each action again: after a kill the next
//! edge does not know whether the last action arrived.

use perilog_core::{ActionName, Attempt, HostName, IdSet, JobId};
use serde_json::Value;

/// A reference of the plugin on a job in Flux. While the plugin holds it, Flux does not start the job (prolog) or does
/// not free it (epilog).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    Prolog,
    Epilog,
}

impl Reference {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Calls `JobAdd` of the controller, with R, owner and terms.
    Add { id: u64, job: JobId, attempt: Attempt },
    /// Calls `Run` of the controller: the prolog, or the epilog with the environment that Flux gives to its own epilog.
    Run { id: u64, job: JobId, attempt: Attempt, what: Reference },
    /// Calls `ActionStart` of the controller for an external action.
    Start { id: u64, job: JobId, attempt: Attempt, name: ActionName },
    /// Calls `JobFinish` of the controller: the after-actions hold the ranks from then on.
    DropHold { id: u64, job: JobId, attempt: Attempt },
    /// Calls `Cancel` of the controller for the prolog, or for an external action that runs before the job.
    Cancel { id: u64, job: JobId, attempt: Attempt, name: ActionName },
    /// Posts an event to the job's eventlog in Flux: an exception, or a milestone for the user. `mark`: a name for the
    /// event, kept in its context, so that the edge posts it once.
    Post { id: u64, name: String, mark: String, context: Value },
    /// Asks these ranks of Flux whether tasks of the job live there.
    Inspect { id: u64, job: JobId, attempt: Attempt, ranks: IdSet },
    /// Makes the plugin finish a reference. `status`: a wait status (wait(2)), 0 for success.
    Finish { id: u64, what: Reference, status: i32 },
    /// Calls `resource.drain` of Flux. `overwrite`: replaces an outdated reason of perilog.
    Drain { host: HostName, reason: String, overwrite: bool },
    /// Calls `resource.undrain` of Flux.
    Undrain { host: HostName },
    /// Calls `DrainDone` of the controller: normally because Flux shows this drain, or (`lifted`) shows it no more.
    /// `notice_id`: the number of perilog's notice about the drain.
    Notified { host: HostName, notice_id: u64, lifted: bool },
    /// Calls `Undrain` of the controller: a person has lifted the drain of this notice in Flux.
    Lifted { host: HostName, notice_id: u64 },
}

impl Action {
    /// Returns the id of the action's job; `None`: the action is about a host's drain.
    pub const fn id(&self) -> Option<u64> {
        match self {
            Self::Add { id, .. }
            | Self::Run { id, .. }
            | Self::Start { id, .. }
            | Self::DropHold { id, .. }
            | Self::Cancel { id, .. }
            | Self::Post { id, .. }
            | Self::Inspect { id, .. }
            | Self::Finish { id, .. } => Some(*id),
            Self::Drain { .. } | Self::Undrain { .. } | Self::Notified { .. } | Self::Lifted { .. } => None,
        }
    }

    /// Describes the action in log lines, for example as `Run of its prolog`.
    pub fn what(&self) -> String {
        match self {
            Self::Add { .. } => "JobAdd".to_owned(),
            Self::Run { what, .. } => format!("Run of its {}", what.as_str()),
            Self::Start { name, .. } => format!("ActionStart of {name}"),
            Self::DropHold { .. } => "JobFinish".to_owned(),
            Self::Cancel { name, .. } => format!("Cancel of {name}"),
            Self::Post { name, mark, .. } => format!("post-event of {name} ({mark})"),
            Self::Inspect { ranks, .. } => format!("the inspection of its tasks on ranks {ranks}"),
            Self::Finish { what, .. } => format!("the finish of its {}", what.as_str()),
            Self::Drain { .. } => "drain in Flux".to_owned(),
            Self::Undrain { .. } => "undrain in Flux".to_owned(),
            Self::Notified { .. } => "DrainDone".to_owned(),
            Self::Lifted { .. } => "Undrain in perilog".to_owned(),
        }
    }

    /// Returns `true` if this action goes to the controller, not to Flux.
    pub const fn is_for_controller(&self) -> bool {
        matches!(
            self,
            Self::Add { .. }
                | Self::Run { .. }
                | Self::Start { .. }
                | Self::DropHold { .. }
                | Self::Cancel { .. }
                | Self::Notified { .. }
                | Self::Lifted { .. }
        )
    }
}
