//! Configured actions: each agent reports in its Hello which actions its node's configuration names. The controller
//! refuses a request for an action that no node of the request configures. Such a request is a typing mistake, and
//! leaves no trace.
//!
//! An older agent reports no actions, and those of a node that has just left may be old. Then the controller sends the
//! Start, and the node decides.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::Refusal;
use crate::controller::state::Node;
use crate::controller::state::layout::Layout;
use crate::ids::ActionName;
use crate::idset::IdSet;
use crate::nearest::nearest;

/// Time (ms) after the end of a session in which the actions of its node count as unknown. An agent whose reload
/// changed its actions ends its session, and reports the new actions in the next one.
const RENEWED_MS: u64 = 5_000;

impl Facts<'_> {
    /// Checks that at least one node of `ranks` configures the action, or may do so: it has not reported its actions,
    /// or renews its session.
    ///
    /// # Errors
    /// `Invalid`: every node has reported its actions, and no node configures this action.
    pub(crate) fn check_configured(&self, name: &ActionName, layout: &Layout, ranks: &IdSet) -> Result<(), Refusal> {
        let mut known = BTreeSet::new();
        for (_, host) in layout.pairs(ranks) {
            let settled = |node: &&Node| {
                node.session.is_some() || self.cx.now.mono_ms >= node.since_ms.saturating_add(RENEWED_MS)
            };
            match self.nodes.get(host).filter(settled).and_then(|node| node.actions.as_ref()) {
                Some(actions) if !actions.contains(name) => known.extend(actions.iter().map(ActionName::as_str)),
                _ => return Ok(()),
            }
        }
        if ranks.is_empty() {
            return Ok(());
        }
        let hosts = layout.hosts_of(ranks);
        let text = match (known.is_empty(), nearest(name.as_str(), known.iter().copied())) {
            (true, _) => format!("no node of {hosts} configures any action"),
            (_, Some(meant)) => format!("no node of {hosts} configures an action {name}; did you mean {meant}?"),
            (_, None) => {
                let known: Vec<&str> = known.into_iter().collect();
                format!("no node of {hosts} configures an action {name}; configured: {}", known.join(", "))
            }
        };
        let todo = format!("to configure it, add a table [action.{name}] to agent.toml of the node");
        Err(Refusal::Invalid(format!("{text} ({todo})")))
    }
}
