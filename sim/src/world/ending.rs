//! The end of a world: faults stop, and every action and attempt must come to its end within a known time.

use std::collections::BTreeSet;

use perilog_core::controller::io::{ActionRow, AttemptRow, Reader, Request, Which};
use perilog_core::{Epoch, IdSet, Rank, Targets, TaskId};

use super::World;
use super::event::Event;
use super::site;
use crate::plan::Side;
use crate::truth::recovery::is_on;

/// Time (ms) after the faults stop by which every action has its verdict, unless a node slept at that moment
/// ([`World::quiet`]). It covers start-grace, the longest script, the limit and graces of a task whose node is gone for
/// good, not-after, and a minute for retries.
const VERDICTS_MS: u64 = 400_000;
/// Time (ms) after the faults stop by which no node has work left. Agents give up abandoned tasks of their hosts after
/// an hour, and the controller prunes attempts past their retention within two hours.
const REST_MS: u64 = 2 * 3_600_000 + 600_000;
/// Milliseconds before the final check at which every agent says a last Hello, so that the controller can tell each
/// agent which tasks to forget.
const RECONNECT_MS: u64 = 120_000;
/// Time (ms) during which no timer may wake an agent: all work has ended before, and an agent without work must sleep
/// (invariant `9 idle`). The time ends when the simulator makes all agents say their last Hello ([`RECONNECT_MS`]).
const IDLE_MS: u64 = 1_800_000;
/// Time (ms) after the faults stop by which the nodes have reported to a restored store the commits that they have
/// accepted.
const NODES_REPORT_MS: u64 = 60_000;
const TIDY_UP_EVERY_MS: u64 = 30_000;

impl World {
    pub(crate) fn quiet(&mut self) {
        self.log_line(|| "QUIET: no more faults".to_owned());
        self.quiet = true;
        self.traps.off = true;
        self.empty_store_disk();
        self.free_hooks();
        self.schedule(1);
        self.kill_controller(1, None);
        self.begin_controller(0, 1);
        let plan_nodes = self.plan.nodes;
        // The events of a sleeping node's units keep the times that the sleep gave them.
        let sleep_ms = self.nodes.iter().map(|node| node.asleep_until.saturating_sub(self.t)).max().unwrap_or_default();
        self.verdicts_at = self.t + sleep_ms + VERDICTS_MS;
        for at in 0..self.nodes.len() {
            let t = self.t;
            let node = &mut self.nodes[at];
            node.cut_until = node.cut_until.min(t);
            node.full_until = node.full_until.min(t);
            node.stalled_until = node.stalled_until.min(t);
            node.hung_until = node.hung_until.min(t);
            node.asleep_until = node.asleep_until.min(t);
            if at >= plan_nodes {
                self.power_off(at);
                self.nodes[at].burnt = true;
                continue;
            }
            let incarnation = node.incarnation;
            self.continue_agent(at, incarnation);
            self.boot(at);
            let boot = self.nodes[at].boot;
            self.after(1, Event::AgentUp { node: at, boot });
        }
        self.flush();
        self.after(5_000, Event::TidyUp);
        self.after(self.verdicts_at - self.t, Event::Verdicts);
        self.after(REST_MS - RECONNECT_MS, Event::Reconnect);
        self.after(REST_MS, Event::Rest);
    }

