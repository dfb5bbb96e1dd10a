//! `perilog wait`: waits for the verdicts of a job's actions, or for an event. The verb reads only the job's event log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::RecvTimeoutError;

use perilog_core::{ActionName, Attempt, JobId, Span, Verdict};
use perilog_host::clock;
use serde_json::Value;

use crate::attempts::RequestedAttempts;
use crate::endpoint::Endpoint;
use crate::exit::{self, Exit, worse};
use crate::fault::Fault;
use crate::log::{Decided, Entry, EventBody, Roster};
use crate::out::{Out, Page, Render, aside};
use crate::session::{SessionEvent, keep};
use crate::tail::{ABANDONED, News, TAKEN_UP, Tail};
use crate::values::{self, Awaited};
use crate::{style, text};

/// Wait for a job's verdicts, or for an event
///
/// Waits until every action of the attempt has its verdict; the exit status is that of the worst verdict. With
/// --action: until that action has its verdict, even if it has not begun yet. With --for: until the job has reached a
/// milestone of that name, or until an event of that name has come. If the controller stops, the command waits until it
/// is back. With --json: the verdicts, or the event, as RFC 18 events.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only this action.
    #[arg(long, value_name = "ACTION", value_parser = values::action, conflicts_with = "awaited")]
    action: Option<ActionName>,
    /// A milestone of the job (data-out), clean (everything was released; ranks without clean-up are named), or an
    /// event (job-finish, verdict, finish...); with :ACTION a milestone that a rank of that action reached, or an event
    /// of that action.
    #[arg(long = "for", value_name = "EVENT[:ACTION]", value_parser = values::awaited, id = "awaited")]
    awaited: Option<Awaited>,
    /// Number of the attempt; default: the newest requested one.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// At most this long; 0s only checks.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    timeout: Option<Span>,
}

fn help() -> String {
    format!(
        "{}\n\nWith --for EVENT:\n  0: the event has come, now or earlier; for a verdict, the status of that \
         verdict.\n  1: the event can no longer come: another attempt replaced this one, or everything was released, \
         or its action ended, before the event.\nWith --for clean: 0 when every rank was released, even if the epilog \
         failed or timed out on a node, which is drained and named; with --action epilog the exit status is that of \
         the epilog's verdict.",
        exit::help()
    )
}

pub(crate) fn run(args: Args, endpoint: Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let deadline_ms = args.timeout.and_then(Span::as_millis).map(|ms| clock::mono_ms().saturating_add(ms));
    let mut tail = Tail::new(endpoint.clone(), args.job.clone(), 0);
    let session_events = keep(endpoint, false, move |client, sender| {
        if tail.resume(client)? {
            sender.send_message(News::Anew)?;
        }
        tail.past(client, sender)?;
        tail.waits(client, sender)?;
        tail.follow(client, sender)
    })?;
    let mut ledger = Ledger::new(args);
    loop {
        // Reads the whole existing log first, with any limit: `--timeout 0s` asks about now.
        let event = match deadline_ms.filter(|_| ledger.caught_up) {
            None => session_events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline_ms) => session_events.recv_timeout(clock::until(deadline_ms)),
        };
        match event {
            Ok(SessionEvent::Message(News::Event(entry))) => {
                ledger.print_event(&entry);
                ledger.note(entry);
            }
            Ok(SessionEvent::Message(News::Waits(attempt, why))) if ledger.chosen == Some(attempt) => {
                aside(format_args!("{}: {}", ledger.args.job, text::line(&why)));
            }
            Ok(SessionEvent::Message(News::Waits(..))) => {}
            Ok(SessionEvent::Message(News::Anew)) => ledger.begin_anew(),
            Ok(SessionEvent::Message(News::CaughtUp)) => ledger.caught_up()?,
            Ok(SessionEvent::Message(News::Attached(_))) => {}
            Ok(SessionEvent::Away(fault)) => aside(fault.waiting()),
            Ok(SessionEvent::Back(back)) => aside(back),
            Ok(SessionEvent::Over(fault)) => return Err(fault),
            Ok(SessionEvent::Done | SessionEvent::Interrupted) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other("the wait ended unexpectedly; repeat the command".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                aside(ledger.still());
                return Ok(Exit::StillRunning);
            }
        }
        if let Some(end) = ledger.end() {
            out.show(&end)?;
            return Ok(end.exit);
        }
    }
}

