//! `perilog run`: starts an action of a job, or attaches to it, and stays until the action's verdict.
//!
//! The controller does the work; an operator may stop or restart this program, or the program may lose its controller,
//! at any time. The first answer identifies the action (job, attempt, name); to attach again, the program repeats the
//! request.

mod bar;
mod fold;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;

use perilog_core::{ActionName, Attempt, HostList, JobId, Span, Targets, environment};
use perilog_host::clock;
use serde::Serialize;
use serde_json::json;

use crate::endpoint::Endpoint;
use crate::exit::{self, Exit};
use crate::fault::Fault;
use crate::out::Out;
use crate::session::{SessionEvent, SessionSender, Stop, keep};
use crate::tail::{News, Running, Shown, Tail};
use crate::values;

use self::watch::Watch;

/// Run an action of a job until its verdict, or attach to it
///
/// Ranks that end alike share a line. The same command again attaches to the same action: no script starts twice.
/// Ctrl-C detaches, and the scripts keep running. If the controller stops, the command waits until it is back. With
/// --json: the reply of Run, then each event of the action; with --quiet: only the exit status.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::help())]
pub(crate) struct Args {
    /// prolog, epilog, housekeeping, or an action of the site.
    #[arg(value_name = "ACTION", value_parser = values::action)]
    action: ActionName,
    #[arg(long, value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// The job's nodes in rank order, from rank 0. If the controller knows the job already, the option selects among
    /// its nodes.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// Only these of the job's ranks, as an idset or as a hostlist.
    #[arg(long = "ranks", visible_alias = "targets", value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Number of the attempt, from 0; default: the open attempt. A higher number ends the attempts before it.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// The job's owner: a uid, or a user of this host.
    #[arg(long, value_name = "UID", value_parser = values::user)]
    user: Option<u32>,
    /// A variable for the scripts; they see it if env-allow of their node names it. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = values::variable)]
    env: Vec<(String, String)>,
    /// The limit of each task; a node's limit wins if it is smaller.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    timeout: Option<Span>,
    /// Accept also hosts that have never connected to the controller; they may connect later.
    #[arg(long)]
    force: bool,
    /// Exit with the largest exit status of the scripts, if it is not 0.
    #[arg(long)]
    propagate: bool,
}

/// The parameters of the method `Run`.
#[derive(Debug, Clone, Serialize)]
struct Request {
    job: JobId,
    attempt: Option<Attempt>,
    action: ActionName,
    nodes: Option<HostList>,
    targets: Option<Targets>,
    userid: Option<u32>,
    env: BTreeMap<String, String>,
    timeout: Option<String>,
    /// Whether the controller refuses hosts that have never connected to it. Only the first request asks for that,
    /// because a restored store may not know the hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    known: bool,
}

pub(crate) fn run(args: Args, endpoint: Endpoint, out: Out) -> Result<Exit, Fault> {
    let mut watch = Watch::new(out, args.job.clone(), args.action.clone(), args.propagate);
    let mut session = Session::new(endpoint.clone(), args.request()?);
    let session_events = keep(endpoint, true, move |client, sender| session.run(client, sender))?;
    loop {
        let event = match watch.due_ms() {
            None => session_events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due_ms) => session_events.recv_timeout(clock::until(due_ms)),
        };
        let exit = match event {
            Ok(SessionEvent::Message(News::Attached(running))) => watch.attached(running)?,
            Ok(SessionEvent::Message(News::Event(entry))) => watch.event(&entry, clock::mono_ms())?,
            Ok(SessionEvent::Message(News::CaughtUp | News::Waits(..) | News::Anew)) => None,
            Ok(SessionEvent::Away(fault)) => watch.away(&fault)?,
            Ok(SessionEvent::Back(back)) => watch.note_return(&back),
            Ok(SessionEvent::Interrupted) => watch.interrupted()?,
            Ok(SessionEvent::Over(fault)) => return Err(watch.over(fault)),
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other(
                    "the connection that followed the action ended unexpectedly; the same command attaches again"
                        .to_owned(),
                ));
            }
            Err(RecvTimeoutError::Timeout) => watch.flush()?,
        };
        if let Some(exit) = exit {
            return Ok(exit);
        }
    }
}

impl Args {
    fn request(self) -> Result<Request, Fault> {
        let env: BTreeMap<String, String> = self.env.into_iter().collect();
        let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > environment::MAX_BYTES {
            return Err(Fault::Usage(format!(
                "--env: the variables have {bytes} bytes, and the limit is {}",
                environment::MAX_BYTES
            )));
        }
        Ok(Request {
            job: self.job,
            attempt: self.attempt,
            action: self.action,
            nodes: self.nodes,
            targets: self.targets,
            userid: self.user,
            env,
            timeout: self.timeout.map(Span::to_exact),
            known: !self.force,
        })
    }
}

/// The calls of `perilog run` on one connection to the controller. First it attaches to the action; then it follows the
/// job's log after the last event that it has read. A new connection repeats both.
struct Session {
    endpoint: Endpoint,
    request: Request,
    tail: Tail,
    /// Sequence number after which the action's events come, from the last reply of `Run`; `None`: no reply yet. If a
    /// later reply has another number, the controller's store was lost or restored, and its log begins anew.
    origin: Option<u64>,
}

impl Session {
    fn new(endpoint: Endpoint, request: Request) -> Self {
        let tail = Tail::new(endpoint.clone(), request.job.clone(), 0).asking_again();
        Self { endpoint, request, tail, origin: None }
    }

    fn run(
        &mut self,
        client: &mut perilog_host::varlink::Client,
        sender: &mut SessionSender<News>,
    ) -> Result<(), Stop> {
        self.find(client)?;
        match self.endpoint.ask_on::<Running>(client, "Run", &self.request) {
            Ok(running) => {
                self.request.attempt = Some(running.body.attempt);
                self.request.known = false;
                if self.origin.replace(running.body.events_after) != Some(running.body.events_after) {
                    self.tail.set(running.body.events_after);
                }
                sender.send_message(News::Attached(running))?;
            }
            // An older controller does not take the parameter.
            Err(Fault::Unsupported { .. }) if std::mem::take(&mut self.request.known) => {
                return self.run(client, sender);
            }
            // A newer attempt began during the absence; the log still has this attempt's verdict.
            Err(fault) if self.origin.is_some() && fault.is_closed_attempt() => sender.answered()?,
            Err(fault) => return Err(fault.into()),
        }
        self.tail.resume(client)?;
        self.tail.follow(client, sender)
    }

    /// Checks that the controller still knows the attempt to which this command is attached: a restored store may not.
    /// A request that names the nodes makes the attempt anew on the same hosts. Without names, `Run` could choose other
    /// hosts, so the command waits until the resource manager has added the job.
    fn find(&self, client: &mut perilog_host::varlink::Client) -> Result<(), Fault> {
        let Some(attempt) = self.request.attempt.filter(|_| self.origin.is_some() && self.request.nodes.is_none())
        else {
            return Ok(());
        };
        let vanished = || Fault::Vanished { job: self.request.job.clone() };
        match self.endpoint.ask_on::<Shown>(client, "Show", &json!({"job": self.request.job})) {
            Ok(shown) if shown.body.job.attempts.iter().any(|of| of.attempt == attempt) => Ok(()),
            Ok(_) => Err(vanished()),
            Err(fault) if fault.is_unknown() => Err(vanished()),
            Err(fault) => Err(fault),
        }
    }
}
