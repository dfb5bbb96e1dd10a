//! Reasons why the controller refuses a request.

use serde::{Deserialize, Serialize};

/// Reason why the controller refused a request. The `code` is stable; the `text` says what happened and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "code", content = "text")]
pub enum Refusal {
    NoSuchJob(String),
    NoSuchAttempt(String),
    NoSuchAction(String),
    /// The attempt is closed, or the job has a newer attempt.
    AttemptClosed(String),
    NoSuchNode(String),
    /// The request contradicts the state of the job, the node or the drain.
    Conflict(String),
    Invalid(String),
    /// The controller cannot carry the request out now: the disk is full, the controller is quiesced, too many
    /// questions or clients wait, an older attempt is at work or not fully released, or the daemon is stopping or
    /// cannot read its store. The same request may succeed later.
    Unavailable(String),
}
