//! Carries out the effects of an agent in the world.

use perilog_core::agent::io::{Effect, ExecReply, Input, Level, StartReply};

use perilog_core::message::FromAgent;

use super::World;
use super::agent::Pending;
use super::event::{AgentEvent, Call, Event};
use super::traps::How;

const TERM: u8 = 15;
const FULL: &str = "no space left on device";

impl World {
    /// Carries out an effect of the agent on node `at`. `how`: the fault with which the effect goes wrong.
    pub(crate) fn carry_out(&mut self, at: usize, effect: Effect, how: Option<How>) {
        if self.trace.is_read() && !matches!(effect, Effect::WakeAt { .. }) {
            let shown = format!("{effect:?}");
            self.log_line(|| {
                format!("n{at}    -> {shown}{}", how.map(|how| format!(" ({how:?})")).unwrap_or_default())
            });
        }
        self.check_effect(at, &effect);
        if how.is_some() {
            self.disturb(at);
        }
        let full = self.t < self.nodes[at].full_until || how == Some(How::Fails);
        let written = if full { Err(FULL.to_owned()) } else { Ok(()) };
        match effect {
            Effect::WriteIntent { stem, intent } => {
                let task = intent.start.task;
                // If /run is full, the agent refuses a new task and does not count it. A rebuilt intent (of a task with
                // a unit) counts all the same.
                let rebuilt = self.nodes[at].systemd.units.contains_key(&stem);
                if let Some(agent) = self.nodes[at].agent.as_mut() {
                    let _ = if full && rebuilt { agent.unwritten.insert(task) } else { agent.unwritten.remove(&task) };
                }
                if !full {
                    self.truth.written(at, task);
                    self.nodes[at].spool.record(&stem, *intent);
                    self.enter(at, &stem, task);
                }
                self.answer(at, Input::IntentWritten { task, result: written });
            }
            Effect::StartUnit { stem, intent, since_boot_ms } => self.start(at, stem, (intent, since_boot_ms), how),
            Effect::Watch { stem, task } => {
                self.enter(at, &stem, task);
                if let Some(agent) = self.nodes[at].agent.as_mut() {
                    agent.watched.insert(stem.clone());
                    if agent.bus {
                        agent.interest.insert(stem.clone());
                    }
                }
                self.call(at, Pending::Ignored, Call::Watch { stem }, 0, false);
            }
            Effect::WatchEmpty { task, .. } => self.watch_empty(at, task),
            Effect::Inspect { stem, task } => {
                self.enter(at, &stem, task);
                if how == Some(How::Fails) {
                    let seen = Err("systemd does not answer".to_owned());
                    return self.answer(at, Input::Inspected { task, seen });
                }
                self.call(at, Pending::OverviewRequest(task), Call::Inspect { stem, task }, 0, false);
            }
            Effect::TakeClaim { stem, task, claim } => {
                let result = written.map(|()| self.nodes[at].spool.take_claim(&stem, &claim));
                self.truth.claim_tried(at, task, !full, self.t);
                self.answer(at, Input::ClaimTaken { task, result });
            }
            Effect::SignalRunner { stem, signal } => {
                if signal == TERM
                    && let Some(dir) = self.nodes[at].spool.tasks.get_mut(&stem)
                {
                    dir.stop_asked = true;
                }
                let of = self.last_invocation(at, &stem);
                self.call(at, Pending::Ignored, Call::SignalRunner { stem, signal, of }, 0, false);
            }
            Effect::MarkBootExpected { stem } => {
                if !full && let Some(dir) = self.nodes[at].spool.tasks.get_mut(&stem) {
                    dir.boot_expected = true;
                    self.boot_expected(at, &stem);
                }
            }
            Effect::KillLingering { stem } => {
                let of = self.last_invocation(at, &stem);
                self.call(at, Pending::Ignored, Call::KillAll { stem, of }, 0, false);
            }
            Effect::WriteOutcome { stem, task, ended, rebuilt } => {
                if !full {
                    let dir = self.nodes[at].spool.dir(&stem);
                    dir.intent.get_or_insert(*rebuilt);
                    dir.ended = Some(*ended);
                }
                self.answer(at, Input::OutcomeWritten { task, result: written });
            }
            Effect::Unload { stem } => {
                if let Some(agent) = self.nodes[at].agent.as_mut() {
                    agent.watch_empty.remove(&stem);
                    agent.interest.remove(&stem);
                }
                if how == Some(How::Fails) {
                    let result = Err("systemd does not answer".to_owned());
                    return self.answer(at, Input::Unloaded { stem, result });
                }
                let of = self.last_invocation(at, &stem);
                self.call(at, Pending::Unload(stem.clone()), Call::Unload { stem, of }, 0, false);
            }
            Effect::WriteTombstone { stem, tombstone } => {
                let task = tombstone.task;
                if let Some(agent) = self.nodes[at].agent.as_mut() {
                    let _ = if full { agent.unwritten.insert(task) } else { agent.unwritten.remove(&task) };
                }
                if !full {
                    self.truth.tombstone_written(at, task);
                    self.nodes[at].spool.write_tombstone(&stem, *tombstone, !matches!(how, Some(How::Half { .. })));
                    self.leave_index(at, &stem);
                }
                if let Some(How::Half { down_ms }) = how {
                    return self.kill_agent(at, down_ms);
                }
                self.answer(at, Input::TombstoneWritten { task, result: written });
            }
            Effect::RemoveTombstone { stem, .. } => {
                self.nodes[at].spool.tombstones.remove(&stem);
            }
            Effect::WriteEpoch { accepted } => {
                if !full {
                    self.nodes[at].spool.accepted = Some(accepted);
                }
                self.answer(at, Input::EpochWritten { epoch: accepted.epoch, result: written });
            }
            Effect::Send(message) => self.send_to_controller(at, message),
            Effect::Hang { .. } => {
                if self.hang_up(at) {
                    self.answer(at, Input::LinkDown);
                }
            }
            Effect::RedialWindow { ms } => {
                if let Some(agent) = self.nodes[at].agent.as_mut() {
                    (agent.window_ms, agent.welcomed) = (ms, true);
                }
            }
            Effect::WakeAt { boot_ms } => self.wake_agent(at, boot_ms),
            Effect::ExecReply { caller, reply } => self.exec_reply(at, caller, &reply),
            Effect::Note { level, text, .. } => {
                if level == Level::Error {
                    self.log_line(|| format!("n{at} says: {text}"));
                }
            }
            Effect::CallHook(call) => {
                let result = Ok(());
                self.answer(at, Input::HookCalled { task: call.task, event: call.event, result });
            }
            Effect::Answer { question, .. } => self.gather(at, question),
            Effect::StatusReply { .. } => {}
        }
    }

