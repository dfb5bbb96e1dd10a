//! `perilog events`: the event log of a job (RFC 18), and later events.

use perilog_core::JobId;

use crate::door::Door;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, aside};
use crate::patience::{Happening, Teller, keep};
use crate::tail::{News, Tail};
use crate::values;

/// Event log of a job
///
/// Columns: sequence, local time, event, action, details. With --json: one RFC 18 event a line, with its sequence. With
/// --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Follow new events until Ctrl-C; waits for a controller that goes away.
    #[arg(short, long)]
    follow: bool,
    /// Only events after this sequence.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
}

pub(crate) fn run(args: Args, door: Door, mut out: Out) -> Result<Exit, Fault> {
    let mut tail = Tail::new(door.clone(), args.job, args.after);
    let happenings = keep(door, false, move |client, teller: &mut Teller<News>| {
        tail.resume(client)?;
        tail.past(client, teller)?;
        if args.follow { tail.follow(client, teller) } else { Ok(()) }
    })?;
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
