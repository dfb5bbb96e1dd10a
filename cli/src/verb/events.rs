//! `perilog events`: prints the event log of a job (RFC 18) or of all jobs, and with `--follow` also new events as they
//! come.

use perilog_core::JobId;
use perilog_host::varlink::Client;
use serde::Deserialize;
use serde_json::json;

use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::log::Events;
use crate::out::{Out, aside};
use crate::patience::{Happening, Stop, Teller, keep};
use crate::tail::{News, Tail};
use crate::values;

/// Event log of a job, or of all jobs
///
/// Columns: sequence, local time, event, action, details. With --json: one RFC 18 event a line, with its sequence. With
/// --quiet: the names. With --all: the events of all jobs in the order in which the controller stored them, each with
/// its job, and with --json also with its spot, for --after.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job, required_unless_present = "all")]
    job: Option<JobId>,
    /// The events of all jobs.
    #[arg(long, conflicts_with = "job")]
    all: bool,
    /// Follow new events until Ctrl-C; waits for a controller that goes away.
    #[arg(short, long)]
    follow: bool,
    /// Only events after this sequence; with --all after this spot of an earlier line, or from "now" on.
    #[arg(long, value_name = "N")]
    after: Option<String>,
}

pub(crate) fn run(args: Args, door: Door, mut out: Out) -> Result<Exit, Fault> {
    let follow = args.follow;
    let happenings = match args.job {
        Some(job) => {
            let after = args.after.as_deref().unwrap_or("0");
            let wrong = || Fault::Usage(format!("--after {after}: expected the sequence of an event, a number"));
            let mut tail = Tail::new(door.clone(), job, after.parse().map_err(|_| wrong())?);
            keep(door, false, move |client, teller: &mut Teller<News>| {
                tail.resume(client)?;
                tail.past(client, teller)?;
                if follow { tail.follow(client, teller) } else { Ok(()) }
            })?
        }
        None => {
            let mut all = All { door: door.clone(), spot: args.after };
            keep(door, false, move |client, teller: &mut Teller<News>| all.read(client, follow, teller))?
        }
    };
    for happening in happenings {
        match happening {
            Happening::Told(News::Event(entry)) => out.show(&entry)?,
            Happening::Told(News::CaughtUp | News::Attached(_) | News::Waits(..) | News::Anew) => {}
            Happening::Away(fault) => aside(format_args!("{fault}; waiting for it to come back")),
            Happening::Back(back) => aside(back),
            Happening::Over(fault) => return Err(fault),
            Happening::Done | Happening::Interrupted => break,
        }
    }
    Ok(Exit::Ok)
}

/// Reads the events of all jobs, and keeps its place between connections.
struct All {
    door: Door,
    /// The spot (the controller's word for a place in the log) of the last reported event, or `now`. `None`: the reader
    /// begins at the oldest event.
    spot: Option<String>,
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
    fn read(&mut self, client: &mut Client, follow: bool, teller: &mut Teller<News>) -> Result<(), Stop> {
        if follow {
            self.door.wait_for_ever(client)?;
        }
        let parameters = json!({"after": self.spot, "follow": follow});
        let spot = &mut self.spot;
        self.door.follow(client, "EventsOfAll", &parameters, |answer: Answer<Page>| {
            teller.met()?;
            answer.body.of.events.into_iter().try_for_each(|entry| teller.tell(News::Event(entry)))?;
            *spot = answer.body.spot.or_else(|| spot.take());
            Ok::<_, Stop>(())
        })?;
        if follow {
            let why = "the stream of events ended".to_owned();
            return Err(Fault::WentAway { daemon: self.door.daemon, why }.into());
        }
        Ok(())
    }
}
