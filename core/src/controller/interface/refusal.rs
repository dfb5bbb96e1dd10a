//! Reasons why the controller refuses a request.

use serde::{Deserialize, Serialize};

/// Reason why the controller refused a request. `code` is stable; `text` says what happened and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "code", content = "text")]
pub enum Refusal {
    NoSuchJob(String),
    NoSuchAttempt(String),
    NoSuchAction(String),
    /// The attempt is closed, or older than the open attempt.
    AttemptClosed(String),
    NoSuchNode(String),
    /// The request contradicts what exists.
    Conflict(String),
    Invalid(String),
    /// The store is full, or the controller is quiesced: no action may begin.
    Unavailable(String),
}
