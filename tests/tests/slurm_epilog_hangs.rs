//! The epilog of one node of four hangs past its limit: the other three nodes are idle at once. The fourth node is
//! COMPLETING while the script lives, over kill -9 of the node's agent, and is then drained with the script's result.

use anyhow::{Result, ensure};
use perilog_tests::LIMIT;
use perilog_tests::slurm::{BY_GATE, ON_NODES, Slurm, gated};

#[test]
fn three_are_idle_and_the_fourth_waits_for_its_script() -> Result<()> {
    let deaf = format!("trap '' TERM\n{BY_GATE}");
    let limit = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    let cluster = gated(4).script("epilog", "10-gate", &deaf).agent(&limit).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("prolog")?;
    [0, 1, 3].into_iter().try_for_each(|rank| slurm.open(rank, "epilog", 0))?;
    let job = slurm.submit(4, "true")?;
    [0, 1, 3].into_iter().try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    slurm.wait_node(2, "IDLE+COMPLETING")?;
    let node = cluster.node(2)?;
    let status = || node.systemctl(&["show", "--property=StatusText", "perilog-task-epilog-*"]);
    slurm.wait("it is overdue", |_| Ok(status()?.contains(&format!("past its limit of {LIMIT}"))))?;
    cluster.renew_agent(2)?;
    ensure!(slurm.seen(2)?.state == "IDLE+COMPLETING", "{:?}", slurm.seen(2)?);
    slurm.open(2, "epilog", 0)?;
    slurm.wait_node(2, "IDLE+DRAIN")?;
    ensure!(slurm.seen(2)?.reason.contains("Epilog error"), "{:?}", slurm.seen(2)?);
    let log = slurm.log(2)?;
    ensure!(log.contains("epilog failed: rc:3") && log.contains("perilog: the agent is back"), "{log}");
    ensure!(log.contains(&format!("perilog: epilog of {job}: timeout")), "{log}");
    let ran = [0, 1, 2, 3].map(|rank| [(rank, "prolog", "0", 0), (rank, "epilog", "0", 0)]).concat();
    slurm.ensure_ran(&job, &ran)
}
