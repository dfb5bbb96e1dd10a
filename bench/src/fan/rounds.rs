//! Rounds of the fan-out: begins a prolog on all agents as a resource manager would, and reads its verdict.

use anyhow::{Context, Result, bail, ensure};
use perilog_core::IdSet;
use perilog_host::varlink::Client;
use serde_json::{Value, json};

use super::swarm;
use crate::controller::Controller;

const JOB: &str = "f1";
/// Number of lines from the end of the controller's log to show when a round failed.
const LOG_LINES: usize = 20;

/// Begins the prolog of attempt `attempt` on `agents` agents. Returns the sequence number of the job's last event
/// before the prolog, from which [`verdict`] reads on.
pub(super) fn begin(client: &mut Client, agents: usize, attempt: usize) -> Result<u64> {
    let run = json!({"job": JOB, "attempt": attempt.to_string(), "action": "prolog", "nodes": swarm::hosts(agents)});
    let running = client.call("io.perilog.Controller.Run", run)?;
    ensure!(running["attached"] == false, "an action of an earlier round: {running}");
    running["events_after"].as_u64().with_context(|| format!("no events_after: {running}"))
}

/// Reads the job's events after sequence number `after`, until the attempt's verdict; an error if the verdict is not ok
/// on all `agents` ranks.
pub(super) fn verdict(
    controller: &Controller,
    client: &mut Client,
    agents: usize,
    attempt: usize,
    after: u64,
) -> Result<()> {
    let (follow, wanted) = (json!({"job": JOB, "after": after, "follow": true}), attempt.to_string());
    for reply in client.call_more("io.perilog.Controller.Events", follow)? {
        let reply = reply?;
        for event in reply["events"].as_array().into_iter().flatten() {
            if event["name"] == "verdict" && event["context"]["attempt"] == *wanted {
                return check(controller, agents, &event["context"]);
            }
        }
    }
    bail!("the events ended without a verdict")
}

fn check(controller: &Controller, agents: usize, context: &Value) -> Result<()> {
    let ok: IdSet = context["ok"].as_str().unwrap_or_default().parse().with_context(|| context.to_string())?;
    ensure!(
        ok.len() == agents as u64,
        "{} of {agents} ranks are ok: {context}; its log ends with\n{}",
        ok.len(),
        controller.log().lines().rev().take(LOG_LINES).collect::<Vec<_>>().join("\n")
    );
    Ok(())
}
