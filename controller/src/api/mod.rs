//! Local API, `io.perilog.Controller` (defined in `io.perilog.Controller.varlink`, beside this file): permissions and
//! methods. Most methods are requests to the machine, which decides about jobs. Some methods only read the store, copy
//! the store, or handle the files of tokens.
//!
//! A parameter that is missing, unknown or of a wrong type is `org.varlink.service.InvalidParameter`. A malformed text
//! (an idset, a job's id, a duration) is `io.perilog.Controller.Refused` with code `invalid` and the position of the
//! mistake.

mod attempts;
mod backup;
mod events;
mod events_of_all;
mod export;
mod lists;
mod logs;
mod max_hosts;
mod outbox;
mod redact;
mod request;
mod sync;
mod timings;
mod tokens;

use std::sync::Arc;

use perilog_core::controller::io::{Refusal, Reply, Request};
use perilog_host::varlink::{About, Bounds, Call, Gone, InterfaceDescription, PeerCred, ReplySink, Service};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::config::Read;
use crate::daemon::{Entry, Inlet};
use crate::enroll::Enrolment;
use crate::listener::Expiries;
use crate::store::{EventReader, StepReader};

pub(crate) use max_hosts::MaxHosts;

const INTERFACE: InterfaceDescription =
    InterfaceDescription { name: "io.perilog.Controller", text: include_str!("io.perilog.Controller.varlink") };

/// Users who may call the API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    /// Gid of the group whose members have the permissions of root; `None`: only root has them.
    pub(crate) group: Option<u32>,
    /// Gid of the group whose members may read, and call the methods for edges; `None`: no such group.
    pub(crate) edges: Option<u32>,
    pub(crate) read: Read,
}

/// The kind of a method, which decides who may call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OverviewRequest,
    /// A method that an edge needs: for its jobs, their actions, and the drains that it carries out. Root, members of
    /// `[api] group` and edges may call it.
    Edge,
    /// Any other method, for example one that changes something or shows output of root's scripts. Root and members of
    /// `[api] group` may call it.
    Change,
}

pub(crate) struct Api {
    pub(crate) inlet: Inlet,
    pub(crate) reader: EventReader,
    pub(crate) steps: StepReader,
    pub(crate) access: Access,
    pub(crate) max_hosts: MaxHosts,
    /// Signals new entries of the outbox.
    pub(crate) outbox: watch::Receiver<()>,
    /// Signals that a commit has written events.
    pub(crate) logged: watch::Receiver<()>,
    pub(crate) calls: Calls,
    /// The cluster's name in the configuration.
    pub(crate) cluster: String,
    /// Path of the store, for copies.
    pub(crate) store: std::path::PathBuf,
    pub(crate) backup: tokio::sync::Mutex<()>,
    /// The authority and the tokens of enrolment; `None`: enrolment is off.
    pub(crate) enrolment: Option<Arc<Enrolment>>,
    /// Times at which the certificates of connected nodes end.
    pub(crate) expiries: Expiries,
    /// The problem that the last reload left: keys that need a restart, or a wrong configuration; `None`: no problem.
    pub(crate) remark: watch::Receiver<Option<String>>,
    pub(crate) following: attempts::Following,
}

/// Counts the calls that the API has not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<Semaphore>);

/// Maximum number of calls at a time; a connection rarely has more than one.
const MAX_CALLS: u32 = BOUNDS.connections() as u32;

/// Bounds of the local socket's connections. On a large machine each job may have a hook that waits: the bounds leave
/// room for ten thousand such hooks, and for commands beside them.
const BOUNDS: Bounds = Bounds { trusted: 12_288, for_root: 64, waiting: 10_240, strangers: 256, per_stranger: 8 };

impl Calls {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CALLS as usize)))
    }

    /// Waits until every call has been answered.
    pub(crate) async fn ended(&self) {
        // No code closes the semaphore.
        let _ = self.0.acquire_many(MAX_CALLS).await;
    }
}

impl Access {
    fn allows(self, kind: Kind, peer: &PeerCred) -> bool {
        let is_edge = kind != Kind::Change && self.edges.is_some_and(|gid| peer.in_group(gid));
        self.trusts(peer) || is_edge || (kind == Kind::OverviewRequest && self.read == Read::Anyone)
    }

    /// Returns `true` if the peer may take one of the connections that the socket keeps for trusted peers.
    fn may_use_reserved_connection(self, peer: &PeerCred) -> bool {
        self.allows(Kind::Edge, peer)
    }

    fn trusts(self, peer: &PeerCred) -> bool {
        peer.is_root() || self.group.is_some_and(|gid| peer.in_group(gid))
    }
}

