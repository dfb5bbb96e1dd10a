//! A hook through the agent of its node: `Exec`, until the task has ended.
//!
//! ```text
//!   ask ---> attached ---> ended: exit with its status
//!    |          |
//!    |          +-- the agent is away: wait, and attach again; after --patience exit with 7. The scripts go on.
//!    |          +-- SIGTERM: cancel, and stay        +-- who runs this hook has died: --orphaned, and stay
//!    +-- refused: exit with 5
//! ```
//! Whoever runs a hook may be dead, and its pipe closed: nothing that is said here can fail.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

use perilog_core::message::Phase;
use perilog_core::{ActionName, Attempt, JobId, Outcome, Span};
use perilog_host::clock;
use serde::Serialize;
use serde_json::{Value, json};

use super::orphan::{self, Orphan};
use super::{OnNode, flux};
use crate::door::{Answer, Door};
use crate::exec::{self, Reply, describe};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::aside;
use crate::patience::{ANY, Happening, keep_from_the_start};
use crate::text;

/// What an action does to an attempt, for a host that counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Turn {
    Begins,
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    /// Drains the node by itself.
    Slurm,
    /// Logs the status of its housekeeping, and takes the node back whatever it is.
    Flux,
}

/// What is asked of the agent.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) job: JobId,
    pub(super) attempt: Option<Attempt>,
    pub(super) turn: Turn,
    pub(super) action: ActionName,
    pub(super) rank: u32,
    pub(super) userid: Option<u32>,
    pub(super) env: BTreeMap<String, String>,
}

impl Call {
    /// The parameters of `Exec`. An agent that is older than `turn` has no need of it where the attempt is known.
    fn request(&self, timeout: Option<Span>) -> Value {
        let mut request = json!({"job": self.job, "action": self.action, "rank": self.rank, "userid": self.userid, "env": self.env,
            "timeout": timeout.map(Span::to_exact)});
        match self.attempt {
            Some(attempt) => request["attempt"] = json!(attempt),
            None => request["turn"] = json!(self.turn),
        }
        request
    }
}

/// What comes next.
enum Event {
    Agent(Happening<Answer<Reply>>),
    /// Who runs this hook has died: nobody will hear its status.
    Orphaned,
}

pub(super) fn run(call: Call, options: OnNode, manager: Manager) -> Result<Exit, Fault> {
    let door = options.agent.door();
    let events = events(&door, call.clone(), options.timeout)?;
    let mut hook = Hook::new(call, &options);
    let mut give_up_ms = None;
    loop {
        let event = match give_up_ms {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline_ms) => events.recv_timeout(clock::until(deadline_ms)),
        };
        match event {
            Ok(Event::Agent(Happening::Told(reply))) => {
                give_up_ms = None;
                hook.told(&reply.body, &door);
                if reply.body.is_last() {
                    return Ok(hook.end(&reply.body, &options, manager));
                }
            }
            Ok(Event::Agent(Happening::Away(fault))) => {
                give_up_ms = options.patience.as_millis().map(|ms| clock::mono_ms().saturating_add(ms));
                aside(format_args!("{fault}; waiting for it, at most {}", options.patience));
            }
            Ok(Event::Agent(Happening::Back)) => {
                give_up_ms = None;
                aside("the agent is back");
            }
            Ok(Event::Agent(Happening::Interrupted)) => hook.stop(&door),
            Ok(Event::Agent(Happening::Over(fault))) => return Err(hook.over(fault)),
            Ok(Event::Orphaned) => hook.orphaned(),
            Err(RecvTimeoutError::Timeout) => return Ok(hook.given_up(options.patience)),
            Ok(Event::Agent(Happening::Done)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other("the task was left without an end: journalctl -u perilog-agent".to_owned()));
            }
        }
    }
}

/// Room for both who tell; each waits for the loop, which is quick.
const EVENTS: usize = 16;

fn events(door: &Door, mut call: Call, timeout: Option<Span>) -> Result<Receiver<Event>, Fault> {
    let at = door.clone();
    let happenings = keep_from_the_start(door.clone(), ANY, move |client, teller| {
        let request = call.request(timeout);
        // From the first answer on it is that attempt, whatever the host would count by then.
        exec::session(&at, client, &request, teller, |reply| call.attempt = call.attempt.or(reply.attempt))
    })?;
    let (to, events) = sync_channel(EVENTS);
    let agent = to.clone();
    start("agent", move || {
        // Until the loop has come to its end.
        let _ = happenings.into_iter().all(|happening| agent.send(Event::Agent(happening)).is_ok());
    })?;
    if let Some(starter) = orphan::Starter::of_this_process() {
        start("starter", move || {
            starter.wait();
            // The loop may have come to its end.
            let _ = to.send(Event::Orphaned);
        })?;
    }
    Ok(events)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| Fault::Other(format!("cannot start a thread: {error}")))
}

/// One hook, from its first answer to its exit.
struct Hook {
    call: Call,
    unit: Option<String>,
    said: Option<Phase>,
    /// It was seen to go on.
    followed: bool,
    /// It shall stop, and the agent could not be told yet.
    stopping: bool,
    orphan: Orphan,
}

impl Hook {
    fn new(call: Call, options: &OnNode) -> Self {
        let orphan = Orphan::new(options.orphaned.clone());
        Self { call, unit: None, said: None, followed: false, stopping: false, orphan }
    }

    /// `prolog of 5`.
    fn name(&self) -> String {
        format!("{} of {}", self.call.action, self.call.job)
    }

