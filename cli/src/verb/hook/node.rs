//! Hooks through the agent of their node: the hook calls `Exec` until the task has ended.
//!
//! ```text
//!   ask ---> attached ---> ended: exit with its status
//!    |          |
//!    |          +-- the agent is away: wait, and attach again; after --patience exit with 7. The scripts go on.
//!    |          +-- SIGTERM: cancel, and stay        +-- its parent has died: tell the agent, and stay
//!    |              (an epilog of Slurm's that has not begun: only stay)
//!    +-- refused: exit with 5
//! ```
//! The daemon that runs a hook may be dead, and its pipe closed: a failed print never fails the hook.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

use perilog_core::message::Phase;
use perilog_core::{ActionName, Attempt, JobId, Outcome, Span, environment};
use perilog_host::clock;
use serde::Serialize;
use serde_json::{Value, json};

use super::pending::{Called, Note, Pending};
use super::starter::Starter;
use super::{OnNode, flux, slurm};
use crate::endpoint::{Answer, Endpoint};
use crate::exec::{self, Reply, describe};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::aside;
use crate::session::{ANY, SessionEvent, Stop, keep_from_the_start};
use crate::text;

/// The effect of an action on its attempt: a prolog begins it, an epilog ends it. The agent needs to know this where it
/// counts the attempts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Turn {
    Begins,
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    /// Slurm, which drains a node by itself if a hook fails there.
    Slurm,
    /// Flux only logs the status of its housekeeping, and returns the node to service in any case.
    Flux,
}

/// A hook's call to the agent: the task, and the values with which its scripts run.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) job: JobId,
    /// The attempt's number: at first the one that the resource manager gives (`None`: it gives none), later the one in
    /// the agent's first answer.
    pub(super) attempt: Option<Attempt>,
    /// Whether `attempt` is the number from an answer of the agent. The hook's later requests then name this attempt,
    /// even if the agent would count another one by now.
    pub(super) answered: bool,
    pub(super) turn: Turn,
    pub(super) action: ActionName,
    pub(super) rank: u32,
    pub(super) userid: Option<u32>,
    pub(super) env: BTreeMap<String, String>,
    /// A text that distinguishes two jobs with the same number: Slurm's start time of the job. `None`: not known.
    pub(super) instance: Option<String>,
    /// Path of the note of this epilog on disk, which the agent removes at the end.
    pub(super) note: Option<PathBuf>,
}

impl Call {
    /// Returns the parameters of `Exec`. `daemon_died`: the daemon that ran this hook has died. `is_older`: the agent
    /// is of an older version, so the request has only parameters that it knows.
    fn request(&self, options: &OnNode, daemon_died: bool, is_older: bool) -> Value {
        let mut request = json!({"job": self.job, "action": self.action, "rank": self.rank, "userid": self.userid,
                                 "env": self.env,
            "timeout": options.timeout.map(Span::to_exact)});
        self.number(&mut request);
        if let Some(program) = options.orphan_program.as_ref().filter(|_| !is_older) {
            request["orphaned"] = json!(program);
        }
        if let Some(instance) = self.instance.as_ref().filter(|_| !is_older) {
            request["instance"] = json!(instance);
        }
        if let Some(note) = self.note.as_ref().filter(|_| !is_older) {
            request["note"] = json!(note);
        }
        // The hook sends this only if `true`: an agent of the version before refuses a request with it.
        if daemon_died && !is_older {
            request["daemon_died"] = json!(true);
        }
        request
    }

    /// Adds the attempt's number, if it is known, to a request for the agent. Until the agent has answered, also adds
    /// `turn` (whether the action begins or ends the attempt), from which the agent can find the number.
    fn number(&self, request: &mut Value) {
        if let Some(attempt) = self.attempt {
            request["attempt"] = json!(attempt);
        }
        if !self.answered {
            request["turn"] = json!(self.turn);
        }
    }

    /// Takes over the attempt's number from an answer of the agent, if it has one. Ignores the numbers in later
    /// answers.
    fn receive(&mut self, attempt: Option<Attempt>) {
        if let Some(attempt) = attempt.filter(|_| !self.answered) {
            (self.attempt, self.answered) = (Some(attempt), true);
        }
    }

    /// Returns the number of variables that no configuration of a node lets scripts have: `SLURM_CONF`, which the
    /// program in `--orphaned` needs, and [`environment::STARTER`].
    fn withheld(&self) -> u32 {
        let is_withheld = |name: &&String| name.as_str() == environment::STARTER || environment::is_honoured(name);
        u32::try_from(self.env.keys().filter(is_withheld).count()).unwrap_or(u32::MAX)
    }

