//! Hooks through the controller. The prolog's hook adds the job and runs the job's prolog. The epilog's hook finishes
//! the job and waits for the job's after-actions.
//!
//! The hook repeats every request on each new connection, which is harmless. The controller drains, releases and goes
//! on whether the hook lives or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use perilog_core::{ActionName, Attempt, IdSet, JobId, Part, Span, Verdict};
use perilog_host::clock;
use perilog_host::varlink::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{OfJob, named};
use crate::attempts::RequestedAttempts;
use crate::endpoint::{Answer, Endpoint};
use crate::exit::{Exit, worse};
use crate::fault::Fault;
use crate::log::{Decided, Entry, EventBody, Events, Roster};
use crate::out::{Out, aside};
use crate::session::{Asking, SessionEvent, SessionSender, keep_from_the_start};
use crate::tail::{ABANDONED, News, Running, TAKEN_UP, Tail};
use crate::text;
use crate::verb::run::watch::Watch;

/// The call of a prolog's or epilog's hook that goes to the controller, such as `slurmctld-prolog`: the job, and the
/// values with which the job's action runs.
pub(super) struct Call {
    pub(super) job: JobId,
    /// The job's attempt; `None`: the resource manager gives none, and the controller's log or its reply determines it.
    pub(super) attempt: Option<Attempt>,
    /// The job's resources, as parameters of the method `JobAdd`: `R` or `nodes`.
    pub(super) place: Value,
    /// The ranks on which the action runs; `None`: all ranks of the job.
    pub(super) ranks: Option<IdSet>,
    pub(super) userid: Option<u32>,
    pub(super) env: BTreeMap<String, String>,
    /// Signals by which the resource manager asks to stop the scripts.
    pub(super) asking: Asking,
    pub(super) of: OfJob,
}

/// The reply of the method `JobAdd`.
#[derive(Debug, Deserialize)]
struct Added {
    attempt: Attempt,
    /// Whether the job no longer holds any rank or resource of the attempt.
    #[serde(default)]
    over: bool,
}

impl Call {
    fn action(&self, name: &str) -> Result<ActionName, Fault> {
        self.of.action.clone().map_or_else(|| named(name), Ok)
    }

    /// Returns the parameters of the controller's method `Run`, which begins `action` for this job.
    fn run(&self, action: &ActionName) -> Value {
        json!({"job": self.job, "attempt": self.attempt, "action": action, "targets": self.ranks, "userid": self.userid,
               "env": self.env,
            "timeout": self.of.timeout.map(Span::to_exact)})
    }

    /// Adds the job to the controller; a repeated call changes nothing. Sets `attempt` to the one in the controller's
    /// reply.
    fn add(&mut self, endpoint: &Endpoint, client: &mut Client) -> Result<Added, Fault> {
        let mut parameters =
            json!({"job": self.job, "attempt": self.attempt, "userid": self.userid, "tolerate": self.of.tolerate});
        if let (Value::Object(all), Value::Object(place)) = (&mut parameters, self.place.clone()) {
            all.extend(place);
        }
        let added = endpoint.ask_on::<Added>(client, "JobAdd", &parameters)?.body;
        self.attempt = Some(added.attempt);
        Ok(added)
    }

    /// Returns the attempt of a prolog whose resource manager gives no number, from the job's event log. Normally that
    /// is the newest requested attempt, or the next number if that attempt is closed or has handed over all its nodes.
    /// Orphans, which only nodes report, do not count as requested. `None`: the controller knows no attempt of the job.
    fn counted(&self, endpoint: &Endpoint, client: &mut Client) -> Result<Option<Attempt>, Fault> {
        let (mut known, mut over, mut asked) = (BTreeSet::new(), BTreeSet::new(), RequestedAttempts::default());
        let parameters = json!({"job": self.job, "after": 0, "follow": false});
        let read = endpoint.follow(client, "Events", &parameters, |answer: Answer<Events>| -> Result<(), Fault> {
            for entry in answer.body.events {
                asked.note(&entry);
                known.extend(entry.attempt());
                if matches!(entry.name.as_str(), "job-finish" | "attempt-closed") {
                    over.extend(entry.attempt());
                }
            }
            Ok(())
        });
        match read {
            Err(Fault::Refused { code, .. }) if code == NO_SUCH_JOB => Ok(None),
            Err(fault) => Err(fault),
            Ok(()) => {
                let meant = asked.meant(known.into_iter());
                Ok(meant.map(|meant| if over.contains(&meant) { meant.next() } else { meant }))
            }
        }
    }
}

