//! Flux's prologs, epilogs and housekeeping: the variables that Flux sets, and the data that the hook reads from Flux.
//!
//! * FLUX_JOB_ID: for a prolog and an epilog in F58 with its sign, for housekeeping in decimal. Scripts get the id
//!   unchanged; all forms name the same job.
//! * FLUX_JOB_RANKS (RFC 22), FLUX_JOB_USERID. Flux sets no hosts: R has the hosts, `flux job info ID R`.
//! * Attempt: after Flux has rolled back a launch with the KVS, it launches the job again under the same id. So the
//!   attempt is the time of the job's `alloc`.
//! * Flux only logs housekeeping's status, so a hook that wants the node drained must drain the node before the exit.

use std::process::{Command, Stdio};

use perilog_core::eventlog::JobEvent;
use perilog_core::{ActionName, Attempt, Event, Fluid, IdSet, ResourceSet};
use serde_json::json;

use super::environment::Environment;
use super::job;
use super::node::{self, Turn};
use super::{OfJob, named};
use crate::fault::Fault;
use crate::out::aside;
use crate::session::ANY;
use crate::text;

pub(super) const BROKER: &str = "Flux";
/// Option of `flux job wait-event`: the longest time without a new event while a job's eventlog has no `alloc`.
const ALLOC_LIMIT: &str = "--timeout=30s";

/// Builds the call to this node's agent for Flux's housekeeping. Does not read the job's eventlog: every node would
/// then ask rank 0 about every job.
pub(super) fn node(env: &Environment, action: Option<ActionName>) -> Result<node::Call, Fault> {
    let id: Fluid = env.need("FLUX_JOB_ID", BROKER)?;
    Ok(node::Call {
        job: id.job(),
        attempt: None,
        answered: false,
        turn: Turn::Ends,
        action: action.map_or_else(|| named("housekeeping"), Ok)?,
        rank: rank(),
        userid: env.read("FLUX_JOB_USERID")?,
        env: env.offer(is_of_the_job),
        instance: None,
        note: None,
    })
}

/// Returns the rank of this node's broker of Flux; 0, with a warning, if Flux does not say.
pub(super) fn rank() -> u32 {
    let rank = flux(&["getattr", "rank"]).and_then(|rank| {
        let text = |error| Fault::Other(format!("`flux getattr rank` says {rank:?}: {error}"));
        rank.trim().parse().map_err(text)
    });
    rank.unwrap_or_else(|fault: Fault| {
        aside(format_args!("{fault}; this hook assumes rank 0, and cannot drain the node"));
        0
    })
}

pub(super) fn job(env: &Environment, of: OfJob) -> Result<job::Call, Fault> {
    let id: Fluid = env.need("FLUX_JOB_ID", BROKER)?;
    let ranks: Option<IdSet> = env.read("FLUX_JOB_RANKS")?;
    let plain = id.to_string();
    let r = flux(&["job", "info", &plain, "R"])?;
    let r = ResourceSet::from_json(&r).map_err(|error| Fault::Other(format!("R of {plain}: {error}")))?;
    Ok(job::Call {
        job: id.job(),
        attempt: Some(attempt(&plain)?),
        place: json!({ "R": r }),
        ranks,
        userid: env.read("FLUX_JOB_USERID")?,
        env: env.offer(is_of_the_job),
        asking: ANY,
        of,
    })
}

/// Returns `true` if the variable belongs to the job; all others belong to the broker.
fn is_of_the_job(name: &str) -> bool {
    name.starts_with("FLUX_JOB_")
}

/// Reads the job's attempt from its eventlog, which has one `alloc` at most while a hook runs. Flux may start a prolog
/// before its store of eventlogs has the job's newest events: it writes events in batches, so the `alloc` can come some
/// milliseconds later.
fn attempt(job: &str) -> Result<Attempt, Fault> {
    let read = || allocated(&flux(&["job", "info", job, "eventlog"])?, job);
    if let Some(attempt) = read()? {
        return Ok(attempt);
    }
    flux(&["job", "wait-event", "--quiet", ALLOC_LIMIT, job, "alloc"])?;
    read()?.ok_or_else(|| Fault::Other(format!("{job} has no resources: its eventlog has no alloc")))
}

/// Returns the job's attempt: the time at which the job last got its resources, from its eventlog (RFC 18, RFC 21).
/// `None`: the eventlog has no `alloc`.
fn allocated(eventlog: &str, job: &str) -> Result<Option<Attempt>, Fault> {
    let mut alloc = None;
    for line in eventlog.lines().filter(|line| !line.trim().is_empty()) {
        let event = Event::parse_line(line).map_err(|error| Fault::Other(format!("the eventlog of {job}: {error}")))?;
        if JobEvent::read(&event) == Ok(Some(JobEvent::Alloc)) {
            alloc = Some(event.timestamp());
        }
    }
    let Some(at) = alloc else { return Ok(None) };
    let no_time = || Fault::Other(format!("alloc of {job}: {at} is no time since 1970"));
    Attempt::of_alloc(at).ok_or_else(no_time).map(Some)
}

/// Drains a rank in Flux, as Flux's own housekeeping does. A reason that the rank was drained for before stays.
pub(super) fn drain(rank: u32, reason: &str) {
    match flux(&["resource", "drain", "--update", &rank.to_string(), reason]) {
        Ok(_) => aside(format_args!("rank {rank} is drained")),
        Err(fault) => aside(format_args!("cannot drain rank {rank}: {fault}")),
    }
}

/// Runs flux(1) to its end and returns its output.
fn flux(arguments: &[&str]) -> Result<String, Fault> {
    let what = || format!("flux {}", arguments.join(" "));
    let output = Command::new("flux").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Fault::Other(format!("cannot run `{}`: {error}", what())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(Fault::Other(format!("`{}`: {}: {}", what(), output.status, text::line(last))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_the_last_alloc() {
        let log = |names: &[&str]| -> String {
            let line =
                |(i, name): (usize, &&str)| format!("{{\"timestamp\":155259334{i}.09283,\"name\":\"{name}\"}}\n");
            names.iter().enumerate().map(line).collect()
        };
        let allocated = |names: &[&str]| allocated(&log(names), "f1").map(|at| at.map(|at| at.to_string()));
        assert_eq!(allocated(&["submit", "alloc", "start"]).unwrap().unwrap(), "1552593341.09283");
        assert_eq!(allocated(&["alloc", "free", "alloc"]).unwrap().unwrap(), "1552593342.09283");
        assert_eq!(allocated(&["submit"]).unwrap(), None);
        assert!(super::allocated("{}", "f1").is_err());
    }

    #[test]
    fn of_a_brokers_environment_only_the_jobs_is_handed_on() {
        let env =
            Environment::of(&[("FLUX_JOB_ID", "ƒuZZybuNNy"), ("FLUX_URI", "local:///run/flux/local"), ("PATH", "/")]);
        assert_eq!(
            env.offer(is_of_the_job).into_iter().collect::<Vec<_>>(),
            [("FLUX_JOB_ID".into(), "ƒuZZybuNNy".into())]
        );
    }
}
