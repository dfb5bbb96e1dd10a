//! Reads a call as a request to the machine: counts the hosts in the call's lists before it expands a list, parses the
//! call, and checks that the Start messages of the request will fit into the agents' frames.

use std::collections::BTreeMap;

use perilog_core::controller::io::{Refusal, Request, RunRequest};
use perilog_core::{HostList, IdSet, Targets};
use perilog_host::varlink::{Call, Gone, PeerCred, ReplySink, WrongParameter};
use perilog_proto::check_start;
use serde::de::DeserializeOwned;

use super::{MaxHosts, invalid, refuse, sync};

/// Reason why a call is no request.
#[derive(Debug)]
pub(super) enum Wrong {
    /// A parameter is missing, unknown or of another type.
    Form(String),
    Refused(Refusal),
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<WrongParameter> for Wrong {
    fn from(wrong: WrongParameter) -> Self {
        match wrong {
            WrongParameter::Form(text) => Self::Form(text),
            WrongParameter::Value(text) => Self::Refused(Refusal::Invalid(text)),
        }
    }
}

/// Returns the call's parameters, its sender and the sink for replies. Replies with an error and returns `None` if the
/// parameters are wrong.
pub(super) async fn parse<T: DeserializeOwned>(call: Call) -> Result<Option<(T, PeerCred, ReplySink)>, Gone> {
    let parameters = call.parameters().map_err(Wrong::from);
    answer(parameters, call).await
}

/// Returns the call's request, its sender and the sink for replies. Replies with an error and returns `None` if the
/// call is no valid request.
pub(super) async fn read(call: Call, most: MaxHosts) -> Result<Option<(Request, PeerCred, ReplySink)>, Gone> {
    let read = if is_large(&call.method) {
        // A thread of its own: other calls need not wait. It ends without a result only if it panics.
        tokio::task::spawn_blocking(move || (request(&call, most), call)).await.map_err(|_| Gone)?
    } else {
        (request(&call, most), call)
    };
    let (request, call) = read;
    answer(request, call).await
}

/// Returns what [`parse`] returns, after it has counted the hosts in the lists of the call.
pub(super) async fn bounded<T: DeserializeOwned>(
    call: Call,
    most: MaxHosts,
) -> Result<Option<(T, PeerCred, ReplySink)>, Gone> {
    let parameters = most.check_call(&call).and_then(|()| Ok(call.parameters()?));
    answer(parameters, call).await
}

async fn answer<T>(read: Result<T, Wrong>, call: Call) -> Result<Option<(T, PeerCred, ReplySink)>, Gone> {
    // Drops the text of the request: a client that does not read its answer must not keep it in memory.
    let (peer, reply) = (call.peer.clone(), call.into_reply());
    match read {
        Ok(read) => Ok(Some((read, peer, reply))),
        Err(Wrong::Form(text)) => reply.invalid_parameter(&text).await.map(|()| None),
        Err(Wrong::Refused(refusal)) => refuse(reply, &refusal).await.map(|()| None),
    }
}

/// Returns `true` for a method whose calls may be large. [`read`] parses such a call in a thread of its own, so that
/// other calls do not wait.
fn is_large(method: &str) -> bool {
    method.ends_with(".JobAdd") || method.ends_with(".Sync")
}

fn request(call: &Call, most: MaxHosts) -> Result<Request, Wrong> {
    if call.method.ends_with(".Sync") {
        return sync::page(call, most);
    }
    most.check_call(call)?;
    let request = call.request()?;
    check_fit(&request)?;
    Ok(request)
}

/// Checks that the Start messages of an action fit into a frame. Each has the whole layout of the job, so the
/// controller refuses a job whose layout does not fit. On a run without `nodes` and `targets`, checks only the
/// environment: the controller checked the job's layout when the job was added.
pub(super) fn check_fit(request: &Request) -> Result<(), Refusal> {
    match request {
        Request::Run(run) => check_run(run),
        Request::ActionStart(start) => check_run(&start.run),
        Request::JobAdd(add) => {
            let r = add.terms.r.as_ref();
            let env = BTreeMap::new();
            add.nodes.as_ref().map_or(Ok(()), |nodes| check_start(&positions(nodes), nodes, &env)).map_err(invalid)?;
            r.map_or(Ok(()), |r| check_start(r.ranks(), r.hosts(), &env)).map_err(invalid)
        }
        _ => Ok(()),
    }
}

fn check_run(run: &RunRequest) -> Result<(), Refusal> {
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
fn positions(hosts: &HostList) -> IdSet {
    let last = u32::try_from(hosts.len()).ok().and_then(|count| count.checked_sub(1));
    last.map_or_else(IdSet::new, |last| IdSet::from(0..=last))
}
