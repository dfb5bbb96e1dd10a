//! A slurmd that is stopped waits for its prologs. A wait for longer than SlurmdTimeout begins a job twice: Slurm gives
//! the node up and begins the job elsewhere, and the stopping slurmd begins it when the prolog ends.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated};

/// slurmd stays stopped, and Slurm gives the node up. The prolog outlives that, and the job's body runs once, on the
/// other node. `doctor` says that this patience of systemd is right.
#[test]
fn a_job_whose_slurmd_stops_in_the_prolog_runs_once() -> Result<()> {
    let cluster = gated(2).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}SlurmdTimeout=18\n"))?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/slurmd.service.d/short.conf", "[Service]\nTimeoutStopSec=11\n")?;
    node.systemctl(&["daemon-reload"])?;
    let doctor = node.run(&["perilog", "doctor", "node"])?.stdout;
    ensure!(doctor.contains("slurmd has 11s to stop, and Slurm does not give the node up in that time"), "{doctor}");

    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "echo attempt ${SLURM_RESTART_COUNT:-0} >>/tmp/bodies")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    ensure!(slurm.job(&job, "NodeList")?.as_deref() == Some("n0"), "the job is not on n0");
    node.systemctl(&["stop", "--no-block", "slurmd"])?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.wait("Slurm gives n0 up", |slurm| Ok(slurm.seen(0)?.state.contains("DOWN")))?;
    slurm.wait_requeued(&job)?;
    slurm.open_all("prolog")?;
    slurm.wait_unheld(0)?;
    slurm.begin_again(&job)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.start_slurmd(0)?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    ensure!(slurm.job(&job, "Restarts")?.as_deref() == Some("1"), "the job was requeued a second time");
    let bodies = |rank: usize| cluster.node(rank)?.sh("cat /tmp/bodies 2>/dev/null || true");
    ensure!((bodies(0)?.as_str(), bodies(1)?.trim()) == ("", "attempt 1"), "{:?}, {:?}", bodies(0)?, bodies(1)?);
    let prologs: Vec<_> = slurm.ends(&job)?.into_iter().filter(|end| end.1 == "prolog").collect();
    ensure!(prologs.len() == 2 && prologs.iter().all(|end| end.3 == Some(0)), "{prologs:?}");
    slurm.ensure_apart()
}
