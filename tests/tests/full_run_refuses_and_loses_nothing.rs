//! /run is full on a node: the node refuses a start, with the reason. A running task ends normally, and the agent
//! reports the outcome when /run has free space again.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const FILL: &str = "head -c 1G /dev/zero > /run/filler 2>/dev/null || true; for i in $(seq 500); do echo x > \
                    /run/more.$i || break; done 2>/dev/null; true";

#[test]
fn a_start_is_refused_and_a_task_that_runs_ends_in_truth() -> Result<()> {
    let cluster =
        Cluster::builder(1).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", "exit 0").boot()?;
    let node = cluster.node(0)?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    // Shrinks /run to the present content, then fills the rest. The gate is made beforehand, elsewhere, because a full
    // /run accepts no file.
    node.sh("touch /root/gate && ln -s /root/gate.open /run/gate")?;
    node.sh("mount -o remount,size=$(( $(df -k --output=used /run | tail -1) + 64 ))k /run")?;
    node.sh(FILL)?;

    let refused = cluster.perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?;
    let (word, text) = cluster.outcome("k", "epilog", 0)?;
    assert_eq!(word, "refused", "{refused}");
    assert!(text.contains("/run/perilog") && text.contains("No space left on device"), "{text}");
    assert!(refused.stdout.contains("No space left on device"), "{refused}");

    // The script ends while /run is full: the runner has reserved space for its last records.
    node.sh("touch /root/gate.open")?;
    cluster.wait_scripts_ended("j", &[0])?;
    node.sh("rm -f /run/filler /run/more.*; mount -o remount,size=64m /run")?;
    cluster.wait_end(&mut run)?;
    let truth = cluster.runs("j")?[0].1.ended.map(|(_, code)| code);
    let expected = match truth {
        Some(0) => "ok".to_owned(),
        code => format!("failed (exit {})", code.unwrap_or(-1)),
    };
    assert_eq!(cluster.outcome("j", "prolog", 0)?.1, expected);
    cluster.assert_true("j", &["prolog"])?;
    cluster.assert_true("k", &["epilog"])?;
    // The node can begin tasks again.
    cluster.perilog(&["run", "epilog", "--job", "l", "--nodes", "n0"])?.ok()?;
    cluster.assert_true("l", &["epilog"])
}
