//! The next actions of the edge: Flux's journal and the controller's attempts go in, actions come out. Pure: no clock,
//! no socket, no memory of earlier actions.
//!
//! ```text
//!   Flux's eventlog, drains, online ──┐
//!                                     ├─ View ── plan ──> actions ──> the shell sends them
//!   attempts and drains of perilog ───┘    ^                                  │
//!                                          └── the answers change the View ───┘
//! ```
//! At most one action of a job's prolog or epilog is due at a time, and the next one becomes due after the answer to
//! that action. So a kill may end the edge between any two actions. The next edge reads both sides again, and finds the
//! same action due, or the next. Where the controller's answer can only make one action due, [`follower`] names that
//! action: the shell sends both in one go, and the controller can commit both at once.
//!
//! | module | decides |
//! |---|---|
//! | [`prolog`] | from `prolog-start` to `prolog-finish` |
//! | [`during`] | what the job's user is notified of while the job runs |
//! | [`epilog`] | from `epilog-start` to `epilog-finish` |
//! | [`tasks`] | whether tasks of a job may live after its end in Flux |
//! | [`external`] | external actions, before and after the job |
//! | [`drains`] | drains, both ways |
//! | [`milestones`] | events in the eventlog that users wait for |
//! | [`mod@sync`] | the report of Flux's attempts to the controller at each connect |

pub mod action;
mod drains;
mod during;
mod epilog;
pub mod external;
pub mod job;
mod milestones;
mod prolog;
pub mod sync;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod view;

pub use action::{Action, Reference};
pub use external::External;
pub use job::Job;
pub use view::View;

/// The actions that are due now, and the time of the next plan if nothing changes before.
#[derive(Debug, Default, PartialEq)]
pub struct Due {
    pub actions: Vec<Action>,
    /// Wall time (ms since 1970) at which to plan again; `None`: only after the next change.
    pub wake_at_ms: Option<u64>,
}

impl Due {
    fn add(&mut self, step: Step) {
        match step {
            Step::Do(action) => self.actions.push(action),
            Step::Wait => {}
            Step::WaitUntil(at) => self.wake_at_ms = Some(self.wake_at_ms.map_or(at, |before| before.min(at))),
        }
    }
}

/// The next step for a job or a drain: an action, or a wait.
#[derive(Debug, PartialEq)]
enum Step {
    Do(Action),
    /// The job waits for an event of Flux or of the controller, which comes without an action of the edge.
    Wait,
    WaitUntil(u64),
}

/// Returns the actions that are due. `now_ms`: wall time, in milliseconds since 1970.
pub fn plan(view: &View, now_ms: u64) -> Due {
    let mut due = Due::default();
    if !view.is_current {
        return due;
    }
    drains::plan(view, now_ms, &mut due);
    for job in view.jobs.values() {
        if let Some(step) = job_step(view, job, now_ms) {
            due.add(step);
        }
        during::plan(view, job, &mut due);
        milestones::plan(view, job, &mut due);
    }
    due
}

/// Returns the action that becomes due when the controller accepts `action`, whatever else happens meanwhile. `None`:
/// the next action depends on the answer, or on Flux.
pub fn follower(view: &View, action: &Action) -> Option<Action> {
    match action {
        Action::Add { id, .. } => {
            let known = view.jobs.get(id)?;
            known.prolog.is_open().then(|| prolog::begins_at_once(view, known, &known.held()?)).flatten()
        }
        Action::Run { id, job, attempt, what: Reference::Epilog } => {
            Some(Action::DropHold { id: *id, job: job.clone(), attempt: *attempt })
        }
        _ => None,
    }
}

/// Returns the step for a job without ranks in perilog: Flux allocated it without the scheduler, or perilog cannot read
/// its R. The step finishes an open reference, or first notifies the user of the malformed R. `None`: the job is no
/// such job, has no allocation, or has no open reference.
fn without_r(job: &Job) -> Option<Step> {
    job.alloc?;
    let status = match (&job.malformed, job.bypass) {
        (Some(_), _) => prolog::FAILED,
        (None, true) => 0,
        (None, false) => return None,
    };
    let finish = |what| Some(Step::Do(Action::Finish { id: job.id, what, status }));
    match &job.malformed {
        Some(why) if job.prolog.is_open() && job.fatal.is_none() => Some(prolog::post(
            job,
            "refused",
            0,
            &format!("perilog cannot read the resources of this job (R): {why}"),
            &serde_json::Value::Null,
        )),
        _ if job.prolog.is_open() => finish(Reference::Prolog),
        _ if job.epilog.is_open() => finish(Reference::Epilog),
        _ => None,
    }
}

fn job_step(view: &View, job: &Job, now_ms: u64) -> Option<Step> {
    if let Some(step) = without_r(job) {
        return Some(step);
    }
    let held = job.held()?;
    if job.prolog.is_open() {
        return Some(prolog::step(view, job, &held, now_ms));
    }
    (job.epilog.is_open() || job.is_in_housekeeping()).then(|| epilog::step(view, job, &held, now_ms))
}
