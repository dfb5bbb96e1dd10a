//! What the runner exits with, and why it may end without having run anything.
//!
//! With a claim the status is the scripts' (`result.json` has it too): the largest of those that count, as a shell gives it (128 + signal), or
//! one of the constants here; never 66, 73 or 75, for which it is 1. Without a claim nothing was run and nothing was recorded; of 66, 73 and 75
//! the agent knows that, and says `refused`.

/// The claim could not be written. Nothing claimed.
pub(crate) use perilog_core::task::NO_CLAIM;
/// The command line, the stem, or the unit's invocation id is none. Nothing claimed.
pub(crate) const USAGE: u8 = 2;
/// The task's directory or its intent is missing, not to be trusted, or not this task's. Nothing claimed.
pub(crate) use perilog_core::task::NO_TASK;
/// Too late, or somebody else has the claim. Nothing claimed by us.
pub(crate) use perilog_core::task::NOT_OURS;

/// The task ran, and what its scripts said cannot be said again: [`NO_TASK`], [`NO_CLAIM`] and [`NOT_OURS`] mean that nothing ran.
pub(crate) const FAILED: u8 = 1;
/// The task ran, and its result could not be written.
pub(crate) const NO_RESULT: u8 = 74;
/// Nothing could run as it was configured.
pub(crate) const CONFIGURATION: u8 = 78;
/// Past the task's limit before every script had begun, as timeout(1) says it.
pub(crate) const TIMEOUT: u8 = 124;
/// A script could not be executed, or was not found, as a shell says it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// Cancelled before every script had begun: 128 + SIGTERM.
pub(crate) const CANCELLED: u8 = 143;

/// What a shell would say of a program that cannot be executed.
pub(crate) fn of_exec(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Why nothing was claimed and nothing ran.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u8,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: u8, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}
