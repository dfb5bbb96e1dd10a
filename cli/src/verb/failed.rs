//! `perilog failed`: which ranks of a job failed before it ran. For its owner's scripts: a sub-instance drains these (docs/examples).

use clap::ValueEnum;
use perilog_core::{Attempt, HostList, IdSet, JobId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page};
use crate::{text, values};

/// Which ranks of a job failed in what ran before it
///
/// One line, empty where none failed; the messages of their checks with --json.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// How they are named.
    #[arg(long, value_enum, default_value = "hostlist")]
    format: Format,
    /// Of this attempt; without it of the open one.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Hostlist,
    Idset,
    Json,
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let answer = door.ask("Failed", &json!({"job": args.job, "attempt": args.attempt}))?;
    out.show(&Shown(args.format, answer))?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Failed {
    ranks: IdSet,
    hosts: HostList,
}

struct Shown(Format, Answer<Failed>);

impl Faces for Shown {
    fn table(&self, page: &mut Page) {
        let Self(format, answer) = self;
        page.line(match format {
            Format::Hostlist => answer.body.hosts.to_string(),
            Format::Idset => answer.body.ranks.to_string(),
            Format::Json => text::line(&answer.raw.to_string()),
        });
    }

    fn json(&self) -> Option<Value> {
        Some(self.1.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.table(page);
    }
}
