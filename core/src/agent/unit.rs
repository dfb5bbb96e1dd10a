//! Unit of a task: decides from systemd's answers and from inspections whether the task runs, lingers or has ended. A
//! missing answer proves nothing: the machine inspects the unit instead.

use crate::defect;
use crate::ids::TaskId;
use crate::message::{FromAgent, Phase};
use crate::outcome::{Failure, Loss, Outcome};
use crate::task::{Claim, Lingering, Process, UnitFacts};

use super::guard::EARLIER_UNIT;
use super::io::{Effect, ExecReply, Level, Seen, StartReply};
use super::machine::{Cx, Machine};
use super::phase;
use super::start::not_ours;
use super::task::{State, Task, had_no_task, is_over};

/// Maximum number of times that the agent starts a task whose unit does not come up. A restart of dbus-daemon costs one
/// or two starts.
const MAX_STARTS: u32 = 6;
/// Maximum number of lingering processes that a phase names.
const MAX_NAMED: usize = 32;
/// Maximum number of characters of the command of a lingering process; the agent cuts the rest.
const MAX_COMMAND: usize = 256;

/// Targets that systemd queues while a node goes down. Then no unit can start: that would be "destructive".
const GOING_DOWN: [&str; 6] =
    ["reboot.target", "poweroff.target", "halt.target", "kexec.target", "soft-reboot.target", "shutdown.target"];

/// Returns the text for operators of systemd's refusal `text` to start the unit `stem`. The text begins with the cause,
/// or with where to look, if perilog knows it. It has "the task's unit" instead of the unit's name, so that all nodes
/// with this cause give the same reason.
fn explained(text: &str, stem: &str) -> String {
    let text = text.replace(&format!("{stem}.service"), "the task's unit");
    if text.contains("is destructive") && GOING_DOWN.iter().any(|target| text.contains(target)) {
        return format!("the node is going down: {text}");
    }
    if !text.contains("bad unit file setting") {
        return text;
    }
    format!(
        "a drop-in gives the task's unit a setting that it cannot have, such as Restart=always (`perilog doctor` names \
         the file): {text}"
    )
}

impl Machine {
    pub(super) fn on_started(&mut self, id: TaskId, reply: StartReply, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // The bus was lost during the call: only an inspection shows what the call did.
        if !matches!(task.state, State::Starting) {
            return;
        }
        if !matches!(reply, StartReply::Unknown(_)) {
            task.watch.answered();
        }
        match reply {
            StartReply::Queued => {
                task.state = State::Live;
                task.loaded = Some(false);
                // systemd reports the end of the unit's job to the connection that queued the job.
                task.watched = true;
                task.start_again.succeeded();
                // A `TaskChanged` came before this reply: the job may have ended already.
                if std::mem::take(&mut task.inspection.again) {
                    self.inspect(id, cx);
                }
            }
            StartReply::Exists => self.doubt(id, "systemd knows its unit already".to_owned(), cx),
            StartReply::Unknown(text) => {
                self.doubt(id, format!("systemd did not answer the request to start its unit: {text}"), cx)
            }
            StartReply::Rejected(text) => {
                let why = Failure::Unit(explained(&text, &task.stem));
                self.withdraw(id, Claim::Withdrawn(Outcome::Failed { why }), cx);
            }
        }
    }

