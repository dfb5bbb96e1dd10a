//! Parameters of the methods that are one request with one reply: the types, and the conversion to the request.

use std::collections::BTreeMap;

use perilog_core::controller::io::{Refusal, Request, RunRequest, Which};
use perilog_core::environment::check_name;
use perilog_core::outcome::{check_sent, signal_number};
use perilog_core::{Attempt, HostList, IdSet, JobId, Span, Targets};
use perilog_proto::check_start;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{MaxHosts, invalid};

pub(super) trait Parameters: DeserializeOwned + Send + 'static {
    /// Whether a call may be large enough that other calls would wait while it is read: a thread of its own reads it.
    const IS_LARGE: bool = false;

    /// Checks the number of hosts in each list, before a list is expanded.
    fn bound(&mut self, _: MaxHosts) -> Result<(), Refusal> {
        Ok(())
    }

    fn request(self) -> Result<Request, Refusal>;
}

/// Reads the request of a call: checks its bounds, then its contents.
pub(super) async fn read<P: Parameters>(mut parameters: P, most: MaxHosts) -> Result<Request, Refusal> {
    let read = move || parameters.bound(most).and_then(|()| parameters.request());
    if !P::IS_LARGE {
        return read();
    }
    // The thread ends without a result only if it panics.
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(Refusal::Unavailable(format!("the request could not be read: {error}"))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    job: String,
    attempt: Option<String>,
    action: String,
    nodes: Option<String>,
    targets: Option<String>,
    userid: Option<u32>,
    env: Option<BTreeMap<String, String>>,
    timeout: Option<String>,
    known: Option<bool>,
}

impl Parameters for Run {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check(self.nodes.as_deref())?;
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let run = RunRequest {
            job: parse(&self.job)?,
            attempt: perhaps(self.attempt)?,
            action: parse(&self.action)?,
            nodes: perhaps(self.nodes)?,
            targets: perhaps(self.targets)?,
            userid: self.userid,
            env: self.env.unwrap_or_default(),
            // An infinite limit is no limit.
            timeout_ms: perhaps::<Span>(self.timeout)?.and_then(Span::as_millis),
            known: self.known.unwrap_or(false),
        };
        if run.timeout_ms == Some(0) {
            return Err(invalid("a timeout of nothing: expected a duration above zero"));
        }
        for (name, value) in &run.env {
            check_name(name).map_err(|at| {
                invalid(format_args!(
                    "malformed environment name {name:?}: at character {}: expected [A-Za-z0-9_]",
                    at + 1
                ))
            })?;
            if value.contains('\0') {
                return Err(invalid(format_args!("the value of environment variable {name} holds a NUL byte")));
            }
        }
        check_fit(&run)?;
        Ok(Request::Run(run))
    }
}

/// Checks that the Start message of an action fits into a frame. On a run without `nodes` and `targets`, checks only
/// the environment: the controller checked the job's layout when the job was added.
fn check_fit(run: &RunRequest) -> Result<(), Refusal> {
    let none = HostList::new();
    let nodes = run.nodes.as_ref().unwrap_or(&none);
    let (ranks, hosts) = match &run.targets {
        Some(Targets::Ranks(ranks)) => (ranks.clone(), nodes),
        Some(Targets::Hosts(hosts)) => (IdSet::new(), hosts),
        None => (positions(nodes), nodes),
    };
    check_start(&ranks, hosts, &run.env).map_err(invalid)
}

/// Returns the ranks of a job that has a list of hosts and no R: for three hosts `0-2`.
pub(super) fn positions(hosts: &HostList) -> IdSet {
    let last = u32::try_from(hosts.len()).ok().and_then(|count| count.checked_sub(1));
    last.map_or_else(IdSet::new, |last| IdSet::from(0..=last))
}

/// Parameters of the method `Cancel`: the tasks of a job to cancel, and the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    job: String,
    attempt: Option<String>,
    action: Option<String>,
    targets: Option<String>,
    why: Option<String>,
}