const NO_SUCH_JOB: &str = "no-such-job";
const CONFLICT: &str = "conflict";

/// State of a hook while it waits: how long the controller may be away, and a request to stop that the controller has
/// not got yet.
struct Waiting {
    endpoint: Endpoint,
    job: JobId,
    patience: Span,
    give_up_ms: Option<u64>,
    /// Whether the resource manager has asked the hook to stop the job's action, and the controller has not got that
    /// request yet.
    stopping: bool,
}

impl Waiting {
    fn new(call: &Call, endpoint: &Endpoint) -> Self {
        Self {
            endpoint: endpoint.clone(),
            job: call.job.clone(),
            patience: call.of.patience,
            give_up_ms: None,
            stopping: false,
        }
    }

    fn next<T>(
        &self,
        session_events: &Receiver<SessionEvent<T>>,
        due_ms: Option<u64>,
    ) -> Result<SessionEvent<T>, RecvTimeoutError> {
        match self.give_up_ms.into_iter().chain(due_ms).min() {
            None => session_events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due_ms) => session_events.recv_timeout(clock::until(due_ms)),
        }
    }

    fn away(&mut self, fault: &Fault) {
        self.give_up_ms = self.patience.as_millis().map(|ms| clock::mono_ms().saturating_add(ms));
        aside(format_args!("{fault}; this hook waits for the controller, at most {}", self.patience));
    }

    fn there(&mut self, attempt: Option<Attempt>, action: Option<&ActionName>) {
        self.give_up_ms = None;
        if self.stopping {
            self.stop(attempt, action);
        }
    }

    /// Tells the controller to cancel the attempt's action; `action` of `None`: whatever runs for the attempt. If the
    /// controller does not get the request now, sets `stopping`, and the hook repeats the request later.
    fn stop(&mut self, attempt: Option<Attempt>, action: Option<&ActionName>) {
        let why = "the resource manager requested it";
        let parameters = json!({"job": self.job, "attempt": attempt, "action": action, "why": why});
        let reported = attempt.map(|_| self.endpoint.ask::<Value>("Cancel", &parameters));
        self.stopping = !matches!(reported, Some(Ok(_)));
        match reported {
            Some(Ok(_)) => {
                aside(format_args!("{}: asked the scripts to stop; this hook waits until they have ended", self.job))
            }
            Some(Err(fault)) => aside(format_args!("{}: cannot ask the scripts to stop: {fault}", self.job)),
            None => aside(format_args!("{}: stop requested; the controller has not answered yet", self.job)),
        }
    }

    /// Returns the exit status with which the hook gives up, if the controller has been away for longer than the hook's
    /// patience; also prints the reason. `None`: the hook goes on.
    fn given_up(&self) -> Option<Exit> {
        self.give_up_ms.filter(|deadline_ms| clock::mono_ms() >= *deadline_ms)?;
        aside(format_args!(
            "{}: the controller was away for {}, so this hook gives up; scripts that have begun keep running; see \
             systemctl status perilog-controller",
            self.job, self.patience
        ));
        Some(Exit::NoDaemon)
    }
}

fn ended_by_itself<T>() -> Result<T, Fault> {
    Err(Fault::Other("the connection that followed the job ended; perilog show JOB has the job's state".to_owned()))
}

