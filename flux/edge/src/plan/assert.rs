//! What the controller is told at each connect, before anything else (`Assert`): every attempt that Flux has, and its
//! drains. What the controller has of
//! this edge and Flux has not is over: the controller cleans up there.

use perilog_core::Tolerance;
use serde_json::{Value, json};

use super::job::{Allocated, Job};
use super::view::View;

/// Does the controller ask about an attempt that this edge has not been refused? Its store was put back while the edge
/// was connected.
pub fn is_due(view: &View) -> bool {
    view.attempts.iter().any(|(id, attempt)| attempt.unvouched && !view.refused.contains_key(id))
}

/// The parameters of `Assert`.
pub fn parameters(view: &View, source: &Value) -> Value {
    let attempts: Vec<Value> = view.jobs.values().filter_map(|job| Some(listed(view, job, &job.held()?))).collect();
    let drains: Vec<Value> =
        view.flux_drains.iter().map(|(host, drain)| json!({ "host": host, "reason": drain.reason })).collect();
    json!({ "source": source, "attempts": attempts, "drains": drains })
}

fn listed(view: &View, job: &Job, of: &Allocated<'_>) -> Value {
    // The end of a job is told by `JobFinish`, when its tasks are gone.
    let is_prepared = job.may_have_tasks || job.epilog.was_held();
    let phase = if job.prolog.is_open() || !is_prepared { "preparing" } else { "running" };
    let mut listed = json!({
        "job": of.job, "attempt": of.attempt, "userid": job.userid, "ranks": of.r.ranks(), "hosts": of.r.hosts(), "phase": phase,
    });
    listed["tolerate"] = tolerate(view, job, of).into();
    listed
}

/// What the job may be forgiven: its terms within the cap of the site. Said always, also that it is nothing: an id may
/// be issued again.
pub fn tolerate(view: &View, job: &Job, of: &Allocated<'_>) -> String {
    let (ranks, _) = job.terms.within(&view.cap, of.r.ranks().len());
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    Tolerance::Ranks(ranks).to_string()
}
