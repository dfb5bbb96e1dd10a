//! Computes the content of `result.json` and the runner's exit status from the ends of all scripts of a task. The code
//! here does no I/O and reads no clock.

use perilog_core::ids::InvocationId;
use perilog_core::outcome::ExitStatus;
use perilog_core::task::{RAN_NOTHING, RunResult};

use crate::exit;

/// The end of a try of a script. Only the end of a script's last try counts in the sum.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ended {
        status: ExitStatus,
        /// The script failed, but the plan lets the job tolerate its failure.
        tolerable: bool,
        timed_out: bool,
    },
    /// The script could not be executed; `status` as a shell reports it.
    NotRun { why: String, status: u8 },
}

impl End {
    /// Returns `true` if no further script begins after this end when the plan has `on-error = "stop"`.
    pub(crate) fn is_error(&self) -> bool {
        match self {
            Self::Ended { status, tolerable, timed_out } => *timed_out || !(status.is_success() || *tolerable),
            Self::NotRun { .. } => true,
        }
    }
}

/// Begin and end of a task (milliseconds since 1970) and its duration, for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) began_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) elapsed_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    of: u32,
    ran: u32,
    status: u8,
    worst: Option<ExitStatus>,
    timed_out: bool,
    cancelled: bool,
    configuration: Option<String>,
    exec: Option<String>,
    skipped: Vec<String>,
}

/// Maximum number of skipped files in a result.
const MAX_SKIPPED: usize = 32;

impl Tally {
    /// Creates the sum before any script has ended; `of` is the number of the task's scripts.
    pub(crate) fn new(of: u32) -> Self {
        Self { of, ..Self::default() }
    }

    /// Adds the end of the last try of the script `name` to the sum.
    pub(crate) fn add(&mut self, name: &str, end: End) {
        match end {
            End::Ended { status, tolerable, timed_out } => {
                self.ran += 1;
                self.timed_out |= timed_out;
                if !tolerable {
                    if !status.is_success() && self.worst.is_none_or(|worst| status.shell() > worst.shell()) {
                        self.worst = Some(status);
                    }
                    self.status = self.status.max(status.shell());
                }
            }
            End::NotRun { why, status } => {
                self.status = self.status.max(status);
                self.exec.get_or_insert_with(|| format!("{name}: {why}"));
            }
        }
    }

    /// Records that the task ends here, without further scripts: the node's configuration is wrong, or a step cannot be
    /// recorded. `why` is the reason, for people.
    pub(crate) fn misconfigured(&mut self, why: String) {
        self.status = self.status.max(exit::CONFIGURATION);
        self.configuration.get_or_insert(why);
    }

    /// Stores the skipped files that may have been meant as scripts.
    pub(crate) fn skipped(&mut self, mut files: Vec<String>) {
        files.truncate(MAX_SKIPPED);
        self.skipped = files;
    }

    /// Records a cancel. `before_all`: the cancel came before all scripts had begun, so at least one script never
    /// begins. In that case the status becomes at least [`exit::CANCELLED`].
    pub(crate) fn cancelled(&mut self, before_all: bool) {
        self.cancelled = true;
        if before_all {
            self.status = self.status.max(exit::CANCELLED);
        }
    }

    /// Records that the task's limit passed while at least one script had not begun. The status becomes at least
    /// [`exit::TIMEOUT`].
    pub(crate) fn out_of_time(&mut self) {
        self.timed_out = true;
        self.status = self.status.max(exit::TIMEOUT);
    }

    /// Records that an error prevents further scripts. If the status is still 0, the failed script exited with 0 but
    /// past its limit: the status becomes [`exit::TIMEOUT`].
    pub(crate) fn cut_short(&mut self) {
        if self.status == 0 {
            self.status = exit::TIMEOUT;
        }
    }

    /// Returns the runner's exit status. Replaces a script's status that would mean "this runner claimed nothing" by 1:
    /// if the task's directory is removed, the exit status is the agent's only evidence.
    pub(crate) fn status(&self) -> u8 {
        if RAN_NOTHING.contains(&self.status) { exit::FAILED } else { self.status }
    }