    fn told(&mut self, reply: &Reply, door: &Door) {
        self.call.attempt = self.call.attempt.or(reply.attempt);
        if !reply.unit.is_empty() && self.unit.as_ref() != Some(&reply.unit) {
            if reply.attached == Some(true) && !reply.is_last() {
                aside(format_args!("{} is there already: attached to {}", self.name(), text::line(&reply.unit)));
            }
            self.unit = Some(reply.unit.clone());
        }
        self.followed |= !reply.is_last();
        if self.stopping && !reply.is_last() {
            self.stop(door);
        }
        if let Some(phase) = reply.phase.as_ref().filter(|phase| self.said.as_ref() != Some(*phase)) {
            // What is normal is in the journal; who reads this has a node that hangs.
            if matches!(phase, Phase::Waiting { .. } | Phase::Overdue { .. } | Phase::Lingering { .. }) {
                aside(format_args!("{}: {}", self.name(), describe(phase)));
            }
            self.said = Some(phase.clone());
        }
    }

    fn stop(&mut self, door: &Door) {
        let Some(unit) = &self.unit else {
            self.stopping = true;
            return aside("to stop; the agent has not answered yet");
        };
        let told = door.ask::<Value>("Cancel", &json!({ "unit": unit }));
        self.stopping = told.is_err();
        match told {
            Ok(_) => aside(format_args!("{}: asked to stop; waiting until its scripts have", self.name())),
            Err(fault) => aside(format_args!("{}: cannot ask it to stop: {fault}", self.name())),
        }
    }

    fn orphaned(&mut self) {
        let name = self.name();
        aside(format_args!("who ran this hook has died; {name} goes on, and so does this hook"));
        let (job, action) = (&self.call.job, &self.call.action);
        let reason =
            format!("{name} goes on, and the daemon that waited for it has died (perilog: job {job} {action})");
        self.orphan.begun(&self.variables("", None, &reason));
    }

    fn over(&mut self, fault: Fault) -> Fault {
        let reason = format!("{}: {fault}", self.name());
        self.orphan.ended(&self.variables("refused", Some(fault.exit().code()), &reason));
        fault
    }

    fn given_up(&mut self, patience: Span) -> Exit {
        let reason = format!(
            "{}: the agent was away for {patience}; what was begun goes on: systemctl status perilog-agent",
            self.name()
        );
        aside(&reason);
        self.orphan.ended(&self.variables("unknown", Some(Exit::NoDaemon.code()), &reason));
        Exit::NoDaemon
    }

    fn end(&mut self, reply: &Reply, options: &OnNode, manager: Manager) -> Exit {
        let told = summary(&self.name(), reply, self.followed);
        let tolerated = options.tolerate && matches!(reply.outcome(), Some(Outcome::Tolerable));
        let exit = if tolerated { Exit::Ok } else { reply.exit() };
        told.iter().for_each(aside);
        let reason = told.first().cloned().unwrap_or_default();
        let word = reply.outcome().map_or("unknown", Outcome::word);
        if exit.code() != 0 {
            aside(format_args!("see: journalctl PERILOG_JOB={}", self.call.job));
        }
        self.orphan.ended(&self.variables(word, Some(exit.code()), &reason));
        // A cancel drains nobody.
        if manager == Manager::Flux && exit.code() != 0 && !matches!(reply.outcome(), Some(Outcome::Cancelled { .. })) {
            flux::drain(self.call.rank, &reason);
        }
        exit
    }

    fn variables(&self, outcome: &str, status: Option<u8>, reason: &str) -> Vec<(&'static str, String)> {
        vec![
            ("PERILOG_JOB", self.call.job.to_string()),
            ("PERILOG_ATTEMPT", self.call.attempt.map(|attempt| attempt.to_string()).unwrap_or_default()),
            ("PERILOG_ACTION", self.call.action.to_string()),
            ("PERILOG_OUTCOME", outcome.to_owned()),
            ("PERILOG_STATUS", status.map(|status| status.to_string()).unwrap_or_default()),
            ("PERILOG_REASON", reason.to_owned()),
        ]
    }
}

/// The end in a line, and what the failed scripts said last.
fn summary(name: &str, reply: &Reply, followed: bool) -> Vec<String> {
    let Some(outcome) = reply.outcome() else { return vec![format!("{name}: the agent told no outcome")] };
    let Some(ended) = &reply.ended else {
        let outcome = text::line(&outcome.to_string());
        // Over while the agent was away, or long ago: its tombstone has no more.
        return vec![match followed {
            true => format!("{name}: {outcome}"),
            false => format!("{name} ended before: {outcome}; it is not run again"),
        }];
    };
    let took = ended.elapsed_ms.map(|ms| format!(" after {}", text::took(ms))).unwrap_or_default();
    let why =
        ended.checks.first().map(|check| format!(": {}: {}", text::line(&check.check), text::line(&check.message)));
    let last = || {
        let tail = ended.tails.iter().find(|tail| !tail.text.trim().is_empty())?;
        let line = tail.text.lines().rev().find(|line| !line.trim().is_empty())?;
        let script = tail.script.rsplit('/').next().unwrap_or_default();
        Some(format!(": {}: {}", text::line(script), text::line(line)))
    };
    let mut lines =
        vec![format!("{name}: {}{took}{}", text::line(&ended.result()), why.or_else(last).unwrap_or_default())];
    if ended.dropped_env > 0 {
        let dropped = text::count(u64::from(ended.dropped_env), "variable");
        lines.push(format!("{dropped} not on the node's list: not handed to the scripts (env-allow in agent.toml)"));
    }
    lines.extend(ended.note.iter().chain(&ended.user_message).map(|line| text::line(line)));
    lines
}
