//! `perilog job`: a job and its ranks, from `add` to `finish`. For resource managers, and for tests that act as one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;
use perilog_core::{Attempt, CheckName, HostList, JobId, Part, ResourceName, ResourceSet, Targets, Tolerance};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reached::reach;
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render, aside};
use crate::{text, values};

/// Add a job, or finish it
///
/// A job holds all its ranks until `finish`. Then its after-actions (its epilog) hold them. All ranks are released
/// together when the epilog is done on the last of them; with `release = "0"` in [action.epilog] of controller.toml,
/// each rank is released when its own epilog is done.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a job with its resources and its tolerance. The command may be repeated.
    Add(Add),
    /// Hand all, or some, of the job's ranks and resources over to its epilog. They are released together when the
    /// epilog is done on all of them; with `release = "0"` in [action.epilog], each rank when its own epilog is done.
    Finish(Finish),
    /// Ask the scripts of a job to stop, and hand all its ranks over to its epilog. A node is drained if the epilog
    /// fails or cannot run there.
    Cancel(Cancel),
    /// Drop all releases of a job that the release hook has not confirmed.
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
struct Add {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// File with R, the job's resource set (RFC 20); - reads standard input.
    #[arg(long = "R", value_name = "FILE", required_unless_present = "nodes", conflicts_with = "nodes")]
    r: Option<PathBuf>,
    /// The job's hosts in rank order, if there is no R.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// Number of ranks, or a percentage of them (10%), that may fail named checks.
    #[arg(long, value_name = "N|P%", value_parser = values::tolerance)]
    tolerate: Option<Tolerance>,
    /// Limit for one check, within --tolerate: a number of ranks, or a percentage of them; may be repeated. Without
    /// --tolerate and --keep only these checks may fail.
    #[arg(long, value_name = "CHECK=N|P%", value_parser = values::tolerance_of)]
    tolerate_check: Vec<(CheckName, Tolerance)>,
    /// Number of good ranks that the job needs; fewer fail it. Failed and surplus ranks are handed over to the epilog
    /// early. Without --tolerate all others may fail.
    #[arg(long, value_name = "N")]
    keep: Option<u32>,
    /// Hand ranks that failed within the tolerance over to the epilog at once; the job continues without them.
    #[arg(long)]
    shrink: bool,
    /// A named resource of the job, such as a rabbit; may be repeated.
    #[arg(long = "resource", value_name = "NAME", value_parser = values::resource)]
    resources: Vec<ResourceName>,
    /// The owner: a user's name or number.
    #[arg(long, value_name = "USER", value_parser = values::user)]
    user: Option<u32>,
    /// Number of the attempt; default: the open attempt, or a new one if none is open.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, clap::Args)]
struct Finish {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only these ranks, as an idset or as a hostlist; the job continues with the others.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Only these named resources, such as rabbit1,rabbit2; with --ranks, both. A resource on which a service works is
    /// released when the service has reported its end.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = values::resource)]
    resources: Vec<ResourceName>,
    /// Number of the attempt; default: the open attempt, or the last one if none is open.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Number of the attempt; default: the open attempt, or the last one if none is open.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// Why, for the event log.
    #[arg(long = "reason", value_name = "TEXT")]
    why: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Forget {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only this attempt's releases.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// Drop the releases that the release hook has not confirmed: the controller no longer sends them.
    #[arg(long, required = true)]
    releases: bool,
    /// The reason, for the event log and the journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Add(add) => {
            let r = add.r.as_deref().map(read).transpose()?;
            let checks: BTreeMap<_, _> = add.tolerate_check.into_iter().collect();
            let parameters = json!({"job": add.job, "attempt": add.attempt, "R": r, "nodes": add.nodes,
                                    "userid": add.user,
                "tolerate": add.tolerate, "tolerate_checks": checks, "keep": add.keep, "shrink": add.shrink,
                "resources": add.resources});
            let added = endpoint.ask::<Added>("JobAdd", &parameters)?;
            let exit = if added.body.over { Exit::Refused } else { Exit::Ok };
            let (unknown, meant) = (added.body.unknown.clone(), added.body.meant.clone());
            out.show(&Report(add.job.clone(), added))?;
            if !unknown.is_empty() {
                let unknown = HostList::sorted(unknown.iter());
                let meant = if meant.is_empty() { String::new() } else { format!("; did you mean {meant}?") };
                aside(format_args!(
                    "never connected to this controller: {unknown}; tasks of {} wait until these hosts connect{meant}",
                    add.job
                ));
            }
            return Ok(exit);
        }
        What::Finish(finish) => {
            let resources = (!finish.resources.is_empty()).then_some(finish.resources);
            let parameters = json!({"job": finish.job, "attempt": finish.attempt, "targets": finish.targets,
                                    "resources": resources});
            out.show(&Report(finish.job.clone(), endpoint.ask::<Part>("JobFinish", &parameters)?))?;
        }
        What::Cancel(cancel) => {
            let parameters = json!({"job": cancel.job, "attempt": cancel.attempt, "why": cancel.why});
            out.show(&Report(cancel.job.clone(), endpoint.ask::<Part>("JobCancel", &parameters)?))?;
        }
        What::Forget(Forget { job, attempt, releases, reason }) => {
            let some = format!("dropped the pending releases of {job}; the release hook is not notified of them");
            let parameters = json!({"job": job, "attempt": attempt, "releases": releases, "reason": reason});
            reach(endpoint, &mut out, "JobForget", &parameters, &some, &some)?;
        }
    }
    Ok(Exit::Ok)
}

