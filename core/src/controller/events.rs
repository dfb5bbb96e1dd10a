//! Events: writes the task ends of a batch to the job's event log, and decides the verdict once every rank of an action
//! has ended. Ranks that ended alike share one `finish` event. The resource manager normally gets a notice of the
//! verdict.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::agent::io::Level;
use crate::controller::action::{Action, Fresh};
use crate::controller::context::{Change, Context};
use crate::controller::job::Jobs;
use crate::defect;
use crate::ids::{ActionId, HostName};
use crate::idset::IdSet;
use crate::outcome::Verdict;

/// Maximum number of characters of a message in an event. The message is the last line that a script wrote.
const MAX_MESSAGE: usize = 200;

impl Jobs {
    /// Writes the action's ends of this batch to the job's event log, and decides the verdict if every rank has ended.
    /// An action of a frozen attempt gets no verdict.
    pub(super) fn record_ends(&mut self, id: ActionId, cx: &mut Context) {
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
        let may = !self.is_suspended_action(id) || defect!(SuspendedJudged);
        if !(may && self.action(id).is_some_and(Action::is_to_be_decided)) {
            return;
        }
        let forgiveness = self.forgiveness(id, cx);
        let Some(verdict) = self.action_mut(id).and_then(|action| action.decide(forgiveness, cx.now.wall_ms)) else {
            return;
        };
        let Some(action) = self.action(id) else { return };
        cx.changes.push_back(Change::Decided(id));
        let (ok, by_outcome, status) = (action.row.ok.clone(), action.by_outcome(), action.status());
        let resources = action.bad_resources();
        let bad = action.row.ranks.difference(&action.row.ok);
        let bad = self.layout(id).filter(|_| !bad.is_empty()).map(|layout| layout.hosts_of(&bad));
        let mut context = json!({"action": name, "attempt": attempt, "verdict": verdict, "status": status, "ok": ok,
            "by_outcome": by_outcome});
        if let (Some(resources), Some(context)) = (resources, context.as_object_mut()) {
            context.insert("resources".to_owned(), resources);
        }
        if let (Some(hosts), Some(context)) = (bad, context.as_object_mut()) {
            context.insert("hosts".to_owned(), json!(hosts));
        }
        self.event(&job, "verdict", context.clone(), cx);
        self.notify_manager(&job, attempt, "verdict", context, cx);
        if let Some(entry) = self.attempt_mut(&job, attempt) {
            entry.touched_ms = cx.now.wall_ms;
            cx.attempt_changed(&job, attempt);
        }
        if verdict == Verdict::Ok {
            self.forgive(id, cx);
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