/// An action of an attempt, as far as the event log shows it.
#[derive(Default)]
struct Action {
    roster: Roster,
    /// Whether the action is an after-action, begun after the job handed over ranks.
    follows: bool,
    verdict: Option<(Decided, Entry)>,
}

#[derive(Default)]
struct AttemptLog {
    actions: BTreeMap<String, Action>,
    closed: Option<String>,
    /// Whether all ranks and named resources of the attempt are released.
    clean: bool,
    /// Whether the job has handed over ranks, all or some. Actions that begin later are after-actions.
    handed_over: bool,
    awaited: Option<Entry>,
    /// Names of the milestones that ranks of the attempt have reported.
    milestones: BTreeSet<String>,
    /// Whether the attempt has reported as many milestones as it may; it gets no others.
    full: bool,
    /// Hosts that the attempt has given up, each with the reason.
    given_up: Vec<String>,
}

impl AttemptLog {
    /// Returns a line for each after-action whose verdict is not `ok`, and for the hosts that were given up.
    fn unclean(&self, job: &JobId) -> Vec<String> {
        let bad = |action: &&Action| action.verdict.as_ref().is_some_and(|(decided, _)| decided.verdict != Verdict::Ok);
        let failed = self.actions.values().filter(|action| action.follows).filter(bad);
        failed.filter_map(|action| action.line(job)).chain(self.given_up.iter().cloned()).collect()
    }
}

/// The events that decide the wait, by attempt, from the job's event log.
struct Ledger {
    args: Args,
    attempts: BTreeMap<Attempt, AttemptLog>,
    asked: RequestedAttempts,
    caught_up: bool,
    /// The awaited attempt; `None`: not chosen yet, because the log was not read to its present end.
    chosen: Option<Attempt>,
}

/// The end of a `perilog wait`: exit status, output, and the events that decided.
struct End {
    exit: Exit,
    lines: Vec<String>,
    events: Vec<Entry>,
}

impl Ledger {
    fn new(args: Args) -> Self {
        Self { args, attempts: BTreeMap::new(), asked: RequestedAttempts::default(), caught_up: false, chosen: None }
    }

    /// Forgets all events, because the controller's store was restored: its older log is read from the start.
    fn begin_anew(&mut self) {
        aside(format_args!(
            "the controller's store was restored; this command reads the log of {} from its start",
            self.args.job
        ));
        (self.attempts, self.asked, self.caught_up) = (BTreeMap::new(), RequestedAttempts::default(), false);
    }

    /// Prints a new event on standard error if it says that the awaited attempt was abandoned, or was asked for again.
    fn print_event(&self, entry: &Entry) {
        let is_of_restore = [ABANDONED, TAKEN_UP].contains(&entry.name.as_str());
        if is_of_restore
            && self.caught_up
            && entry.attempt() == self.chosen
            && let EventBody::Other { text, .. } = entry.body()
        {
            aside(format_args!("{}: {text}", self.args.job));
        }
    }

