//! Failures that an action finds while the job runs, such as `perilog run check --job JOB`. The edge reports them in
//! the exception for tolerated failures, so that the job's user, and the Flux instance that the job runs, are notified
//! of a node that went bad after the prolog. This exception is never fatal: Flux and the user decide whether the job
//! goes on.

use super::job::Job;
use super::view::View;
use super::{Due, drains, external, prolog};

pub(super) fn plan(view: &View, job: &Job, due: &mut Due) {
    let Some(of) = job.held().filter(|_| job.may_have_tasks && !job.prolog.is_open() && !job.epilog.was_held()) else {
        return;
    };
    // An attempt that holds nothing has ended: its further actions are after-actions.
    let Some(known) = view.attempt(&of).filter(|known| !known.hold.is_empty()) else { return };
    let mut found = known.actions.iter().filter(|action| {
        action.verdict.is_some()
            && !external::is_before(view, job, &action.name)
            && !drains::are_awaited(view, &action.bad_hosts)
    });
    if let Some(step) = found.find_map(|action| prolog::forgiven(job, action)) {
        due.add(step);
    }
}
