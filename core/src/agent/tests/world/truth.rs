//! Compares the machine's reports and effects with what really happened in the simulated world.

use crate::agent::io::Effect;
use crate::ids::TaskId;
use crate::message::{FromAgent, HeldState, ToAgent};
use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{Claim, Intent};

use super::systemd::UnitState;
use super::{Link, World, brief};

impl World {
    pub(super) fn check_start(&self, stem: &str, intent: &Intent, input: &str) {
        let dir = self.dirs.get(stem).unwrap_or_else(|| panic!("{stem} is started without a directory: {input}"));
        assert_eq!(dir.intent.as_ref(), Some(intent), "{input}");
        assert!(dir.outcome.is_none(), "{stem} is started after its end: {input}");
        assert!(
            !matches!(dir.claim, Some(Claim::Cancelled | Claim::Withdrawn(_))),
            "{stem} is started though withdrawn: {input}"
        );
        let same = |e: &&Effect| matches!(e, Effect::StartUnit { stem: other, .. } if other == stem);
        assert!(!self.outstanding.iter().any(|e| same(&e)), "{stem} is started twice at once: {input}");
        for (other, unit) in self.units.iter().filter(|(other, _)| *other != stem && !self.ever_late) {
            let (a, b) = (&unit.intent.start, &intent.start);
            let conflict = a.job == b.job && (a.attempt, &a.action) != (b.attempt, &b.action);
            let alive = unit.state == UnitState::Running || unit.left_behind;
            assert!(!(conflict && alive), "{stem} is started beside {other}: {input}");
        }
    }

    pub(super) fn receive(&mut self, message: FromAgent, input: &str) {
        assert_ne!(self.link, Link::Down, "{message:?} without a session: {input}");
        match &message {
            FromAgent::Hello(hello) => {
                for held in hello.tasks.iter().filter(|held| held.state == HeldState::Unclaimed && !held.local) {
                    self.replies.push(ToAgent::Begin { task: held.task });
                }
                return;
            }
            FromAgent::EpochRefused { .. } => return,
            _ => assert_eq!(self.link, Link::Open, "{message:?} before the Welcome: {input}"),
        }
        match message {
            FromAgent::Accepted { task, .. } => {
                let on_disk = self.dirs.values().any(|dir| dir.intent.as_ref().is_some_and(|i| i.start.task == task));
                assert!(on_disk, "accepted and not on disk: {input}");
                self.accepted.insert(task);
            }
            FromAgent::Finished { task, ended } => self.check_finished(task, &ended.outcome, input),
            _ => {}
        }
    }

    pub(super) fn check_finished(&mut self, task: TaskId, outcome: &Outcome, input: &str) {
        let stem = self.stem(task);
        let written = self.dirs.get(&stem).and_then(|dir| dir.outcome.as_ref()).is_some_and(|e| e.outcome == *outcome);
        let tombstone_written = self.tombstones.get(&stem).is_some_and(|entry| entry.outcome == brief(outcome));
        if self.forgotten.contains(&task) {
            let ok = self.ends.get(&task).is_some_and(|(code, _)| *code == 0);
            assert!(ok || *outcome != Outcome::Ok, "ok and it was not: {input}");
            self.replies.push(ToAgent::Ack { task, commit: 0 });
            return;
        }
        if written || tombstone_written {
            self.check_truth(task, outcome, input);
            let first = self.finished.entry(task).or_insert_with(|| brief(outcome)).clone();
            assert_eq!(first, brief(outcome), "two ends of one task: {input}");
            self.replies.push(ToAgent::Ack { task, commit: 0 });
            return;
        }
        let held = self.dirs.contains_key(&stem) || self.tombstones.contains_key(&stem);
        let never_taken_on = matches!(
            outcome,
            Outcome::Refused { .. } | Outcome::Lost { why: Loss::Rebooted } | Outcome::Cancelled { status: None }
        );
        assert!(!held && never_taken_on, "{outcome} is reported and is not on disk: {input}");
    }

    pub(super) fn check_truth(&self, task: TaskId, outcome: &Outcome, input: &str) {
        let ran = self.ran.get(&task).copied().unwrap_or(0);
        let expect = match self.ends.get(&task) {
            _ if ran == 0 => {
                let from_scripts =
                    matches!(outcome, Outcome::Ok | Outcome::Tolerable | Outcome::Failed { why: Failure::Exit(_) });
                return assert!(!from_scripts, "{outcome} and nothing ran: {input}");
            }
            Some((_, true)) => Outcome::Cancelled { status: Some(ExitStatus::Exit(143)) },
            Some((0, false)) => Outcome::Ok,
            Some((code, false)) => Outcome::Failed { why: Failure::Exit(*code) },
            None => Outcome::Lost { why: Loss::Vanished },
        };
        assert_eq!(*outcome, expect, "{input}");
    }

    pub(super) fn stem(&self, task: TaskId) -> String {
        let of_dir = self.dirs.iter().find(|(_, dir)| dir.intent.as_ref().is_some_and(|i| i.start.task == task));
        let of_tombstone = self.tombstones.iter().find(|(_, entry)| entry.task == task);
        of_dir.map(|(stem, _)| stem).or(of_tombstone.map(|(stem, _)| stem)).cloned().unwrap_or_default()
    }
}
