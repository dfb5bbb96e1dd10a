//! Exit status of the runner, and the reasons why it runs nothing.
//!
//! With a claim, the status is the one in `result.json`: the largest status of the scripts whose failure counts, as a
//! shell reports it (128 + signal), or a constant of this module. 66, 73 and 75 mean that a runner claimed nothing and
//! ran nothing, and the agent reads them as `refused`. So the runner replaces these statuses of scripts by 1.

/// Exit status if the runner could not write the claim: the runner claimed nothing.
pub(crate) use perilog_core::task::NO_CLAIM;
/// Exit status if the command line, the stem or the unit's invocation id is invalid: the runner claimed nothing.
pub(crate) const USAGE: u8 = 2;
/// Exit status if the task's directory or its intent is missing, not trusted, or belongs to another task: the runner
/// claimed nothing.
pub(crate) use perilog_core::task::NO_TASK;
/// Exit status if not-after has passed, or another process has the claim: this runner claimed nothing.
pub(crate) use perilog_core::task::NOT_OURS;

/// Exit status of the runner if the scripts' own status is one of [`NO_TASK`], [`NO_CLAIM`] and [`NOT_OURS`], which
/// would mean that nothing ran.
pub(crate) const FAILED: u8 = 1;
/// Exit status if the task ran, but the runner could not write the result.
pub(crate) const NO_RESULT: u8 = 74;
/// Exit status if the node's configuration was wrong and no script ran, or if a step could not be recorded.
pub(crate) const CONFIGURATION: u8 = 78;
/// Exit status if the task's limit passed before the last script had begun, as in timeout(1).
pub(crate) const TIMEOUT: u8 = 124;
/// Exit status of a script that the runner found but could not execute, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// Exit status of a script that the runner did not find, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Exit status if a cancel came before the last script had begun: 128 + SIGTERM.
pub(crate) const CANCELLED: u8 = 143;

/// Returns the exit status by which a shell reports that a program cannot be executed: 126, or 127 for a missing file.
pub(crate) fn of_exec(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// The reason why the runner claimed nothing and ran nothing.
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
