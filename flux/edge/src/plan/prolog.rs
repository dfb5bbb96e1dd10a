//! From `prolog-start` to `prolog-finish`. The actions before the job are the prolog and the job's external actions
//! with `at = "prolog"`.
//!
//! | perilog | job | then |
//! |---|---|---|
//! | does not know the attempt | goes on | `JobAdd`, and `Run` with it if the next row asks only for that |
//! | | cancelled | finish, status 256: nothing has begun |
//! | has it, an action has not begun | goes on | `ActionStart`, `Run`; not while another attempt is cleaned up there |
//! | | cancelled | finish, status 256 |
//! | an action runs | goes on | wait |
//! | | cancelled | `Cancel`, then wait for the verdict |
//! | an external action runs, another action has failed | | `Cancel`, then wait for the verdict |
//! | all are `ok` | | drains in force, tolerated failures reported, all ranks online: finish, status 0 |
//! | any other verdict | | drains in force, a fatal exception that says why: finish, status 256 |
//! | refuses it for good | | a fatal exception that says why: finish, status 256 |

use perilog_core::Verdict;
use perilog_core::controller::view::EdgeAction;
use serde_json::{Value, json};

use super::action::{Action, Reference};
use super::job::{Allocated, Job};
use super::view::View;
use super::{Step, drains, external};

/// The wait status (wait(2)) of an exit with 1.
pub(super) const FAILED: i32 = 256;
/// First word of the mark by which the edge recognises its own exception about tolerated failures. That exception is
/// not fatal.
const TOLERATED: &str = "tolerated";
/// Maximum length in bytes of an exception's note. Flux keeps the note in the KVS, and `flux jobs` reads it each time.
const MAX_NOTE: usize = 1024;

pub(super) fn step(view: &View, job: &Job, of: &Allocated<'_>, now_ms: u64) -> Step {
    let finish = |status| Step::Do(Action::Finish { id: job.id, what: Reference::Prolog, status });
    let is_fatal = job.fatal.is_some();
    if let Some(why) = view.refused.get(&(of.job.clone(), of.attempt)) {
        return match is_fatal {
            true => finish(FAILED),
            false => post(job, "refused", 0, &format!("perilog refuses this job: {why}"), &Value::Null),
        };
    }
    let Some(attempt) = view.attempt(of) else {
        return match is_fatal {
            true => finish(FAILED),
            false => Step::Do(Action::Add { id: job.id, job: of.job.clone(), attempt: of.attempt }),
        };
    };
    let actions = external::before(view, job, attempt);
    let failed = actions.iter().find(|action| action.verdict.is_some_and(|verdict| verdict != Verdict::Ok));
    if !is_fatal && failed.is_none() {
        let run = || (!actions.iter().any(|action| is_prolog(action))).then(|| run(job, of));
        if let Some(action) = external::start(view, job, of, attempt, Reference::Prolog).or_else(run) {
            let is_held_back = attempt.abandoned || view.is_behind(of);
            return if is_held_back { Step::Wait } else { Step::Do(action) };
        }
    }
    let open: Vec<&&EdgeAction> = actions.iter().filter(|action| action.verdict.is_none()).collect();
    if !open.is_empty() {
        // A prolog ends by itself, unless its job was cancelled. An external action is cancelled also after another
        // action has failed.
        let is_over = |action: &EdgeAction| is_fatal || (failed.is_some() && !is_prolog(action));
        let due = open.into_iter().find(|action| is_over(action) && !job.cancel_asked.contains(&action.name));
        return due.map_or(Step::Wait, |action| Step::Do(cancel(job, of, action)));
    }
    if actions.iter().any(|action| drains::are_awaited(view, &action.bad_hosts)) {
        return Step::Wait;
    }
    let unreported = |action: &&&EdgeAction| {
        let is_bad = action.verdict.is_some_and(|verdict| verdict != Verdict::Ok);
        // An action that was cancelled together with its job is no failure to report.
        let is_plain = is_fatal && action.verdict == Some(Verdict::Cancelled);
        is_bad && !is_plain && !job.reported.contains(action.name.as_str())
    };
    // Reports a failure before the cancels that it caused.
    if let Some(action) = actions.iter().filter(unreported).min_by_key(|of| of.verdict == Some(Verdict::Cancelled)) {
        // A cancel of the job hides no failure before it. The exception is then not fatal, because the job has a fatal
        // one already.
        return post(job, action.name.as_str(), u8::from(is_fatal), &note(action), &reported(action));
    }
    if is_fatal || failed.is_some() {
        return finish(FAILED);
    }
    if let Some(step) = actions.iter().find_map(|action| forgiven(job, action)) {
        return step;
    }
    let ended_ms = actions.iter().filter_map(|action| action.ended_ms).max();
    // Flux starts a job where brokers are, whether or not it would give the node to another job.
    drains::when_online(view, of, &view.away(of), ended_ms.unwrap_or(now_ms), now_ms, finish(0))
}