    /// Returns the node name of the slurmd that runs this hook, if Slurm sets it.
    fn node(&self) -> Option<&str> {
        self.env.get("SLURMD_NODENAME").map(String::as_str)
    }
}

/// An event that the threads `agent` and `starter` send to the hook's main thread.
enum Event {
    Agent(SessionEvent<Answer<Reply>>),
    /// The hook's parent has died: no daemon will get the hook's status.
    DaemonDied,
}

pub(super) fn run(mut call: Call, options: OnNode, manager: Manager) -> Result<Exit, Fault> {
    let endpoint = options.agent.endpoint();
    let pending =
        options.pending.as_ref().filter(|_| manager == Manager::Slurm).map(|dir| Pending::new(dir, &endpoint.path));
    if let Some(exit) =
        pending.as_ref().filter(|_| call.turn == Turn::Begins).and_then(|pending| pending.settle(slurm::is_slurms))
    {
        return Ok(exit);
    }
    let note = pending.filter(|_| call.turn == Turn::Ends).map(|pending| note(&pending, &call));
    call.note = note.as_ref().map(|note| note.disk().to_owned()).filter(|note| note.is_absolute());
    let starter = Starter::of_this_process(call.node());
    if let Some(process) = starter.as_ref().filter(|_| options.orphan_program.is_some()).and_then(Starter::process) {
        call.env.insert(environment::STARTER.to_owned(), process);
    }
    let events = events(&endpoint, call.clone(), &options, starter)?;
    let mut hook = Hook::new(call, manager);
    let mut give_up_ms = None;
    loop {
        let event = match give_up_ms {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline_ms) => events.recv_timeout(clock::until(deadline_ms)),
        };
        match event {
            Ok(Event::Agent(SessionEvent::Message(reply))) => {
                give_up_ms = None;
                hook.reported(&reply.body, &endpoint);
                if reply.body.is_last() {
                    note.iter().for_each(Note::remove);
                    return Ok(hook.end(&reply.body, &options, manager));
                }
            }
            Ok(Event::Agent(SessionEvent::Away(fault))) => {
                give_up_ms = options.patience.as_millis().map(|ms| clock::mono_ms().saturating_add(ms));
                aside(format_args!("{fault}; this hook waits for the agent, at most {}", options.patience));
            }
            Ok(Event::Agent(SessionEvent::Back(_))) => {
                give_up_ms = None;
                aside("the agent is back");
            }
            Ok(Event::Agent(SessionEvent::Interrupted)) => hook.stop(&endpoint),
            Ok(Event::Agent(SessionEvent::Over(fault))) => return Err(fault),
            Ok(Event::DaemonDied) => hook.on_daemon_died(&endpoint),
            Err(RecvTimeoutError::Timeout) => return Ok(hook.given_up(options.patience)),
            Ok(Event::Agent(SessionEvent::Done)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other(
                    "the replies of the agent ended before the task did; see journalctl -u perilog-agent".to_owned(),
                ));
            }
        }
    }
}

/// Maximum number of events that wait for the hook's main thread. At the maximum, the threads `agent` and `starter`
/// wait until the main thread has taken an event.
const EVENTS: usize = 16;

fn note(pending: &Pending, call: &Call) -> Note {
    let arguments = std::env::args().skip(1).collect();
    pending.note(&format!("{}-{}.json", call.job, call.rank), &Called { arguments, env: call.env.clone() })
}

fn events(
    endpoint: &Endpoint,
    mut call: Call,
    options: &OnNode,
    starter: Option<Starter>,
) -> Result<Receiver<Event>, Fault> {
    let (at, options) = (endpoint.clone(), options.clone());
    let mut is_older = false;
    // A call after the daemon's death reports the death: the task may have ended while the agent was away.
    let daemon_died = Arc::new(AtomicBool::new(false));
    let has_daemon_died = Arc::clone(&daemon_died);
    let session_events = keep_from_the_start(endpoint.clone(), ANY, move |client, sender| {
        let request = call.request(&options, has_daemon_died.load(Ordering::Acquire), is_older);
        let ended = exec::session(&at, client, &request, sender, |reply| call.receive(reply.attempt));
        match ended {
            // An upgrade is under way: a hook that fails would drain the node.
            Err(Stop::Fault(fault @ Fault::Unsupported { .. })) if !is_older => {
                aside(format_args!(
                    "{fault}; this hook repeats its request without the parameters that an older agent does not know"
                ));
                is_older = true;
                Err(Stop::Again)
            }
            ended => ended,
        }
    })?;
    let (to, events) = sync_channel(EVENTS);
    let agent = to.clone();
    start("agent", move || {
        // The thread ends when the loop has ended and receives no more events.
        let _ = session_events.into_iter().all(|event| agent.send(Event::Agent(event)).is_ok());
    })?;
    if let Some(starter) = starter {
        start("starter", move || {
            starter.wait();
            daemon_died.store(true, Ordering::Release);
            // A send to a loop that has ended fails harmlessly.
            let _ = to.send(Event::DaemonDied);
        })?;
    }
    Ok(events)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| Fault::Other(format!("cannot start a thread: {error}")))
}