    fn answer(&mut self, at: usize, input: Input) {
        if let Some(agent) = self.nodes[at].agent.as_mut() {
            agent.inputs.push_back(input);
        }
    }

    fn start(
        &mut self,
        at: usize,
        stem: String,
        (intent, since_boot_ms): (Box<perilog_core::task::Intent>, u64),
        how: Option<How>,
    ) {
        let (t, task) = (self.t, intent.start.task);
        self.enter(at, &stem, task);
        if let Some(agent) = self.nodes[at].agent.as_mut() {
            agent.watched.insert(stem.clone());
            agent.inspected_units.remove(&stem);
            agent.asked.entry(task).or_insert(t);
            if agent.bus {
                agent.interest.insert(stem.clone());
            }
        }
        let pending = Pending::Start(task);
        let call = Call::Start { stem, intent, since_boot_ms };
        match how {
            Some(How::Fails) => {
                let reply = StartReply::Rejected("Access denied".to_owned());
                self.answer(at, Input::Started { task, reply });
            }
            Some(How::Unanswered { happens: true }) => self.call(at, pending, call, 0, true),
            // The answer never arrives within the world's time.
            Some(How::Unanswered { happens: false }) => self.call(at, pending, call, u64::MAX / 4, true),
            Some(How::Late { ms }) => self.call(at, pending, call, ms, false),
            Some(How::Half { .. }) | None => self.call(at, pending, call, 0, false),
        }
    }

    /// Answers a question of the controller. In half of the cases sends a first part of the answer at once; the last
    /// part comes later, normally within five seconds.
    fn gather(&mut self, at: usize, question: u64) {
        let Some((incarnation, conn)) = self.nodes[at].agent.as_ref().map(|agent| (agent.incarnation, agent.conn))
        else {
            return;
        };
        let Some(conn) = conn else { return };
        if self.dice.one_in(2) {
            let part = FromAgent::Answer { question, text: "a line".to_owned(), last: false };
            if !self.does(at, incarnation, Effect::Send(part)) {
                return;
            }
        }
        let delay = self.dice.skewed(1, 5_000);
        self.after(delay, Event::Answered { node: at, incarnation, conn, question });
    }

    /// Sends the answer to the question of this number, if the session that asked is still open.
    pub(crate) fn answered(&mut self, at: usize, incarnation: u64, conn: u64, question: u64) {
        let Some(agent) = self.nodes[at].agent.as_ref().filter(|agent| agent.incarnation == incarnation) else {
            return;
        };
        if agent.stopped {
            return self.after(100, Event::Answered { node: at, incarnation, conn, question });
        }
        if agent.conn == Some(conn) {
            let rest = FromAgent::Answer { question, text: String::new(), last: true };
            self.does(at, incarnation, Effect::Send(rest));
        }
    }

    fn watch_empty(&mut self, at: usize, task: perilog_core::TaskId) {
        let Some(stem) = self.stem_of(at, task) else { return };
        let populated =
            self.nodes[at].systemd.units.get(&stem).is_some_and(|unit| unit.leftovers.iter().any(|left| !left.outside));
        let Some(agent) = self.nodes[at].agent.as_mut() else { return };
        agent.watch_empty.insert(stem.clone());
        let incarnation = agent.incarnation;
        if !populated {
            let delay = self.dice.skewed(0, 10);
            self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::Wakeups { stem } });
        }
    }

    fn wake_agent(&mut self, at: usize, boot_ms: u64) {
        let node = &mut self.nodes[at];
        let delay = node.at_boottime(boot_ms).saturating_sub(self.t);
        let Some(agent) = node.agent.as_mut() else { return };
        agent.wake = Some(boot_ms);
        let incarnation = agent.incarnation;
        self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::Tick { boot_ms } });
    }

    /// Checks a reply on the local socket of node `at` to the caller with this number: a reported outcome must be true.
    fn exec_reply(&mut self, at: usize, caller: u64, reply: &ExecReply) {
        let outcome = match reply {
            ExecReply::Ended(ended) => &ended.outcome,
            ExecReply::EndedBefore(outcome) => outcome,
            _ => return,
        };
        self.log_line(|| format!("n{at} tells a caller: {outcome}"));
        if let Some((_, task)) = self.callers.get(&caller) {
            let boot = self.nodes[at].boot;
            self.truth.answered(at, boot, *task, outcome);
        }
    }
}
