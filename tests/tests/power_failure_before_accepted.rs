//! A node loses power after the agent has written a task's intent and before the agent reports to the controller,
//! perhaps while the agent starts the task. The Start was for the boot that ended: the task is lost, and no later boot
//! runs the task.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Order};

#[test]
fn what_was_sent_to_one_boot_never_runs_in_the_next() -> Result<()> {
    let cluster =
        Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE).boot()?;
    for (action, point) in [("prolog", "before-accepted"), ("epilog", "after-intent")] {
        let boot = cluster.node(1)?.boot_id()?;
        let stopped = cluster.arm(cluster.node(1)?, point, Order::Stop)?;
        let mut run = cluster.start_perilog(&["run", action, "--job", "j", "--nodes", "n[0-1]"])?;
        stopped.wait_sprung()?;
        cluster.node(1)?.power_fail()?;
        cluster.node(1)?.boot()?;
        cluster.open_gates()?;
        cluster.wait_end(&mut run)?;
        assert_eq!(cluster.outcome("j", action, 1)?.1, "lost (the node rebooted)");
        // The new boot runs a task of another job. A task of `j` that the boot has not begun by now will never begin.
        let other = cluster.perilog(&["run", action, "--job", action, "--nodes", "n1"])?;
        assert!(matches!(other.code(), Some(0 | 1)), "{other}");
        let runs = cluster.runs("j")?;
        assert!(runs.iter().all(|(rank, run)| *rank == 0 || run.boot == boot), "run by another boot: {runs:?}");
        cluster.assert_true(action, &[action])?;
        cluster.close_gates()?;
    }
    cluster.assert_true("j", &["prolog", "epilog"])
}
