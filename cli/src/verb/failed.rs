//! `perilog failed`: the ranks on which a setup action of a job has failed. The verb is for scripts of the job's owner:
//! for example, a Flux instance within the job drains these ranks in itself (docs/examples).

use clap::ValueEnum;
use perilog_core::{Attempt, HostList, IdSet, JobId, ResourceName};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, Page, Render, aside};
use crate::{text, values};

/// Ranks of a job that failed in an earlier action
///
/// Prints one line, which is empty if no rank failed. --json adds the messages of the failed checks, and the results of
/// named resources. Failed named resources are on standard error, because the line has ranks only.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// The form of the names.
    #[arg(long, value_enum, default_value = "hostlist")]
    format: Format,
    /// Number of the attempt; default: the open attempt.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Hostlist,
    Idset,
    Json,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let answer: Answer<Failed> = endpoint.ask("Failed", &json!({"job": args.job, "attempt": args.attempt}))?;
    let beside =
        answer.body.beside(&args.job).filter(|_| out.format == OutputFormat::Table && args.format != Format::Json);
    out.show(&Shown(args.format, answer))?;
    if let Some(text) = beside {
        aside(text);
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Failed {
    ranks: IdSet,
    hosts: HostList,
    /// The named resources on which the action failed. Empty if the controller is older and sends none.
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    resource: ResourceName,
    result: String,
}

impl Failed {
    /// Returns a note with the failed named resources, because a line of hosts or ranks cannot contain them; `None`: no
    /// resource failed.
    fn beside(&self, job: &JobId) -> Option<String> {
        let names = self.resources.iter().map(|of| format!("{}: {}", of.resource, text::line(&of.result)));
        let names: Vec<String> = names.collect();
        let text = || {
            format!(
                "named resources failed, too, and are not in this line: {} (perilog failed {job} --format json)",
                names.join(", ")
            )
        };
        (!names.is_empty()).then(text)
    }
}

struct Shown(Format, Answer<Failed>);

impl Render for Shown {
    fn table(&self, page: &mut Page) {
        let Self(format, answer) = self;
        page.line(match format {
            Format::Hostlist => answer.body.hosts.to_string(),
            Format::Idset => answer.body.ranks.to_string(),
            Format::Json => text::json(&answer.raw),
        });
    }

    fn json(&self) -> Option<Value> {
        Some(self.1.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.table(page);
    }
}
