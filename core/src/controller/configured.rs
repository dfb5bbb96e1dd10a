//! The actions that nodes configure, as their agents say in Hello. The controller decides by them in two places:
//!
//! * An action that no node of a request configures is a typing mistake: the controller refuses the request, and nothing of it stays.
//! * A node that does not configure an action refuses it, and nothing is wrong with that node. Only what follows jobs (`after`) has to run on each of them.
//!
//! An older agent says nothing of its actions. Then the controller knows nothing, and the node decides.

use std::collections::BTreeSet;

use crate::controller::io::Refusal;
use crate::controller::layout::Layout;
use crate::controller::machine::Machine;
use crate::ids::{ActionName, TaskId};
use crate::idset::IdSet;
use crate::nearest::nearest;

impl Machine {
    /// Refuses an action that every node of these ranks is known not to configure.
    pub(super) fn check_configured(&self, name: &ActionName, layout: &Layout, ranks: &IdSet) -> Result<(), Refusal> {
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

    /// Is it known that the node of this task does not configure its action?
    pub(super) fn is_unconfigured(&self, task: TaskId) -> bool {
        let Some(action) = self.actions.get(&task.action) else { return false };
        let node = self.host_of(task).and_then(|host| self.nodes.get(&host));
        node.and_then(|node| node.actions.as_ref()).is_some_and(|actions| !actions.contains(&action.row.name))
    }
}
