//! The epilog from `epilog-start` to `epilog-finish`; on a site that runs epilogs as housekeeping, from `free` on. Flux
//! takes the reference already at the fatal exception, while tasks of the job may live.
//!
//! | job | perilog | then |
//! |---|---|---|
//! | may have tasks | | wait for the final `release` |
//! | gone | does not know it, and nothing was started | finish, status 0: there is nothing to clean up |
//! | gone | does not know it | `JobAdd` |
//! | gone | the job holds ranks | `ActionStart` of external actions, `Run` with Flux's environment, then `JobFinish` |
//! | gone | the epilog runs | wait |
//! | gone | all ranks are released | drains in force, failures reported, all ranks online: finish |
//! | gone | refuses it for good | drain its hosts, report that no epilog can run, finish |
//!
//! If rank 0 or the broker of a node was lost during the job, tasks may live although the job is gone. So `JobAdd`,
//! `Run` and `JobFinish` wait for their end ([`super::tasks`]).
//!
//! A job in housekeeping has no reference to finish, and no user waits for it, so the edge reports nothing. But each of
//! the job's nodes waits for an epilog, also if the job began nothing. The agents report the end of the epilog to Flux,
//! node by node.

use perilog_core::Verdict;
use perilog_core::controller::view::{EdgeAction, EdgeAttempt};

use super::action::{Action, Reference};
use super::job::{Allocated, Job};
use super::prolog::{FAILED, note, post, reported};
use super::view::View;
use super::{Step, drains, external, tasks};

pub(super) fn step(view: &View, job: &Job, of: &Allocated<'_>, now_ms: u64) -> Step {
    if !job.is_gone(view.starttime) {
        return Step::Wait;
    }
    let next = after_tasks(view, job, of, now_ms);
    let cleans = |action: &Action| {
        matches!(action, Action::Add { .. } | Action::Start { .. } | Action::Run { .. } | Action::DropHold { .. })
    };
    match &next {
        Step::Do(action) if cleans(action) => tasks::when_gone(view, job, of, now_ms, next),
        _ => next,
    }
}

fn after_tasks(view: &View, job: &Job, of: &Allocated<'_>, now_ms: u64) -> Step {
    let finish = |status| Step::Do(Action::Finish { id: job.id, what: Reference::Epilog, status });
    if let Some(why) = view.refused.get(&(of.job.clone(), of.attempt)) {
        if job.reported.contains("epilog") {
            return if job.freed { Step::Wait } else { finish(FAILED) };
        }
        // No cleanup is possible: the edge drains the hosts first, so that Flux gives the ranks to no other job.
        let hosts = of.r.hosts().iter().filter_map(|host| perilog_core::HostName::new(host).ok());
        let reason = format!("perilog: no epilog of {} can run: {why}", of.job);
        if let Some(host) = hosts.into_iter().find(|host| !view.flux_drains.contains_key(host)) {
            return Step::Do(Action::Drain { host, reason, overwrite: false });
        }
        return post(job, "epilog", 2, &reason, &serde_json::Value::Null);
    }
    let (name, attempt) = (of.job.clone(), of.attempt);
    let Some(known) = view.attempt(of) else {
        return match job.may_have_tasks || job.freed {
            true => Step::Do(Action::Add { id: job.id, job: name, attempt }),
            false => finish(0),
        };
    };
    if !known.hold.is_empty() {
        if let Some(action) = external::start(view, job, of, known, Reference::Epilog) {
            return Step::Do(action);
        }
        return match known.actions.iter().any(|action| action.name.as_str() == "epilog") {
            false => Step::Do(Action::Run { id: job.id, job: name, attempt, what: Reference::Epilog }),
            true => Step::Do(Action::DropHold { id: job.id, job: name, attempt }),
        };
    }
    if !known.complete || job.freed {
        return Step::Wait;
    }
    let since_ms = known.actions.iter().filter_map(|action| action.ended_ms).max().unwrap_or(now_ms);
    match failed(view, job, known) {
        Some(epilog) if drains::are_awaited(view, &epilog.bad_hosts) => Step::Wait,
        Some(epilog) if !job.reported.contains("epilog") => post(job, "epilog", 2, &note(epilog), &reported(epilog)),
        Some(_) => drains::when_online(view, of, &view.away(of), since_ms, now_ms, finish(FAILED)),
        None => drains::when_online(view, of, &view.away(of), since_ms, now_ms, finish(0)),
    }
}

/// Returns the first action that ran after the job and whose verdict is not `ok`.
fn failed<'a>(view: &View, job: &Job, attempt: &'a EdgeAttempt) -> Option<&'a EdgeAction> {
    let mut after = attempt.actions.iter().filter(|action| !external::is_before(view, job, &action.name));
    after.find(|action| action.verdict.is_some_and(|verdict| verdict != Verdict::Ok))
}