    /// Acts as an operator at the end of a world. Makes the first controller take over if agents accept another one.
    /// Resolves tasks that nothing else would end, such as those without a limit on dead nodes.
    pub(crate) fn tidy_up(&mut self) {
        if self.nodes.iter().any(|node| node.on && node.agent.is_some()) && self.is_fenced() {
            self.truth.store_may_be_behind();
            self.ask(0, Request::Recover { take_over: true });
        }
        self.call_person();
        let store = &self.controllers[0].store;
        let mut stuck = Vec::new();
        for row in store.actions.iter().filter(|row| row.verdict.is_none()) {
            let mut open = IdSet::new();
            if row.timeout_ms.is_none() {
                open.extend_with(&row.accepted.difference(&self.limited_by_node(row)));
            }
            let is_dead = |rank: &u32| self.is_on_dead_node(TaskId { action: row.id, rank: Rank(*rank) });
            let dead: IdSet = open.iter().filter(is_dead).collect();
            if !dead.is_empty() {
                stuck.push(Which {
                    job: row.job.clone(),
                    attempt: Some(row.attempt),
                    action: Some(row.name.clone()),
                    targets: Some(Targets::Ranks(dead)),
                    resources: None,
                });
            }
        }
        // If the release hook was removed for good, an operator drops its pending notices.
        let pending = store.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook);
        let pending: BTreeSet<_> = pending.map(|entry| entry.job.clone()).collect();
        let pending = if site::settings(self.settings).release_hook { BTreeSet::new() } else { pending };
        // Finishes all jobs that still hold ranks: the resource manager is done with every job.
        let growing =
            |row: &AttemptRow| store.actions.iter().any(|a| a.growing && a.job == row.job && a.attempt == row.attempt);
        let held = store.attempts.iter().filter(|row| !row.hold.is_empty() && (row.added || growing(row)));
        // The resource manager ends the jobs that it launched; an operator first takes up the other jobs. After a
        // restored memory that no node could expose, the resource manager may no longer know a job. The operator sees
        // that once the nodes have had time to report.
        let is_early = self.t < self.plan.horizon_ms + NODES_REPORT_MS;
        let is_known = |row: &AttemptRow| !self.truth.is_unseen() || is_early || self.is_in_book(&row.job, row.attempt);
        let mine = |row: &&AttemptRow| self.plan.scheduler.is_some() && site::is_launched(&row.job) && is_known(row);
        let held = held.filter(|row| !row.abandoned && !mine(row));
        let held: Vec<_> = held.cloned().collect();
        for job in pending {
            let reason = "there is no longer a hook".to_owned();
            self.ask(0, Request::JobForget { job, attempt: None, releases: true, reason });
        }
        for row in held {
            self.ask(
                0,
                Request::JobFinish { job: row.job, attempt: Some(row.attempt), targets: None, resources: None },
            );
        }
        for which in stuck {
            self.ask(0, Request::Resolve { which, ok: false, reason: "its node is dead".to_owned() });
        }
        self.query_everything(0, 0);
        if self.t < self.verdicts_at {
            self.after(TIDY_UP_EVERY_MS, Event::TidyUp);
        }
    }

    /// Returns `true` if an agent has accepted an epoch after which it refuses the first controller's epoch.
    fn is_fenced(&self) -> bool {
        let Some(ours) = self.controllers[0].store.history.newest().map(|commit| commit.epoch) else { return false };
        // This check avoids `Epoch::admits`, which belongs to the machine under test.
        let refuses =
            |seen: Epoch| ours.number < seen.number || (ours.number == seen.number && ours.nonce != seen.nonce);
        self.nodes
            .iter()
            .filter(|node| node.on)
            .any(|node| node.spool.accepted.is_some_and(|accepted| refuses(accepted.epoch)))
    }

    /// Returns the accepted ranks whose node has a limit of its own for the task: no operator has to resolve these
    /// ranks.
    fn limited_by_node(&self, row: &ActionRow) -> IdSet {
        let is_limited = row.name.as_str() != "unlimited";
        let reported = |rank: &u32| is_limited && self.truth.is_certain(TaskId { action: row.id, rank: Rank(*rank) });
        row.accepted.iter().filter(reported).collect()
    }

    fn is_on_dead_node(&self, task: TaskId) -> bool {
        let store = &self.controllers[0].store;
        let Some(row) = store.actions.iter().find(|row| row.id == task.action) else { return false };
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt);
        let Some(attempt) = attempt else { return false };
        let host = attempt.ranks.iter().zip(attempt.hosts.iter()).find(|(rank, _)| *rank == task.rank.0);
        let Some((_, host)) = host else { return true };
        self.nodes.iter().take(self.plan.nodes).all(|node| node.host.as_str() != host || node.burnt)
    }

    pub(crate) fn reconnect(&mut self) {
        let (t, idle) = (self.t, |agent: &super::agent::Agent| agent.ticked_at);
        let agents = self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.agent.as_ref()?)));
        // All work of this world ended an hour before.
        let awake = agents.filter(|(_, agent)| idle(agent) > t - IDLE_MS).map(|(at, agent)| (at, idle(agent))).next();
        if let Some((at, when)) = awake {
            let text = format!("the agent of n{at} had nothing to do and woke at {when} ms");
            return self.violate("9 idle", &text);
        }
        for at in 0..self.nodes.len() {
            self.drop_conn(at, Side::Both);
        }
    }

    pub(crate) fn check_verdicts(&mut self) {
        let store = &self.controllers[0].store;
        let open = store.actions.iter().find(|row| row.verdict.is_none());
        if let Some(row) = open {
            let text = format!(
                "{} of {}, attempt {}, has no verdict: waiting {}, sent {}, accepted {}",
                row.name, row.job, row.attempt, row.waiting, row.sent, row.accepted
            );
            return self.violate("liveness", &text);
        }
        if is_on(store) {
            return self.violate("liveness", &format!("the grace is not over: {:?}", store.recovery));
        }
        if let Some(row) = store.attempts.iter().find(|row| row.abandoned) {
            let text = format!("no request has taken up {} attempt {}", row.job, row.attempt);
            return self.violate("liveness", &text);
        }
        if let Some(text) = self.unreleased() {
            return self.violate("liveness", &text);
        }
        let store = self.controllers[0].store.clone();
        let kept = store.attempts.iter().find(|row| row.hold.is_empty() && !row.complete);
        if let Some(row) = kept {
            let text = format!(
                "{} attempt {} has no holder, and only {} of it is released",
                row.job, row.attempt, row.released
            );
            return self.violate("4 released", &text);
        }
        self.truth.all_reported(&store);
        self.truth.all_reached(&store);
    }

    /// Describes what an agent, a node's systemd, the controller or its store keeps beyond its limit although no work
    /// is left (invariant 7), for example `the agent of n1 keeps 2 tasks`; `None`: nothing.
    fn grown(&self) -> Option<String> {
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.on) {
            let kept = site::policy(false, 0).keep_failed;
            let units = node.systemd.units.iter().filter(|(_, unit)| !unit.is_leftover_of_a_late_start());
            let stems: Vec<&String> = units.map(|(stem, _)| stem).collect();
            if stems.len() > kept {
                return Some(format!(
                    "n{at} keeps {} units loaded, {kept} at most are for a post-mortem: {stems:?}",
                    stems.len()
                ));
            }
            let sizes = node.agent.as_ref().map(|agent| agent.machine.sizes());
            if let Some((what, size)) =
                sizes.into_iter().flatten().find(|(what, size)| *what != "tombstones" && *size > 0)
            {
                return Some(format!("the agent of n{at} keeps {size} {what}"));
            }
        }
        let stepped = |step: &crate::plan::Step| {
            matches!(step.what, crate::plan::What::Fault(crate::plan::Fault::ControllerClockStep { .. }))
        };
        let machine = self.controllers[0].machine()?;
        // Retention uses the wall clock: after a clock step it may take longer.
        if self.plan.steps.iter().any(stepped) {
            return None;
        }
        let on = self.nodes.iter().filter(|node| node.on).count();
        let most = |what: &str| if what == "sessions" { on } else { 0 };
        let grown = machine.sizes().into_iter().find(|(what, size)| *size > most(what));
        let grown = grown.map(|(what, size)| format!("the controller keeps {size} {what}"));
        let store = &self.controllers[0].store;
        let rows = store.attempts.len()
            + store.actions.len()
            + store.ranks.len()
            + store.outbox.len()
            + store.events_last.len();
        grown.or_else(|| {
            (rows > 0).then(|| format!("the store keeps {rows} rows of attempts that are past their retention"))
        })
    }

    pub(crate) fn check_rest(&mut self) {
        self.over = true;
        for at in 0..self.nodes.len() {
            // An idle agent does not wake for its tombstones: it sweeps them at its next wake-up.
            self.feed(at, perilog_core::agent::Input::Status { caller: 0 });
        }
        let mut wrong = self.grown();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.on) {
            let Some(agent) = &node.agent else {
                wrong = Some(format!("n{at} has no agent"));
                break;
            };
            // A directory without its removed intent belongs to no task; the agent reports the directory and leaves it.
            let is_task =
                |(stem, dir): &(&String, &super::spool::Dir)| dir.intent.is_some() || !self.truth.is_cleared_stem(stem);
            if let Some((stem, _)) = node.spool.tasks.iter().find(is_task) {
                wrong = Some(format!("n{at} still has the directory of {stem}: {}", agent.machine.status_line()));
                break;
            }
            if agent.conn.is_none() {
                wrong = Some(format!("n{at} is not connected"));
                break;
            }
            // The controller has forgotten these tombstones, and they are past their not-after. Tombstones of kept
            // failed units remain, and so do tombstones of units that a fault has just reset.
            let tombstones = node.spool.tombstones.values().filter(|tombstone| !tombstone.local).count();
            if tombstones > site::policy(false, 0).keep_failed {
                wrong = Some(format!("n{at} keeps {tombstones} tombstones of attempts that were pruned"));
                break;
            }
        }
        if let Some(text) = wrong {
            self.violate("liveness", &text);
        }
    }
}