    pub(super) fn doubt(&mut self, id: TaskId, why: String, cx: &mut Cx) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.inspection.again = false;
            task.watched = false;
            task.state = State::Doubt { why };
            self.inspect(id, cx);
        }
    }

    pub(super) fn on_task_changed(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match task.state {
            State::Starting => task.inspection.again = true,
            State::Live | State::Doubt { .. } => self.inspect(id, cx),
            // The machine had taken this start for failed, and its unit came up after all.
            State::Queued if task.starts > 0 && !self.unloading.contains_key(&task.stem) => {
                self.doubt(id, "systemd reported a change of its unit".to_owned(), cx)
            }
            _ => {}
        }
    }

    /// Asks the daemon to inspect the task's unit and directory. While an inspection is under way, plans another one
    /// after it. Without a bus, the next `Joined` leads to the inspection.
    pub(super) fn inspect(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|_| self.bus) else {
            return;
        };
        if task.inspection.asked {
            task.inspection.again = true;
            return;
        }
        task.inspection.asked = true;
        task.watch.asks(cx.now.boot_ms);
        cx.push(Effect::Inspect { stem: task.stem.clone(), task: id });
    }

    pub(super) fn on_inspected(&mut self, id: TaskId, seen: Result<Seen, String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.inspection.asked) else {
            return;
        };
        task.inspection.asked = false;
        let again = std::mem::take(&mut task.inspection.again);
        if !matches!(task.state, State::Live | State::Doubt { .. }) {
            return;
        }
        match seen {
            Err(text) => {
                task.trouble = Some(format!("cannot look at its unit: {text}"));
                task.inspection.backoff.failed(cx.now);
                return;
            }
            Ok(seen) => {
                task.trouble = None;
                task.inspection.backoff.succeeded();
                task.watch.answered();
                self.observe(id, &seen, cx);
            }
        }
        let undecided = |task: &Task| matches!(task.state, State::Live | State::Doubt { .. });
        if again && self.tasks.get(&id).is_some_and(undecided) {
            self.inspect(id, cx);
        }
    }

    /// Updates the task by an inspection: decides whether its unit is gone, over or alive.
    pub(super) fn observe(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let claim_is_news = task.learn_claim(seen);
        let loaded = seen.unit.as_ref().filter(|unit| unit.loaded);
        // The check includes a unit that this agent started: a program may have stopped the unit and taken the name.
        let ours = loaded.filter(|unit| task.is_its_unit(unit, seen));
        if (seen.gone || task.intent.is_rebuilt()) && task.claim.is_none() {
            // The claim may have been lost with the directory. A unit that belongs to the task had a runner, so it
            // counts as a claim.
            task.claimed_by_other = true;
            task.claim = ours.and_then(|unit| unit.invocation.clone()).map(Claim::Runner);
        }
        if ours.is_some() {
            // The stem is no longer to be unloaded: that would now stop this unit.
            self.unloading.remove(&task.stem);
        }
        match ours {
            None => self.observe_gone(id, seen, loaded.is_some(), claim_is_news, cx),
            Some(unit) if is_over(unit) || task.is_restarted(unit) => self.observe_over(id, unit, seen, cx),
            Some(unit) => self.observe_alive(id, unit, seen, cx),
        }
    }

    fn observe_alive(&mut self, id: TaskId, unit: &UnitFacts, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = State::Live;
        task.loaded = Some(false);
        task.invocation = unit.invocation.clone();
        task.start_again.succeeded();
        if !task.watched {
            task.watched = true;
            cx.push(Effect::Watch { stem: task.stem.clone(), task: id });
        }
        if task.cancelled && task.claim.is_none() && !task.claimed_by_other {
            self.take_claim(id, Claim::Cancelled, cx);
        }
        if unit.main_ended() && !seen.processes.is_empty() {
            // The runner has failed or was killed, and its children live. systemd sends them TERM and waits. No other
            // script begins, and no runner is left to forward a signal.
            return self.observe_lingering(id, unit, &seen.processes, cx);
        }
        self.deliver_signals(id, cx);
        self.progress(id, seen, cx);
        self.watch(id, seen, cx);
        self.watch_start(id, Some(seen), cx);
    }

    fn progress(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let progress = phase::read(&seen.steps);
        for name in progress.milestones.into_iter().skip(task.milestones.len()) {
            task.notify_callers(&ExecReply::Milestone(name.clone()), cx);
            task.milestones.push(name);
        }
        self.send_milestones(id, cx);
        self.foresee_boot(id, seen, cx);
        // While the runner is deaf, the agent's own `Overdue` stays the phase.
        let reported = |task: &Task| task.watch.behind.is_some() && seen.deaf.is_some();
        let reported = self.tasks.get(&id).is_some_and(reported);
        if let Some(phase) = progress.phase.filter(|phase| !reported || matches!(phase, Phase::Overdue { .. })) {
            if let Phase::Lingering { processes } = &phase
                && let Some(task) = self.tasks.get_mut(&id)
            {
                task.runner_waits = true;
                task.note_lingering(processes, cx);
            }
            self.move_to(id, phase, cx);
        }
    }

    pub(super) fn send_milestones(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.intent.local || !self.session.is_open() {
            return;
        }
        for name in task.milestones.iter().skip(task.milestones_sent) {
            cx.push(Effect::Send(FromAgent::Milestone { task: id, name: name.clone() }));
        }
        task.milestones_sent = task.milestones.len();
    }

    /// Handles an inspection that found the unit of the task, with its runner ended. The task normally ends when no
    /// process is left, or at once with `lingering = "keep"`. A task that no runner claimed may start again.
    fn observe_over(&mut self, id: TaskId, unit: &UnitFacts, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.loaded = Some(unit.active == "failed");
        task.invocation = unit.invocation.clone();
        let policy = task.intent.plan.lingering;
        if defect!(ExitedIsEnded) {
        } else if !seen.processes.is_empty() && policy != Lingering::Keep {
            return self.observe_lingering(id, unit, &seen.processes, cx);
        }
        let left = match policy {
            Lingering::Keep => named(&seen.processes, crate::judge::MAX_LISTED),
            Lingering::Kill | Lingering::Hold => std::mem::take(&mut task.killed),
        };
        if task.claim.is_none() && task.claimed_by_other {
            // The claim file is unreadable, because a crash cut it short. Only the runner of this unit can have made
            // it.
            task.claim = task.invocation.clone().map(Claim::Runner);
        }
        let ended = task.judge(Some(unit), seen, &left, &self.node.boot, cx.now);
        if task.claim.is_some() || task.claimed_by_other {
            return self.conclude(id, ended, cx);
        }
        // After the Hello, the controller takes the task for live and sends no Begin: an unconfirmed task would wait
        // for ever.
        let may_begin = task.confirmed || !self.session.is_greeted();
        if had_no_task(unit) && !task.cancelled && task.starts < MAX_STARTS && may_begin {
            // An earlier request to start the task came through late. The runner found no task and ran nothing, so the
            // task can start anew.
            let stem = task.stem.clone();
            task.loaded = None;
            task.trouble = Some(EARLIER_UNIT.to_owned());
            task.requeue(cx);
            return self.retire_unit(stem, false, cx);
        }
        // No runner has claimed the task. With the agent's claim, no runner can.
        let claim = if task.cancelled { Claim::Cancelled } else { Claim::Withdrawn(ended.outcome) };
        self.withdraw(id, claim, cx);
    }

    fn observe_lingering(&mut self, id: TaskId, unit: &UnitFacts, processes: &[Process], cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = State::Live;
        let left = named(processes, MAX_NAMED);
        if !matches!(task.phase, Some(Phase::Lingering { .. })) {
            // A newly forked process still has its parent's name: another inspection names the processes better.
            task.inspection.backoff.failed(cx.now);
        } else {
            task.note_lingering(&left, cx);
        }
        task.runner_waits = false;
        if task.intent.plan.lingering == Lingering::Kill {
            let known: Vec<u32> = task.killed.iter().map(|process| process.pid).collect();
            let new: Vec<Process> = processes.iter().filter(|process| !known.contains(&process.pid)).cloned().collect();
            if !new.is_empty() {
                let room = crate::judge::MAX_LISTED.saturating_sub(known.len());
                task.killed.extend(named(&new, room));
                cx.push(Effect::KillLingering { stem: task.stem.clone() });
            }
        }
        cx.push(Effect::WatchEmpty { task: id, cgroup: unit.cgroup.clone() });
        self.move_to(id, Phase::Lingering { processes: left }, cx);
        self.deliver_signals(id, cx);
    }

    /// Handles an inspection that found no unit of the task. `foreign`: whether a unit of another program has the
    /// unit's name. `claim_is_news`: whether this inspection was the first to see the claim.
    fn observe_gone(&mut self, id: TaskId, seen: &Seen, foreign: bool, claim_is_news: bool, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.loaded = None;
        if task.claim.is_some() && claim_is_news {
            // The daemon reads the unit before the claim, so the unit may have come up between the two reads.
            return self.inspect(id, cx);
        }
        if task.claim.is_some() || task.claimed_by_other {
            let left = std::mem::take(&mut task.killed);
            let ended = task.judge(None, seen, &left, &self.node.boot, cx.now);
            return self.conclude(id, ended, cx);
        }
        let claim = match &task.state {
            _ if task.cancelled => Claim::Cancelled,
            State::Doubt { .. } if foreign => Claim::Withdrawn(Outcome::Refused { why: not_ours(&task.stem) }),
            State::Doubt { why } if task.starts < MAX_STARTS => {
                // The unit did not come up, so the task starts again. If the first start still comes through, the claim
                // lets only one runner run the scripts.
                task.trouble = Some(why.clone());
                return task.requeue(cx);
            }
            State::Doubt { why } => Claim::Withdrawn(Outcome::Failed { why: Failure::Unit(why.clone()) }),
            _ => Claim::Withdrawn(Outcome::Lost { why: Loss::Vanished }),
        };
        self.withdraw(id, claim, cx);
    }

    /// Sets the phase of a task. If the phase has changed, reports it to the task's callers and to the controller.
    pub(super) fn move_to(&mut self, id: TaskId, phase: Phase, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.phase.as_ref() == Some(&phase) {
            return;
        }
        if task.starts > 0 && matches!(phase, Phase::Running { .. }) {
            task.running_from_ms.get_or_insert(cx.now.boot_ms);
        }
        task.phase = Some(phase.clone());
        task.notify_callers(&ExecReply::Phase(phase.clone()), cx);
        let age_ms = task.phase_age_ms(cx.now);
        self.notify(id, FromAgent::PhaseChanged { task: id, phase, age_ms }, cx);
    }
}

