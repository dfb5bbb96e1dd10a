//! `perilog milestone`: reports manually, or for the resource manager, that a job's ranks have reached a milestone.

use perilog_core::{Attempt, IdSet, JobId, MilestoneName, Part, Targets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::values;

/// Report that a job has reached a milestone
///
/// In a script, `perilog-report milestone NAME` does the same for the script's rank. Each rank reaches a milestone
/// once. The job reaches it when all its ranks have; ranks that failed within its tolerance, or were released before
/// the end of the job, do not count. Then `perilog wait JOB --for NAME` ends.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    #[arg(value_name = "NAME", value_parser = values::milestone)]
    name: MilestoneName,
    /// Only for these ranks, as an idset or as a hostlist; default: all ranks.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Number of the attempt; default: the open attempt.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let answer: Answer<Reached> = endpoint.ask("Milestone", &args)?;
    out.show(&Report { args, answer })?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Reached {
    ranks: IdSet,
    reached: bool,
}

struct Report {
    args: Args,
    answer: Answer<Reached>,
}

impl Render for Report {
    fn table(&self, page: &mut Page) {
        let Args { job, name, .. } = &self.args;
        let Reached { ranks, reached } = &self.answer.body;
        let news = match ranks.is_empty() {
            true => format!("{job}: those ranks had reached {name} before"),
            false => format!("{job}: {name} is reached on {}", Part::of_ranks(ranks.clone())),
        };
        let job = if *reached { "the job has reached it" } else { "other ranks of the job have not reached it yet" };
        page.line(format_args!("{news}; {job}"));
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}
