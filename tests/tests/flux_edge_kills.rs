//! kill -9 of the edge, of the controller and of rank 0's broker: while a job is in the prolog, while the job runs, and
//! while the job is in the epilog. Each script runs once, each job ends clean, and no node stays held or drained.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::flux::{self, Flux};

const ALL: &[u32] = &[0, 1, 2, 3];
/// Command of the user's processes: each runs until the file `/tmp/end` exists on its node.
const TASK: [&str; 3] = ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.05; done"];

type Kill = fn(&Flux<'_>, &Cluster) -> Result<()>;

#[test]
fn the_edge_dies() -> Result<()> {
    at_each_stage(|flux, _| flux.kill_edge(), "COMPLETED")
}

#[test]
fn the_controller_dies() -> Result<()> {
    at_each_stage(|_, cluster| Cluster::kill_unit(cluster.controller()?, "perilog-controller.service"), "COMPLETED")
}

/// Flux itself fails a job whose processes run when rank 0 is killed, because the job's guest namespace in the KVS
/// disappears with the broker.
#[test]
fn rank_0_dies() -> Result<()> {
    at_each_stage(|flux, _| flux.kill_rank_0_after_sync(), "FAILED")
}

#[test]
fn rank_0_and_the_edge_die() -> Result<()> {
    let kill: Kill = |flux, _| {
        flux.kill_edge()?;
        flux.kill_rank_0_after_sync()
    };
    at_each_stage(kill, "FAILED")
}

/// Runs three jobs, and calls `kill` in the prolog of the first, while the user's processes of the second run, and in
/// the epilog of the third. `of_a_running` is the expected result of the second job.
fn at_each_stage(kill: Kill, of_a_running: &str) -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    for stage in ["prolog", "job", "epilog"] {
        let job = begin(&flux, &cluster, stage)?;
        kill(&flux, &cluster)?;
        if stage == "epilog" {
            // All daemons are back before the scripts end; in the other stages the scripts may end first.
            flux.wait_up()?;
            cluster.wait_online()?;
            flux.wait_edge()?;
        }
        for action in ["prolog", "epilog"] {
            flux.release_scripts(action)?;
        }
        tasks(&cluster, true)?;
        flux.wait_clean(&job)?;
        let result = flux.result(&job)?;
        ensure!(result == if stage == "job" { of_a_running } else { "COMPLETED" }, "{stage}: {result}");
        flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
        flux.wait_up()?;
        flux.assert_idle()?;
    }
    Ok(())
}

/// Submits a job, and waits for a stage of it: until the script of its `prolog` or `epilog` runs, or the user's
/// processes do (`job`). Returns the job.
fn begin(flux: &Flux<'_>, cluster: &Cluster, stage: &str) -> Result<String> {
    tasks(cluster, stage == "epilog")?;
    if stage != "job" {
        flux.hold(stage)?;
    }
    let job = flux.submit(4, &[], &TASK)?;
    match stage {
        "job" => drop(flux.wait_event(&job, "start")?),
        stage => flux.wait_begun(&job, stage, ALL)?,
    }
    Ok(job)
}

/// Lets the user's processes of all jobs end (`true`), or makes those of later jobs run until the next call with `true`
/// (`false`).
fn tasks(cluster: &Cluster, end: bool) -> Result<()> {
    let command = if end { "touch /tmp/end" } else { "rm -f /tmp/end" };
    cluster.nodes().iter().try_for_each(|node| node.sh(command).map(drop))
}