impl Parameters for Cancel {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let which = which(&self.job, self.attempt, self.action, self.targets)?;
        Ok(Request::Cancel { which, why: text("why", self.why.unwrap_or_default())? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signal {
    job: String,
    attempt: Option<String>,
    action: Option<String>,
    targets: Option<String>,
    signal: String,
}

impl Parameters for Signal {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let which = which(&self.job, self.attempt, self.action, self.targets)?;
        let unknown =
            || invalid(format_args!("unknown signal {:?}: expected a name such as TERM, or 1 to 64", self.signal));
        let signal = signal_number(&self.signal).ok_or_else(unknown)?;
        // Refuses the signal here; otherwise each node would refuse the signal in its own journal.
        check_sent(signal).map_err(invalid)?;
        Ok(Request::Signal { which, signal })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    job: String,
    attempt: Option<String>,
    action: Option<String>,
    targets: Option<String>,
    resources: Option<Vec<String>>,
    ok: bool,
    reason: String,
}

impl Parameters for Resolve {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let which = which(&self.job, self.attempt, self.action, self.targets)?;
        let resources = self.resources.map(|names| names.iter().map(|name| parse(name)).collect()).transpose()?;
        let which = Which { resources, ..which };
        Ok(Request::Resolve { which, ok: self.ok, reason: text("reason", self.reason)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ps {
    older_than: Option<String>,
    held: Option<bool>,
}

impl Parameters for Ps {
    fn request(self) -> Result<Request, Refusal> {
        let older_than = perhaps::<Span>(self.older_than)?.unwrap_or(Span::ZERO);
        let older_than_ms = older_than.as_millis().unwrap_or(u64::MAX);
        Ok(Request::Ps { older_than_ms, held: self.held.unwrap_or(false) })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    job: String,
    targets: Option<String>,
}

impl Parameters for Show {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Show { job: parse(&self.job)?, targets: perhaps(self.targets)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    nodes: Option<String>,
}

impl Parameters for Nodes {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check(self.nodes.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Nodes { targets: perhaps(self.nodes)?, after: None })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeForget {
    nodes: String,
    #[serde(default)]
    reports: bool,
}

impl Parameters for NodeForget {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check([self.nodes.as_str()])
    }

    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::NodeForget { hosts: parse(&self.nodes)?, reports: self.reports })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    node: String,
}

impl Parameters for Why {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Why { host: parse(&self.node)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Status {}

impl Parameters for Status {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Status)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quiesce {
    reason: Option<String>,
    wait: Option<bool>,
}

impl Parameters for Quiesce {
    fn request(self) -> Result<Request, Refusal> {
        let reason = text("reason", self.reason.unwrap_or_default())?;
        Ok(Request::Quiesce { reason, wait: self.wait.unwrap_or(false) })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resume {}

impl Parameters for Resume {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Resume)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutboxApplied {
    through: u64,
}

impl Parameters for OutboxApplied {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::OutboxApplied { through: self.through })
    }
}

/// Maximum size in bytes of an operator's text: a sentence, which goes into events and to nodes.
const MAX_TEXT: usize = 1_024;

pub(super) fn text(what: &str, text: String) -> Result<String, Refusal> {
    if text.len() > MAX_TEXT {
        return Err(invalid(format_args!("{what}: {} bytes, at most {MAX_TEXT} are taken", text.len())));
    }
    // The text reaches nodes, events and the site's hook, which may write it to a terminal or a line.
    Ok(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

pub(super) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(invalid)
}

pub(super) fn perhaps<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: Option<String>,
) -> Result<Option<T>, Refusal> {
    text.as_deref().map(parse).transpose()
}

pub(super) fn which(
    job: &str,
    attempt: Option<String>,
    action: Option<String>,
    targets: Option<String>,
) -> Result<Which, Refusal> {
    Ok(Which {
        job: parse::<JobId>(job)?,
        attempt: perhaps::<Attempt>(attempt)?,
        action: perhaps(action)?,
        targets: perhaps(targets)?,
        resources: None,
    })
}
