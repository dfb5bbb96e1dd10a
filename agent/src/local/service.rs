//! The methods of the Varlink interface `io.perilog.Agent`, which the agent serves on its local socket.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use perilog_core::agent::io::{Caller, Exec};
use perilog_core::ids::{
    self, ActionId, ActionName, Attempt, BootId, ClusterId, HostName, JobId, TaskId, UNIT_PREFIX, unit_of,
};
use perilog_host::varlink::{About, Call, Gone, InterfaceDescription, PeerCred, ReplySink, Service};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::awaited;
use super::callers::{End, Followed, LocalRequest};
use super::exec::{Parameters, status};
use super::shown;
use crate::config::{Config, Readers};
use crate::spool::Spool;

const INTERFACES: &[InterfaceDescription] =
    &[InterfaceDescription { name: "io.perilog.Agent", text: include_str!("io.perilog.Agent.varlink") }];

/// Varlink service of the agent. The service holds the configuration that it needs, reads the records of a job's tasks
/// from the spool, and asks the agent's event loop for everything else.
#[derive(Debug)]
pub struct Agent {
    host: HostName,
    boot: BootId,
    config: RwLock<Config>,
    spool: Spool,
    ask: mpsc::Sender<LocalRequest>,
    /// Counter that grows with each task whose directory the agent has replaced by a tombstone. Callers of `Await` look
    /// again when it grows.
    tombstones: watch::Receiver<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    unit: String,
}

impl Service for Agent {
    fn about(&self) -> About {
        About {
            vendor: "perilog",
            product: "perilog-agent",
            version: env!("CARGO_PKG_VERSION"),
            url: "file:///usr/share/doc/perilog",
        }
    }

    fn describe(&self) -> &'static [InterfaceDescription] {
        INTERFACES
    }

    fn permit(&self, method: &str, peer: &PeerCred) -> Result<(), String> {
        if self.may(method, peer) { Ok(()) } else { Err(format!("{method} is for root; you are uid {}", peer.uid)) }
    }

    async fn call(&self, call: Call) {
        // `Gone`: the client has disconnected and needs no answer.
        let _ = self.answer(call).await;
    }
}

impl Agent {
    pub fn new(
        (host, boot): (HostName, BootId),
        config: Config,
        spool: Spool,
        ask: mpsc::Sender<LocalRequest>,
        tombstones: watch::Receiver<u64>,
    ) -> Self {
        Self { host, boot, config: RwLock::new(config), spool, ask, tombstones }
    }