/// Reads R from a file, or from standard input for `-`. A malformed R fails here, before the verb asks the controller.
fn read(file: &std::path::Path) -> Result<ResourceSet, Fault> {
    let fault = |source| Fault::File { what: "cannot read R from", path: file.to_owned(), source };
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin()).map_err(fault)?
    } else {
        std::fs::read_to_string(file).map_err(fault)?
    };
    ResourceSet::from_json(&text).map_err(|error| Fault::Usage(format!("{}: {error}", file.display())))
}

/// The controller's reply to a call about a job, for output: a sentence for people, the whole reply for programs.
struct Report<T>(JobId, Answer<T>);

trait Sentence {
    fn of(&self, job: &JobId) -> String;
}

#[derive(Debug, Deserialize)]
struct Added {
    attempt: Attempt,
    hosts: HostList,
    attached: bool,
    #[serde(default)]
    over: bool,
    /// Hosts that have never connected to the controller. Empty from an older controller.
    #[serde(default)]
    unknown: HostList,
    /// The known hosts that are most likely meant by `unknown`. Empty from an older controller.
    #[serde(default)]
    meant: HostList,
}

impl Sentence for Added {
    fn of(&self, job: &JobId) -> String {
        if self.over {
            let (attempt, next) = (self.attempt, self.attempt.next());
            return format!(
                "{job} (attempt {attempt}) is over and holds nothing; for the next attempt: --attempt {next}"
            );
        }
        let there = if self.attached { "exists already" } else { "holds" };
        format!(
            "{job} (attempt {}) {there}: {} on {}",
            self.attempt,
            text::count(self.hosts.len() as u64, "rank"),
            self.hosts
        )
    }
}

/// Tells which ranks and resources of the job `perilog job finish` or `perilog job cancel` has handed over.
impl Sentence for Part {
    fn of(&self, job: &JobId) -> String {
        if self.is_empty() {
            return format!("{job} was finished before; to see its remaining work: perilog show {job}");
        }
        format!("{job} no longer uses {self}. To wait until everything is released: perilog wait {job} --for clean")
    }
}

impl<T: Sentence> Render for Report<T> {
    fn table(&self, page: &mut Page) {
        page.line(self.1.body.of(&self.0));
    }

    fn json(&self) -> Option<Value> {
        Some(self.1.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}
