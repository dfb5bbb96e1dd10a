//! The faults of docs/slurm.md under plain Slurm: the scripts are Slurm's own prolog and epilog, without perilog. These
//! tests show the page's table of plain scripts; other test programs show the same faults with perilog.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{BY_GATE, EXCLUSIVE, Slurm};

/// Lines of slurm.conf that make one plain script Slurm's prolog and epilog.
const PLAIN: &str = "Prolog=/etc/slurm/plain\nEpilog=/etc/slurm/plain\n";
/// File on a node in which a plain script notes its begin and its end.
const NOTES: &str = "/var/log/plain";

fn boot() -> Result<Cluster> {
    let cluster = Cluster::builder(1).boot()?;
    let noted = format!(
        "#!/bin/sh\nPATH=/usr/bin:/bin\nPERILOG_JOB=$SLURM_JOB_ID\nPERILOG_ACTION=${{SLURM_SCRIPT_CONTEXT%_slurmd}}\n\
         note() {{ echo \"$PERILOG_ACTION $PERILOG_JOB $*\" >>{NOTES}; }}\n\
         note begun\n({BY_GATE})\nstatus=$?\nnote ended $status\nexit $status\n"
    );
    cluster.node(0)?.write_script("/etc/slurm/plain", noted)?;
    Ok(cluster)
}

fn start(cluster: &Cluster) -> Result<Slurm<'_>> {
    Slurm::start(cluster, &format!("{PLAIN}{EXCLUSIVE}"))
}

/// Returns what the plain scripts of a job have noted, such as `epilog begun`.
fn notes(cluster: &Cluster, job: &str) -> Result<Vec<String>> {
    let all = cluster.node(0)?.sh(&format!("cat {NOTES} 2>/dev/null || true"))?;
    let of_job = |line: &str| line.contains(&format!(" {job} ")).then(|| line.replace(&format!(" {job} "), " "));
    Ok(all.lines().filter_map(of_job).collect())
}

fn wait_noted(cluster: &Cluster, slurm: &Slurm<'_>, job: &str, note: &str) -> Result<()> {
    slurm.wait(&format!("{note}: job {job}"), |_| Ok(notes(cluster, job)?.iter().any(|noted| noted == note)))
}

/// Waits until the clock has gone on by that many seconds: Slurm's timers, as [`Slurm::start`] sets them, are over.
fn wait_seconds(slurm: &Slurm<'_>, count: u64) -> Result<()> {
    let seconds = || -> Result<u64> { Ok(slurm.ask(&["date", "+%s"])?.parse()?) };
    let begun = seconds()?;
    slurm.wait(&format!("{count} s are over"), |_| Ok(seconds()? >= begun + count))
}

/// slurmd is killed in a prolog. Slurm does not learn how the prolog ends, well or not: the job waits for it until an
/// operator acts, and the node is not drained.
#[test]
fn a_job_whose_slurmd_dies_in_the_prolog_is_stuck() -> Result<()> {
    let cluster = boot()?;
    let slurm = start(&cluster)?;
    slurm.open_all("epilog")?;
    for status in [0, 9] {
        slurm.close(0, "prolog")?;
        let job = slurm.submit(1, "true")?;
        wait_noted(&cluster, &slurm, &job, "prolog begun")?;
        slurm.kill_slurmd(0)?;
        slurm.start_slurmd(0)?;
        slurm.open(0, "prolog", status)?;
        wait_noted(&cluster, &slurm, &job, &format!("prolog ended {status}"))?;
        wait_seconds(&slurm, 30)?;
        let seen = slurm.seen(0)?;
        ensure!(!seen.state.contains("DRAIN"), "{seen:?}");
        let state = (slurm.job(&job, "JobState")?, slurm.job(&job, "Reason")?);
        ensure!((state.0.as_deref(), state.1.as_deref()) == (Some("RUNNING"), Some("Prolog")), "{state:?}");
        slurm.ask(&["scancel", &job])?;
        slurm.wait_job(&job, "CANCELLED")?;
        slurm.wait_node(0, "IDLE")?;
    }
    Ok(())
}

/// slurmd is killed in an epilog. The next job runs beside that epilog, and no program learns that the epilog fails.
#[test]
fn an_epilog_whose_slurmd_dies_fails_unreported_beside_the_next_job() -> Result<()> {
    let cluster = boot()?;
    let slurm = start(&cluster)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    wait_noted(&cluster, &slurm, &job, "epilog begun")?;
    slurm.kill_slurmd(0)?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    let next = slurm.submit(1, "true")?;
    slurm.open_for(&next, "epilog", 0)?;
    slurm.wait_job(&next, "COMPLETED")?;
    let (of_job, of_next) = (notes(&cluster, &job)?, notes(&cluster, &next)?);
    ensure!(of_job == ["prolog begun", "prolog ended 0", "epilog begun"], "{of_job:?}");
    ensure!(of_next.contains(&"epilog ended 0".to_owned()), "{of_next:?}");
    slurm.open(0, "epilog", 9)?;
    wait_noted(&cluster, &slurm, &job, "epilog ended 9")?;
    slurm.wait_node(0, "IDLE")?;
    let last = slurm.submit(1, "true")?;
    slurm.open_for(&last, "epilog", 0)?;
    slurm.wait_job(&last, "COMPLETED")?;
    ensure!(!slurm.seen(0)?.reason.contains("Epilog"), "{:?}", slurm.seen(0)?);
    Ok(())
}

/// The node loses its power in an epilog, and no boot runs that epilog again.
#[test]
fn an_epilog_that_power_cut_off_does_not_run_again() -> Result<()> {
    let cluster = boot()?;
    let slurm = start(&cluster)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    wait_noted(&cluster, &slurm, &job, "epilog begun")?;
    let node = cluster.node(0)?;
    node.power_fail()?;
    node.boot()?;
    node.systemctl(&["start", "munge"])?;
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    slurm.start_slurmd(0)?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_job(&next, "COMPLETED")?;
    let (of_job, of_next) = (notes(&cluster, &job)?, notes(&cluster, &next)?);
    ensure!(of_job == ["prolog begun", "prolog ended 0", "epilog begun"], "{of_job:?}");
    ensure!(of_next.contains(&"epilog ended 0".to_owned()), "{of_next:?}");
    Ok(())
}

/// A script that fails drains the node, and a failed prolog has the job requeued and held.
#[test]
fn a_script_that_fails_drains() -> Result<()> {
    let cluster = boot()?;
    let slurm = start(&cluster)?;
    for (action, other, reason) in [("prolog", "epilog", "Prolog error"), ("epilog", "prolog", "Epilog error")] {
        slurm.open(0, other, 0)?;
        slurm.open(0, action, 9)?;
        let job = slurm.submit(1, "true")?;
        slurm.wait(reason, |slurm| Ok(slurm.seen(0)?.reason.contains(reason)))?;
        let seen = slurm.seen(0)?;
        ensure!(seen.state.contains("DRAIN"), "{seen:?}");
        if action == "prolog" {
            slurm.wait("the job is held", |slurm| {
                let why = slurm.job(&job, "Reason")?.unwrap_or_default();
                Ok(why.contains("held") && slurm.job(&job, "JobState")?.as_deref() == Some("PENDING"))
            })?;
            slurm.ask(&["scancel", &job])?;
        }
        slurm.wait("n0 is drained", |slurm| Ok(slurm.seen(0)?.state == "IDLE+DRAIN"))?;
        slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
        slurm.wait_node(0, "IDLE")?;
    }
    Ok(())
}
