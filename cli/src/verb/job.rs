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
/// A job holds all its ranks until `finish`. Then its after-actions (its epilog) hold them, and each rank is released
/// when its epilog has ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a job with its resources and its tolerance; repeating is harmless.
    Add(Add),
    /// Hand all, or some, of the job's ranks and resources to its epilog; each is released when its epilog has ended.
    Finish(Finish),
    /// Stop what runs for a job, and hand all its ranks to its epilog. A node on which the epilog fails,
    /// or cannot run, is drained.
    Cancel(Cancel),
    /// Drop releases that the release hook keeps refusing.
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
struct Add {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// R, the job's resource set (RFC 20), in this file; - for standard input.
    #[arg(long = "R", value_name = "FILE", required_unless_present = "nodes", conflicts_with = "nodes")]
    r: Option<PathBuf>,
    /// The job's hosts, rank by rank, where there is no R.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// Number of ranks, or a percentage of them (10%), that may fail named checks.
    #[arg(long, value_name = "N|P%", value_parser = values::tolerance)]
    tolerate: Option<Tolerance>,
    /// Fewer of them for this check: a number of ranks, or a percentage of them; may be repeated. Without --tolerate
    /// and --keep only these checks may fail.
    #[arg(long, value_name = "CHECK=N|P%", value_parser = values::tolerance_of)]
    tolerate_check: Vec<(CheckName, Tolerance)>,
    /// Number of good ranks that are enough: surplus ranks are released, and never fewer are kept. Without --tolerate
    /// all others may fail.
    #[arg(long, value_name = "N")]
    keep: Option<u32>,
    /// Ranks that failed within the tolerance are released.
    #[arg(long)]
    shrink: bool,
    /// A named resource of the job, such as a rabbit; may be repeated.
    #[arg(long = "resource", value_name = "NAME", value_parser = values::resource)]
    resources: Vec<ResourceName>,
    /// The owner: a user's name or number.
    #[arg(long, value_name = "USER", value_parser = values::user)]
    user: Option<u32>,
    /// Number of the attempt; if absent, the open attempt, or a new one if none is open.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, clap::Args)]
struct Finish {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only these ranks, as an idset or as a hostlist: the job goes on with the others.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Only these named resources, such as rabbit1,rabbit2; with --ranks, both. A resource that a service works on is
    /// released when the service has ended.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = values::resource)]
    resources: Vec<ResourceName>,
    /// The attempt; the open one if absent.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// The attempt; the open one if absent.
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
    /// Releases that the release hook has not confirmed: the controller stops sending them.
    #[arg(long, required = true)]
    releases: bool,
    /// Why, for the event log and the journal.
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
                    "never connected to this controller: {unknown} (tasks of {} wait there){meant}",
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
            let some = format!("releases of {job} are dropped: the release hook is not notified of them");
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
            return format!("{job} (attempt {attempt}) is over and holds nothing; for the next one: --attempt {next}");
        }
        let there = if self.attached { "is there already" } else { "holds" };
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
            return format!("{job} was finished before; what is left of it goes on: perilog show {job}");
        }
        format!("{job} is finished with {self}; released when its epilog has ended: perilog wait {job} --for clean")
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
