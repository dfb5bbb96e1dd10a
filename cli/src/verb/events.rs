//! `perilog events`: prints the event log of a job (RFC 18) or of all jobs, and with `--follow` also new events as they
//! come.

use std::collections::VecDeque;

use perilog_core::JobId;
use perilog_host::varlink::Client;
use serde::Deserialize;
use serde_json::json;

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::log::{Entry, Events};
use crate::out::{Out, aside};
use crate::session::{SessionEvent, SessionSender, Stop, keep};
use crate::tail::{News, Tail};
use crate::{values, when};

/// Event log of a job, or of all jobs
///
/// Columns: sequence, local time, event, action, details. With --json: one RFC 18 event a line, with its sequence. With
/// --quiet: the names. With --all: the events of all jobs, each with its job, in the order in which the controller
/// stored them; with --json each also has its position (`spot`), for --after.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: Option<JobId>,
    /// The events of all jobs.
    #[arg(long, conflicts_with = "job")]
    all: bool,
    /// Show new events as they come, until Ctrl-C. If the controller stops, the command waits until it is back.
    #[arg(short, long)]
    follow: bool,
    /// Only events since this time: how long ago (90s, 5m, 2h, 7d, 1w), a date, or a date and time.
    #[arg(short = 'S', long = "since", value_name = "TIME", value_parser = when::parse, conflicts_with = "after")]
    since_ms: Option<u64>,
    /// Only the last N of these events; with --follow, also all new ones.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "after")]
    lines: Option<u64>,
    /// Only events after this sequence. With --all: after this position (`spot`) of an earlier event, or after `now`.
    #[arg(long, value_name = "N")]
    after: Option<String>,
}

pub(crate) fn run(args: Args, endpoint: Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let (follow, since_ms, lines) = (args.follow, args.since_ms, args.lines);
    if args.job.is_none() && !args.all {
        let text = "name a job: perilog events JOB (perilog jobs lists jobs); for all jobs: perilog events --all";
        return Err(Fault::Usage(text.to_owned()));
    }
    // The controller chooses among the events of all jobs; a job has few, and the verb itself chooses.
    let mut newest = args.job.as_ref().and(Some(Newest { since_ms, lines, kept: Some(VecDeque::new()) }));
    let session_events = match args.job {
        Some(job) => {
            let after = args.after.as_deref().unwrap_or("0");
            let wrong = || Fault::Usage(format!("--after {after}: expected the sequence of an event, a number"));
            let mut tail = Tail::new(endpoint.clone(), job, after.parse().map_err(|_| wrong())?);
            keep(endpoint, false, move |client, sender: &mut SessionSender<News>| {
                tail.resume(client)?;
                tail.past(client, sender)?;
                if follow { tail.follow(client, sender) } else { Ok(()) }
            })?
        }
        None => {
            let mut all = All { endpoint: endpoint.clone(), spot: args.after, since_ms, last: lines };
            keep(endpoint, false, move |client, sender: &mut SessionSender<News>| all.read(client, follow, sender))?
        }
    };
    for event in session_events {
        match event {
            SessionEvent::Message(News::Event(entry)) => {
                let shown = newest.as_mut().map_or_else(|| Some(entry.clone()), |newest| newest.take(entry.clone()));
                shown.iter().try_for_each(|entry| out.show(entry))?;
            }
            SessionEvent::Message(News::CaughtUp) => {
                let kept = newest.as_mut().and_then(|newest| newest.kept.take());
                kept.iter().flatten().try_for_each(|entry| out.show(entry))?;
            }
            SessionEvent::Message(News::Attached(_) | News::Waits(..) | News::Anew) => {}
            SessionEvent::Away(fault) => aside(fault.waiting()),
            SessionEvent::Back(back) => aside(back),
            SessionEvent::Over(fault) => return Err(fault),
            SessionEvent::Done | SessionEvent::Interrupted => break,
        }
    }
    Ok(Exit::Ok)
}

/// Chooses the newest events of a job, before the verb has read the job's log to its present end.
struct Newest {
    since_ms: Option<u64>,
    lines: Option<u64>,
    /// The events to show, so far. `None`: the log was read to its end, and each further event is shown at once.
    kept: Option<VecDeque<Entry>>,
}

impl Newest {
    /// Takes an event of the log. Returns it if the log was read to its end: the verb shows it at once. Otherwise keeps
    /// it, unless it is older than `since_ms`, and drops the oldest one kept if there are more than `lines`.
    fn take(&mut self, entry: Entry) -> Option<Entry> {
        let Some(kept) = &mut self.kept else { return Some(entry) };
        if self.since_ms.is_none_or(|since_ms| entry.wall_ms() >= since_ms) {
            kept.push_back(entry);
        }
        if self.lines.is_some_and(|lines| kept.len() as u64 > lines) {
            kept.pop_front();
        }
        None
    }
}

/// Reads the events of all jobs, and keeps its place between connections.
struct All {
    endpoint: Endpoint,
    /// The spot (the controller's word for a place in the log) of the last reported event, or `now`. `None`: the reader
    /// begins at the oldest event.
    spot: Option<String>,
    /// Choose the newest events where there is no spot yet: those since this time, and only the last so many.
    since_ms: Option<u64>,
    last: Option<u64>,
}

/// The body of a reply of the method `EventsOfAll`.
#[derive(Debug, Deserialize)]
struct Page {
    #[serde(flatten)]
    of: Events,
    #[serde(default)]
    spot: Option<String>,
}

impl All {
    fn read(&mut self, client: &mut Client, follow: bool, sender: &mut SessionSender<News>) -> Result<(), Stop> {
        if follow {
            self.endpoint.wait_for_ever(client)?;
        }
        let mut parameters = json!({"after": self.spot, "follow": follow});
        // Left out for older controllers, which refuse them.
        if self.spot.is_none() {
            for (name, value) in [("since_ms", self.since_ms), ("last", self.last)] {
                value.into_iter().for_each(|value| parameters[name] = value.into());
            }
        }
        let spot = &mut self.spot;
        self.endpoint.follow(client, "EventsOfAll", &parameters, |answer: Answer<Page>| {
            sender.answered()?;
            answer.body.of.events.into_iter().try_for_each(|entry| sender.send_message(News::Event(entry)))?;
            *spot = answer.body.spot.or_else(|| spot.take());
            Ok::<_, Stop>(())
        })?;
        if follow {
            let why = "the stream of events ended".to_owned();
            return Err(Fault::WentAway { daemon: self.endpoint.daemon, why }.into());
        }
        Ok(())
    }
}