/// Runs the job's prolog and waits for its verdict.
pub(super) fn prolog(mut call: Call, endpoint: Endpoint, out: Out) -> Result<Exit, Fault> {
    let action = call.action("prolog")?;
    let mut waiting = Waiting::new(&call, &endpoint);
    let mut watch = Watch::new(out, call.job.clone(), action.clone(), false);
    let mut tail = Tail::new(endpoint.clone(), call.job.clone(), 0).asking_again();
    let mut origin = None;
    let (at, name) = (endpoint.clone(), action.clone());
    let session_events =
        keep_from_the_start(endpoint, call.asking, move |client: &mut Client, sender: &mut SessionSender<News>| {
            if call.attempt.is_none() {
                call.attempt = call.counted(&at, client)?;
            }
            let added = call.add(&at, client)?;
            if added.over && origin.is_none() {
                // The earlier prolog prepared nodes that are released now, and is no prolog of the job that begins now.
                let (job, attempt) = (&call.job, added.attempt);
                let text = format!(
                    "attempt {attempt} of job {job} is over and holds nothing: its prolog does not count for a job \
                     that begins now"
                );
                return Err(Fault::Refused { code: CONFLICT.to_owned(), text }.into());
            }
            let running: Answer<Running> = at.ask_on(client, "Run", &call.run(&name))?;
            if origin.replace(running.body.events_after) != Some(running.body.events_after) {
                tail.set(running.body.events_after);
            }
            sender.send_message(News::Attached(running))?;
            tail.resume(client)?;
            tail.follow(client, sender)
        })?;
    let mut attempt = None;
    loop {
        let exit = match waiting.next(&session_events, watch.due_ms()) {
            Ok(SessionEvent::Message(News::Attached(running))) => {
                attempt = Some(running.body.attempt);
                waiting.there(attempt, Some(&action));
                watch.attached(running)?
            }
            Ok(SessionEvent::Message(News::Event(entry))) => watch.event(&entry, clock::mono_ms())?,
            Ok(SessionEvent::Message(News::CaughtUp | News::Waits(..) | News::Anew)) => None,
            Ok(SessionEvent::Away(fault)) => {
                watch.flush()?;
                waiting.away(&fault);
                None
            }
            Ok(SessionEvent::Back(back)) => watch.note_return(&back),
            Ok(SessionEvent::Interrupted) => {
                waiting.stop(attempt, Some(&action));
                None
            }
            Ok(SessionEvent::Over(fault)) => return Err(watch.over(fault)),
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected) => return ended_by_itself(),
            Err(RecvTimeoutError::Timeout) => match waiting.given_up() {
                Some(exit) => Some(exit),
                None => watch.flush()?,
            },
        };
        if let Some(exit) = exit {
            return Ok(exit);
        }
    }
}

/// Events that the session with the controller sends to the hook's main thread while an epilog runs.
enum Epilog {
    HandedOver { attempt: Attempt, over: bool, part: Part, waits: Option<String> },
    Event(Entry),
}

impl From<Entry> for Epilog {
    fn from(entry: Entry) -> Self {
        Self::Event(entry)
    }
}