    fn note(&mut self, entry: Entry) {
        let Some(number) = entry.attempt() else { return };
        self.asked.note(&entry);
        let log = self.attempts.entry(number).or_default();
        if matches!(entry.name.as_str(), "attempt-closed" | "attempt-forgotten") {
            log.closed = Some(text::line(entry.text("why").unwrap_or("no reason given")));
        }
        log.clean |= is_last_release(&entry);
        if let ("given-up", Some(hosts)) = (entry.name.as_str(), entry.text("hosts")) {
            let why = entry.text("why").unwrap_or("no reason given");
            log.given_up.push(format!("{} given up, for {}", text::line(hosts), text::line(why)));
        }
        log.handed_over |= matches!(entry.name.as_str(), "job-finish" | "job-hand-over" | "shrink");
        let handed_over = log.handed_over;
        log.full |= entry.name == "milestones-full";
        if entry.name == "milestone" {
            log.milestones.extend(entry.text("name").map(str::to_owned));
        }
        if self.args.awaited.as_ref().is_some_and(|awaited| is_awaited(awaited, &entry)) {
            log.awaited.get_or_insert_with(|| entry.clone());
        }
        let Some(action) = entry.action() else { return };
        let action = log.actions.entry(action.to_owned()).or_default();
        match entry.body() {
            EventBody::Start { ranks, hosts } => {
                action.roster = Roster { ranks, hosts };
                action.follows = handed_over;
            }
            EventBody::Verdict(decided) => action.verdict = Some((decided, entry)),
            _ => {}
        }
    }

