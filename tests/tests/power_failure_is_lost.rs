//! A node loses power in the middle of a script and boots again: the task is lost, with the power failure as the
//! reason, and no script starts twice.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn a_node_that_rebooted_has_lost_its_task_and_says_why() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.node(1)?.power_fail()?;
    cluster.node(1)?.boot()?;
    cluster.open_gates()?;
    let code = cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "prolog", 1)?;
    assert_eq!((word.as_str(), text.as_str()), ("lost", "lost (the node rebooted)"));
    assert!(run.output()?.stdout.contains("n1: lost (the node rebooted)"), "{}", run.output()?);
    // The verdict is the worst outcome: rank 0's own failure stands above a loss.
    let expected = if cluster.outcome("j", "prolog", 0)?.0 == "ok" { 4 } else { 1 };
    assert_eq!(code, expected);
    cluster.assert_true("j", &["prolog"])
}
