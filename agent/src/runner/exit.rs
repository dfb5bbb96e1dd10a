//! Exit status of the runner, and the reasons why it runs nothing.
//!
//! With a claim, the status is that of the scripts (`result.json` has it too): the largest that counts, as a shell
//! reports it (128 + signal), or a constant from here. The runner replaces 66, 73 and 75 by 1, because these mean that
//! it claimed nothing and ran nothing: the agent reads them as `refused`.

/// The claim could not be written. Nothing claimed.
pub(crate) use perilog_core::task::NO_CLAIM;
/// The command line, the stem or the unit's invocation id is invalid. Nothing claimed.
pub(crate) const USAGE: u8 = 2;
/// The task's directory or its intent is missing, not trusted, or another task's. Nothing claimed.
pub(crate) use perilog_core::task::NO_TASK;
/// Too late, or another process holds the claim. This runner claimed nothing.
pub(crate) use perilog_core::task::NOT_OURS;

/// The task ran, but the scripts' status is reserved: [`NO_TASK`], [`NO_CLAIM`] and [`NOT_OURS`] mean that nothing ran.
pub(crate) const FAILED: u8 = 1;
/// The task ran, and its result could not be written.
pub(crate) const NO_RESULT: u8 = 74;
/// The configuration allowed nothing to run.
pub(crate) const CONFIGURATION: u8 = 78;
/// Past the task's limit before every script had begun, as timeout(1) says it.
pub(crate) const TIMEOUT: u8 = 124;
/// A script could not be executed, or was not found, as a shell says it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// Cancelled before every script had begun: 128 + SIGTERM.
pub(crate) const CANCELLED: u8 = 143;

/// Returns a shell's status for a program that cannot be executed.
pub(crate) fn of_exec(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Why the runner claimed nothing and ran nothing.
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