const fn kind(method: &str) -> Kind {
    match method.as_bytes() {
        b"Events" | b"EventsOfAll" | b"Ps" | b"Show" | b"Nodes" | b"Why" | b"Status" | b"Failed" | b"Drains"
        | b"Jobs" | b"Timeline" | b"Stats" | b"Skew" => Kind::OverviewRequest,
        b"Sync" | b"Attempts" | b"JobAdd" | b"JobFinish" | b"Run" | b"ActionStart" | b"Cancel" | b"DrainDone"
        | b"Undrain" => Kind::Edge,
        _ => Kind::Change,
    }
}

impl Service for Api {
    fn about(&self) -> About {
        About {
            vendor: "perilog",
            product: "perilog-controller",
            version: env!("CARGO_PKG_VERSION"),
            url: "file:///usr/share/doc/perilog",
        }
    }

    fn describe(&self) -> &'static [InterfaceDescription] {
        &[INTERFACE]
    }

    fn trusts(&self, peer: &PeerCred) -> bool {
        self.access.may_use_reserved_connection(peer)
    }

    fn permit(&self, method: &str, peer: &PeerCred) -> Result<(), String> {
        match self.access.allows(kind(method), peer) {
            true => Ok(()),
            false => Err(format!("uid {} may not call {method}; see [api] in controller.toml", peer.uid)),
        }
    }

    async fn call(&self, call: Call) {
        let method = call.method.rsplit('.').next().unwrap_or_default().to_owned();
        let _answered = self.calls.0.acquire().await;
        // An error from here on only means that the client has disconnected.
        let _ = self.dispatch(&method, call).await;
    }
}

impl Api {
    async fn dispatch(&self, method: &str, call: Call) -> Result<(), Gone> {
        match method {
            "Events" => events::serve(self, call).await,
            "EventsOfAll" => events_of_all::serve(self, call).await,
            "Logs" => logs::serve(self, call).await,
            "Jobs" => timings::jobs(self, call).await,
            "Timeline" => timings::timeline(self, call).await,
            "Stats" => timings::stats(self, call).await,
            "Skew" => timings::skew(self, call).await,
            "Export" => export::serve(self, call).await,
            "Backup" => backup::serve(self, call).await,
            "BackupKept" => backup::kept(self, call).await,
            "TokenMake" => tokens::make(self, call).await,
            "Tokens" => tokens::list(self, call).await,
            "TokenTakeBack" => tokens::take_back(self, call).await,
            "Attempts" => attempts::serve(self, call).await,
            "Outbox" => outbox::serve(self, call).await,
            "Drains" | "Nodes" | "Ps" | "Recover" => lists::serve(self, call).await,
            "Quiesce" => self.quiesce(call).await,
            _ => self.simple(call).await,
        }
    }

    /// Handles a method that is one request to the machine with one reply.
    async fn simple(&self, call: Call) -> Result<(), Gone> {
        let Some((request, peer, reply)) = request::read(call, self.max_hosts).await? else { return Ok(()) };
        match self.answer(&peer, request).await {
            Ok(answer) => reply.done(value(answer)).await,
            Err(refusal) => refuse(reply, &refusal).await,
        }
    }

    /// Asks the machine for the peer, and returns what the peer may see of the reply.
    async fn answer(&self, peer: &PeerCred, request: Request) -> Result<Reply, Refusal> {
        let trusted = self.access.allows(Kind::Change, peer);
        // An edge is the only caller who may change something without being trusted.
        let request = if trusted { request } else { Request::OfEdge(Box::new(request)) };
        let mut answer = self.ask(peer.uid, request).await?;
        self.add_ends(&mut answer);
        if !trusted {
            redact::output(&mut answer);
        }
        if let Reply::Status(status) = &mut answer {
            status.name.clone_from(&self.cluster);
            status.notes.extend(self.remark.borrow().clone());
            self.following.complete(status);
        }
        Ok(answer)
    }

    /// Fills in, for each connected node in the reply, when its certificate ends. The machine does not know these
    /// times.
    fn add_ends(&self, reply: &mut Reply) {
        let nodes = match reply {
            Reply::Nodes { nodes, .. } => nodes.as_mut_slice(),
            Reply::Why(why) => std::slice::from_mut(&mut why.node),
            _ => return,
        };
        for node in nodes {
            node.certificate_until_ms = node.peer.as_deref().and_then(|peer| self.expiries.until_ms(peer));
        }
    }

    /// Serves the method `Quiesce`. With `wait`, replies once no action is open, or refuses, for example after a
    /// `Resume`. If the client disconnects before the reply, the machine forgets the call, so that other clients can
    /// wait.
    async fn quiesce(&self, call: Call) -> Result<(), Gone> {
        let Some((request, peer, mut reply)) = request::read(call, self.max_hosts).await? else { return Ok(()) };
        let _waiting = reply.wait().await?;
        let answer = tokio::select! {
            biased;
            answer = self.ask(peer.uid, request) => Some(answer),
            () = reply.closed() => None,
        };
        match answer {
            Some(Ok(answer)) => reply.done(value(answer)).await,
            Some(Err(refusal)) => refuse(reply, &refusal).await,
            None => {
                // An ended writer has no waiting calls.
                let _ = self.inlet.put(Entry::HungUp).await;
                Err(Gone)
            }
        }
    }