    fn caught_up(&mut self) -> Result<(), Fault> {
        self.caught_up = true;
        if self.chosen.is_some() {
            return Ok(());
        }
        let chosen = self.args.attempt.or_else(|| self.asked.meant(self.attempts.keys().copied()));
        match chosen.filter(|number| self.attempts.contains_key(number)) {
            Some(number) => self.chosen = Some(number),
            None => {
                let known: Vec<String> = self.attempts.keys().map(ToString::to_string).collect();
                let asked = chosen.map(|number| number.to_string()).unwrap_or_default();
                return Err(Fault::NotFound(format!(
                    "{} has no attempt {asked}; it has: {}",
                    self.args.job,
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Returns the result of the wait; `None`: the wait goes on.
    fn end(&self) -> Option<End> {
        let log = self.attempts.get(&self.chosen?)?;
        if let Some(awaited) = &self.args.awaited {
            return self.end_of_event(awaited, log);
        }
        let wanted: Vec<(&String, &Action)> = match &self.args.action {
            Some(name) => log.actions.iter().filter(|(known, _)| *known == name.as_str()).collect(),
            None => log.actions.iter().collect(),
        };
        let decided: Vec<&(Decided, Entry)> = wanted.iter().filter_map(|(_, action)| action.verdict.as_ref()).collect();
        let missing = self.args.action.is_some() && wanted.is_empty();
        if decided.len() == wanted.len() && !missing {
            let verdict = decided.iter().fold(Verdict::Ok, |all, (decided, _)| worse(all, decided.verdict));
            let mut lines: Vec<String> = wanted.iter().filter_map(|(_, action)| action.line(&self.args.job)).collect();
            if lines.is_empty() {
                lines.push(format!("no action of {} has begun: nothing to wait for", self.args.job));
            }
            return Some(End {
                exit: Exit::of(verdict),
                lines,
                events: decided.into_iter().map(|(_, entry)| entry.clone()).collect(),
            });
        }
        let why = log.closed.as_ref().filter(|_| missing)?;
        Some(self.never(format!("the attempt was closed ({why}) before {} began", self.args.action.as_ref()?)))
    }

    fn end_of_event(&self, awaited: &Awaited, log: &AttemptLog) -> Option<End> {
        if let Some(entry) = &log.awaited {
            let exit = match entry.body() {
                EventBody::Verdict(decided) => Exit::of(decided.verdict),
                _ => Exit::Ok,
            };
            let unclean = log.unclean(&self.args.job);
            let line = match awaited.event.as_str() {
                "clean" if !unclean.is_empty() => {
                    format!(
                        "everything of {} was released, but not all of it is clean: {}",
                        self.args.job,
                        unclean.join("; ")
                    )
                }
                "clean" => format!("everything of {} was released", self.args.job),
                event => format!("{event} of {}", self.args.job),
            };
            return Some(End { exit, lines: vec![line], events: vec![entry.clone()] });
        }
        if awaited.is_milestone() && log.full && !log.milestones.contains(&awaited.event) {
            return Some(
                self.never(format!("the attempt has reached its limit of milestones without {}", awaited.event)),
            );
        }
        let action = awaited.action.as_ref().map(|action| log.actions.get(action.as_str()));
        // Running actions of a closed attempt go on, and its after-actions begin, until everything is released. No
        // other action begins.
        let goes_on = action.map_or(!awaited.is_milestone(), |action| action.is_some());
        if let Some(why) = log.closed.as_ref().filter(|_| !goes_on) {
            return Some(self.never(format!("the attempt was closed ({why}) without {}", awaited.event)));
        }
        if log.clean && action.is_none() && (awaited.is_milestone() || log.closed.is_some()) {
            return Some(self.never(format!("everything was released without {}", awaited.event)));
        }
        // After its verdict an action logs only late results.
        let (decided, _) = action??.verdict.as_ref()?;
        (awaited.event != "late")
            .then(|| self.never(format!("{} ended ({}) without {}", decided.action, decided.verdict, awaited.event)))
    }

    fn never(&self, why: String) -> End {
        End {
            exit: Exit::Failed,
            lines: vec![style::BAD.style(format!("{}: {why}", self.args.job)).to_string()],
            events: Vec::new(),
        }
    }

    /// Returns the message for a wait whose time limit is over, with the open work or the awaited event.
    fn still(&self) -> String {
        let waits = |text: String| format!("{text}; see: perilog ps");
        let (Some(log), None) = (self.chosen.and_then(|n| self.attempts.get(&n)), &self.args.awaited) else {
            let job = &self.args.job;
            return waits(match self.args.awaited.as_ref().map(|awaited| awaited.event.as_str()) {
                Some("clean") => format!("{job} has not been released yet"),
                Some(event) => format!("{job} has not reached {event} yet"),
                None => format!("the log of {job} has not been read yet"),
            });
        };
        let named = self.args.action.as_ref().map(ActionName::as_str);
        let mut open: Vec<&str> =
            log.actions.iter().filter(|(_, a)| a.verdict.is_none()).map(|(name, _)| name.as_str()).collect();
        open.retain(|name| named.is_none_or(|named| *name == named));
        if open.is_empty() {
            open.extend(named);
        }
        waits(format!("{} of {} has not ended yet", text::line(&open.join(", ")), self.args.job))
    }
}

impl Action {
    fn line(&self, job: &JobId) -> Option<String> {
        let (decided, _) = self.verdict.as_ref()?;
        Some(format!("{} of {job} {}", decided.action, decided.text(Some(&self.roster))))
    }
}

/// Returns `true` if `entry` is the awaited event or milestone. If the operator named an action, the milestone must be
/// of a rank in that action, else of the job.
fn is_awaited(awaited: &Awaited, entry: &Entry) -> bool {
    let named = match awaited.event.as_str() {
        "clean" => is_last_release(entry),
        event => {
            let milestone =
                awaited.is_milestone() && entry.name == "milestone" && entry.text("name") == Some(&awaited.event);
            entry.name == event || milestone && (awaited.action.is_some() || !entry.context.contains_key("ranks"))
        }
    };
    named && awaited.action.as_ref().is_none_or(|action| entry.action() == Some(action.as_str()))
}

fn is_last_release(entry: &Entry) -> bool {
    ["release", "closed", "given-up"].contains(&entry.name.as_str())
        && entry.context.get("final").is_some_and(|last| last == true)
}

impl Render for End {
    fn table(&self, page: &mut Page) {
        self.lines.iter().for_each(|line| page.line(line));
    }

    fn json(&self) -> Option<Value> {
        Some(Value::Array(self.events.iter().filter_map(Render::json).collect()))
    }

    fn quiet(&self, _page: &mut Page) {}
}
