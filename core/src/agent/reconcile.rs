//! Reconcile: compares what the host has (directories, units, tombstones) with the machine's tasks, at start and when
//! the bus comes back. The host's state comes as [`super::io::Input::Joined`]. At start the machine makes its tasks
//! from the findings. When the bus comes back, the machine knows more of its tasks than the findings say: it inspects
//! known tasks again, and takes only unknown tasks from the findings. When the bus is lost
//! ([`super::io::Input::BusLost`]), what the machine asked of systemd counts as unanswered.

use std::collections::{BTreeMap, BTreeSet};

use crate::defect;
use crate::hostlist::HostList;
use crate::ids::{self, ActionId, ClusterId, TaskId};
use crate::idset::IdSet;
use crate::mark::AcceptedEpoch;
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Hook, Intent, Plan, Start, Tombstone};

use super::ending::is_worth_inspecting;
use super::io::{Effect, Found, Level, Now, Seen, UnitIds};
use super::machine::{Cx, Machine};
use super::task::{State, ran_nothing};
use super::tombstones::KeptTombstone;

/// Maximum number of unknown units (units and directories without a task) that the machine remembers and logs.
const MAX_UNKNOWN_UNITS: usize = 1024;

/// The loaded unit of an ended task, which the agent has to unload, or to keep for a post-mortem. The fields: the
/// task's not-after, by which the units are ordered; the stem; and whether the unit may be kept.
type EndedUnit = (u64, String, bool);

impl Machine {
    pub(super) fn on_joined(
        &mut self,
        mut found: Vec<Found>,
        tombstones: Vec<Tombstone>,
        accepted: Option<AcceptedEpoch>,
        cx: &mut Cx,
    ) {
        let first = !self.joined;
        if self.bus {
            // `Joined` without a `BusLost`: systemd was re-executed, and may never answer earlier calls.
            self.on_bus_lost(cx);
        }
        self.bus = true;
        self.joined = true;
        if first {
            self.session.accepted = accepted;
            tombstones.into_iter().for_each(|tombstone| self.load_tombstone(tombstone));
        } else {
            self.resume(cx);
        }
        // A unit of another program may have taken the name of a unit that was kept for a post-mortem.
        let is_kept = |f: &Found| is_loaded(f) && f.unit_ids.as_ref().is_some_and(|ids| ids.stem() == f.stem);
        self.kept_failed.retain(|stem| found.iter().any(|f| f.stem == *stem && is_kept(f)));
        // `join` below retires again each unit that is still loaded.
        self.unloading.clear();
        self.unknown_units.retain(|stem, _| found.iter().any(|f| f.stem == *stem));
        found.sort_by_key(|f| f.intent.as_ref().map_or(0, |intent| intent.accepted_boottime_ms));
        let mut ended_units = Vec::new();
        for found in found {
            self.reconcile(found, first, &mut ended_units, cx);
        }
        ended_units.sort();
        for (_, stem, keep) in ended_units {
            self.retire_unit(stem, keep, cx);
        }
        if first {
            self.wait_for_hooks(cx);
            self.take_early(cx);
            self.greet(cx);
        }
    }

    pub(super) fn on_bus_lost(&mut self, cx: &Cx) {
        self.bus = false;
        for task in self.tasks.values_mut() {
            task.inspection = Default::default();
            task.watched = false;
            // systemd may not have received an earlier TERM: the agent sends it again.
            task.term = task.cancelled;
            if defect!(BusTakesTerm) {
                task.term = false;
            }
            if task.may_live() {
                task.watch.unanswered(cx.now.boot_ms);
            }
            if matches!(task.state, State::Starting) {
                let why = "the connection to the system bus was lost while systemd started the task's unit".to_owned();
                task.state = State::Doubt { why };
            }
        }
    }

    /// Restores a tombstone that an earlier agent wrote. Hello lists the tombstone, so the machine sends no `Finished`
    /// for it after the Welcome.
    fn load_tombstone(&mut self, tombstone: Tombstone) {
        let stem = ids::stem(&tombstone.action, &tombstone.job, tombstone.task);
        self.stems.insert(stem.clone(), tombstone.task);
        self.tombstones.keep(KeptTombstone { tombstone, stem, acked: true, forgotten: false });
    }

