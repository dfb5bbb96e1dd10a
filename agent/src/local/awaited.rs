//! `Await`: waits for the end of a task that the controller started, for a caller that knows the job but not the
//! attempt.
//!
//! ```text
//!   of the newest attempt that this host knows        the caller
//!   nothing, or another action only                   waits: the controller begins the action later
//!   the action, alive or not acknowledged             waits
//!   the action's tombstone                            gets the outcome
//! ```
//! A tombstone is the record of a task whose end the controller has on disk.

use perilog_core::Span;
use perilog_core::ids::{ActionName, Attempt, JobId};
use perilog_core::outcome::Outcome;
use serde::Deserialize;
use serde_json::{Value, json};

use super::exec::status;

/// Parameters of the method `io.perilog.Agent.Await`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    pub(super) job: JobId,
    #[serde(default)]
    action: Option<ActionName>,
    #[serde(default)]
    limit: Option<Span>,
}

impl Parameters {
    pub(super) fn is_of(&self, action: &ActionName) -> bool {
        self.action.as_ref().map_or("epilog", ActionName::as_str) == action.as_str()
    }

    /// Returns the longest time in milliseconds for which the caller waits; `None`: no limit.
    pub(super) fn limit_ms(&self) -> Option<u64> {
        self.limit.and_then(Span::as_millis)
    }
}

/// A task on this host that the controller started, of the job that the caller of `Await` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTask {
    pub action: ActionName,
    pub attempt: Attempt,
    pub stem: String,
    /// The outcome from the tombstone. `None`: the task has no tombstone, because it lives, the controller has not
    /// acknowledged its end, or the agent has not written the tombstone yet.
    pub outcome: Option<Outcome>,
}

/// Returns the JSON reply to a call of `Await`. `known` are the tasks of the job on this host that the controller
/// started. The reply's key `over` is `true` if the controller has acknowledged the end of the awaited task.
pub(super) fn reply(known: &[JobTask], parameters: &Parameters) -> Value {
    let newest = known.iter().map(|known| known.attempt).max();
    let of_newest = known.iter().filter(|known| Some(known.attempt) == newest && parameters.is_of(&known.action));
    // If two ranks are on one host, the rank that ends last counts.
    let task = of_newest.min_by_key(|known| known.outcome.is_some());
    let outcome = task.and_then(|task| task.outcome.as_ref());
    let unit = task.map(|task| perilog_core::ids::unit_of(&task.stem));
    json!({ "over": outcome.is_some(), "unit": unit, "attempt": newest, "outcome": outcome,
           "status": outcome.map(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_attempt_decides() {
        let known = |action: &str, attempt: u64, outcome: Option<Outcome>| JobTask {
            action: ActionName::new(action).unwrap(),
            attempt: Attempt::from_number(attempt),
            stem: format!("{action}-{attempt}"),
            outcome,
        };
        let (ok, timeout) = (Some(Outcome::Ok), Some(Outcome::Timeout { status: None }));
        #[rustfmt::skip]
        let table = [
            // known tasks of the job, over, unit, status
            (vec![], false, None, None),
            (vec![known("prolog", 1, ok.clone())], false, None, None),
            (vec![known("prolog", 1, ok.clone()), known("epilog", 1, None)], false, Some("epilog-1.service"), None),
            (vec![known("prolog", 1, None), known("epilog", 1, ok.clone())], true, Some("epilog-1.service"), Some(0)),
            (vec![known("epilog", 1, timeout)], true, Some("epilog-1.service"), Some(3)),
            // An epilog of an earlier attempt does not count.
            (vec![known("epilog", 1, ok.clone()), known("prolog", 2, None)], false, None, None),
            (vec![known("epilog", 1, ok.clone()), known("epilog", 2, None)], false, Some("epilog-2.service"), None),
            (vec![known("epilog", 2, ok.clone()), known("epilog", 2, None)], false, Some("epilog-2.service"), None),
        ];
        let parameters: Parameters = serde_json::from_str(r#"{"job": "f1"}"#).unwrap();
        for (known, over, unit, status) in table {
            let reply = reply(&known, &parameters);
            assert_eq!(
                (&reply["over"], &reply["unit"], &reply["status"]),
                (&json!(over), &json!(unit), &json!(status))
            );
        }
    }

    #[test]
    fn parameters() {
        let parse = |text: &str| serde_json::from_str::<Parameters>(text);
        let asked = parse(r#"{"job": "f1", "action": "clean-up", "limit": "1.5m"}"#).unwrap();
        assert_eq!(asked.limit_ms(), Some(90_000));
        assert!(
            asked.is_of(&ActionName::new("clean-up").unwrap()) && !asked.is_of(&ActionName::new("epilog").unwrap())
        );
        assert_eq!(parse(r#"{"job": "f1", "limit": "infinity"}"#).unwrap().limit_ms(), None);
        for bad in [r#"{"job": "f 1"}"#, "{}", r#"{"job": "f1", "limit": "soon"}"#, r#"{"job": "f1", "rank": 1}"#] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
