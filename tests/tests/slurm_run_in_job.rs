//! `PrologFlags=RunInJob`, since Slurm 24.05: a slurmstepd runs prolog and epilog, and outlives its slurmd. No later
//! slurmd reads what that slurmstepd knows of a prolog. An older Slurm lacks the flag: `cargo xtask test` counts this
//! program as skipped there.

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{BY_GATE, EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated, knows};

const RUN_IN_JOB: &str = "PrologFlags=Alloc,Contain,RunInJob\n";

/// Boots a cluster of one node, for [`start`]. `None`: this Slurm does not know the flag.
fn boot() -> Result<Option<Cluster>> {
    if !knows("RunInJob") {
        eprintln!("not run: this Slurm does not know PrologFlags=RunInJob");
        return Ok(None);
    }
    let deaf = format!("trap '' TERM\n{BY_GATE}");
    gated(1).agent(SERIALIZED).script("epilog", "10-gate", &deaf).boot().map(Some)
}

fn start(cluster: &Cluster) -> Result<Slurm<'_>> {
    Slurm::start(cluster, &format!("{ON_NODES}{EXCLUSIVE}{RUN_IN_JOB}"))
}

/// Checks that a slurmstepd runs the hook of this action on n0, and not slurmd.
fn ensure_in_step(cluster: &Cluster, action: &str) -> Result<()> {
    let hook = format!("ps -o comm= -p $(ps -o ppid= -p $(pgrep -of '[h]ook slurm-{action}'))");
    let parent = cluster.node(0)?.sh(&hook)?;
    ensure!(parent.trim() == "slurmstepd", "{parent:?} runs the hook of the {action}");
    Ok(())
}

/// slurmd dies in the prolog. The job begins again when the prolog has ended, and each attempt has its scripts once.
#[test]
fn a_job_whose_slurmd_dies_in_the_prolog_begins_again() -> Result<()> {
    let Some(cluster) = boot()? else { return Ok(()) };
    let slurm = start(&cluster)?;
    let doctor = cluster.node(0)?.run(&["perilog", "doctor", "node"])?.stdout;
    ensure!(doctor.contains("a job waits for its prolog on each of its nodes"), "{doctor}");
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    ensure_in_step(&cluster, "prolog")?;
    slurm.kill_slurmd(0)?;
    slurm.open_all("epilog")?;
    slurm.requeued_after_a_death(&job)?;
    slurm.ensure_completes_again(&job, &["0", "1"])
}

/// slurmd dies in an epilog that fails, and is back before or after its end. A slurmd that is back before the end has
/// its slurmstepd signal the hook, as it does for plain scripts. An epilog that ignores SIGTERM goes on, and no other
/// job gets the node before and after its end.
#[test]
fn an_epilog_that_fails_after_slurmds_death_drains() -> Result<()> {
    for is_back_before in [false, true] {
        let Some(cluster) = boot()? else { return Ok(()) };
        let slurm = start(&cluster)?;
        slurm.open_all("prolog")?;
        let job = slurm.submit(1, "true")?;
        cluster.wait_action_begun(&job, "epilog", &[0])?;
        ensure_in_step(&cluster, "epilog")?;
        slurm.kill_slurmd(0)?;
        slurm.wait_held(0, &job, "epilog")?;
        if is_back_before {
            slurm.start_slurmd(0)?;
            slurm.wait("Slurm signals the hook", |_| {
                let hook = cluster.node(0)?.sh("pgrep -fc '[h]ook slurm-epilog' || true")?;
                Ok(hook.trim() == "0")
            })?;
            let ends = slurm.ends(&job)?;
            ensure!(ends.iter().any(|end| end.1 == "epilog" && end.3.is_none()), "{ends:?}");
        }
        let next = slurm.submit(1, "true")?;
        slurm.wait_kept_waiting(&next)?;
        slurm.open(0, "epilog", 9)?;
        slurm.wait_unheld(0)?;
        let seen = slurm.seen(0)?;
        ensure!(seen.state.contains("DRAIN") && seen.reason.contains("(exit 9)"), "{seen:?}");
        if !is_back_before {
            slurm.start_slurmd(0)?;
        }
        slurm.wait_job(&job, "COMPLETED")?;
        slurm.wait_kept_waiting(&next)?;
        slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])?;
    }
    Ok(())
}

/// slurmd lives: Slurm gets the status of each script from its slurmstepd, and runs each once.
#[test]
fn slurm_receives_how_each_script_ended() -> Result<()> {
    let Some(cluster) = boot()? else { return Ok(()) };
    let slurm = start(&cluster)?;
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "true")?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    slurm.open(0, "epilog", 9)?;
    let job = slurm.submit(1, "true")?;
    slurm.wait("Slurm drains n0", |slurm| Ok(slurm.seen(0)?.reason.contains("Epilog error")))?;
    let attempt = slurm.job(&job, "Restarts")?.context("no such job")?;
    slurm.ensure_ran(&job, &[(0, "prolog", &attempt, 0), (0, "epilog", &attempt, 9)])
}
