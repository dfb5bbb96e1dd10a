//! Common part of the verbs that act on tasks, such as `cancel` and `kill`: the options that choose tasks, the request
//! to the controller, and the sentence with the number of tasks that the request has reached.

use perilog_core::{ActionName, Attempt, JobId, Targets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::{Answer, Endpoint};
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{text, values};

/// The tasks of a job that an operator means.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Which {
    #[arg(value_name = "JOB", value_parser = values::job)]
    pub(crate) job: JobId,
    /// Only this action; default: all unfinished actions.
    #[arg(value_name = "ACTION", value_parser = values::action)]
    pub(crate) action: Option<ActionName>,
    /// Only these ranks, as an idset or as a hostlist.
    #[arg(long = "ranks", visible_alias = "targets", aliases = ["node", "nodes"],
          value_name = "RANKS", value_parser = values::targets)]
    pub(crate) targets: Option<Targets>,
    /// Number of the attempt; default: the open attempt.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    pub(crate) attempt: Option<Attempt>,
}

#[derive(Debug, Deserialize)]
struct Tasks {
    tasks: u64,
}

struct Reached {
    answer: Answer<Tasks>,
    some: String,
    none: String,
}

/// Calls `method` of the controller, which returns the number of tasks that the request has reached. Prints the
/// sentence `some` with that number in place of `{}`, or the sentence `none` if it is 0. Returns the number.
pub(crate) fn reach(
    endpoint: &Endpoint,
    out: &mut Out,
    method: &str,
    parameters: &impl Serialize,
    some: &str,
    none: &str,
) -> Result<u64, Fault> {
    let answer: Answer<Tasks> = endpoint.ask(method, parameters)?;
    let tasks = answer.body.tasks;
    let some = some.replace("{}", &text::count(tasks, "task"));
    out.show(&Reached { answer, some, none: none.to_owned() })?;
    Ok(tasks)
}

impl Render for Reached {
    fn table(&self, page: &mut Page) {
        page.line(if self.answer.body.tasks == 0 { &self.none } else { &self.some });
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}