/// Runs the job's epilog, finishes the job, and waits until everything is released. Begins the epilog first, over all
/// ranks of the job: an after-action that the controller starts by itself does not get the resource manager's
/// variables.
pub(super) fn epilog(mut call: Call, endpoint: Endpoint) -> Result<Exit, Fault> {
    let action = call.action("epilog")?;
    let mut waiting = Waiting::new(&call, &endpoint);
    let mut tail = Tail::new(endpoint.clone(), call.job.clone(), 0).asking_again();
    let (at, job, name) = (endpoint.clone(), call.job.clone(), action.clone());
    let session_events =
        keep_from_the_start(endpoint, call.asking, move |client: &mut Client, sender: &mut SessionSender<Epilog>| {
            let added = call.add(&at, client)?;
            let waits = at.ask_on::<Running>(client, "Run", &call.run(&name))?.body.waits;
            let finish = json!({"job": call.job, "attempt": call.attempt});
            let part = at.ask_on::<Part>(client, "JobFinish", &finish)?.body;
            sender.send_message(Epilog::HandedOver { attempt: added.attempt, over: added.over, part, waits })?;
            tail.resume(client)?;
            tail.follow(client, sender)
        })?;
    let mut behind = Behind { action, attempt: None, handed_over: false, follows: BTreeMap::new() };
    loop {
        match waiting.next(&session_events, None) {
            Ok(SessionEvent::Message(Epilog::HandedOver { attempt, over, part, waits })) => {
                if let Some(why) = waits {
                    aside(format_args!("{job}: {}", text::line(&why)));
                }
                match behind.attempt {
                    None if over => aside(format_args!("{job} was over already: attempt {attempt}")),
                    None if !part.is_empty() => aside(format_args!("{job} dropped its hold on {part}")),
                    _ => {}
                }
                behind.attempt = Some(attempt);
                waiting.there(behind.attempt, None);
            }
            Ok(SessionEvent::Message(Epilog::Event(entry))) => {
                if let Some(exit) = behind.event(&job, &entry) {
                    return Ok(exit);
                }
            }
            Ok(SessionEvent::Away(fault)) => waiting.away(&fault),
            Ok(SessionEvent::Back(back)) => aside(back),
            Ok(SessionEvent::Interrupted) => waiting.stop(behind.attempt, None),
            Ok(SessionEvent::Over(fault)) => return Err(fault),
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected) => return ended_by_itself(),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(exit) = waiting.given_up() {
                    return Ok(exit);
                }
            }
        }
    }
}

/// The after-actions of a job, as the hook follows them in the job's event log.
struct Behind {
    action: ActionName,
    attempt: Option<Attempt>,
    /// Whether the job has handed over all its ranks. Actions that begin later are after-actions.
    handed_over: bool,
    follows: BTreeMap<String, (Roster, Option<Decided>)>,
}

impl Behind {
    fn event(&mut self, job: &JobId, entry: &Entry) -> Option<Exit> {
        if entry.attempt() != self.attempt {
            return None;
        }
        match (entry.name.as_str(), entry.body()) {
            ("job-finish", _) => self.handed_over = true,
            ("release" | "closed", _) if entry.context.get("final").is_some_and(|last| last == true) => {
                return Some(self.end(job));
            }
            ("attempt-closed", EventBody::Other { text, .. }) => {
                aside(format_args!("{job}: {text}"));
                return Some(self.end(job));
            }
            (_, EventBody::Start { ranks, hosts })
                if self.handed_over || entry.action() == Some(self.action.as_str()) =>
            {
                let action = entry.action().unwrap_or_default().to_owned();
                // An after-action grows with each hand-over.
                self.follows.entry(action).or_default().0 = Roster { ranks, hosts };
            }
            (_, EventBody::Verdict(decided)) => {
                if let Some(followed) = self.follows.get_mut(decided.action.as_str()) {
                    followed.1 = Some(decided);
                }
            }
            (ABANDONED | TAKEN_UP, EventBody::Other { text, .. }) => aside(format_args!("{job}: {text}")),
            ("overdue" | "lingering" | "drain" | "lease-expired", EventBody::Other { at, text, .. }) => {
                aside(format_args!("{}: {text}", at.unwrap_or_default()));
            }
            _ => {}
        }
        None
    }

    fn end(&self, job: &JobId) -> Exit {
        let mut verdict = Verdict::Ok;
        for (action, (roster, decided)) in &self.follows {
            match decided {
                Some(decided) => {
                    aside(format_args!("{action} of {job} {}", decided.text(Some(roster))));
                    verdict = worse(verdict, decided.verdict);
                }
                // Released without a verdict: another attempt superseded this one.
                None => {
                    aside(format_args!("{} of {job}: no verdict", text::line(action)));
                    verdict = worse(verdict, Verdict::Lost);
                }
            }
        }
        Exit::of(verdict)
    }
}