    /// Replaces the configuration by a reloaded one. Requests that come later use the new values. The node's name stays
    /// the same until the agent restarts.
    pub fn configure(&self, config: Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    async fn answer(&self, call: Call) -> Result<(), Gone> {
        let method = call.method.rsplit('.').next().unwrap_or_default().to_owned();
        let more = call.more;
        match method.as_str() {
            "Status" => match call.parse::<Nothing>().await {
                Some((_, _, reply)) => self.status(reply).await,
                None => Ok(()),
            },
            "Exec" => match call.parse::<Parameters>().await {
                Some((parameters, _, reply)) => self.exec(parameters, more, reply).await,
                None => Ok(()),
            },
            "Await" => match call.parse::<awaited::Parameters>().await {
                Some((parameters, _, reply)) => self.wait(&parameters, reply).await,
                None => Ok(()),
            },
            "Cancel" => match call.parse::<Unit>().await {
                Some((unit, _, reply)) => {
                    self.about(&unit.unit, reply, |stem, reply| LocalRequest::Cancel { stem, reply }).await
                }
                None => Ok(()),
            },
            "Orphaned" => match call.parse::<Unit>().await {
                Some((unit, _, reply)) => {
                    self.about(&unit.unit, reply, |stem, reply| LocalRequest::DaemonDied { stem, reply }).await
                }
                None => Ok(()),
            },
            // The server calls only methods that the interface defines.
            _ => refuse(call.reply, "no such method").await,
        }
    }

    /// Returns `true` if this peer may call the method. Root may call every method; other users may call `Status`, if
    /// the site permits.
    fn may(&self, method: &str, peer: &PeerCred) -> bool {
        let readers = self.config.read().unwrap_or_else(PoisonError::into_inner).local.status;
        peer.is_root() || (method == "Status" && readers == Readers::Anyone)
    }

    async fn status(&self, reply: ReplySink) -> Result<(), Gone> {
        let (send, receive) = oneshot::channel();
        let sent = self.ask.send(LocalRequest::Status { reply: send }).await;
        match (sent, receive.await) {
            (Ok(()), Ok(node)) => {
                let tasks: Vec<Value> = node.tasks.iter().map(shown::task).collect();
                let status = json!({
                    "host": self.host, "boot": self.boot, "controller": node.controller, "connected": node.connected,
                    "session": node.session, "epoch": node.epoch, "tasks": tasks,
                });
                reply.done(status).await
            }
            _ => refuse(reply, ENDING).await,
        }
    }

    /// Passes a call about one task (`Cancel`, `Orphaned`) to the agent's event loop, and replies with the result or
    /// the refusal.
    async fn about(
        &self,
        unit: &str,
        reply: ReplySink,
        request: impl FnOnce(String, oneshot::Sender<Result<(), String>>) -> LocalRequest,
    ) -> Result<(), Gone> {
        let stem = unit.strip_suffix(".service").unwrap_or(unit);
        if !stem.starts_with(UNIT_PREFIX) {
            return refuse(reply, &format!("{unit:?} is no task's unit")).await;
        }
        let (send, receive) = oneshot::channel();
        let sent = self.ask.send(request(stem.to_owned(), send)).await;
        match (sent, receive.await) {
            (Ok(()), Ok(Ok(()))) => reply.done(json!({})).await,
            (Ok(()), Ok(Err(text))) => refuse(reply, &text).await,
            _ => refuse(reply, ENDING).await,
        }
    }

    async fn exec(&self, parameters: Parameters, more: bool, mut reply: ReplySink) -> Result<(), Gone> {
        let plan_of = |action: &ActionName| {
            let policy = self.config.read().unwrap_or_else(PoisonError::into_inner).policy();
            policy.actions.get(action).cloned().unwrap_or_else(Config::default_plan)
        };
        let own = |job: &JobId, rank| {
            let text = |error| format!("cannot determine which attempt of {job} this is: {error}");
            self.spool.own(job, rank).map_err(text)
        };
        let exec = match parameters.exec(plan_of, own) {
            Ok(exec) => Box::new(exec),
            Err(text) => return refuse(reply, &text).await,
        };
        let named = Named { unit: unit_of(&exec_stem(&exec)), attempt: exec.attempt };
        let (follow, mut followed) = watch::channel(Followed::default());
        let _waiting = reply.wait().await?;
        let (number, caller) = oneshot::channel();
        let sent = self.ask.send(LocalRequest::Exec { exec, caller: number, follow }).await;
        let (Ok(()), Ok(caller)) = (sent, caller.await) else { return refuse(reply, ENDING).await };
        loop {
            let changed = tokio::select! {
                changed = followed.changed() => changed.is_ok(),
                () = reply.closed() => return self.hang_up(caller).await,
            };
            let reported = followed.borrow_and_update().clone();
            if let Some(end) = &reported.end {
                return finish(reply, &named, &reported, end).await;
            }
            if !changed {
                return refuse(reply, ENDING).await;
            }
            if more && let Err(gone) = reply.more(progress(&named, &reported)).await {
                return self.hang_up(caller).await.and(Err(gone));
            }
        }
    }

    /// Handles `Await`: waits until the controller has acknowledged the end of the task that `parameters` name, or
    /// their time limit has passed. Then replies.
    async fn wait(&self, parameters: &awaited::Parameters, mut reply: ReplySink) -> Result<(), Gone> {
        let mut tombstones = self.tombstones.clone();
        let limit = parameters.limit_ms().map(Duration::from_millis);
        let limit = async move {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(limit);
        let _waiting = reply.wait().await?;
        let mut is_late = false;
        loop {
            tombstones.mark_unchanged();
            let known = match self.spool.controllers(&parameters.job) {
                Ok(known) => known,
                Err(error) => {
                    let text = format!("cannot determine which tasks {} has: {error}", parameters.job);
                    return refuse(reply, &text).await;
                }
            };
            let reported = awaited::reply(&known, parameters);
            if is_late || reported["over"] == true {
                return reply.done(reported).await;
            }
            tokio::select! {
                changed = tombstones.changed() => if changed.is_err() {
                    return refuse(reply, ENDING).await;
                },
                () = &mut limit => is_late = true,
                () = reply.closed() => return Err(Gone),
            }
        }
    }

    /// Informs the agent's event loop that a caller has disconnected; the caller's task goes on.
    async fn hang_up(&self, caller: Caller) -> Result<(), Gone> {
        // Without a loop, the process is ending.
        let _ = self.ask.send(LocalRequest::Hangup { caller }).await;
        Ok(())
    }
}

const ENDING: &str = "the agent is stopping. A task that has begun continues. Ask again when the agent is back.";

/// Returns the stem of the task that `exec` asks for. The task belongs to no controller's cluster, so its ids use
/// [`ClusterId::LOCAL`].
fn exec_stem(exec: &Exec) -> String {
    let id = ActionId::of(ClusterId::LOCAL, &exec.job, exec.attempt, &exec.action);
    ids::stem(&exec.action, &exec.job, TaskId { action: id, rank: exec.rank })
}

/// Unit and attempt of the task that a call of `Exec` asked for. Each reply to the caller, except a refusal, contains
/// both.
struct Named {
    unit: String,
    attempt: Attempt,
}

fn progress(named: &Named, reported: &Followed) -> Value {
    let Named { unit, attempt } = named;
    let Followed { attached, phase, milestone, .. } = reported;
    json!({ "unit": unit, "attempt": attempt, "attached": attached, "phase": phase, "milestone": milestone })
}

async fn finish(reply: ReplySink, named: &Named, reported: &Followed, end: &End) -> Result<(), Gone> {
    let (outcome, ended) = match end {
        End::Refused(text) => return refuse(reply, text).await,
        End::Ended(ended) => (&ended.outcome, Some(ended)),
        End::Before(outcome) => (outcome, None),
    };
    let attached = reported.attached.or(ended.is_none().then_some(true));
    let status = status(outcome);
    let end = json!({
        "unit": named.unit, "attempt": named.attempt, "attached": attached, "ended": ended, "outcome": outcome,
        "status": status,
    });
    reply.done(end).await
}

async fn refuse(reply: ReplySink, text: &str) -> Result<(), Gone> {
    reply.error("io.perilog.Agent.Refused", json!({ "text": text })).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_everything_and_others_read_if_the_site_says_so() {
        let peer = |uid| PeerCred { uid, gid: uid, pid: 1, groups: vec![uid] };
        let (host, boot) = (HostName::new("n0").unwrap(), BootId::new("b").unwrap());
        let dir = tempfile::tempdir().unwrap();
        let (spool, _lock) = Spool::open(dir.path()).unwrap();
        let agent = Agent::new((host, boot), Config::default(), spool, mpsc::channel(1).0, watch::channel(0).1);
        let open = Config::parse("t", "[local]\nstatus = \"anyone\"\n").unwrap();
        for (method, root, user, reader) in [
            ("Status", true, false, true),
            ("Exec", true, false, false),
            ("Await", true, false, false),
            ("Cancel", true, false, false),
        ] {
            agent.configure(Config::default());
            assert_eq!((agent.may(method, &peer(0)), agent.may(method, &peer(1000))), (root, user), "{method}");
            agent.configure(open.clone());
            assert_eq!(agent.may(method, &peer(1000)), reader, "{method}");
        }
    }
}
