//! Tasks that an agent holds, and the controller's questions about such tasks, on the wire.

use std::collections::BTreeSet;

use perilog_core::message::{
    Ask as CoreAsk, Held as CoreHeld, HeldState, Hello as CoreHello, MAX_ACTIONS, Phase as CorePhase,
};
use perilog_core::task::Reboot;
use perilog_core::{ActionName, BootId, HostName, JobId, MachineId};
use prost::Message;

use super::ended::{Process, processes, processes_back};
use super::ids::{Attempt, Commit, Key, Mark, Task};
use super::outcome::{Outcome, outcome as outcome_value};
use crate::bounds::{LISTED_PROCESSES, LISTED_TEXT, MAX_PAGE, PROCESSES, TEXT, clip};
use crate::error::{At, Fault, known, need};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(string, tag = "2")]
    pub machine: String,
    #[prost(string, tag = "3")]
    pub boot: String,
    #[prost(uint64, tag = "4")]
    pub link: u64,
    #[prost(string, tag = "5")]
    pub version: String,
    #[prost(message, repeated, tag = "6")]
    pub tasks: Vec<Held>,
    #[prost(bool, tag = "7")]
    pub more: bool,
    /// Names of the actions that the node configures ([`CoreHello::actions`]). Only the first page may have the field;
    /// an older agent omits it.
    #[prost(message, optional, tag = "8")]
    pub actions: Option<Actions>,
    /// Newest commit that the host has accepted ([`CoreHello::newest`]). An older agent omits the field.
    #[prost(message, optional, tag = "9")]
    pub newest: Option<Mark>,
}

/// A list of action names in a message of its own, because an empty list differs from an absent one.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Actions {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Held {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Task>,
    #[prost(message, optional, tag = "2")]
    pub key: Option<Key>,
    // 3 and 4 were lists of ranks and hosts. An older agent sends them, and no reader uses them.
    #[prost(uint32, optional, tag = "5")]
    pub userid: Option<u32>,
    #[prost(bool, tag = "6")]
    pub local: bool,
    #[prost(oneof = "state::State", tags = "7, 8, 9, 10")]
    pub state: Option<state::State>,
    /// For a tombstone: milliseconds since the task's not-after, 0 before it. An older agent omits the field, which
    /// then counts as 0.
    #[prost(uint64, tag = "11")]
    pub past_ms: u64,
    /// Limit of the task in milliseconds, as in `core`'s `Held`. An older agent omits the field.
    #[prost(uint64, optional, tag = "12")]
    pub limit_ms: Option<u64>,
    /// Whether the [`Reboot`] of a tombstone is `Expected` or `Come`: a script announced one reboot, and the node has
    /// rebooted not at all or that once. `false` for a task that is no tombstone; an older agent omits the field.
    /// Together with `booted`:
    ///
    /// | `expect_reboot` | `booted` | [`Reboot`] |
    /// |---|---|---|
    /// | `false` | `false` | `None` |
    /// | `true` | `false` | `Expected` |
    /// | `true` | `true` | `Come` |
    /// | `false` | `true` | `Since` |
    #[prost(bool, tag = "13")]
    pub expect_reboot: bool,
    /// Whether the [`Reboot`] of a tombstone is `Come` or `Since`: the node has rebooted since the task's boot. `false`
    /// for a task that is no tombstone; an older agent omits the field.
    #[prost(bool, tag = "14")]
    pub booted: bool,
    /// Commit that caused the intent or the tombstone. An older agent omits the field.
    #[prost(message, optional, tag = "15")]
    pub commit: Option<Commit>,
}

