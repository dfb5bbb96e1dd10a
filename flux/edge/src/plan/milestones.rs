//! Milestones, as events in the user's own eventlog: `flux job wait-event JOB data-out`. Flux's job manager takes any
//! name from `post-event` and obeys
//! those that it knows: a milestone of such a name is told to nobody.

use serde_json::json;

use super::Due;
use super::action::Action;
use super::job::Job;
use super::view::View;

/// What Flux's job manager obeys, or may (RFC 21; names with these beginnings too).
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
const RESERVED_BEGINNINGS: [&str; 6] = ["prolog-", "epilog-", "dependency-", "debug.", "exec.", "flux-"];

pub(super) fn plan(view: &View, job: &Job, due: &mut Due) {
    let Some(of) = job.held() else { return };
    let Some(attempt) = view.attempt(&of) else { return };
    for name in attempt.milestones.iter().map(|name| name.as_str()).filter(|name| is_free(name)) {
        let mark = format!("milestone {name}");
        if !job.told.contains(&mark) {
            let context = job.context(&mark, json!({}));
            due.actions.push(Action::Post { id: job.id, name: name.to_owned(), mark, context });
        }
    }
}

/// May a milestone be told under this name?
pub(super) fn is_free(name: &str) -> bool {
    let fits = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    fits && !RESERVED.contains(&name) && !RESERVED_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}