/// State of a hook while it follows its task.
struct Hook {
    call: Call,
    manager: Manager,
    unit: Option<String>,
    /// Whether a script of the task has begun, as far as the agent has reported.
    begun: bool,
    last_phase: Option<Phase>,
    /// Whether the agent has replied before the task's end. If not, the task may have ended before the hook asked.
    followed: bool,
    /// Whether the resource manager has asked the hook to stop the task, and the agent has not got that request yet.
    stopping: bool,
    /// Whether the hook's parent has died.
    daemon_died: bool,
}

impl Hook {
    fn new(call: Call, manager: Manager) -> Self {
        Self {
            call,
            manager,
            unit: None,
            begun: false,
            last_phase: None,
            followed: false,
            stopping: false,
            daemon_died: false,
        }
    }

    /// Returns the task's name for messages: its action and job, such as `prolog of 5`.
    fn name(&self) -> String {
        format!("{} of {}", self.call.action, self.call.job)
    }

    fn reported(&mut self, reply: &Reply, endpoint: &Endpoint) {
        if !reply.unit.is_empty() && self.unit.as_ref() != Some(&reply.unit) {
            if reply.attached == Some(true) && !reply.is_last() {
                aside(format_args!(
                    "{} exists already; this hook attached to {}",
                    self.name(),
                    text::line(&reply.unit)
                ));
            }
            self.unit = Some(reply.unit.clone());
        }
        self.followed |= !reply.is_last();
        self.begun |= reply.phase.as_ref().is_some_and(|phase| !matches!(phase, Phase::Waiting { .. }));
        if self.stopping && !reply.is_last() {
            self.stop(endpoint);
        }
        if self.daemon_died {
            // The hook repeats the report on each connection, because the agent may have restarted.
            self.report_daemon_died(endpoint);
        }
        if let Some(phase) = reply.phase.as_ref().filter(|phase| self.last_phase.as_ref() != Some(*phase)) {
            // Normal phases are in the journal; a person who reads this output has a hanging node.
            if matches!(phase, Phase::Waiting { .. } | Phase::Overdue { .. } | Phase::Lingering { .. }) {
                aside(format_args!("{}: {}", self.name(), describe(phase)));
            }
            self.last_phase = Some(phase.clone());
        }
    }

    /// Returns `true` if the task is an epilog of Slurm that has not begun: it waits for the prolog, which still lives.
    /// Slurm stops the epilog's hook at PrologEpilogTimeout. If that hook cancelled the waiting epilog, no script would
    /// clean up after the job.
    fn must_clean_up(&self) -> bool {
        self.manager == Manager::Slurm && self.call.turn == Turn::Ends && !self.begun
    }

    fn stop(&mut self, endpoint: &Endpoint) {
        if self.must_clean_up() {
            self.stopping = false;
            return aside(format_args!(
                "{}: the request to stop is ignored: as far as this hook knows, the epilog has not begun, and it must \
                 clean up after the job",
                self.name()
            ));
        }
        let Some(unit) = &self.unit else {
            self.stopping = true;
            return aside("stop requested; the agent has not answered yet");
        };
        let reported = endpoint.ask::<Value>("Cancel", &json!({ "unit": unit }));
        self.stopping = reported.is_err();
        match reported {
            Ok(_) => {
                aside(format_args!("{}: asked the scripts to stop; this hook waits until they have ended", self.name()))
            }
            Err(fault) => aside(format_args!("{}: cannot ask the scripts to stop: {fault}", self.name())),
        }
    }

    fn on_daemon_died(&mut self, endpoint: &Endpoint) {
        aside(format_args!(
            "the process that ran this hook has died; {} continues, and so does this hook",
            self.name()
        ));
        self.daemon_died = true;
        self.report_daemon_died(endpoint);
    }

    /// Tells the agent that the hook's parent has died. Ignores an absent agent: the hook's next `Exec` request to it
    /// reports the death too.
    fn report_daemon_died(&self, endpoint: &Endpoint) {
        if let Some(unit) = &self.unit {
            let _ = endpoint.ask::<Value>("Orphaned", &json!({ "unit": unit }));
        }
    }

