//! Carries out the commits and effects of a controller, and checks each.

use perilog_core::controller::Record;
use perilog_core::controller::io::{ActionRow, AttemptRow, Effect, OutboxEntry, Reply, SessionId};
use perilog_core::message::ToAgent;
use perilog_core::{Loss, Outcome, Rank, TaskId};
use perilog_proto::StartFan;

use super::World;
use super::traps::{How, Sprung};
use crate::plan::{Spring, of_controller};

/// Time (ms) from a load of the controller's machine until its gate is surely open, even if nodes are absent. Includes
/// the delay of a batch.
const SETTLES_MS: u64 = 5_100;

impl World {
    pub(crate) fn commit(&mut self, which: usize, records: &[Record]) {
        if self.trace.is_read() {
            for record in records.iter().filter(|record| !matches!(record, Record::Event { .. })) {
                let shown = format!("{record:?}");
                self.log_line(|| format!("c{which}    == {shown}"));
            }
        }
        let mut repeated = None;
        let controller = &mut self.controllers[which];
        let (store, shown) = (&mut controller.store, &mut controller.shown);
        controller.begun.extend(records.iter().filter_map(|record| match record {
            Record::Action(row) => store.actions.iter().all(|known| known.id != row.id).then_some(row.id),
            _ => None,
        }));
        for record in records {
            if let Record::Event { job, sequence, .. } = record {
                let last = store.events_last.get(job).copied().unwrap_or_default();
                if *sequence != last + 1 {
                    repeated = Some(format!("c{which} numbers an event of {job} {sequence} after {last}"));
                }
            }
            store.apply(record);
            if let Some(shown) = shown {
                shown.advance(store);
            }
        }
        self.truth.committed(which, store, records, self.t);
        if which == 0 {
            self.check_traces(records);
        }
        if let Some(text) = repeated {
            self.violate("5 shown", &text);
        }
    }

    /// Checks the tasks that a batch records as `lost (vanished)`: the node must have no tombstone with an outcome of
    /// their scripts. The rule holds even after the loss of a store, because a node's Hello reports everything that the
    /// node keeps.
    fn check_traces(&mut self, records: &[Record]) {
        let rows = records.iter().filter_map(|record| match record {
            // A row that is written again with a late result brings no new outcome.
            Record::Rank(row) if row.late.is_empty() => {
                (row.ended.outcome == Outcome::Lost { why: Loss::Vanished }).then_some(row.task)
            }
            _ => None,
        });
        let found = rows.into_iter().find_map(|task| {
            let row = self.controllers[0].store.actions.iter().find(|row| row.id == task.action)?;
            let attempts = &self.controllers[0].store.attempts;
            let attempt = attempts.iter().find(|of| of.job == row.job && of.attempt == row.attempt)?;
            let (_, host) = attempt.ranks.iter().zip(attempt.hosts.iter()).find(|(rank, _)| *rank == task.rank.0)?;
            let at = (0..self.nodes.len()).find(|at| super::site::host(*at).as_str() == host)?;
            let node = self.nodes.get(at).filter(|node| node.on && self.truth.is_one(at))?;
            let tombstone =
                node.spool.tombstones.values().find(|tombstone| tombstone.task == task && !tombstone.local)?;
            // The tombstone may stand for a task that the node never had, or lost itself. Or the node got the order to
            // forget the task, and another node brought the action back.
            let forgotten = self.truth.ran_before_its_prune(&row.job, row.attempt, task, at);
            let has_end = tombstone.outcome.is_of_scripts() && !forgotten;
            has_end.then(|| {
                format!(
                    "{} of {} on {host} is lost (vanished), and its tombstone says {}",
                    row.name, row.job, tombstone.outcome
                )
            })
        });
        if let Some(text) = found {
            self.violate("3 true", &text);
        }
    }

    pub(crate) fn effect(&mut self, which: usize, effect: Effect) {
        self.check_orphans(which, &effect);
        if let Effect::Reply { reply: Ok(Reply::Outbox(entries)), .. } = &effect {
            let store = &self.controllers[which].store;
            entries.iter().for_each(|entry| self.truth.check_notice(which, store, entry));
        }
        let name = of_controller(&effect);
        let sprung = if which == 0 { self.traps.controller(name) } else { Sprung::No };
        match sprung {
            Sprung::Before(Spring::CrashBefore { down_ms }) => self.spring_controller(which, down_ms),
            Sprung::After(Spring::CrashAfter { down_ms }) => {
                self.leaves(which, effect, false);
                self.spring_controller(which, down_ms);
            }
            Sprung::How(How::Half { down_ms }) => {
                self.leaves(which, effect, true);
                self.spring_controller(which, down_ms);
            }
            _ => self.leaves(which, effect, false),
        }
    }

