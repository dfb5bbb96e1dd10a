//! Configured actions of nodes, reported by the agents in Hello. The controller uses the reports in two places:
//!
//! * The controller refuses a request for an action if no node of the request configures it. Such a request is a typing
//!   mistake and leaves no trace.
//! * A node that refuses an unconfigured action is not at fault. Only after-actions (`after`) must be configured on
//!   each node.
//!
//! An older agent does not report its actions. Then the controller knows nothing, and the node decides.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::io::Refusal;
use crate::controller::job::layout::Layout;
use crate::ids::{ActionName, TaskId};
use crate::idset::IdSet;
use crate::nearest::nearest;

impl Facts<'_> {
    /// Refuses an action if every node of these ranks has reported its actions and none configures this action.
    pub(crate) fn check_configured(&self, name: &ActionName, layout: &Layout, ranks: &IdSet) -> Result<(), Refusal> {
        let mut known = BTreeSet::new();
        for (_, host) in layout.pairs(ranks) {
            match self.nodes.get(host).and_then(|node| node.actions.as_ref()) {
                Some(actions) if !actions.contains(name) => known.extend(actions.iter().map(ActionName::as_str)),
                _ => return Ok(()),
            }
        }
        if ranks.is_empty() {
            return Ok(());
        }
        let hosts = layout.hosts_of(ranks);
        let text = match (known.is_empty(), nearest(name.as_str(), known.iter().copied())) {
            (true, _) => format!("{hosts} configures no action at all"),
            (_, Some(meant)) => format!("no node of {hosts} configures an action {name}; did you mean {meant}?"),
            (_, None) => {
                let known: Vec<&str> = known.into_iter().collect();
                format!("no node of {hosts} configures an action {name}; configured: {}", known.join(", "))
            }
        };
        let todo = format!("an action is a table of the node's agent.toml: [action.{name}]");
        Err(Refusal::Invalid(format!("{text} ({todo})")))
    }

    /// Returns `true` if the node of this task has reported its actions and does not configure the task's action.
    pub(crate) fn is_unconfigured(&self, task: TaskId) -> bool {
        let Some(action) = self.jobs.action(task.action) else { return false };
        let node = self.nodes.of(&self.jobs, task);
        node.and_then(|node| node.actions.as_ref()).is_some_and(|actions| !actions.contains(&action.row.name))
    }
}
