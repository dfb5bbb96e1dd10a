//! kill -9 of agents exactly between two of their steps; systemd starts the agents again. At every step, scripts run
//! once and the exact statuses arrive. A prolog and then an epilog of the same job run on three nodes. The agents of
//! two nodes die at the step's fault point; the third has no fault.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Order};

const NODES: &str = "n[0-2]";

fn killed_at(point: &str, script_is_over: bool) -> Result<()> {
    let cluster =
        Cluster::builder(3).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE).boot()?;
    for action in ["prolog", "epilog"] {
        let armed = [0, 1].map(|rank| cluster.arm(cluster.node(rank)?, point, Order::Kill));
        let mut run = cluster.start_perilog(&["run", action, "--job", "j", "--nodes", NODES])?;
        if script_is_over {
            cluster.open_gates()?;
        }
        for armed in armed {
            // The next agent adopts a script that waits at the gate.
            armed?.wait_restarted()?;
        }
        cluster.open_gates()?;
        let code = cluster.wait_end(&mut run)?;
        assert!(matches!(code, 0 | 1), "neither ok nor failed: {}", run.output()?);
        cluster.assert_exact("j", &["prolog", "epilog"][..=usize::from(action == "epilog")])?;
        cluster.close_gates()?;
    }
    Ok(())
}

#[test]
fn after_the_intent_was_written() -> Result<()> {
    killed_at("after-intent", false)
}

#[test]
fn before_accepted_left() -> Result<()> {
    killed_at("before-accepted", false)
}

#[test]
fn after_the_start_call_was_sent() -> Result<()> {
    killed_at("after-start-call", false)
}

#[test]
fn after_the_claim_was_seen() -> Result<()> {
    killed_at("claim-seen", false)
}

#[test]
fn after_the_outcome_was_written() -> Result<()> {
    killed_at("after-outcome", true)
}

#[test]
fn after_finished_was_sent() -> Result<()> {
    killed_at("after-finished", true)
}

#[test]
fn between_tombstone_and_removal() -> Result<()> {
    killed_at("mid-burial", true)
}
