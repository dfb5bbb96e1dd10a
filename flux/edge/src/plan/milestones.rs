//! Milestones, as events in the user's own eventlog: `flux job wait-event JOB data-out`. Flux's job manager accepts any
//! name in `post-event`, but acts on names that it knows. So the edge posts no milestone with such a name.

use serde_json::json;

use super::Due;
use super::action::Action;
use super::job::Job;
use super::view::View;

/// Event names that Flux's job manager acts on, or may act on later (RFC 21).
const RESERVED: [&str; 26] = [
    "alloc",
    "annotations",
    "clean",
    "debug",
    "del-dependency",
    "del-depend",
    "depend",
    "dependency-add",
    "dependency-remove",
    "exception",
    "finish",
    "flux-restart",
    "free",
    "invalidate",
    "jobspec-update",
    "memo",
    "priority",
    "recoverable",
    "release",
    "resource-update",
    "set-flags",
    "start",
    "submit",
    "urgency",
    "validate",
    "exec",
];
/// Beginnings of names that Flux's job manager reserves for its own events.
const RESERVED_BEGINNINGS: [&str; 6] = ["prolog-", "epilog-", "dependency-", "debug.", "exec.", "flux-"];

pub(super) fn plan(view: &View, job: &Job, due: &mut Due) {
    // Flux accepts no event of an inactive job.
    let Some(of) = job.held().filter(|_| !job.clean) else { return };
    let Some(attempt) = view.attempt(&of) else { return };
    for name in attempt.milestones.iter().map(|name| name.as_str()).filter(|name| is_free(name)) {
        let mark = format!("milestone {name}");
        if !job.reported.contains(&mark) {
            let context = job.context(&mark, json!({}));
            due.actions.push(Action::Post { id: job.id, name: name.to_owned(), mark, context });
        }
    }
}

/// Returns `true` if the edge may post a milestone under this name.
pub(super) fn is_free(name: &str) -> bool {
    let fits = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    fits && !RESERVED.contains(&name) && !RESERVED_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}
