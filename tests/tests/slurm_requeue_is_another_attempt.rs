//! A job of the real Slurm, with the hooks as Prolog and Epilog: each script runs once on each node, with the job's
//! variables. After a requeue the scripts run again, though Slurm passes the epilogs of both attempts the same restart
//! count.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{ON_NODES, Slurm, gated};

#[test]
fn each_attempt_runs_each_script_once() -> Result<()> {
    let cluster = gated(2).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}SelectType=select/linear\n"))?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/slurmd.service.d/short.conf", "[Service]\nTimeoutStopSec=10\n")?;
    node.systemctl(&["daemon-reload"])?;
    let shown = node.run(&["perilog", "doctor", "node"])?.stdout;
    for part in ["SelectType is select/linear", "slurmd-waits.conf"] {
        ensure!(shown.contains(part), "no {part:?} in {shown}");
    }
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(2, "while [ ! -e /run/go ]; do sleep 0.05; done")?;
    slurm.wait("the job runs", |slurm| Ok(slurm.ends(&job)?.iter().filter(|end| end.3 == Some(0)).count() == 2))?;
    let reported = cluster.node(0)?.sh(&format!("journalctl --output=cat --no-pager PERILOG_JOB={job} | head -40"))?;
    slurm.wait_job(&job, "RUNNING")?;
    slurm.ask(&["scontrol", "requeue", &job])?;
    slurm.begin_again(&job)?;
    slurm.wait("the second prolog has ended on both nodes", |slurm| {
        Ok(slurm.ends(&job)?.iter().filter(|end| end.1 == "prolog" && end.2 == "1" && end.3.is_some()).count() == 2)
    })?;
    (0..2).try_for_each(|rank| cluster.node(rank)?.sh("touch /run/go").map(drop))?;
    slurm.wait_job(&job, "COMPLETED")?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    let all = |attempt| {
        [(0, "prolog", attempt, 0), (1, "prolog", attempt, 0), (0, "epilog", attempt, 0), (1, "epilog", attempt, 0)]
    };
    slurm.ensure_ran(&job, &[all("0"), all("1")].concat())?;
    ensure!(slurm.ask(&["sinfo", "--noheader", "--list-reasons"])?.is_empty(), "a node is drained: {reported}");
    Ok(())
}
