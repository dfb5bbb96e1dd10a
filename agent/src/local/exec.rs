//! Parameters of the Varlink method `Exec`, and the exit status for a caller that waited for a task (`Exec`, `Await`).

use std::collections::BTreeMap;

use perilog_core::Span;
use perilog_core::agent::io::Exec;
use perilog_core::ids::{ActionName, Attempt, JobId, Rank};
use perilog_core::outcome::Outcome;
use perilog_core::task::{Hook, Plan, Run};
use serde::Deserialize;

use super::numbers::{self, LocalTask, Turn};

/// Parameters of the method `io.perilog.Agent.Exec`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    job: JobId,
    #[serde(default)]
    attempt: Option<Attempt>,
    #[serde(default)]
    turn: Option<Turn>,
    action: ActionName,
    #[serde(default)]
    rank: Option<u32>,
    #[serde(default)]
    userid: Option<u32>,
    #[serde(default)]
    env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timeout: Option<Span>,
    #[serde(default)]
    directories: Option<Vec<String>>,
    #[serde(rename = "orphaned", default)]
    orphan_program: Option<String>,
    #[serde(default)]
    instance: Option<String>,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    daemon_died: Option<bool>,
}

/// Maximum size in bytes of `instance`, which tells two jobs of one number apart. A tombstone stores the value.
const MOST_INSTANCE: usize = 32;

impl Parameters {
    /// Converts the parameters to the machine's request. `plan_of` returns the plan of an action, the configured or the
    /// default one; only a call with the parameter `directories` needs it. `own` returns this host's records of the
    /// job's tasks on a rank; only a call with the parameter `turn` needs it.
    ///
    /// # Errors
    /// A text for the error `Refused`: a parameter is malformed, or this host's records of the job's tasks cannot be
    /// read.
    pub(super) fn exec(
        self,
        plan_of: impl Fn(&ActionName) -> Plan,
        own: impl Fn(&JobId, Rank) -> Result<Vec<LocalTask>, String>,
    ) -> Result<Exec, String> {
        let rank = Rank(self.rank.unwrap_or(0));
        let attempt = match (self.attempt, self.turn) {
            (Some(number), Some(Turn::Begins)) => numbers::begun(&own(&self.job, rank)?, number),
            (Some(attempt), _) => attempt,
            (None, None) => Attempt::FIRST,
            (None, Some(turn)) => numbers::attempt(&own(&self.job, rank)?, &self.action, turn),
        };
        let plan = match self.directories {
            None => None,
            Some(directories) => match directories.iter().find(|dir| !dir.starts_with('/')) {
                Some(relative) => return Err(format!("directory {relative:?} does not begin with `/`")),
                None if directories.is_empty() => {
                    return Err("`directories` must name at least one directory".to_owned());
                }
                None => Some(Plan { run: Run::Directories(directories), ..plan_of(&self.action) }),
            },
        };
        if let Some(relative) = self.orphan_program.as_ref().filter(|program| !program.starts_with('/')) {
            return Err(format!("program {relative:?} does not begin with `/`"));
        }
        if let Some(wrong) = self.note.as_ref().filter(|note| !note.starts_with('/') || !note.ends_with(".json")) {
            return Err(format!("`note` is {wrong:?}, and must be an absolute path that ends with .json"));
        }
        if self.instance.as_ref().is_some_and(|instance| instance.len() > MOST_INSTANCE) {
            return Err(format!("`instance` is longer than {MOST_INSTANCE} bytes"));
        }
        Ok(Exec {
            job: self.job,
            attempt,
            action: self.action,
            rank,
            userid: self.userid,
            env: self.env.unwrap_or_default(),
            timeout_ms: self.timeout.and_then(Span::as_millis).filter(|millis| *millis > 0),
            plan,
            hook: Hook { orphan_program: self.orphan_program, instance: self.instance, note: self.note },
            daemon_died: self.daemon_died.unwrap_or_default(),
        })
    }
}

/// Returns the exit status for a caller that waited for the task. This is the status of the scripts if it shows a
/// failure, otherwise a number for the outcome (a timeout is 3). Only a success ([`Outcome::is_ok`]) has 0.
pub fn status(outcome: &Outcome) -> u8 {
    let word = match outcome {
        outcome if outcome.is_ok() => return 0,
        Outcome::Timeout { .. } => 3,
        Outcome::Lost { .. } => 4,
        Outcome::Refused { .. } => 5,
        Outcome::Cancelled { .. } => 6,
        // A local task has no job that could tolerate a failure.
        _ => 1,
    };
    outcome.status().filter(|status| *status != 0).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use perilog_core::outcome::{ExitStatus, Failure, Loss};

    #[test]
    fn only_ok_is_zero() {
        for (outcome, expect) in [
            (Outcome::Ok, 0),
            (Outcome::Tolerable, 1),
            (Outcome::Failed { why: Failure::Exit(37) }, 37),
            (Outcome::Failed { why: Failure::Signal(9) }, 137),
            (Outcome::Failed { why: Failure::NoResult(Some(ExitStatus::Exit(0))) }, 1),
            (Outcome::Failed { why: Failure::Configuration(String::new()) }, 1),
            (Outcome::Timeout { status: Some(ExitStatus::Exit(0)) }, 3),
            (Outcome::Lost { why: Loss::Vanished }, 4),
            (Outcome::Refused { why: String::new() }, 5),
            (Outcome::Cancelled { status: Some(ExitStatus::Signal(15)) }, 143),
            (Outcome::Cancelled { status: None }, 6),
        ] {
            assert_eq!(status(&outcome), expect, "{outcome:?}");
        }
    }

    #[test]
    fn parameters() {
        let known = || {
            let action = ActionName::new("epilog").unwrap();
            vec![LocalTask { action, attempt: Attempt::from_number(7), over: true }]
        };
        let parse = |text: &str| {
            serde_json::from_str::<Parameters>(text)
                .map_err(|e| e.to_string())
                .and_then(|p| p.exec(|_| testing::plan(), |_, _| Ok(known())))
        };
        let exec = parse(r#"{"job": "j1", "action": "prolog", "timeout": "1.5m", "directories": ["/a"]}"#).unwrap();
        assert_eq!((exec.rank, exec.attempt, exec.timeout_ms), (Rank(0), Attempt::FIRST, Some(90_000)));
        assert_eq!(exec.plan.unwrap().run, Run::Directories(vec!["/a".to_owned()]));
        for (attempt, expect) in [
            (r#""attempt": "2.5""#, "2.5"),
            (r#""turn": "begins""#, "8"),
            (r#""turn": "begins", "attempt": "3""#, "8"),
            (r#""turn": "ends", "attempt": "3""#, "3"),
        ] {
            let exec = parse(&format!(r#"{{"job": "j1", "action": "prolog", {attempt}}}"#)).unwrap();
            assert_eq!(exec.attempt.to_string(), expect);
        }
        for bad in [
            r#"{"job": "j 1", "action": "prolog"}"#,
            r#"{"job": "j1"}"#,
            r#"{"job": "j1", "action": "prolog", "directories": ["a"]}"#,
            r#"{"job": "j1", "action": "prolog", "directories": []}"#,
            r#"{"job": "j1", "action": "prolog", "dirs": ["/a"]}"#,
            r#"{"job": "j1", "action": "prolog", "orphaned": "bin/report"}"#,
            r#"{"job": "j1", "action": "prolog", "instance": "123456789012345678901234567890123"}"#,
            r#"{"job": "j1", "action": "prolog", "attempt": "x"}"#,
            r#"{"job": "j1", "action": "prolog", "turn": "sideways"}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