    /// Once the bus is back, asks for a new inspection of each task in the state Live or Doubt. For a live task it
    /// sends the effect `Watch`: the daemon answers with a `TaskChanged`, which leads to the inspection.
    fn resume(&mut self, cx: &mut Cx) {
        for id in self.in_order() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            match task.state {
                State::Live if defect!(WakeupLostAfterReexec) => {}
                State::Live => {
                    task.watched = true;
                    cx.push(Effect::Watch { stem: task.stem.clone(), task: id });
                }
                State::Doubt { .. } => self.inspect(id, cx),
                _ => {}
            }
        }
    }

    fn reconcile(&mut self, found: Found, first: bool, ended_units: &mut Vec<EndedUnit>, cx: &mut Cx) {
        let of_intent = found.intent.as_ref().map(|intent| intent.start.task);
        let of_unit = found.unit_ids.as_ref().map(|ids| ids.task);
        let Some(id) = of_intent.or(of_unit).or_else(|| self.stems.get(&found.stem).copied()) else {
            return self.reconcile_unknown(found, cx);
        };
        if let Some(KeptTombstone { tombstone, .. }) = self.tombstones.get_or_writing(id) {
            ended_units.extend(ended_unit(&found, id, &tombstone.outcome, tombstone.not_after_boottime_ms));
            if first && found.intent.is_some() {
                // The directory is still there beside its tombstone: an earlier agent stopped before it had removed the
                // directory.
                cx.push(Effect::WriteTombstone { stem: found.stem, tombstone: Box::new(tombstone.clone()) });
            }
        } else if self.tasks.contains_key(&id) {
            self.reconcile_known(id, found, ended_units, cx);
        } else {
            self.reconcile_new(id, found, ended_units, cx);
        }
    }

    fn reconcile_known(&mut self, id: TaskId, found: Found, ended_units: &mut Vec<EndedUnit>, cx: &mut Cx) {
        let Some(task) = self.tasks.get(&id) else { return };
        match &task.state {
            State::Ended { ended } | State::WritingTombstone { ended } => {
                ended_units.extend(ended_unit(&found, id, &ended.outcome, task.intent.not_after_boottime_ms));
            }
            // The start was requested by an earlier agent, or by this agent before it lost the bus.
            State::Unconfirmed | State::Queued if is_loaded(&found) || found.claim.is_some() => {
                self.doubt(id, "its unit came up late".to_owned(), cx);
            }
            _ => {}
        }
    }

    fn reconcile_new(&mut self, id: TaskId, mut found: Found, ended_units: &mut Vec<EndedUnit>, cx: &mut Cx) {
        let Some(intent) = found.intent.take().map(Box::new) else {
            return self.rebuild(id, found, ended_units, cx);
        };
        if let Some(ended) = found.ended.take() {
            return self.reconcile_ended(id, found, intent, ended, ended_units, cx);
        }
        if !is_loaded(&found) && found.claim.is_none() && !intent.is_rebuilt() {
            // The task is unclaimed: it begins only if a controller or caller asks for it again.
            let state = if defect!(BeginUnclaimed) { State::Queued } else { State::Unconfirmed };
            self.add(id, found.stem, intent, state);
            return;
        }
        let why = "the agent was restarted".to_owned();
        self.add(id, found.stem.clone(), intent, State::Doubt { why });
        self.observe(id, &seen(found), cx);
    }

    fn reconcile_ended(
        &mut self,
        id: TaskId,
        found: Found,
        intent: Box<Intent>,
        ended: Ended,
        ended_units: &mut Vec<EndedUnit>,
        cx: &mut Cx,
    ) {
        ended_units.extend(ended_unit(&found, id, &ended.outcome, intent.not_after_boottime_ms));
        self.add(id, found.stem, intent, State::Ended { ended: Box::new(ended) });
        self.send_end(id, cx);
    }

    /// Rebuilds the lost intent of a task from its unit, which has perilog's ids. The unit had a runner, so the task
    /// counts as claimed. Exception: if the runner's exit status says that it ran nothing, the unit came up after the
    /// task had ended, and is only unloaded (`ended_units`).
    fn rebuild(&mut self, id: TaskId, mut found: Found, ended_units: &mut Vec<EndedUnit>, cx: &mut Cx) {
        if defect!(OrphanNotRebuilt) {
            return;
        }
        let Some(ids) = found.unit_ids.clone() else { return };
        let is_traceless = found.claim.is_none() && found.ended.is_none();
        if found.unit.as_ref().is_some_and(ran_nothing) && found.processes.is_empty() && is_traceless {
            let text = format!(
                "{}.service ran nothing, and there is no record of its task: the agent unloads the unit",
                found.stem
            );
            cx.note(Level::Warning, Some(id), Some(&ids.job), text);
            return ended_units.push((0, found.stem, false));
        }
        let intent = Box::new(self.rebuilt_intent(ids, cx.now));
        let text =
            format!("the agent's record (intent) of {} is missing; the agent rebuilds it from the unit", found.stem);
        cx.note(Level::Warning, Some(id), Some(&intent.start.job), text);
        cx.push(Effect::WriteIntent { stem: found.stem.clone(), intent: intent.clone() });
        if let Some(ended) = found.ended.take() {
            return self.reconcile_ended(id, found, intent, ended, ended_units, cx);
        }
        let why = "the record (intent) of the task was missing".to_owned();
        self.add(id, found.stem.clone(), intent, State::Doubt { why });
        let invocation = found.unit.as_ref().and_then(|unit| unit.invocation.clone());
        if let (None, Some(invocation)) = (&found.claim, invocation) {
            if let Some(task) = self.tasks.get_mut(&id) {
                task.state = State::Live;
            }
            return self.take_claim(id, Claim::Runner(invocation), cx);
        }
        self.observe(id, &seen(found), cx);
    }

    fn rebuilt_intent(&self, ids: UnitIds, now: Now) -> Intent {
        let mut ranks = IdSet::new();
        ranks.insert(ids.task.rank.0);
        let plan = self.node.policy.actions.get(&ids.action).cloned();
        Intent {
            local: ids.task.action == ActionId::of(ClusterId::LOCAL, &ids.job, ids.attempt, &ids.action),
            commit: None,
            start: Start {
                task: ids.task,
                job: ids.job,
                attempt: ids.attempt,
                action: ids.action,
                boot: self.node.boot.clone(),
                not_after_ms: 0,
                milestones: BTreeSet::new(),
                ranks,
                // Always `Ok`: every host name is valid in a hostlist.
                hosts: HostList::from_names([self.node.host.as_str()]).unwrap_or_default(),
                userid: None,
                env: BTreeMap::new(),
                timeout_ms: None,
                after: false,
                commit: 0,
            },
            plan: plan.unwrap_or_else(unknown_plan),
            env: BTreeMap::new(),
            dropped_env: 0,
            // 0 marks a rebuilt intent (`Intent::is_rebuilt`).
            not_after_boottime_ms: 0,
            accepted_boottime_ms: now.boot_ms,
            hook: Hook::default(),
        }
    }

    /// Logs an unknown unit once, and kills nothing. An unknown unit is a unit with perilog's prefix but without ids,
    /// or a directory without a readable intent.
    fn reconcile_unknown(&mut self, found: Found, cx: &mut Cx) {
        let loaded = is_loaded(&found);
        if self.unknown_units.len() >= MAX_UNKNOWN_UNITS
            || self.unknown_units.insert(found.stem.clone(), loaded) == Some(loaded)
        {
            return;
        }
        let text = if loaded {
            format!(
                "{}.service has the name of a task of perilog, but no task's ids: the agent leaves it alone",
                found.stem
            )
        } else {
            format!(
                "the task directory {} (normally in /run/perilog/tasks) has no readable record (intent): the agent \
                 leaves it alone",
                found.stem
            )
        };
        cx.note(Level::Warning, None, None, text);
    }
}

