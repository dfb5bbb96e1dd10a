//! kill -9 of slurmctld before it has saved what it did: the next slurmctld has an older state. That slurmctld may
//! believe that an ended job still runs, give the node of a running job to another job, or begin the running job again.
//! What becomes of such a job is up to Slurm. perilog runs no script beside another, or twice for one begin, and leaves
//! out no script that Slurm calls.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated};

/// Body of a batch job: records that it runs, and waits for a file.
const WAITS: &str = "touch /run/body/$SLURM_JOB_ID; while [ ! -e /run/body/end ]; do sleep 0.05; done";

/// Boots a cluster of one node whose agent lets a prolog wait for the epilog of the job before ([`SERIALIZED`]).
/// Creates the directory in which the bodies of jobs record that they run.
fn cluster() -> Result<Cluster> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    cluster.node(0)?.sh("install -d -m 1777 /run/body")?;
    Ok(cluster)
}

fn start(cluster: &Cluster) -> Result<Slurm<'_>> {
    Slurm::start(cluster, &format!("{ON_NODES}{EXCLUSIVE}"))
}

/// Waits until the body of the job runs on n0.
fn wait_body(cluster: &Cluster, slurm: &Slurm<'_>, job: &str) -> Result<()> {
    let node = cluster.node(0)?;
    slurm.wait("the body runs", |_| Ok(node.run(&["test", "-e", &format!("/run/body/{job}")])?.code() == Some(0)))
}

/// Runs a job until its epilog waits at its gate. Kills slurmctld and puts its state back to when the job's body ran.
/// Returns the job.
fn forgotten_epilog(cluster: &Cluster, slurm: &Slurm<'_>) -> Result<String> {
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, WAITS)?;
    wait_body(cluster, slurm, &job)?;
    slurm.keep_saved()?;
    cluster.node(0)?.sh("touch /run/body/end")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.lose_unsaved()?;
    Ok(job)
}

#[test]
fn a_forgotten_epilog_runs_once_and_keeps_its_node() -> Result<()> {
    let cluster = cluster()?;
    let slurm = start(&cluster)?;
    let job = forgotten_epilog(&cluster, &slurm)?;
    slurm.start_slurmctld()?;
    slurm.wait("the node has registered", |slurm| Ok(slurm.seen(0)?.state != "UNKNOWN"))?;
    // Slurm takes the job for one that runs until the operator cancels it.
    slurm.control()?.run(&["scancel", &job])?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open(0, "epilog", 0)?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    ensure!(slurm.seen(0)?.reason.is_empty(), "{:?}", slurm.seen(0)?);
    slurm.ensure_apart()?;
    [&job, &next].into_iter().try_for_each(|job| slurm.ensure_ran(job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)]))
}

#[test]
fn a_forgotten_epilog_that_fails_drains() -> Result<()> {
    let cluster = cluster()?;
    let slurm = start(&cluster)?;
    let job = forgotten_epilog(&cluster, &slurm)?;
    slurm.open(0, "epilog", 9)?;
    cluster.wait_scripts_ended(&job, &[0])?;
    slurm.start_slurmctld()?;
    slurm.wait("n0 is drained", |slurm| {
        let seen = slurm.seen(0)?;
        Ok(seen.state.contains("DRAIN") && seen.reason.contains("Epilog error"))
    })?;
    slurm.control()?.run(&["scancel", &job])?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)?;
    ensure!(slurm.ends(&next)?.is_empty(), "the next job runs on a node that failed: {:?}", slurm.ends(&next)?);
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