impl Task {
    /// Records the claim that an inspection saw, unless the task's claim is known already. Returns `true` if it
    /// recorded one.
    fn learn_claim(&mut self, seen: &Seen) -> bool {
        let news = self.claim.is_none() && seen.claim.is_some();
        if news {
            self.claim.clone_from(&seen.claim);
        }
        news
    }

    /// Returns `true` if the unit belongs to this task: the unit has the task's ids, or the claim names the unit's
    /// invocation.
    fn is_its_unit(&self, unit: &UnitFacts, seen: &Seen) -> bool {
        let by_ids = seen.unit_ids.as_ref().is_some_and(|ids| ids.task == self.id());
        let by_claim =
            matches!(&self.claim, Some(Claim::Runner(invocation)) if unit.invocation.as_ref() == Some(invocation));
        if defect!(AdoptByName) {
            return true;
        }
        by_ids || by_claim
    }

    /// Logs, once, the processes that the task waits for, if the plan is to wait.
    fn note_lingering(&mut self, processes: &[Process], cx: &mut Cx) {
        if self.intent.plan.lingering == Lingering::Hold && !std::mem::replace(&mut self.lingering_noted, true) {
            let all: Vec<String> = processes.iter().map(|one| format!("{} ({})", one.pid, one.command)).collect();
            let text = format!(
                "the scripts of {} have ended; the task waits for the processes that they left behind: {}",
                self.name(),
                all.join(", ")
            );
            cx.note(Level::Info, Some(self.id()), Some(&self.intent.start.job), text);
        }
    }

