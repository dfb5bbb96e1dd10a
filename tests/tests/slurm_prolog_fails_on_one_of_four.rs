//! The prolog of one node of four fails: Slurm drains only that node and holds the job. slurmd's log file shows the
//! reason, in the line that docs/slurm.md shows. The epilog runs on all four nodes.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{BY_GATE, ON_NODES, Slurm, gated};

#[test]
fn slurm_drains_the_one_and_no_other_and_the_log_says_why() -> Result<()> {
    let talkative = format!("echo 'GPU 2 has fallen off the bus'\n{BY_GATE}");
    let cluster = gated(4).script("prolog", "10-gate", &talkative).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    slurm.open_all("prolog")?;
    slurm.open(2, "prolog", 37)?;
    let job = slurm.submit(4, "true")?;
    slurm.wait("the job is held", |slurm| Ok(slurm.job(&job, "Restarts")?.as_deref() == Some("1")))?;
    slurm.wait("n2 is drained, and the others are idle", |slurm| {
        let states = (0..4).map(|rank| Ok(slurm.seen(rank)?.state)).collect::<Result<Vec<_>>>()?;
        Ok(states == ["IDLE", "IDLE", "IDLE+DRAIN", "IDLE"])
    })?;
    let prologs = [(0, "prolog", "0", 0), (1, "prolog", "0", 0), (2, "prolog", "0", 37), (3, "prolog", "0", 0)];
    let epilogs = [0, 1, 2, 3].map(|rank| (rank, "epilog", "0", 0));
    slurm.ensure_ran(&job, &[prologs, epilogs].concat())?;
    ensure!(slurm.seen(2)?.reason.contains("Prolog error"), "{:?}", slurm.seen(2)?);
    let log = slurm.log(2)?;
    let line = format!("error: prolog failed: rc:37 output:perilog: prolog of {job}: failed (exit 37) after ");
    let output = log.lines().find_map(|text| text.split_once(&line));
    ensure!(output.is_some_and(|(_, rest)| rest.ends_with(": 10-gate: GPU 2 has fallen off the bus")), "{log}");
    ensure!(log.contains(&format!("error: [job {job}] prolog failed status=37:0")), "{log}");
    Ok(())
}
