//! A task as JSON: in the status of the local socket, and in answers to the controller.

use perilog_core::agent::io::TaskStatus;
use perilog_core::ids::unit_of;
use serde_json::{Value, json};

/// Returns the task as {unit, job, attempt, action, rank, id, local, state, why, phase, age_ms, invocation, outcome};
/// an unknown value is null.
pub fn task(status: &TaskStatus) -> Value {
    json!({
        "unit": unit_of(&status.stem),
        "job": status.job,
        "attempt": status.attempt,
        "action": status.action,
        "rank": status.task.rank,
        "id": status.task.action,
        "local": status.local,
        "state": status.state,
        "why": status.why,
        "phase": status.phase,
        "age_ms": status.age_ms,
        "invocation": status.invocation,
        "outcome": status.outcome,
    })
}
