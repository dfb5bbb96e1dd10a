//! kill -9 of the controller exactly before and after a commit, in the middle of a fan-out, and before an
//! acknowledgement; systemd starts the controller again. Clients get an answer, scripts run once, the exact statuses
//! arrive, and nodes keep no task.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Order};

/// Runs a prolog and an epilog. In each, the controller dies at the fault point `asked` during the request, and dies or
/// stops at the point `ending` when the scripts end. `None`: the controller goes on.
fn killed_at(asked: Option<&str>, ending: Option<(&str, Order)>) -> Result<()> {
    let cluster =
        Cluster::builder(3).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE).boot()?;
    for action in ["prolog", "epilog"] {
        let armed = asked.map(|point| cluster.arm(cluster.controller()?, point, Order::Kill)).transpose()?;
        let mut run = cluster.start_perilog(&["run", action, "--job", "j", "--nodes", "n[0-2]"])?;
        armed.as_ref().map_or(Ok(()), |armed| armed.wait_restarted())?;
        cluster.wait_action_begun("j", action, &[0, 1, 2])?;
        let armed = ending.map(|(point, order)| cluster.arm(cluster.controller()?, point, order)).transpose()?;
        cluster.open_gates()?;
        armed.as_ref().map_or(Ok(()), |armed| armed.wait_sprung())?;
        let code = cluster.wait_end(&mut run)?;
        assert!(matches!(code, 0 | 1), "neither ok nor failed: {}", run.output()?);
        // The command may have ended with the controller's last message before a kill.
        cluster.wait_online()?;
        cluster.assert_exact("j", &["prolog", "epilog"][..=usize::from(action == "epilog")])?;
        cluster.close_gates()?;
    }
    Ok(())
}

#[test]
fn before_the_commit() -> Result<()> {
    killed_at(Some("before-commit"), Some(("before-commit", Order::Kill)))
}

#[test]
fn after_the_commit() -> Result<()> {
    killed_at(Some("after-commit"), Some(("after-commit", Order::Kill)))
}

#[test]
fn between_the_nodes_of_a_fan_out() -> Result<()> {
    killed_at(Some("mid-fan"), None)
}

#[test]
fn before_an_acknowledgement_left() -> Result<()> {
    killed_at(None, Some(("before-ack", Order::Kill)))
}

#[test]
fn after_others_were_acknowledged() -> Result<()> {
    killed_at(None, Some(("before-ack", Order::KillOn(3))))
}
