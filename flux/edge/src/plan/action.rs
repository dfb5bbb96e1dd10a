//! Actions of the edge. The edge may send each action again: after a kill the next edge does not know whether the last
//! action arrived.

use perilog_core::{ActionName, Attempt, HostName, JobId};
use serde_json::Value;

/// A reference that the plugin holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    Prolog,
    Epilog,
}

impl Reference {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `JobAdd`: R, owner and terms.
    Add { id: u64, job: JobId, attempt: Attempt },
    /// `Run` of the prolog, or of the epilog with the environment that Flux gives to its own epilog.
    Run { id: u64, job: JobId, attempt: Attempt, what: Reference },
    /// `ActionStart` of an external action.
    Start { id: u64, job: JobId, attempt: Attempt, name: ActionName },
    /// `JobFinish`: the epilog has the ranks from here on.
    LetGo { id: u64, job: JobId, attempt: Attempt },
    /// `Cancel` of an action before the job.
    Cancel { id: u64, job: JobId, attempt: Attempt, name: ActionName },
    /// `post-event`: an exception, or a milestone of a user. `mark` in the event's context names its subject.
    Post { id: u64, name: String, mark: String, context: Value },
    /// Finishes a reference of the plugin.
    Finish { id: u64, what: Reference, status: i32 },
    /// `resource.drain`. `overwrite`: replaces an outdated reason of perilog.
    Drain { host: HostName, reason: String, overwrite: bool },
    /// `resource.undrain`.
    Undrain { host: HostName },
    /// `DrainTold`: Flux shows this drain, or no longer shows a lifted drain.
    Told { host: HostName, telling: u64, lifted: bool },
    /// `Undrain`: a person has lifted the drain in Flux.
    Lifted { host: HostName },
}

impl Action {
    /// Returns the id of the action's job.
    pub const fn id(&self) -> Option<u64> {
        match self {
            Self::Add { id, .. }
            | Self::Run { id, .. }
            | Self::Start { id, .. }
            | Self::LetGo { id, .. }
            | Self::Cancel { id, .. }
            | Self::Post { id, .. }
            | Self::Finish { id, .. } => Some(*id),
            Self::Drain { .. } | Self::Undrain { .. } | Self::Told { .. } | Self::Lifted { .. } => None,
        }
    }

    /// Returns `true` if this action goes to the controller, not to Flux.
    pub const fn is_for_controller(&self) -> bool {
        matches!(
            self,
            Self::Add { .. }
                | Self::Run { .. }
                | Self::Start { .. }
                | Self::LetGo { .. }
                | Self::Cancel { .. }
                | Self::Told { .. }
                | Self::Lifted { .. }
        )
    }
}
