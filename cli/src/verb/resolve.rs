//! `perilog resolve`: an operator's resolution in place of an outcome that will not come.

use perilog_core::ResourceName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reached::Which;
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{text, values};

/// Give an outcome to tasks that will not end by themselves
///
/// The ranks count as failed, or with --ok as ok. Use this for tasks of a node that is gone for good, for example. If a
/// task may still be running, its node is drained first, and the task is resolved when the drain is in force; until
/// then `perilog ps` shows it as resolving. Resolving stops no script: a running script keeps running, and its own
/// result is recorded as late. A task that has not begun never begins. Your uid and the reason are recorded
/// permanently.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// Resolve only these named resources, on which a service works. Ranks are resolved only with --ranks.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = values::resource)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceName>,
    /// The reason, for later readers of the event log.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// Count the ranks as ok.
    #[arg(long)]
    ok: bool,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    if args.which.targets.is_none() && args.resources.is_empty() {
        return Err(Fault::Usage(format!(
            "name the part of {job} to resolve: --ranks RANKS (an idset or a hostlist), --resources NAME,... or both"
        )));
    }
    let answer: Answer<Resolved> = endpoint.ask("Resolve", &args)?;
    let tasks = answer.body.tasks;
    out.show(&Report { args, answer })?;
    Ok(if tasks == 0 { Exit::Failed } else { Exit::Ok })
}

#[derive(Debug, Deserialize)]
struct Resolved {
    tasks: u64,
    #[serde(default)]
    waiting: u64,
}

struct Report {
    args: Args,
    answer: Answer<Resolved>,
}

impl Render for Report {
    fn table(&self, page: &mut Page) {
        let (job, word) = (&self.args.which.job, if self.args.ok { "ok" } else { "failed" });
        let Resolved { tasks, waiting } = self.answer.body;
        if tasks == 0 {
            page.line(format_args!("nothing to resolve: no unfinished task of {job} matches"));
        }
        if tasks > waiting {
            page.line(format_args!("resolved {} of {job} as {word}", text::count(tasks - waiting, "task")));
        }
        if waiting > 0 {
            page.line(format_args!(
                "{} of {job} will count as {word} when the drain of the nodes is in force; see: perilog ps",
                text::count(waiting, "task")
            ));
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

fn reason(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("expected a reason, in words") } else { Ok(text.to_owned()) }
}