    /// Carries out an effect of controller `which`. `half`: a trap strikes in the middle, so of a fan-out of Starts
    /// only the first half is sent.
    fn leaves(&mut self, which: usize, effect: Effect, half: bool) {
        if self.trace.is_read() && is_news(&effect) {
            let shown = format!("{effect:?}");
            self.log_line(|| format!("c{which}    -> {shown}"));
        }
        match effect {
            Effect::Send { session, message } => {
                if let ToAgent::Ack { task, .. } = &message {
                    self.check_ack(which, session, *task);
                }
                if matches!(message, ToAgent::Welcome { .. }) {
                    // A session that has ended meanwhile was also let in, and replaced other sessions.
                    self.welcome(session);
                }
                if let Some(conn) = self.controllers[which].sessions.get(&session).copied() {
                    if matches!(message, ToAgent::Probe { .. })
                        && let Some(c) = self.conns.get_mut(&conn)
                    {
                        c.probed_at.push(self.t);
                    }
                    self.send_to_agent(conn, &message);
                }
            }
            Effect::Fan { start, to } => {
                let fan = StartFan::new(&start);
                let most = if half { to.len() / 2 } else { to.len() };
                for (session, rank, boot) in to.iter().take(most) {
                    if let Some(conn) = self.controllers[which].sessions.get(session).copied() {
                        self.transmit_bytes(conn, fan.for_rank(*rank, boot, start.commit).to_vec());
                    }
                }
            }
            Effect::Close { session, why } => {
                if let Some(conn) = self.controllers[which].sessions.get(&session).copied() {
                    self.controller_closes(conn);
                    let incarnation = self.controllers[which].incarnation;
                    self.session_closed(which, incarnation, session, &why);
                }
            }
            Effect::Reply { client, reply: Ok(Reply::PendingDrains(drains)) } if self.is_hooks(which, client) => {
                self.call_drain_hook(&drains);
            }
            Effect::Reply { client, reply: Ok(Reply::Outbox(entries)) } if self.is_hooks(which, client) => {
                self.call_release_hook(&entries);
            }
            Effect::Reply { client, reply: Ok(Reply::Quiet { .. }) } => self.truth.quiet_answered(which, client),
            Effect::Reply { client, reply } if which == 0 && self.scheduler_receives(client, &reply) => {}
            Effect::Reply { client, reply } if which == 0 && self.person_receives(client, &reply) => {}
            Effect::Reply { client, reply } => {
                if which == 0 {
                    self.service_receives(client, &reply);
                }
                self.check_reply(which, client, reply);
            }
            Effect::WakeAt { mono_ms } => {
                let controller = &mut self.controllers[which];
                controller.wake = Some(mono_ms);
                let (incarnation, lag) = (controller.incarnation, controller.mono_lag);
                self.wake_at(which, incarnation, mono_ms, lag);
            }
            Effect::Publish { job, sequence, .. } => {
                let kept = self.controllers[which].store.events_last.get(&job);
                if kept.is_some_and(|last| *last < sequence) {
                    let text = format!("c{which} publishes event {sequence} of {job}, and its store ends before it");
                    self.violate("5 shown", &text);
                }
            }
            Effect::OutboxGrew => self.hooks_poll(which),
            Effect::Answer { .. } | Effect::Note { .. } => {}
        }
    }

