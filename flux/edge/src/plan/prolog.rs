//! The prolog from `prolog-start` to `prolog-finish`.
//!
//! | perilog | job | then |
//! |---|---|---|
//! | does not know the attempt | goes on | `JobAdd` |
//! | | cancelled | finish, status 256: nothing has begun |
//! | knows the attempt, no prolog | goes on | `Run`, but not while a host is cleaned up after another attempt |
//! | | cancelled | finish, status 256 |
//! | prolog runs | goes on | wait |
//! | | cancelled | `Cancel`, then wait for the verdict |
//! | `ok` | | drains in force, tolerated failures reported, all ranks online: finish, status 0 |
//! | any other verdict | | drains in force, a fatal exception with the reason: finish, status 256 |
//! | refuses the attempt for good | | a fatal exception with the reason: finish, status 256 |

use perilog_core::Verdict;
use perilog_core::controller::view::EdgeAction;
use serde_json::{Value, json};

use super::action::{Action, Reference};
use super::job::{Allocated, Job};
use super::view::View;
use super::{Step, drains};

/// The wait status (wait(2)) of an exit with 1.
pub(super) const FAILED: i32 = 256;
/// Longest note of an exception. Flux keeps the note in the KVS, and `flux jobs` reads it each time.
const MAX_NOTE: usize = 1024;

pub(super) fn step(view: &View, job: &Job, of: &Allocated<'_>, now_ms: u64) -> Step {
    let finish = |status| Step::Do(Action::Finish { id: job.id, what: Reference::Prolog, status });
    let is_fatal = job.fatal.is_some();
    if let Some(why) = view.refused.get(&(of.job.clone(), of.attempt)) {
        return match is_fatal {
            true => finish(FAILED),
            false => post(job, "refused", 0, &format!("perilog takes no such job: {why}"), &Value::Null),
        };
    }
    let Some(attempt) = view.attempt(of) else {
        return match is_fatal {
            true => finish(FAILED),
            false => Step::Do(Action::Add { id: job.id, job: of.job.clone(), attempt: of.attempt }),
        };
    };
    let Some(prolog) = attempt.actions.iter().find(|action| action.name.as_str() == "prolog") else {
        return match is_fatal {
            true => finish(FAILED),
            false if attempt.unvouched || view.is_behind(of) => Step::Wait,
            false => {
                Step::Do(Action::Run { id: job.id, job: of.job.clone(), attempt: of.attempt, what: Reference::Prolog })
            }
        };
    };
    match prolog.verdict {
        None if is_fatal && !job.cancel_asked => {
            Step::Do(Action::Cancel { id: job.id, job: of.job.clone(), attempt: of.attempt })
        }
        None => Step::Wait,
        Some(_) if drains::are_awaited(view, &prolog.bad_hosts) => Step::Wait,
        Some(Verdict::Ok) if is_fatal => finish(FAILED),
        Some(Verdict::Ok) if !prolog.bad.is_empty() && !job.told.contains("tolerated") => {
            let note = format!("{}: {}", prolog.bad_hosts, reasons(prolog));
            post(job, "tolerated", 1, &note, &told(prolog))
        }
        Some(Verdict::Ok) => drains::when_online(view, of, prolog.ended_ms.unwrap_or(now_ms), now_ms, finish(0)),
        Some(verdict) if !job.told.contains("prolog") => {
            // A cancel hides no earlier failure. A prolog that was cancelled with its job has no failure to report.
            let severity = u8::from(is_fatal);
            if is_fatal && verdict == Verdict::Cancelled {
                return finish(FAILED);
            }
            let note = format!("prolog {} on {}: {}", verdict.word(), prolog.bad_hosts, reasons(prolog));
            post(job, "prolog", severity, &note, &told(prolog))
        }
        Some(_) => finish(FAILED),
    }
}

/// Posts an exception of perilog. `note` is always present: Flux's job-list ends at an exception without a note.
pub(super) fn post(job: &Job, mark: &str, severity: u8, note: &str, more: &Value) -> Step {
    let kind = match mark {
        "tolerated" => "node-failure",
        "refused" => "perilog",
        mark => mark,
    };
    let mut context = json!({ "type": kind, "severity": severity, "note": clean(note) });
    if let (Some(context), Some(more)) = (context.as_object_mut(), more.as_object()) {
        context.extend(more.clone());
    }
    let context = job.context(mark, context);
    Step::Do(Action::Post { id: job.id, name: "exception".to_owned(), mark: mark.to_owned(), context })
}

/// Returns the part of an exception that programs read.
pub(super) fn told(action: &EdgeAction) -> Value {
    json!({ "ranks": action.bad, "hosts": action.bad_hosts, "action": action.name, "checks": action.failures })
}

/// Returns `lustre: /p/lustre1 is not mounted (n2); failed (exit 3) (n4)`. The text has no output of scripts, because
/// guests can read the text.
pub(super) fn reasons(action: &EdgeAction) -> String {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let reason = |failure: &Value| {
        let (check, message, hosts) = (text(failure, "check"), text(failure, "message"), text(failure, "hosts"));
        // Without a reported check the message is the outcome, which begins with the script's name.
        let what = if message.starts_with(&check) { message } else { format!("{check}: {message}") };
        format!("{what} ({hosts})")
    };
    let reasons: Vec<String> = action.failures.iter().map(reason).collect();
    reasons.join("; ")
}

/// Cuts the note to one short line without control characters: Flux would always refuse other notes.
fn clean(note: &str) -> String {
    let mut line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE - 3).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str("...");
    }
    line
}