    async fn ask(&self, uid: u32, request: Request) -> Result<Reply, Refusal> {
        self.inlet.ask(uid, request, None).await
    }
}

async fn refuse(reply: ReplySink, refusal: &Refusal) -> Result<(), Gone> {
    // The error's parameters: {"code": ..., "text": ...}.
    reply.error("io.perilog.Controller.Refused", to_json(refusal)).await
}

/// Makes a refusal with code `invalid` from the error about a malformed text.
fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::Invalid(error.to_string())
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("views have text keys and finite numbers")
}

/// Converts a machine's reply to the parameters that the interface defines.
fn value(reply: Reply) -> Value {
    match reply {
        Reply::Running { job, attempt, id, ranks, hosts, attached, events_after, waits } => json!({
            "job": job, "attempt": attempt, "id": id, "ranks": ranks, "hosts": hosts, "attached": attached,
            "events_after": events_after, "waits": waits,
        }),
        Reply::Reached { tasks } => json!({ "tasks": tasks }),
        Reply::Drained { tasks, already } => json!({ "tasks": tasks, "already": already }),
        Reply::Undrained { tasks, already, lifting } => {
            json!({ "tasks": tasks, "already": already, "lifting": lifting })
        }
        Reply::Ps { rows, notes } => json!({ "rows": rows, "notes": notes }),
        Reply::Resolved { tasks, waiting } => json!({ "tasks": tasks, "waiting": waiting }),
        Reply::Quiet { actions, tasks } => json!({ "actions": actions, "tasks": tasks }),
        Reply::Resumed { was_quiet } => json!({ "was_quiet": was_quiet }),
        Reply::Reported { ended, late, open, cancelling } => {
            json!({ "ended": ended, "late": late, "open": open, "cancelling": cancelling })
        }
        Reply::Show(job) => json!({ "job": job }),
        Reply::Nodes { nodes, .. } => json!({ "nodes": nodes }),
        Reply::Why(why) => json!({ "why": why }),
        Reply::Asked { unreachable, .. } => json!({ "unreachable": unreachable }),
        Reply::Status(status) => json!({ "status": status }),
        Reply::Overview(overview) => json!({ "overview": overview }),
        Reply::Outbox(entries) => json!({ "entries": entries }),
        Reply::Added { job, attempt, hosts, attached, over, unknown, meant } => json!({
            "job": job, "attempt": attempt, "hosts": hosts, "attached": attached, "over": over, "unknown": unknown,
            "meant": meant,
        }),
        Reply::Finished(part) => json!({ "ranks": part.ranks, "resources": part.resources }),
        Reply::Failed { ranks, hosts, resources, checks } => {
            json!({ "ranks": ranks, "hosts": hosts, "resources": resources, "checks": checks })
        }
        Reply::MilestoneReached { ranks, reached } => json!({ "ranks": ranks, "reached": reached }),
        Reply::Attempts(attempts) => json!({ "attempts": attempts }),
        Reply::Drains { drains, .. } => json!({ "drains": lists::drains(drains) }),
        // Only the drain hook asks, which is in this process.
        Reply::PendingDrains(drains) => json!({ "drains": drains }),
        Reply::TakenOver { epoch } => json!({ "epoch": epoch }),
        Reply::Recovery(view) => json!({ "recovery": view }),
        Reply::Synced(reported) => {
            let over: Vec<_> =
                reported.over.iter().map(|(job, attempt)| json!({ "job": job, "attempt": attempt })).collect();
            let refused = reported.refused.iter();
            let refused: Vec<_> =
                refused.map(|(job, attempt, why)| json!({ "job": job, "attempt": attempt, "why": why })).collect();
            json!({
                "sync": reported.sync, "known": reported.known, "added": reported.added, "over": over,
                "refused": refused,
            })
        }
        Reply::Done => json!({}),
    }
}

/// Returns the file mode of the API's socket, as narrow as the permissions allow. The API checks each call as well,
/// because a file mode names only one group.
pub(crate) fn socket_mode(access: Access) -> u32 {
    match (access.read, access.group) {
        // A socket has only one group, so the API checks the permission of edges for each call.
        _ if access.edges.is_some() => 0o666,
        (Read::Anyone, _) => 0o666,
        (Read::Group, Some(_)) => 0o660,
        (Read::Group, None) => 0o600,
    }
}

/// Serves the local API until the future is dropped.
pub(crate) async fn serve(
    listener: std::os::unix::net::UnixListener,
    api: Api,
) -> std::io::Result<std::convert::Infallible> {
    perilog_host::varlink::serve(listener, Arc::new(api), BOUNDS).await
}

#[cfg(test)]
mod tests;
