//! Checks that only after-actions begin from the first controller's answer to `quiesce` until an operator asks it to
//! resume.

use std::collections::BTreeMap;

use perilog_core::{ActionId, ActionName, Event, JobId};
use serde_json::Value;

use super::Truth;
use crate::world::site;

#[derive(Debug, Default)]
pub(super) struct Book {
    /// Requests to quiesce that the first controller has not answered. The key is the number of the client that asked.
    /// The value is the number of resume requests before the client's request.
    asked: BTreeMap<u64, u64>,
    resumes: u64,
    is_quiet: bool,
}

impl Book {
    pub(super) fn forget(&mut self) {
        self.is_quiet = false;
        self.asked.clear();
    }
}

impl Truth {
    pub(crate) fn asks_quiet(&mut self, which: usize, client: u64) {
        if which == 0 {
            self.quiet.asked.insert(client, self.quiet.resumes);
        }
    }

    pub(crate) fn asks_resume(&mut self, which: usize) {
        if which == 0 {
            self.quiet.resumes += 1;
            self.quiet.is_quiet = false;
        }
    }

    pub(crate) fn quiet_answered(&mut self, which: usize, client: u64) {
        if which == 0 && self.quiet.asked.remove(&client) == Some(self.quiet.resumes) {
            self.quiet.is_quiet = true;
        }
    }

    /// Checks an event `action-start`: a quiesced controller begins only after-actions.
    pub(super) fn check_start(&mut self, job: &JobId, event: &Event) {
        let text = |key: &str| event.context().and_then(|c| c.get(key)).and_then(Value::as_str).unwrap_or_default();
        let (name, rebuilt) = (text("action"), event.context().is_some_and(|c| c.contains_key("rebuilt")));
        // The action began in a lost epoch, as records on a node show: an operator lets the action go on.
        let attempt = text("attempt").parse().ok();
        let id = attempt
            .zip(ActionName::new(name).ok())
            .map(|(attempt, name)| ActionId::of(site::cluster(), job, attempt, &name));
        let is_there = |id: &ActionId| self.at_rest.keys().any(|(task, _)| task.action == *id);
        if id.is_some_and(|id| is_there(&id)) {
            return;
        }
        // `sweep` is an after-action under some settings of the simulated worlds.
        let follows = name == "epilog" || (name == "sweep" && self.is_lenient());
        if self.quiet.is_quiet && !follows && !rebuilt {
            let text = format!("5 quiet: {name} of {job} begins, and it was said that nothing would");
            self.broken(|| text);
        }
    }
}