    /// Checks an acknowledgement that the controller is about to send: normally its store must contain the end.
    fn check_ack(&mut self, which: usize, session: SessionId, task: TaskId) {
        let controller = &self.controllers[which];
        let store = &controller.store;
        // The controller acknowledges an end of an action that it does not know. The action may begin later in the
        // batch; its Start is not sent before the commit.
        let known = |row: &&ActionRow| row.id == task.action && !controller.begun.contains(&row.id);
        let Some(row) = store.actions.iter().find(known) else { return };
        let rank = task.rank.0;
        // The scripts have ended, and the store keeps their end until the announced reboot.
        let waits = store.ranks.iter().any(|row| row.task == task && row.expects.is_some());
        let has = row.ok.contains(rank) || row.not_ok.contains(rank) || waits;
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt);
        let host =
            attempt.and_then(|a| a.ranks.iter().zip(a.hosts.iter()).find(|(of, _)| *of == rank)).map(|(_, host)| host);
        let conn = self.controllers[which].sessions.get(&session).and_then(|conn| self.conns.get(conn));
        if let Some((conn, attempt)) = conn.zip(attempt)
            && !row.ranks.contains(rank)
            && self.truth.reports_lost_tasks()
            && !host.is_some_and(|host| self.truth.was_undrained(host))
            && self.had_grown(conn.node, task, row, attempt)
        {
            let text = format!("c{which} acknowledges {task}, and its {} does not cover that rank", row.name);
            return self.violate("5 acknowledged", &text);
        }
        // The controller acknowledges a report about another host's task, so that the agent stops repeating the
        // report, and ignores the outcome.
        let own = conn.is_some_and(|conn| Some(self.nodes[conn.node].host.as_str()) == host);
        let given_up = host.is_some_and(|host| self.truth.was_undrained(host));
        if own && !has && row.ranks.contains(rank) && !given_up {
            self.violate("5 acknowledged", &format!("c{which} acknowledges {task}, and its store has no end of it"));
        }
    }

    /// Returns `true` if `row` is an epilog that may have got the task's rank in a lost epoch, in which the job handed
    /// over its ranks one by one. The evidence is the Start that node `at` keeps in its intent: all ranks and hosts of
    /// the Start must fit the attempt. An epilog with a verdict does not count, because it gets no more ranks.
    fn had_grown(&self, at: usize, task: TaskId, row: &ActionRow, attempt: &AttemptRow) -> bool {
        let intent = self.nodes[at].spool.tasks.values().filter_map(|dir| dir.intent.as_ref());
        let Some(start) = intent.map(|intent| &intent.start).find(|start| start.task == task) else { return false };
        let known: Vec<(u32, &str)> = attempt.ranks.iter().zip(attempt.hosts.iter()).collect();
        // A rank has one host, and a host one rank.
        let fits = |rank: u32, host: &str| known.iter().all(|(r, h)| (*r == rank) == (*h == host));
        let agrees = start.ranks.iter().zip(start.hosts.iter()).all(|(rank, host)| fits(rank, host));
        let within = start.ranks.iter().all(|rank| known.iter().any(|(of, _)| *of == rank));
        row.name.as_str() == "epilog" && row.verdict.is_none() && agrees && within
    }

    fn check_reply(&mut self, which: usize, client: u64, reply: Result<Reply, perilog_core::controller::io::Refusal>) {
        let controller = &self.controllers[which];
        let store = &controller.store;
        let wrong = match (reply, &controller.shown) {
            (Ok(Reply::Running { job, attempt, .. }), _) => {
                controller.asked.get(&client).filter(|asked| **asked != attempt).map(|asked| {
                    format!("attempt {asked} of {job} was asked for, and attempt {attempt} is said to run")
                })
            }
            (Ok(Reply::Outbox(entries)), Some(shown)) => {
                // Notices from before the start wait for the store's nodes.
                let settles = self.t < controller.loaded_at + SETTLES_MS;
                let stays = |entry: &&OutboxEntry| !settles && shown.notices.contains(&entry.sequence);
                let missing = store.outbox.iter().filter(stays).find(|entry| !entries.contains(entry));
                missing.map(|entry| format!("entry {} of the outbox waits, and is not shown", entry.sequence))
            }
            (Ok(Reply::Ps { rows, .. }), Some(shown)) => {
                self.check_ps(which, controller.asked_held.contains(&client), &shown.waits, &rows)
            }
            (Ok(Reply::Show(view)), Some(shown)) => {
                view.attempts.iter().flat_map(|attempt| &attempt.actions).find_map(|action| {
                    // The reply may lack what the batch recorded after it.
                    let of = |rank| TaskId { action: action.id, rank: Rank(rank) };
                    let differs = action.ok.iter().any(|rank| !shown.ok.contains(&of(rank)))
                        || action.verdict.is_some_and(|verdict| shown.verdicts.get(&action.id) != Some(&verdict));
                    differs.then(|| format!("{} is shown otherwise than it is stored", action.id))
                })
            }
            (Ok(Reply::Outbox(_) | Reply::Ps { .. } | Reply::Show(_)), None) => {
                Some("a client gets a reply in a batch without its request".to_owned())
            }
            _ => None,
        };
        if let Some(text) = wrong {
            self.violate("8 visible", &text);
        }
    }
}

/// Returns `true` if the history gets a line for this effect. Wake-ups, for example, and replies to requests that only
/// look, get none.
const fn is_news(effect: &Effect) -> bool {
    match effect {
        Effect::WakeAt { .. } | Effect::Publish { .. } | Effect::OutboxGrew => false,
        Effect::Reply { reply: Ok(reply), .. } => {
            matches!(
                reply,
                Reply::Running { .. }
                    | Reply::Reached { .. }
                    | Reply::Drained { .. }
                    | Reply::Undrained { .. }
                    | Reply::TakenOver { .. }
                    | Reply::Synced(_)
                    | Reply::Recovery(_)
            )
        }
        _ => true,
    }
}
