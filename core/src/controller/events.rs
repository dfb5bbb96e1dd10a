//! Events: writes the task ends and the drains of a batch to the event logs of their jobs. Ranks that ended alike share
//! one `finish` event.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::agent::io::Level;
use crate::controller::state::Jobs;
use crate::controller::state::action::Fresh;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, HostName};
use crate::idset::IdSet;

/// Maximum number of characters of a message in an event. The message is the last line that a script wrote.
const MAX_MESSAGE: usize = 200;

impl Jobs {
    /// Writes the action's ends of this batch to the job's event log.
    pub(super) fn log_ends(&mut self, id: ActionId, cx: &mut Context) {
        let Some(action) = self.action_mut(id) else {
            return;
        };
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        let fresh = std::mem::take(&mut action.fresh);
        for (ranks, folded) in fold(fresh) {
            let hosts = self.layout(id).map(|layout| layout.hosts_of(&ranks));
            let mut context = Map::new();
            context.insert("action".into(), json!(name));
            context.insert("attempt".into(), json!(attempt));
            context.insert("ranks".into(), json!(ranks));
            context.insert("hosts".into(), json!(hosts));
            folded.describe(&mut context);
            self.event(&job, "finish", Value::Object(context), cx);
        }
    }

    /// Logs the drains of the batch, in the jobs' event logs and in the journal. Hosts that a batch drained for the
    /// same reason share an event and a line.
    pub(super) fn log_drains(&mut self, cx: &mut Context) {
        let drained = std::mem::take(&mut cx.drained).into_iter().flat_map(|(of, ranks)| {
            let parts = if defect!(DrainsLoggedApart) { each(&ranks) } else { vec![ranks] };
            parts.into_iter().map(move |ranks| (of.clone(), ranks))
        });
        for ((action, reason), ranks) in drained {
            let (Some(layout), Some(of)) = (self.layout(action), self.action(action)) else { continue };
            let (hosts, job) = (layout.hosts_of(&ranks), of.row.job.clone());
            let (host, text) = match (hosts.len(), hosts.get(0).map(HostName::new)) {
                (1, Some(Ok(host))) => (Some(host), format!("drained: {reason}")),
                _ => (None, format!("drained {hosts}: {reason}")),
            };
            let context = json!({"ranks": ranks, "hosts": hosts, "reason": reason});
            self.action_event(action, "drain", context, cx);
            cx.note(Level::Warning, Some(&job), host.as_ref(), text);
        }
    }
}

/// Returns each of these ranks as a set of its own.
fn each(ranks: &IdSet) -> Vec<IdSet> {
    ranks.iter().map(|rank| IdSet::from(rank..=rank)).collect()
}

/// Ends that share one `finish` event. `fresh`: the result that they have in common. `elapsed`: the duration of each
/// task, in ms.
struct Folded {
    fresh: Fresh,
    elapsed: Vec<u64>,
}

impl Folded {
    fn describe(mut self, context: &mut Map<String, Value>) {
        context.insert("outcome".into(), json!(self.fresh.outcome.as_str()));
        context.insert("result".into(), json!(self.fresh.result));
        if let Some(status) = self.fresh.outcome.status() {
            context.insert("status".into(), json!(status));
        }
        self.elapsed.sort_unstable();
        if let (Some(min), Some(max)) = (self.elapsed.first(), self.elapsed.last()) {
            let median = self.elapsed[self.elapsed.len() / 2];
            context.insert("elapsed_ms".into(), json!({"min": min, "median": median, "max": max}));
        }
        if let Some(message) = self.fresh.message {
            context.insert("message".into(), json!(message));
        }
        if !self.fresh.checks.is_empty() {
            context.insert("checks".into(), json!(self.fresh.checks));
        }
    }
}

/// Groups ends with the same result, message and checks; returns each group with its ranks.
fn fold(fresh: Vec<Fresh>) -> Vec<(IdSet, Folded)> {
    let mut groups: BTreeMap<_, (IdSet, Folded)> = BTreeMap::new();
    for mut one in fresh {
        one.message = one.message.map(|m| m.chars().take(MAX_MESSAGE).collect());
        let key = (one.result.clone(), one.message.clone(), one.checks.clone());
        let (ranks, elapsed) = (one.rank.0, one.elapsed_ms);
        let (set, folded) =
            groups.entry(key).or_insert_with(|| (IdSet::new(), Folded { fresh: one, elapsed: Vec::new() }));
        set.insert(ranks);
        folded.elapsed.extend(elapsed);
    }
    groups.into_values().collect()
}
