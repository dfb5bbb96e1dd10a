//! External actions of a site: work of a service outside of perilog, such as the data movement of a rabbit, for the
//! jobs whose jobspec asks for it. The edge adds the named resources to the job and starts the action. The service
//! reports to the controller. After the job, ranks and resources are released as the reports on them come.
//!
//! | `at` | begins | what waits for its end |
//! |---|---|---|
//! | `prolog` | before the scripts of the prolog | `prolog-finish`; the action's failures count as the prolog's |
//! | `epilog` | before the scripts of the epilog | the release of what the action covers |

use std::collections::BTreeSet;

use perilog_core::controller::view::{EdgeAction, EdgeAttempt};
use perilog_core::{ActionName, ResourceName};
use serde_json::Value;

use super::action::{Action, Reference};
use super::job::{Allocated, Job};
use super::view::{Site, View};

/// An external action from the site's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// JSON pointer into the jobspec. A job has the action if it has a value at this place, other than `null` or
    /// `false`.
    pub when: String,
    pub at: Reference,
    /// Named resources that a job has because of this action.
    pub resources: BTreeSet<ResourceName>,
    /// Whether the action covers the job's ranks, too.
    pub nodes: bool,
    pub lease_ms: u64,
}

impl External {
    fn is_asked_for(&self, jobspec: &Value) -> bool {
        jobspec.pointer(&self.when).is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
    }
}

impl Site {
    /// Returns the names of the external actions that a job with this jobspec has.
    pub fn externals_of(&self, jobspec: &Value) -> BTreeSet<ActionName> {
        let asked = self.externals.iter().filter(|(_, external)| external.is_asked_for(jobspec));
        asked.map(|(name, _)| name.clone()).collect()
    }
}

/// Returns the named resources of a job.
pub fn resources(view: &View, job: &Job) -> BTreeSet<ResourceName> {
    let externals = job.externals.iter().filter_map(|name| view.site.externals.get(name));
    externals.flat_map(|external| external.resources.iter().cloned()).collect()
}

/// Returns the action that starts the job's next external action of the prolog or of the epilog (`at`); `None`: all of
/// these have begun.
pub(super) fn start(view: &View, job: &Job, of: &Allocated<'_>, known: &EdgeAttempt, at: Reference) -> Option<Action> {
    let begun = |name: &&ActionName| known.actions.iter().any(|action| action.name == **name);
    let name = names(view, job, at).find(|name| !begun(name))?;
    Some(Action::Start { id: job.id, job: of.job.clone(), attempt: of.attempt, name: name.clone() })
}

/// Returns `true` if the job has external actions that belong to `at`, the prolog or the epilog.
pub(super) fn has_any(view: &View, job: &Job, at: Reference) -> bool {
    names(view, job, at).next().is_some()
}

/// Returns the attempt's actions that must end before the job begins: the prolog, and the external actions of the
/// prolog.
pub(super) fn before<'a>(view: &View, job: &Job, known: &'a EdgeAttempt) -> Vec<&'a EdgeAction> {
    known.actions.iter().filter(|action| is_before(view, job, &action.name)).collect()
}

pub(super) fn is_before(view: &View, job: &Job, name: &ActionName) -> bool {
    name.as_str() == Reference::Prolog.as_str() || names(view, job, Reference::Prolog).any(|external| external == name)
}

fn names<'a>(view: &'a View, job: &'a Job, at: Reference) -> impl Iterator<Item = &'a ActionName> {
    job.externals.iter().filter(move |name| view.site.externals.get(*name).is_some_and(|external| external.at == at))
}
