//! `flux-wait`: Flux's housekeeping on a node whose epilog perilog runs. The hook waits for the end of the epilog on
//! this node, so that Flux returns each node to service when the node is clean.
//!
//! ```text
//!   Await of this node's agent ---> ended, ok or cancelled          the hook exits
//!                              ---> ended otherwise                 the hook drains the node, then exits
//!                              ---> still running at the limit      the hook drains the node, then exits
//!                              ---> no answer, or a refusal         the hook drains the node, then exits
//!   SIGTERM (the broker ends; flux housekeeping kill)               the hook exits at once: the epilog goes on
//! ```
//! Flux returns the node to service when the hook exits. The edge's own drain may come too late for that.

use std::sync::mpsc::RecvTimeoutError;

use perilog_core::{ActionName, Fluid, Outcome, Span};
use perilog_host::clock;
use serde::Deserialize;
use serde_json::json;

use super::environment::Environment;
use super::flux;
use crate::endpoint::{AgentSocket, Answer, Daemon};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::aside;
use crate::session::{ANY, SessionEvent, keep_from_the_start};
use crate::text;

/// Options of `flux-wait`, which asks this node's agent for the end of the job's epilog.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Wait for this action instead of `epilog`; name the last action that follows a job.
    #[arg(long, value_name = "ACTION", value_parser = crate::values::action)]
    action: Option<ActionName>,
    /// How long to wait. After that, this hook drains the node, and Flux takes the node back; the scripts keep running.
    /// Keep this limit above those of the scripts.
    #[arg(long, value_name = "TIME", value_parser = crate::values::span, default_value = "1h")]
    limit: Span,
    #[command(flatten)]
    agent: AgentSocket,
}

#[derive(Debug, Clone, Deserialize)]
struct Reply {
    over: bool,
    #[serde(default)]
    unit: Option<String>,
    #[serde(default)]
    outcome: Option<Outcome>,
    #[serde(default)]
    status: Option<u8>,
}

/// The end of `flux-wait`: the hook's exit status, and the reason for which the hook drains the node (`None`: no
/// drain).
#[derive(Debug, PartialEq)]
struct End {
    exit: Exit,
    drain: Option<String>,
}

pub(super) fn run(args: &Args, env: &Environment) -> Result<Exit, Fault> {
    let id: Fluid = env.need("FLUX_JOB_ID", flux::BROKER)?;
    let action = args.action.as_ref().map_or("epilog", ActionName::as_str);
    let name = format!("{action} of {}", id.job());
    let until_ms = args.limit.as_millis().map(|ms| clock::mono_ms().saturating_add(ms));
    let (endpoint, asked) = (args.agent.endpoint(), json!({ "job": id.job(), "action": action }));
    let at = endpoint.clone();
    let session_events = keep_from_the_start(endpoint, ANY, move |client, sender| {
        at.wait_for_ever(client)?;
        let mut asked = asked.clone();
        if let Some(until_ms) = until_ms {
            asked["limit"] = format!("{}ms", until_ms.saturating_sub(clock::mono_ms()).max(1)).into();
        }
        let reply: Answer<Reply> = at.ask_on(client, "Await", &asked).map_err(|fault| match fault {
            // An upgrade is under way: the agent restarts soon, and then knows the call.
            Fault::Unsupported { .. } => Fault::WentAway { daemon: Daemon::Agent, why: fault.to_string() },
            fault => fault,
        })?;
        sender.send_message(reply)
    })?;
    let end = loop {
        let event = match until_ms {
            None => session_events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // The agent enforces the limit, if the call has one.
            Some(until_ms) => session_events.recv_timeout(clock::until(until_ms.saturating_add(AGENT_MS))),
        };
        match event {
            Ok(SessionEvent::Message(reply)) => break end(&name, &args.limit.to_string(), &reply.body),
            Ok(SessionEvent::Away(fault)) => {
                aside(format_args!("{fault}; this hook waits for the agent, at most {}", args.limit))
            }
            Ok(SessionEvent::Back(_)) => aside("the agent is back"),
            Ok(SessionEvent::Interrupted) => {
                aside(format_args!("a signal ended this hook; the {name} continues"));
                return Ok(Exit::Detached);
            }
            Ok(SessionEvent::Over(fault)) => break End { exit: Exit::Other, drain: Some(format!("{name}: {fault}")) },
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                let drain = Some(format!("{name}: perilog-agent did not answer for {}", args.limit));
                break End { exit: Exit::NoDaemon, drain };
            }
        }
    };
    if let Some(reason) = &end.drain {
        aside(reason);
        flux::drain(flux::rank(), &marked(reason));
    }
    Ok(end.exit)
}

/// Time in milliseconds that the agent gets for its answer after the limit of the wait (`--limit`) is over.
const AGENT_MS: u64 = 5_000;

/// Returns `reason` in the form of the reasons that the edge gives to its own drains in Flux: `perilog: REASON
/// [perilog:0]`. So the edge takes the drain for its own: it replaces the reason, and `perilog undrain` lifts the
/// drain. The number 0 makes the drain older than any notice of the controller.
fn marked(reason: &str) -> String {
    format!("perilog: {reason} [perilog:0]")
}

fn end(name: &str, limit: &str, reply: &Reply) -> End {
    if !reply.over {
        let what = match &reply.unit {
            Some(unit) => format!("not over after {limit}: {}", text::line(unit)),
            None => format!("has not begun here within {limit}"),
        };
        return End { exit: Exit::Timeout, drain: Some(format!("{name}: {what}")) };
    }
    let Some(outcome) = &reply.outcome else {
        return End { exit: Exit::Other, drain: Some(format!("{name}: the agent reported no outcome")) };
    };
    if outcome.is_ok() {
        return End { exit: Exit::Ok, drain: None };
    }
    let exit = reply.status.filter(|status| *status != 0).map_or(Exit::Failed, Exit::Status);
    // A cancel drains no node.
    let is_cancelled = matches!(outcome, Outcome::Cancelled { .. });
    let drain = (!is_cancelled).then(|| format!("{name}: {}", text::line(&outcome.to_string())));
    End { exit, drain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perilog_core::outcome::{ExitStatus, Failure};

    #[test]
    fn a_node_that_is_not_clean_is_drained() {
        let over = |outcome: Outcome, status| Reply { over: true, unit: None, outcome: Some(outcome), status };
        let late =
            |unit: Option<&str>| Reply { over: false, unit: unit.map(str::to_owned), outcome: None, status: None };
        for (reply, exit, drain) in [
            (over(Outcome::Ok, Some(0)), 0, None),
            (over(Outcome::Failed { why: Failure::Exit(4) }, Some(4)), 4, Some("epilog of f1: failed (exit 4)")),
            (over(Outcome::Cancelled { status: Some(ExitStatus::Signal(15)) }, Some(143)), 143, None),
            (late(Some("perilog-task-x.service")), 3, Some("epilog of f1: not over after 1h: perilog-task-x.service")),
            (late(None), 3, Some("epilog of f1: has not begun here within 1h")),
            (Reply { over: true, ..late(None) }, 8, Some("epilog of f1: the agent reported no outcome")),
        ] {
            let end = end("epilog of f1", "1h", &reply);
            assert_eq!((end.exit.code(), end.drain.as_deref()), (exit, drain), "{reply:?}");
        }
        assert_eq!(marked("epilog of f1: x"), "perilog: epilog of f1: x [perilog:0]");
    }
}