fn is_loaded(found: &Found) -> bool {
    found.unit.as_ref().is_some_and(|unit| unit.loaded)
}

/// Returns the loaded unit of an ended task, which the agent then unloads or keeps for a post-mortem. `None`: no unit
/// is loaded, or the unit has neither the task's ids nor its claim, and so belongs to another program.
fn ended_unit(found: &Found, id: TaskId, outcome: &Outcome, not_after_ms: u64) -> Option<EndedUnit> {
    let unit = found.unit.as_ref().filter(|unit| unit.loaded)?;
    let by_ids = found.unit_ids.as_ref().is_some_and(|ids| ids.task == id);
    let by_claim = matches!(&found.claim, Some(Claim::Runner(claim)) if unit.invocation.as_ref() == Some(claim));
    if !by_ids && !by_claim {
        return None;
    }
    Some((not_after_ms, found.stem.clone(), unit.active == "failed" && is_worth_inspecting(outcome)))
}

fn seen(found: Found) -> Seen {
    Seen {
        unit: found.unit,
        unit_ids: found.unit_ids,
        processes: found.processes,
        claim: found.claim,
        result: found.result,
        steps: found.steps,
        tails: found.tails,
        stop_asked: found.stop_asked,
        // Unknown here; the next inspection shows whether the runner is deaf.
        deaf: None,
        runner: None,
        // The directory exists: the daemon found it, or `rebuild` has requested it.
        gone: false,
    }
}

/// The plan for a rebuilt task whose action the node no longer configures: no limits, and `lingering = "hold"`.
fn unknown_plan() -> Plan {
    Plan { path: String::new(), nofile: 0, ..Plan::default() }
}
