//! An orphaned script holds its node, and frees it when it has ended well. Another script may fail on the node
//! meanwhile. Slurm's drain for that failure stands, and each other orphan holds the node too.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated};

/// Number of times that a race is run.
const RACES: usize = 20;

/// Submits a job that shares n0 and runs until [`end_body`]. Returns the job once it runs.
fn submit_running(slurm: &Slurm<'_>) -> Result<String> {
    let job = slurm.submit(1, "while [ ! -e /run/body.$SLURM_JOB_ID ]; do sleep 0.05; done")?;
    slurm.wait("the job has begun", |slurm| {
        let (state, reason) = (slurm.job(&job, "JobState")?, slurm.job(&job, "Reason")?);
        Ok(state.as_deref() == Some("RUNNING") && reason.as_deref() == Some("None"))
    })?;
    Ok(job)
}

fn end_body(cluster: &Cluster, job: &str) -> Result<()> {
    cluster.node(0)?.write_file(&format!("/run/body.{job}"), "")
}

/// Waits until Slurm has the end of the job's epilog on its only node.
fn wait_epilog_received(slurm: &Slurm<'_>, job: &str) -> Result<()> {
    slurm.wait_job(job, "COMPLETED")
}

/// Regression test: Slurm keeps the reason of a node that is drained already. An epilog failed while another orphan's
/// drain stood, so its failure was in no reason. The orphan's end lifted the drain, and the next job ran.
#[test]
fn an_epilog_that_fails_beside_an_orphan_drains() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start_shared(&cluster)?;
    slurm.open_all("prolog")?;
    let other = submit_running(&slurm)?;
    let orphan = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&orphan, "epilog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &orphan, "epilog")?;
    slurm.start_slurmd(0)?;
    wait_epilog_received(&slurm, &orphan)?;
    slurm.open_for(&other, "epilog", 13)?;
    end_body(&cluster, &other)?;
    wait_epilog_received(&slurm, &other)?;
    let next = slurm.submit(1, "true")?;
    slurm.open_for(&orphan, "epilog", 0)?;
    slurm.wait_unheld(0)?;
    slurm.wait_kept_waiting(&next)?;
    let seen = slurm.seen(0)?;
    ensure!(seen.state.contains("DRAIN") && seen.reason.starts_with("Epilog error"), "{seen:?}");
    ensure!(!seen.reason.contains("perilog"), "the reason names a script that ended well: {seen:?}");
    slurm.ensure_ran(&orphan, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    slurm.ensure_ran(&other, &[(0, "prolog", "0", 0), (0, "epilog", "0", 13)])
}

/// Regression test: two epilogs were orphans at the same time, and the end of the first lifted the drain under the
/// second.
#[test]
fn each_of_two_orphans_holds_the_node() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start_shared(&cluster)?;
    slurm.open_all("prolog")?;
    let jobs = [slurm.submit(1, "true")?, slurm.submit(1, "true")?];
    for job in &jobs {
        cluster.wait_action_begun(job, "epilog", &[0])?;
    }
    slurm.kill_slurmd(0)?;
    for job in &jobs {
        slurm.wait_held(0, job, "epilog")?;
    }
    slurm.start_slurmd(0)?;
    for job in &jobs {
        wait_epilog_received(&slurm, job)?;
    }
    let next = slurm.submit(1, "true")?;
    slurm.open_for(&jobs[0], "epilog", 0)?;
    slurm.wait("one orphan holds n0", |slurm| Ok(slurm.holds(0)?.len() == 1))?;
    slurm.wait_held(0, &jobs[1], "epilog")?;
    slurm.wait_kept_waiting(&next)?;
    // The second fails: that drain stands, and names this epilog alone.
    slurm.open_for(&jobs[1], "epilog", 14)?;
    slurm.wait_unheld(0)?;
    slurm.wait_kept_waiting(&next)?;
    let seen = slurm.seen(0)?;
    let expected = format!("perilog orphaned epilog of job {}: epilog of {}: failed (exit 14)", jobs[1], jobs[1]);
    ensure!(seen.state.contains("DRAIN") && seen.reason.starts_with(&expected), "{seen:?}");
    slurm.ensure_ran(&jobs[0], &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    slurm.ensure_ran(&jobs[1], &[(0, "prolog", "0", 0), (0, "epilog", "0", 14)])
}

/// Regression test: a job was cancelled in its orphaned prolog, and its epilog failed right after the prolog's end.
/// Slurm drained the node, and perilog lifted that drain some 25 ms later. In every second run, a scontrol of the test
/// keeps perilog from freeing the node before Slurm knows of the failure.
#[test]
fn an_epilog_that_fails_right_after_an_orphan_drains() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}"))?;
    let node = cluster.node(0)?;
    slurm.open_all("epilog")?;
    let slow = "case \"$*\" in\n*undrain* | *delete*) while [ -e /run/slow ]; do sleep 0.02; done ;;\nesac\n\
                exec /usr/bin/scontrol \"$@\"\n";
    node.write_script("/usr/local/sbin/scontrol", format!("#!/bin/sh\n{slow}"))?;
    for race in 0..RACES {
        slurm.close(0, "prolog")?;
        let job = slurm.submit(1, "true")?;
        slurm.open_for(&job, "epilog", 52)?;
        cluster.wait_action_begun(&job, "prolog", &[0])?;
        slurm.kill_slurmd(0)?;
        slurm.wait_held(0, &job, "prolog")?;
        slurm.start_slurmd(0)?;
        slurm.ask(&["scancel", &job])?;
        slurm.wait("the hook of the epilog waits", |_| {
            Ok(node.sh("pgrep -fc '[h]ook slurm-epilog' || true")?.trim() != "0")
        })?;
        let is_slow = race % 2 == 1;
        if is_slow {
            node.write_file("/run/slow", "")?;
        }
        slurm.open(0, "prolog", 0)?;
        slurm.wait_job(&job, "CANCELLED")?;
        node.sh("rm -f /run/slow")?;
        slurm.wait_unheld(0)?;
        let seen = slurm.seen(0)?;
        ensure!(seen.state.contains("DRAIN") && seen.reason.starts_with("Epilog error"), "race {race}: {seen:?}");
        slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 52)])?;
        slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
        slurm.wait_node(0, "IDLE")?;
    }
    Ok(())
}