    /// Returns `true` if a script or the task ran past its limit.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Returns a line for people, for example `3 of 4 scripts ran, status 1`.
    pub(crate) fn summary(&self) -> String {
        if self.of == 0 && self.status == 0 {
            return "no script ran".to_owned();
        }
        format!("{} of {} scripts ran, status {}", self.ran, self.of, self.status())
    }

    pub(crate) fn result(self, invocation: InvocationId, times: Times) -> RunResult {
        RunResult {
            invocation,
            began_ms: times.began_ms,
            ended_ms: times.ended_ms,
            elapsed_ms: times.elapsed_ms,
            ran: self.ran,
            of: self.of,
            status: self.status(),
            worst: self.worst,
            timed_out: self.timed_out,
            cancelled: self.cancelled,
            configuration: self.configuration,
            exec: self.exec,
            skipped: self.skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ExitStatus::{Exit, Signal};

    fn ended(status: ExitStatus) -> End {
        End::Ended { status, tolerable: false, timed_out: false }
    }

    #[test]
    fn the_largest_status_that_counts_wins() {
        let tolerable = |status| End::Ended { status, tolerable: true, timed_out: false };
        let not_run = |status| End::NotRun { why: "no such file".to_owned(), status };
        for (ends, status, worst, ran) in [
            (vec![], 0, None, 0),
            (vec![ended(Exit(0))], 0, None, 1),
            (vec![ended(Exit(3)), ended(Exit(0))], 3, Some(Exit(3)), 2),
            (vec![ended(Exit(3)), ended(Signal(15)), ended(Exit(9))], 143, Some(Signal(15)), 3),
            (vec![tolerable(Exit(9)), ended(Exit(0))], 0, None, 2),
            (vec![tolerable(Exit(9)), ended(Exit(2))], 2, Some(Exit(2)), 2),
            (vec![not_run(127), ended(Exit(2))], 127, Some(Exit(2)), 1),
            // These statuses would mean that nothing ran; `worst` keeps the script's own status.
            (vec![ended(Exit(66))], 1, Some(Exit(66)), 1),
            (vec![ended(Exit(75)), ended(Exit(3))], 1, Some(Exit(75)), 2),
        ] {
            let mut tally = Tally::new(9);
            let shown = format!("{ends:?}");
            for end in ends {
                tally.add("s", end);
            }
            assert_eq!((tally.status(), tally.worst, tally.ran), (status, worst, ran), "{shown}");
        }
    }

    #[test]
    fn what_stops_a_task_that_stops_on_errors() {
        let end = |status, tolerable, timed_out| End::Ended { status, tolerable, timed_out };
        for (end, expect) in [
            (end(Exit(0), false, false), false),
            (end(Exit(0), false, true), true),
            (end(Exit(1), false, false), true),
            (end(Exit(1), true, false), false),
            (End::NotRun { why: String::new(), status: 126 }, true),
        ] {
            assert_eq!(end.is_error(), expect, "{end:?}");
        }
    }

    #[test]
    fn what_did_not_all_run_is_never_zero() {
        let mut cancelled = Tally::new(2);
        cancelled.cancelled(true);
        let mut late = Tally::new(2);
        late.out_of_time();
        let mut stopped = Tally::new(2);
        stopped.add("s", End::Ended { status: Exit(0), tolerable: false, timed_out: true });
        stopped.cut_short();
        assert_eq!(stopped.status, 124);
        let mut wrong = Tally::new(2);
        wrong.misconfigured("first".to_owned());
        wrong.misconfigured("second".to_owned());
        assert_eq!((cancelled.status, late.status, wrong.status), (143, 124, 78));
        assert_eq!(wrong.configuration.as_deref(), Some("first"));
        let mut at_the_end = Tally::new(1);
        at_the_end.add("s", ended(Exit(0)));
        at_the_end.cancelled(false);
        assert_eq!((at_the_end.status, at_the_end.cancelled), (0, true));
    }
}
