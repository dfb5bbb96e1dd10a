//! A copy of the store has an unfinished epilog. The epilog has run since, on a node that has rebooted and now belongs
//! to another job. After a restore, the attempt of the epilog is abandoned. When an operator types the command that the
//! list shows, no epilog runs beside the other job, and no node is released.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;

const COPY: &str = "/root/copy.db";

fn epilogs(cluster: &Cluster, job: &str) -> Result<usize> {
    Ok(cluster.runs(job)?.len())
}

#[test]
fn an_epilog_that_ran_since_does_not_run_beside_another_job() -> Result<()> {
    let cluster =
        Cluster::builder(2).script("epilog", "10-clean", "exit 0").script("prolog", "10-mount", "exit 0").build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let perilog = |arguments: &[&str]| cluster.perilog(arguments)?.ok();
    // An epilog waits for the epilog's node.
    perilog(&["job", "add", "P", "--nodes", "n[0-1]"])?;
    cluster.kill_agent(1)?;
    perilog(&["job", "finish", "P"])?;
    cluster.wait_action_begun("P", "epilog", &[0])?;
    perilog(&["controller", "backup", COPY])?;
    // The epilog runs, the node reboots, and another job gets the node.
    cluster.start_agent(1)?;
    perilog(&["wait", "P", "--for", "clean"])?;
    ensure!(epilogs(&cluster, "P")? == 2);
    cluster.node(1)?.reboot()?;
    cluster.wait_online()?;
    perilog(&["job", "add", "Q", "--nodes", "n[0-1]"])?;
    perilog(&["run", "prolog", "--job", "Q"])?;

    let output = perilog(&["controller", "restore", COPY])?;
    ensure!(output.contains("perilog ps --abandoned"), "{output}");
    cluster.wait_online()?;
    let status = perilog(&["status"])?;
    ensure!(status.contains("attempt is abandoned") || status.contains("attempts are abandoned"), "{status}");
    // The resource manager requests Q again: the finished prolog of Q does not run again.
    perilog(&["job", "add", "Q", "--nodes", "n[0-1]"])?;
    perilog(&["run", "prolog", "--job", "Q"])?;
    ensure!(cluster.runs("Q")?.len() == 2, "the prolog of Q ran twice");
    let listed = perilog(&["ps", "--abandoned"])?;
    let command = "perilog job finish P --attempt 0";
    ensure!(listed.lines().any(|line| line.starts_with("P ") && line.contains(command)), "{listed}");
    perilog(&["job", "finish", "P", "--attempt", "0"])?;
    ensure!(perilog(&["ps", "--abandoned"])?.contains("nothing is abandoned"));
    perilog(&["job", "finish", "Q"])?;
    perilog(&["wait", "Q", "--for", "clean"])?;
    // By now, any unfinished work would have run.
    ensure!(epilogs(&cluster, "P")? == 2, "the epilog of P ran a second time");
    let released = perilog(&["events", "P"])?;
    ensure!(!released.contains("released:"), "{released}");
    Ok(())
}
