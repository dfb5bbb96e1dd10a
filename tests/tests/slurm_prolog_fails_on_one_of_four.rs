//! The prolog of one node of four fails: Slurm drains that node and no other, and holds the job. The epilog runs on all four, also there.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{ON_NODES, Slurm, gated};

#[test]
fn slurm_drains_the_one_and_no_other() -> Result<()> {
    let cluster = gated(4).boot()?;
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
    Ok(())
}
