//! `perilog action`: external actions, which no agent runs. A service starts such an action, reports its ranks, and
//! renews its lease.

use clap::{Subcommand, ValueEnum};
use perilog_core::{ActionName, Attempt, HostList, IdSet, JobId, MilestoneName, Part, ResourceName, Span, Targets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{text, values};

/// Actions that an external service runs: start, report, renew, milestone
///
/// For services that work for a job's ranks or resources, such as one that stages data on a rabbit. The controller
/// holds the ranks and resources of such an action until the service reports their end. If the service is silent for
/// the length of its lease, everything that it has not reported counts as lost, and the nodes of lost ranks are
/// drained. An example in Python is /usr/share/doc/perilog/examples/external-action.py.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start an action, or attach to one that was started. The command may be repeated.
    Start(Start),
    /// Report how some or all ranks and resources ended. The first report counts; a different later one is recorded as
    /// late.
    Report(Report),
    /// Report that the action's service is alive.
    Renew(Of),
    /// Report a milestone that other actions may wait for.
    Milestone(Milestone),
}

#[derive(Debug, clap::Args, Serialize)]
struct Of {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    #[arg(value_name = "ACTION", value_parser = values::action)]
    action: ActionName,
    /// Number of the attempt; default: the open attempt.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, clap::Args, Serialize)]
struct Start {
    #[command(flatten)]
    #[serde(flatten)]
    of: Of,
    /// An external service runs the action. (Agents run the actions of `perilog run`.)
    #[arg(long, required = true)]
    #[serde(skip)]
    external: bool,
    /// Only these ranks, as an idset or as a hostlist. Without --ranks, --nodes and --resources: all ranks that the job
    /// still has.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// The ranks on these hosts. A job that the controller does not know yet begins with these hosts.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts, conflicts_with = "targets")]
    nodes: Option<HostList>,
    /// Only these named resources of the job, such as rabbit1,rabbit2.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = values::resource)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceName>,
    /// How long the service may be silent before its action counts as lost.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    lease: Span,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Ok,
    /// A named check failed, which the job may tolerate.
    Tolerable,
    Failed,
}

#[derive(Debug, clap::Args, Serialize)]
struct Report {
    #[command(flatten)]
    #[serde(flatten)]
    of: Of,
    #[arg(value_name = "OUTCOME", value_enum)]
    outcome: Outcome,
    /// Only these ranks, as an idset or as a hostlist. Without --ranks and --resources: everything that the action
    /// covers.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// These named resources.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = values::resource)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceName>,
    /// The check that failed.
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
    /// The problem in one sentence. If the node is drained for it, the reason of the drain contains this text.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

#[derive(Debug, clap::Args, Serialize)]
struct Milestone {
    #[command(flatten)]
    #[serde(flatten)]
    of: Of,
    /// A name such as data-out.
    #[arg(value_name = "NAME", value_parser = values::milestone)]
    milestone: MilestoneName,
    /// Only these ranks.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Start(start) => {
            let lease = start.lease.to_exact();
            let mut parameters = json!(start);
            parameters["lease"] = json!(lease);
            out.show(&ActionReply(start.of, endpoint.ask::<Started>("ActionStart", &parameters)?))?;
        }
        What::Report(report) => {
            let answer = endpoint.ask::<Standing>("ActionReport", &json!(report))?;
            out.show(&ActionReply(report.of, answer))?;
        }
        What::Renew(of) => {
            let answer = endpoint.ask::<Standing>("ActionRenew", &json!(of))?;
            out.show(&ActionReply(of, answer))?;
        }
        What::Milestone(milestone) => {
            let answer = endpoint.ask::<Standing>("ActionMilestone", &json!(milestone))?;
            out.show(&ActionReply(milestone.of, answer))?;
        }
    }
    Ok(Exit::Ok)
}

/// The controller's reply to a call about an action, for output: a sentence for people, the whole reply for programs.
struct ActionReply<T>(Of, Answer<T>);

trait Sentence {
    fn of(&self, of: &Of) -> String;
}

#[derive(Debug, Deserialize)]
struct Started {
    attempt: Attempt,
    ranks: IdSet,
    attached: bool,
}

impl Sentence for Started {
    fn of(&self, of: &Of) -> String {
        let there = if self.attached { "exists already" } else { "begins" };
        let Of { job, action, .. } = of;
        let ranks = text::count(self.ranks.len(), "rank");
        format!(
            "{action} of {job} (attempt {}) {there} on {ranks}; it is lost without a report or a renewal within its \
             lease",
            self.attempt
        )
    }
}

/// The controller's answer to a call about an external action: the ranks and resources that the call ended, that had
/// ended before with another outcome, that are open, and that must stop.
#[derive(Debug, Deserialize)]
struct Standing {
    ended: Part,
    late: Part,
    open: Part,
    cancelling: Part,
}

impl Sentence for Standing {
    fn of(&self, of: &Of) -> String {
        let mut reported = Vec::new();
        if !self.ended.is_empty() {
            reported.push(format!("ended: {}", self.ended));
        }
        if !self.late.is_empty() {
            reported.push(format!("recorded as late: {}", self.late));
        }
        reported.push(format!("open: {}", self.open));
        if !self.cancelling.is_empty() {
            reported.push(format!("cancel requested: {}", self.cancelling));
        }
        format!("{} of {}: {}", of.action, of.job, reported.join("; "))
    }
}

impl<T: Sentence> Render for ActionReply<T> {
    fn table(&self, page: &mut Page) {
        page.line(self.1.body.of(&self.0));
    }

    fn json(&self) -> Option<Value> {
        Some(self.1.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::people;

    #[test]
    fn what_is_left_is_shown_in_a_line() {
        let of = || Of { job: JobId::new("f1").unwrap(), action: ActionName::new("stage").unwrap(), attempt: None };
        let show =
            |raw: Value| people(&ActionReply(of(), Answer { body: Standing::deserialize(&raw).unwrap(), raw }), 0);
        for (raw, expect) in [
            (
                json!({"ended": {"ranks": "0-1"}, "late": {}, "open": {"resources": ["rabbit1"]}, "cancelling": {}}),
                "ended: ranks 0-1; open: rabbit1",
            ),
            (json!({"ended": {}, "late": {}, "open": {}, "cancelling": {}}), "open: nothing"),
            (
                json!({"ended": {}, "late": {"ranks": "2"}, "open": {"ranks": "3"}, "cancelling": {"ranks": "3"}}),
                "recorded as late: rank 2; open: rank 3; cancel requested: rank 3",
            ),
        ] {
            assert_eq!(show(raw), format!("stage of f1: {expect}\n"));
        }
    }
}