/// Returns the `Run` of a job's prolog that the edge can send together with `JobAdd`; `None`: something has to come
/// first, such as an external action.
///
/// If the controller refuses the job, it refuses the `Run` too, because it does not know the attempt. But a controller
/// that knows an earlier attempt of the job would begin the prolog on the nodes of that attempt. The `Run` of such a
/// job waits for the answer to `JobAdd`.
pub(super) fn begins_at_once(view: &View, job: &Job, of: &Allocated<'_>) -> Option<Action> {
    let is_first = view.attempts.keys().all(|(known, _)| *known != of.job);
    let is_alone = !external::has_any(view, job, Reference::Prolog);
    (is_first && is_alone && job.fatal.is_none() && !view.is_behind(of)).then(|| run(job, of))
}

/// Plans the exception that notifies the user of an action's tolerated failures. `None`: no rank or resource failed, or
/// the job has the exception already.
pub(super) fn forgiven(job: &Job, action: &EdgeAction) -> Option<Step> {
    let mark = if is_prolog(action) { TOLERATED.to_owned() } else { format!("{TOLERATED} {}", action.name) };
    if action.bad.is_empty() && action.bad_resources.is_empty() || job.reported.contains(&mark) {
        return None;
    }
    let hosts = if action.bad_hosts.is_empty() { String::new() } else { format!("{}: ", action.bad_hosts) };
    Some(post(job, &mark, 1, &(hosts + &reasons(action)), &reported(action)))
}

fn is_prolog(action: &EdgeAction) -> bool {
    action.name.as_str() == Reference::Prolog.as_str()
}

fn run(job: &Job, of: &Allocated<'_>) -> Action {
    Action::Run { id: job.id, job: of.job.clone(), attempt: of.attempt, what: Reference::Prolog }
}

fn cancel(job: &Job, of: &Allocated<'_>, action: &EdgeAction) -> Action {
    Action::Cancel { id: job.id, job: of.job.clone(), attempt: of.attempt, name: action.name.clone() }
}

/// Returns the note of an exception, such as `prolog failed on n2: lustre: /p/lustre1 is not mounted`.
pub(super) fn note(action: &EdgeAction) -> String {
    let verdict = action.verdict.map_or("", Verdict::as_str);
    let on = if action.bad_hosts.is_empty() { String::new() } else { format!(" on {}", action.bad_hosts) };
    format!("{} {verdict}{on}: {}", action.name, reasons(action))
}

/// Returns the step that posts an exception of perilog. `mark`: what the exception is about, for example `tolerated`;
/// the context carries the mark, so that the edge posts the exception once, and the mark decides the exception's type.
/// `note` is required, because Flux's job-list ends at an exception without a note. `more`: an object with further
/// members of the context, or null.
pub(super) fn post(job: &Job, mark: &str, severity: u8, note: &str, more: &Value) -> Step {
    let kind = match mark.split(' ').next() {
        Some(TOLERATED) => "node-failure",
        Some("refused") => "perilog",
        _ => mark,
    };
    let mut context = json!({ "type": kind, "severity": severity, "note": clean(note) });
    if let (Some(context), Some(more)) = (context.as_object_mut(), more.as_object()) {
        context.extend(more.clone());
    }
    let context = job.context(mark, context);
    Step::Do(Action::Post { id: job.id, name: "exception".to_owned(), mark: mark.to_owned(), context })
}

/// Returns the part of an exception's context that programs read: the action, its failed ranks, hosts and resources,
/// and each failure.
pub(super) fn reported(action: &EdgeAction) -> Value {
    let mut reported =
        json!({ "ranks": action.bad, "hosts": action.bad_hosts, "action": action.name, "checks": action.failures });
    if !action.bad_resources.is_empty() {
        reported["resources"] = json!(action.bad_resources);
    }
    reported
}

/// Describes the failures of an action to users, for example `lustre: /p/lustre1 is not mounted (n2); failed (exit 3)
/// (n4)`. A reason that all bad hosts share stands without hosts. The text has no output of scripts, because guests can
/// read the text.
pub(super) fn reasons(action: &EdgeAction) -> String {
    let all = action.bad_hosts.to_string();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let reason = |failure: &Value| {
        let (check, message, hosts) = (text(failure, "check"), text(failure, "message"), text(failure, "hosts"));
        // Without a reported check the message is the outcome, which begins with the script's name.
        let what = if message.starts_with(&check) { message } else { format!("{check}: {message}") };
        // The note begins with all bad hosts: the reason that all of them share need not name them again.
        if hosts == all { what } else { format!("{what} ({hosts})") }
    };
    let resources = action.bad_resources.iter().map(|(name, result)| format!("{name}: {result}"));
    let reasons: Vec<String> = action.failures.iter().map(reason).chain(resources).collect();
    reasons.join("; ")
}

/// Cuts a note to one short line without control characters: Flux refuses any other note, and would refuse each
/// repetition.
fn clean(note: &str) -> String {
    let mut line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE - 3).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str("...");
    }
    line
}