pub(crate) mod state {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum State {
        #[prost(message, tag = "7")]
        Unclaimed(()),
        #[prost(message, tag = "8")]
        Live(super::Live),
        #[prost(message, tag = "9")]
        Ended(()),
        #[prost(message, tag = "10")]
        Tombstone(super::Outcome),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Live {
    #[prost(message, optional, tag = "1")]
    pub phase: Option<Phase>,
    #[prost(uint64, tag = "2")]
    pub age_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Phase {
    #[prost(oneof = "phase::Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<phase::Kind>,
}

pub(crate) mod phase {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(string, tag = "1")]
        Waiting(String),
        #[prost(message, tag = "2")]
        Starting(()),
        #[prost(message, tag = "3")]
        Running(super::Running),
        #[prost(message, tag = "4")]
        Overdue(super::Overdue),
        #[prost(message, tag = "5")]
        Lingering(super::Processes),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Running {
    #[prost(string, tag = "1")]
    pub script: String,
    #[prost(uint32, tag = "2")]
    pub index: u32,
    #[prost(uint32, tag = "3")]
    pub of: u32,
    #[prost(string, optional, tag = "4")]
    pub progress: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Overdue {
    #[prost(string, tag = "1")]
    pub script: String,
    #[prost(uint64, tag = "2")]
    pub limit_ms: u64,
    #[prost(string, tag = "3")]
    pub doing: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Processes {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ask {
    #[prost(oneof = "ask::Kind", tags = "1, 2")]
    pub kind: Option<ask::Kind>,
}

pub(crate) mod ask {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(message, tag = "1")]
        Logs(super::Logs),
        #[prost(message, tag = "2")]
        Status(()),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Logs {
    #[prost(string, tag = "1")]
    pub job: String,
    #[prost(string, optional, tag = "2")]
    pub action: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub attempt: Option<Attempt>,
    #[prost(uint32, optional, tag = "4")]
    pub rank: Option<u32>,
    #[prost(uint32, tag = "5")]
    pub lines: u32,
}

impl Hello {
    /// Encodes a page of Hello in at most `most` bytes, for which it cuts texts for people if necessary. A page of up
    /// to [`crate::MAX_PAGE`] tasks always fits.
    pub(crate) fn of(hello: &CoreHello, most: usize) -> Self {
        let mut wire = Self {
            host: hello.host.to_string(),
            machine: hello.machine.to_string(),
            boot: hello.boot.to_string(),
            link: hello.link,
            version: clip(&hello.version, LISTED_TEXT),
            tasks: hello.tasks.iter().map(Held::of).collect(),
            more: hello.more,
            actions: hello
                .actions
                .as_ref()
                .map(|actions| Actions { names: actions.iter().take(MAX_ACTIONS).map(ToString::to_string).collect() }),
            newest: hello.newest.map(Mark::of),
        };
        if wire.encoded_len() > most {
            wire.tasks.iter_mut().for_each(Held::shorten_texts);
        }
        wire
    }

    pub(crate) fn value(self) -> Result<CoreHello, Fault> {
        // A task of thirty bytes takes ten times as much memory when decoded.
        if self.tasks.len() > MAX_PAGE {
            return Err(Fault::bad(format!("{} tasks, a page has at most {MAX_PAGE}", self.tasks.len()))).at("tasks");
        }
        let tasks = self.tasks.into_iter().map(Held::value).collect::<Result<_, _>>().at("tasks")?;
        Ok(CoreHello {
            host: HostName::new(&self.host).at("host")?,
            machine: MachineId::new(&self.machine).at("machine")?,
            boot: BootId::new(&self.boot).at("boot")?,
            link: self.link,
            version: clip(&self.version, LISTED_TEXT),
            actions: self.actions.map(Actions::value).transpose().at("actions")?,
            newest: self.newest.map(Mark::value).transpose().at("newest")?,
            tasks,
            more: self.more,
        })
    }
}

impl Actions {
    fn value(self) -> Result<BTreeSet<ActionName>, Fault> {
        if self.names.len() > MAX_ACTIONS {
            return Err(Fault::bad(format!("{} actions, at most {MAX_ACTIONS} are taken", self.names.len())));
        }
        self.names.iter().map(|name| ActionName::new(name).at("names")).collect()
    }
}

impl Held {
    fn of(held: &CoreHeld) -> Self {
        let state = match &held.state {
            HeldState::Unclaimed => state::State::Unclaimed(()),
            HeldState::Live { phase, age_ms } => {
                state::State::Live(Live { phase: Some(Phase::of(phase)), age_ms: *age_ms })
            }
            HeldState::Ended => state::State::Ended(()),
            HeldState::Tombstone { outcome, .. } => state::State::Tombstone(Outcome::of(outcome)),
        };
        let (past_ms, reboot) = match &held.state {
            HeldState::Tombstone { past_ms, reboot, .. } => (*past_ms, *reboot),
            _ => (0, Reboot::None),
        };
        Self {
            task: Some(Task::of(held.task)),
            key: Some(Key::of(&held.job, held.attempt, &held.action)),
            userid: held.userid,
            local: held.local,
            state: Some(state),
            past_ms,
            limit_ms: held.limit_ms,
            expect_reboot: reboot.is_announced(),
            booted: reboot.is_past(),
            commit: held.commit.map(Commit::of),
        }
    }

    fn shorten_texts(&mut self) {
        match &mut self.state {
            Some(state::State::Live(Live { phase: Some(phase), .. })) => phase.shorten(),
            Some(state::State::Tombstone(outcome)) => outcome.shorten(LISTED_TEXT),
            _ => {}
        }
    }

    fn value(self) -> Result<CoreHeld, Fault> {
        let (job, attempt, action) = need(self.key).and_then(Key::value).at("key")?;
        let state = match known(self.state)? {
            state::State::Unclaimed(()) => HeldState::Unclaimed,
            state::State::Live(live) => HeldState::Live {
                phase: need(live.phase).and_then(Phase::value).at("phase").at("live")?,
                age_ms: live.age_ms,
            },
            state::State::Ended(()) => HeldState::Ended,
            state::State::Tombstone(outcome) => HeldState::Tombstone {
                outcome: outcome_value(Some(outcome)).at("tombstone")?,
                past_ms: self.past_ms,
                reboot: Reboot::of(self.expect_reboot, self.booted),
            },
        };
        Ok(CoreHeld {
            task: need(self.task).and_then(|task| task.value()).at("task")?,
            job,
            attempt,
            action,
            userid: self.userid,
            commit: self.commit.map(Commit::value).transpose().at("commit")?,
            limit_ms: self.limit_ms,
            local: self.local,
            state,
        })
    }
}

impl Phase {
    pub(crate) fn of(phase: &CorePhase) -> Self {
        use phase::Kind;
        let kind = match phase {
            CorePhase::Waiting { why } => Kind::Waiting(clip(why, TEXT)),
            CorePhase::Starting => Kind::Starting(()),
            CorePhase::Running { script, index, of, progress } => Kind::Running(Running {
                script: clip(script, TEXT),
                index: *index,
                of: *of,
                progress: progress.as_ref().map(|text| clip(text, TEXT)),
            }),
            CorePhase::Overdue { script, limit_ms, doing } => {
                let (script, doing) = (clip(script, TEXT), clip(doing, TEXT));
                Kind::Overdue(Overdue { script, limit_ms: *limit_ms, doing })
            }
            CorePhase::Lingering { processes: left } => {
                Kind::Lingering(Processes { processes: processes(left, PROCESSES, TEXT) })
            }
        };
        Self { kind: Some(kind) }
    }

    fn shorten(&mut self) {
        use phase::Kind;
        let cut = |text: &mut String| *text = clip(text, LISTED_TEXT);
        match &mut self.kind {
            Some(Kind::Waiting(text)) => cut(text),
            Some(Kind::Overdue(overdue)) => [&mut overdue.script, &mut overdue.doing].into_iter().for_each(cut),
            Some(Kind::Running(running)) => {
                cut(&mut running.script);
                running.progress.iter_mut().for_each(cut);
            }
            Some(Kind::Lingering(left)) => {
                left.processes.truncate(LISTED_PROCESSES);
                left.processes.iter_mut().for_each(|p| cut(&mut p.command));
            }
            Some(Kind::Starting(())) | None => {}
        }
    }

    /// Decodes a phase. The controller stores the phase, so the decoder cuts long texts just as the encoder of an agent
    /// does.
    pub(crate) fn value(self) -> Result<CorePhase, Fault> {
        use phase::Kind;
        Ok(match known(self.kind)? {
            Kind::Waiting(why) => CorePhase::Waiting { why: clip(&why, TEXT) },
            Kind::Starting(()) => CorePhase::Starting,
            Kind::Running(Running { script, index, of, progress }) => {
                let (script, progress) = (clip(&script, TEXT), progress.map(|text| clip(&text, TEXT)));
                CorePhase::Running { script, index, of, progress }
            }
            Kind::Overdue(Overdue { script, limit_ms, doing }) => {
                CorePhase::Overdue { script: clip(&script, TEXT), limit_ms, doing: clip(&doing, TEXT) }
            }
            Kind::Lingering(mut left) => {
                left.processes.truncate(PROCESSES);
                left.processes.iter_mut().for_each(|process| process.command = clip(&process.command, TEXT));
                CorePhase::Lingering { processes: processes_back(left.processes) }
            }
        })
    }
}

impl Ask {
    pub(crate) fn of(ask: &CoreAsk) -> Self {
        let kind = match ask {
            CoreAsk::Logs { job, action, attempt, rank, lines } => ask::Kind::Logs(Logs {
                job: job.to_string(),
                action: action.as_ref().map(ToString::to_string),
                attempt: attempt.map(Attempt::of),
                rank: *rank,
                lines: *lines,
            }),
            CoreAsk::Status => ask::Kind::Status(()),
        };
        Self { kind: Some(kind) }
    }

    pub(crate) fn value(self) -> Result<CoreAsk, Fault> {
        match known(self.kind)? {
            ask::Kind::Status(()) => Ok(CoreAsk::Status),
            ask::Kind::Logs(logs) => Ok(CoreAsk::Logs {
                job: JobId::new(&logs.job).at("job")?,
                action: logs.action.as_deref().map(ActionName::new).transpose().at("action")?,
                attempt: logs.attempt.map(Attempt::value).transpose().at("attempt")?,
                rank: logs.rank,
                lines: logs.lines,
            }),
        }
    }
}