/// slurmctld has forgotten that it began a job, and begins another beside the forgotten prolog. Under plain Slurm both
/// prologs would run at the same time; with perilog the second waits for the first.
#[test]
fn the_next_prolog_waits_for_a_forgotten_one() -> Result<()> {
    let cluster = cluster()?;
    let slurm = start(&cluster)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit_held("forgotten", "true")?;
    slurm.keep_saved()?;
    slurm.release(&job)?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    slurm.lose_unsaved()?;
    slurm.start_slurmctld()?;
    // slurmctld believes that the job was never begun.
    slurm.wait_node(0, "IDLE")?;
    let next = slurm.submit(1, "true")?;
    slurm.wait("Slurm begins the next job", |slurm| Ok(slurm.job(&next, "Reason")?.as_deref() == Some("Prolog")))?;
    // A second hook of that prolog, to see what the node says of it.
    let environment = [&format!("SLURM_JOB_ID={next}"), "SLURMD_NODENAME=n0", "SLURM_JOB_RESTART_COUNT=0"];
    let hook = [&["env"], &environment[..], &["perilog", "hook", "slurm-prolog"]].concat();
    let mut hook = cluster.node(0)?.spawn(&hook)?;
    slurm.wait("its prolog waits", |slurm| {
        ensure!(slurm.ends(&next)?.is_empty(), "the next prolog began: {:?}", slurm.ends(&next)?);
        Ok(hook.output()?.stderr.contains(": waiting: "))
    })?;
    slurm.open(0, "prolog", 0)?;
    ensure!(cluster.wait_end(&mut hook)? == 0, "{}", hook.output()?);
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_apart()?;
    slurm.ensure_ran(&next, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    let prologs = slurm.ends(&job)?.iter().filter(|end| end.1 == "prolog").count();
    ensure!(prologs == 1, "{:?}", slurm.ends(&job)?);
    Ok(())
}

/// Runs a job until its body runs. Then kills slurmctld, puts slurmctld's state back to before the job began, and
/// starts slurmctld. This slurmctld ends the running job on the node, and begins the job again under the same restart
/// count. Returns the job. Its second prolog has begun, and waits until the test lets it exit ([`Slurm::open`]).
fn begun_again(cluster: &Cluster, slurm: &Slurm<'_>) -> Result<String> {
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    let job = slurm.submit_held("forgotten", WAITS)?;
    slurm.keep_saved()?;
    slurm.release(&job)?;
    wait_body(cluster, slurm, &job)?;
    slurm.close(0, "prolog")?;
    slurm.lose_unsaved()?;
    slurm.start_slurmctld()?;
    slurm.wait("the epilog has cleaned up after the forgotten begin", |slurm| {
        Ok(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3.is_some()))
    })?;
    cluster.node(0)?.sh("touch /run/body/end")?;
    slurm.begin_again(&job)?;
    slurm.release(&job)?;
    slurm.wait("the second prolog has begun", |slurm| {
        ensure!(slurm.job(&job, "JobState")?.as_deref() != Some("COMPLETED"), "the job ran without a prolog");
        Ok(slurm.ends(&job)?.iter().filter(|end| end.1 == "prolog").count() == 2)
    })?;
    Ok(job)
}

/// Regression test: slurmctld lost its newest state, and began a job a second time. The node took this for the first
/// begin, and ran neither prolog nor epilog for it.
#[test]
fn a_job_that_is_begun_again_has_its_scripts_again() -> Result<()> {
    let cluster = cluster()?;
    let slurm = start(&cluster)?;
    let job = begun_again(&cluster, &slurm)?;
    ensure!(slurm.job(&job, "Restarts")?.as_deref() == Some("0"), "Slurm counts the forgotten begin");
    slurm.open(0, "prolog", 0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_apart()?;
    let all = |attempt| [(0, "prolog", attempt, 0), (0, "epilog", attempt, 0)];
    slurm.ensure_ran(&job, &[all("0"), all("1")].concat())
}

/// Slurm begins a job again under the same restart count, so the attempt on the node is higher than that count. If
/// slurmd then dies in the prolog, the job is requeued all the same.
#[test]
fn a_job_begun_again_is_requeued_if_its_slurmd_dies() -> Result<()> {
    let cluster = cluster()?;
    let slurm = start(&cluster)?;
    let job = begun_again(&cluster, &slurm)?;
    slurm.kill_slurmd(0)?;
    slurm.requeued_after_a_death(&job)?;
    slurm.ensure_completes_again(&job, &["0", "1", "2"])?;
    slurm.ensure_apart()
}
