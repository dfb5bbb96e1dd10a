//! Rebuilds the machine from the store.

use crate::controller::interface::io::{Now, Output, Record, Settings, Snapshot};
use crate::controller::machine::Machine;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::context::Context;
use crate::controller::state::drains::Drains;
use crate::controller::state::lists::Lists;
use crate::controller::state::outbox::Outbox;
use crate::controller::state::quiesce::Quiesce;
use crate::controller::state::recovery::Recovery;
use crate::controller::state::{Node, Nodes};
use crate::defect;
use crate::ids::{ActionId, Epoch};
use crate::idset::IdSet;

impl Machine {
    /// Rebuilds the machine from the store, and begins a new epoch. Returns the machine and the first batch to commit,
    /// which contains the epoch. `nonce`: a random number that tells two controllers with the same epoch number apart.
    pub fn load(snapshot: Snapshot, settings: Settings, nonce: u64, now: Now) -> (Self, Output) {
        let anchor = if defect!(EpochOfTheCopy) { None } else { snapshot.anchor };
        let newest = snapshot.history.newest().max(anchor);
        let number = newest.map_or(1, |commit| commit.epoch.number.saturating_add(1));
        let epoch = Epoch { number, nonce };
        let history = snapshot.history;
        let mut machine = Self {
            jobs: Jobs::new(&settings),
            drains: Drains::of(snapshot.drains, settings.drain_hook),
            cx: Context::new(settings, Outbox::of(snapshot.outbox, snapshot.outbox_last), now),
            epoch,
            history,
            highest_seen: None,
            nodes: Nodes::default(),
            recovery: Recovery::new(snapshot.recovery),
            lists: Lists::new(epoch),
            quiesce: Quiesce { quiet: snapshot.quiet, ..Quiesce::default() },
            pruned_ms: now.mono_ms,
            prunes_on: false,
            unknown_node_grace_until_ms: 0,
        };
        machine.cx.outbox.begin(number, now.wall_ms);
        if snapshot.nodes.is_empty() {
            machine.unknown_node_grace_until_ms = now.mono_ms.saturating_add(machine.cx.settings.start_grace_ms);
        }
        for row in snapshot.nodes {
            machine.nodes.learn(&row.host.clone(), || Node::new(row, now.mono_ms));
        }
        for row in snapshot.attempts {
            machine.jobs.load(row);
        }
        for row in snapshot.actions {
            let (id, open) = (row.id, if row.verdict.is_none() { row.ranks.clone() } else { IdSet::new() });
            machine.jobs.add_action(Action::stored(row, now.mono_ms));
            machine.nodes.index(&machine.jobs, id, &open);
        }
        machine.jobs.take_in_ranks(snapshot.ranks, now, machine.cx.settings.unreachable_grace_ms);
        for (job, last) in snapshot.events_last {
            let last = if defect!(EventsRepeat) { 0 } else { last };
            machine.jobs.table.set_events_last(job, last);
        }
        machine.jobs.table.away.elsewhere = snapshot.elsewhere;
        machine.cx.outbox.set_elsewhere(snapshot.elsewhere.notices);
        machine.nodes.index_failed(&machine.jobs);
        machine.jobs.suspend_live(&machine.cx);
        machine.cx.records.push(Record::Epoch(epoch));
        machine.judge_store(snapshot.stamp, snapshot.anchor);
        let first = machine.history.last + 1;
        machine.history.begin(epoch, first);
        machine.jobs.unlisted = machine.jobs.all_unlisted();
        machine.recovery.begin_grace(machine.nodes.len(), &machine.cx);
        machine.shut_gate();
        // A rank without a hold may have waited for its host's drain before the restart: the batch looks at every rank
        // that is not released.
        for (job, number, _) in machine.jobs.table.live_attempts().filter(|(.., attempt)| !attempt.complete) {
            machine.cx.hold_dropped(job, number, &machine.jobs.unreleased(job, number));
        }
        // A drain may be in force now, for example because the drain hook left the configuration: the batch looks at
        // every waiting resolution.
        let resolving = machine.jobs.resolving();
        machine.cx.in_force.extend(resolving.into_iter().filter_map(|(task, _)| machine.jobs.host_of(task)));
        // The hooks in the configuration may have changed while the controller was down.
        machine.on_settings(machine.cx.settings.clone());
        if snapshot.moved {
            machine.drains.renotify_in_force(&mut machine.cx);
        }
        let ids: Vec<ActionId> =
            machine.jobs.table.live_actions().filter(|a| a.row.verdict.is_none()).map(|a| a.row.id).collect();
        for id in ids {
            machine.jobs.arm(id, &machine.cx);
            // The last end and the verdict are in one commit, so no crash parts them. A store edited manually may lack
            // the verdict: the batch looks at every open action.
            machine.cx.touched.insert(id);
        }
        let output = machine.close_batch();
        (machine, output)
    }
}