    fn notify_callers(&self, reply: &ExecReply, cx: &mut Cx) {
        for caller in &self.callers {
            cx.push(Effect::ExecReply { caller: *caller, reply: reply.clone() });
        }
    }

    /// Puts the task back into the queue, to start again after a backoff.
    fn requeue(&mut self, cx: &Cx) {
        self.watched = false;
        self.start_again.failed(cx.now);
        self.state = if self.confirmed { State::Queued } else { State::Unconfirmed };
    }
}

/// Returns the first `most` processes, with commands cut to [`MAX_COMMAND`] characters.
fn named(processes: &[Process], most: usize) -> Vec<Process> {
    let short =
        |process: &Process| Process { pid: process.pid, command: process.command.chars().take(MAX_COMMAND).collect() };
    processes.iter().take(most).map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::explained;

    #[test]
    fn a_refused_start_says_why_first() {
        let destructive = |target: &str| {
            format!(
                "Transaction for perilog-task-x-0.service/start is destructive ({target} has 'start' job queued, but \
                 'stop' is included in transaction). (org.freedesktop.systemd1.TransactionIsDestructive)"
            )
        };
        for (text, expect) in [
            (destructive("reboot.target"), "the node is going down: Transaction for "),
            (destructive("poweroff.target"), "the node is going down: Transaction for "),
            // `systemctl isolate` is no shutdown.
            (destructive("rescue.target"), "Transaction for "),
            (
                "x.service has a bad unit file setting.".to_owned(),
                "a drop-in gives the task's unit a setting that it cannot have",
            ),
            ("Access denied".to_owned(), "Access denied"),
        ] {
            let explanation = explained(&text, "perilog-task-x-0");
            assert!(
                explanation.starts_with(expect) && !explanation.contains("perilog-task-x-0"),
                "{expect}: {explanation}"
            );
        }
    }
}
