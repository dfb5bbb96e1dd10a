//! Begin of an action: adds the action to its attempt.

use serde_json::json;

use crate::controller::interface::io::{ActionRow, Record};
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::duration::Span;

impl Jobs {
    /// Adds a new action. On each rank the action begins when the actions that go first have ended there
    /// (`action/order.rs`); an external action begins at once.
    pub(crate) fn begin_action(&mut self, mut row: ActionRow, cx: &mut Context) {
        let (id, ranks) = (row.id, row.ranks.clone());
        row.events_from = self.get(&row.job).map_or(0, |j| j.events_last);
        let external = row.external.clone();
        // The store keeps actions in the order in which they began, because the order decides which action waits for
        // which.
        cx.records.push(Record::Action(Box::new(row.clone())));
        self.add_action(Action::new(row, cx.now.mono_ms));
        cx.changes.push_back(Change::Joined(id, ranks.clone()));
        self.arm(id, cx);
        self.touch(id, cx);
        let hosts = self.layout(id).map(|layout| layout.hosts_of(&ranks));
        let mut context = json!({"id": id, "ranks": ranks, "hosts": hosts});
        if let (Some(external), Some(context)) = (external, context.as_object_mut()) {
            context.insert("resources".to_owned(), json!(external.resources));
            context.insert("lease".to_owned(), json!(Span::from_millis(external.lease_ms)));
        }
        self.action_event(id, "action-start", context, cx);
        self.ready(id, ranks, cx);
    }
}