    fn given_up(&mut self, patience: Span) -> Exit {
        let reason = format!(
            "{}: the agent was away for {patience}, so this hook gives up; {}; see systemctl status perilog-agent",
            self.name(),
            if self.unit.is_some() {
                "scripts that have begun keep running"
            } else {
                "no script has begun, as far as this hook knows"
            }
        );
        aside(&reason);
        Exit::NoDaemon
    }

    fn end(&mut self, reply: &Reply, options: &OnNode, manager: Manager) -> Exit {
        let reported = summary(&self.name(), reply, self.followed, self.call.withheld());
        let tolerated = options.tolerate && matches!(reply.outcome(), Some(Outcome::Tolerable));
        let exit = if tolerated { Exit::Ok } else { reply.exit() };
        reported.iter().for_each(aside);
        let reason = reported.first().cloned().unwrap_or_default();
        if exit.code() != 0 {
            aside(format_args!("see: journalctl PERILOG_JOB={}", self.call.job));
        }
        // A cancel drains no node.
        if manager == Manager::Flux && exit.code() != 0 && !matches!(reply.outcome(), Some(Outcome::Cancelled { .. })) {
            flux::drain(self.call.rank, &reason);
        }
        exit
    }
}

/// Returns the lines that the hook prints when the task has ended. The first has the outcome, with a failed check or a
/// script's last line. Remarks follow, such as the number of variables that the scripts did not get. `followed`: the
/// agent had answered before the end. `withheld`: the number of variables that are not worth a remark.
fn summary(name: &str, reply: &Reply, followed: bool, withheld: u32) -> Vec<String> {
    let Some(outcome) = reply.outcome() else { return vec![format!("{name}: the agent reported no outcome")] };
    let Some(ended) = &reply.ended else {
        let outcome = text::line(&outcome.to_string());
        // The task ended while the agent was away, or long ago: the tombstone has no more details.
        return vec![match followed {
            true => format!("{name}: {outcome}"),
            false => format!("{name} had ended before: {outcome}; it does not run again"),
        }];
    };
    let elapsed = ended.elapsed_ms.map(|ms| format!(" after {}", text::elapsed(ms))).unwrap_or_default();
    let why =
        ended.checks.first().map(|check| format!(": {}: {}", text::line(&check.check), text::line(&check.message)));
    let last = || {
        let tail = ended.tails.iter().find(|tail| !tail.text.trim().is_empty())?;
        let line = tail.text.lines().rev().find(|line| !line.trim().is_empty())?;
        let script = tail.script.rsplit('/').next().unwrap_or_default();
        Some(format!(": {}: {}", text::line(script), text::line(line)))
    };
    let mut lines =
        vec![format!("{name}: {}{elapsed}{}", text::line(&ended.result()), why.or_else(last).unwrap_or_default())];
    let dropped = ended.dropped_env.saturating_sub(withheld);
    if dropped > 0 {
        let dropped = text::count(u64::from(dropped), "variable");
        lines.push(format!("{dropped} not passed to the scripts: not in env-allow of agent.toml"));
    }
    lines.extend(ended.note.iter().chain(&ended.user_message).map(|line| text::line(line)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hook that asks again names the attempt of the agent's first answer. Otherwise an agent that counts the
    /// attempts itself could choose another one, because an epilog may have come meanwhile.
    #[test]
    fn the_first_answer_settles_the_attempt() {
        let attempt = |number| Some(Attempt::from_number(number));
        for (own, answer, first, again) in [
            (attempt(0), attempt(1), json!({"attempt": "0", "turn": "begins"}), json!({"attempt": "1"})),
            (None, attempt(1), json!({"turn": "begins"}), json!({"attempt": "1"})),
            // An older agent names no attempt in its answers.
            (attempt(0), None, json!({"attempt": "0", "turn": "begins"}), json!({"attempt": "0", "turn": "begins"})),
        ] {
            let mut call = Call {
                job: JobId::new("5").unwrap(),
                attempt: own,
                answered: false,
                turn: Turn::Begins,
                action: ActionName::new("prolog").unwrap(),
                rank: 0,
                userid: None,
                env: BTreeMap::new(),
                instance: None,
                note: None,
            };
            let asked = |call: &Call| {
                let mut request = json!({});
                call.number(&mut request);
                request
            };
            assert_eq!(asked(&call), first);
            call.receive(answer);
            call.receive(attempt(7).filter(|_| answer.is_some()));
            assert_eq!(asked(&call), again);
        }
    }
}
