//! Status of the machine, for operators.

use crate::message::Phase;
use crate::outcome::Outcome;

use super::io::{Now, TaskStatus};
use super::machine::Machine;
use super::task::{State, Task};

impl Machine {
    /// Returns the state of the session: `not connected`, `connecting`, `connected` (the controller has welcomed this
    /// node), `turned away` (the controller has turned this node away, or the agent has ended the session).
    pub const fn session_state(&self) -> &'static str {
        self.session.state_text()
    }

    /// Returns one line for systemctl status: `connected; 2 running, 1 waiting`.
    pub fn status_line(&self) -> String {
        if !self.joined {
            return "looking for tasks; not connected".to_owned();
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for task in self.tasks.values() {
            let word = match &task.state {
                State::Ended { .. } | State::WritingTombstone { .. } => "to be acknowledged",
                _ => task.state_text(),
            };
            match counts.iter_mut().find(|(known, _)| *known == word) {
                Some((_, count)) => *count += 1,
                None => counts.push((word, 1)),
            }
        }
        let place = |word: &str| WORDS.iter().position(|known| *known == word);
        counts.sort_by_key(|(word, _)| place(word));
        let tasks = match counts.as_slice() {
            [] => "idle".to_owned(),
            counts => counts.iter().map(|(word, n)| format!("{n} {word}")).collect::<Vec<_>>().join(", "),
        };
        let bus = if self.bus { "" } else { "; no system bus" };
        let trouble = self.tasks.values().filter(|task| task.trouble.is_some()).count();
        let trouble = if trouble == 0 { String::new() } else { format!("; {trouble} in trouble") };
        format!("{}; {tasks}{bus}{trouble}", self.session.state_text())
    }

    pub(super) fn statuses(&self, now: Now, wanted: impl Fn(&Task) -> bool) -> Vec<TaskStatus> {
        let mut tasks: Vec<&Task> = self.tasks.values().filter(|task| wanted(task)).collect();
        tasks.sort_by_key(|task| task.seq);
        tasks.into_iter().map(|task| self.status(task, now)).collect()
    }

    fn status(&self, task: &Task, now: Now) -> TaskStatus {
        let start = &task.intent.start;
        TaskStatus {
            task: start.task,
            stem: task.stem.clone(),
            job: start.job.clone(),
            attempt: start.attempt,
            action: start.action.clone(),
            local: task.intent.local,
            state: task.state_text().to_owned(),
            why: task.why(),
            phase: task.phase.clone().filter(|_| task.is_open()),
            age_ms: task.age_ms(now),
            invocation: task.invocation.clone(),
            outcome: task.outcome().cloned(),
            cluster: self.session.cluster.filter(|_| !task.intent.local),
        }
    }
}

/// The words for the states of tasks, in the order in which the status line counts them.
const WORDS: [&str; 7] = ["running", "overdue", "lingering", "starting", "waiting", "ended", "to be acknowledged"];

impl Task {
    /// Returns the word for the task's state, as in [`TaskStatus`].
    fn state_text(&self) -> &'static str {
        match &self.state {
            State::Recording | State::Unconfirmed | State::Queued => "waiting",
            State::Starting | State::Doubt { .. } => "starting",
            State::Live => match &self.phase {
                Some(Phase::Overdue { .. }) => "overdue",
                Some(Phase::Lingering { .. }) => "lingering",
                Some(Phase::Running { .. }) => "running",
                Some(Phase::Starting | Phase::Waiting { .. }) | None => "starting",
            },
            State::Withdrawing | State::Concluding { .. } | State::Ended { .. } | State::WritingTombstone { .. } => {
                "ended"
            }
        }
    }

    /// Returns the task's current problem, or what the task waits for; `None`: neither.
    fn why(&self) -> Option<String> {
        if self.trouble.is_some() {
            return self.trouble.clone();
        }
        let waits_for = |what: &str| Some(format!("waits for {what}"));
        match &self.state {
            State::Recording => waits_for("its record (intent) to be on disk"),
            State::Unconfirmed if self.intent.local => {
                waits_for("a caller to request it again: the agent restarted before the task began")
            }
            State::Unconfirmed => {
                waits_for("the controller to request it again: the agent restarted before the task began")
            }
            State::Queued => match &self.phase {
                Some(Phase::Waiting { why }) => waits_for(why),
                _ => None,
            },
            State::Doubt { why } => Some(why.clone()),
            State::Live => match &self.phase {
                Some(Phase::Lingering { processes }) => {
                    Some(format!("{} processes outlive its scripts", processes.len()))
                }
                _ => None,
            },
            State::Withdrawing => waits_for("the agent to record on disk that none of its scripts begins (claim)"),
            State::Concluding { .. } => waits_for("its outcome to be on disk"),
            State::Ended { .. } if self.has_program() => {
                waits_for("its hook to take the result, or, if the hook died, for the --orphaned program to take it")
            }
            State::Ended { .. } => waits_for("the controller to acknowledge it"),
            State::WritingTombstone { .. } | State::Starting => None,
        }
    }

    const fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Concluding { ended } | State::Ended { ended } | State::WritingTombstone { ended } => {
                Some(&ended.outcome)
            }
            _ => None,
        }
    }
}
