//! perilog's hooks of slurmctld, run as SlurmUser. Before a job begins, one prolog runs on all its nodes through the
//! controller, over kill -9 of slurmctld and of the controller. The controller's drain command drains a failed node in
//! Slurm with the node's reason, and the job begins again elsewhere.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{BESIDE_SLURMCTLD, Slurm, gated};

const CONTROLLER: &str = "[api]\ngroup = \"slurm\"\n[drain]\ncommand = [\"/usr/libexec/perilog/slurm/drain\"]\n";

#[test]
fn a_prolog_through_the_controller_survives_both() -> Result<()> {
    let cluster = gated(2).controller(CONTROLLER).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let slurm = Slurm::start(&cluster, BESIDE_SLURMCTLD)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(2, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0, 1])?;
    slurm.kill_slurmctld()?;
    cluster.kill_controller()?;
    slurm.open(0, "prolog", 0)?;
    cluster.wait_scripts_ended(&job, &[0])?;
    cluster.start_controller()?;
    slurm.control()?.systemctl(&["start", "slurmctld"])?;
    slurm.open(1, "prolog", 0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    cluster.perilog(&["wait", &job, "--for", "clean"])?.ok()?;
    slurm
        .ensure_ran(&job, &[(0, "prolog", "0", 0), (1, "prolog", "0", 0), (0, "epilog", "0", 0), (1, "epilog", "0", 0)])
}

/// systemd sends SIGTERM to all processes of slurmctld.service at a restart, also to the hooks, which must not cancel
/// the prolog.
#[test]
fn a_restart_of_slurmctld_cancels_no_prolog() -> Result<()> {
    let cluster = gated(2).controller(CONTROLLER).boot()?;
    let slurm = Slurm::start(&cluster, BESIDE_SLURMCTLD)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(2, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0, 1])?;
    slurm.control()?.systemctl(&["restart", "slurmctld"])?;
    slurm.open_all("prolog")?;
    slurm.wait_job(&job, "COMPLETED")?;
    cluster.perilog(&["wait", &job, "--for", "clean"])?.ok()?;
    slurm
        .ensure_ran(&job, &[(0, "prolog", "0", 0), (1, "prolog", "0", 0), (0, "epilog", "0", 0), (1, "epilog", "0", 0)])
}

#[test]
fn a_prolog_failure_drains_in_slurm_and_moves_the_job() -> Result<()> {
    let cluster = gated(3).controller(CONTROLLER).boot()?;
    let slurm = Slurm::start(&cluster, BESIDE_SLURMCTLD)?;
    slurm.controller_as_slurm()?;
    slurm.open_all("epilog")?;
    slurm.open_all("prolog")?;
    slurm.open(0, "prolog", 9)?;
    let job = slurm.submit(2, "true")?;
    slurm.wait("n0 is drained", |slurm| {
        let seen = slurm.seen(0)?;
        Ok(seen.state == "IDLE+DRAIN" && seen.reason.contains("perilog: prolog 10-gate: failed (exit 9)"))
    })?;
    slurm.begin_again(&job)?;
    slurm.wait_job(&job, "COMPLETED")?;
    cluster.perilog(&["wait", &job, "--for", "clean"])?.ok()?;
    slurm.ensure_ran(
        &job,
        &[
            (0, "prolog", "0", 9),
            (1, "prolog", "0", 0),
            (0, "epilog", "0", 0),
            (1, "epilog", "0", 0),
            (0, "prolog", "1", 0),
            (1, "prolog", "1", 0),
            (0, "epilog", "1", 0),
            (1, "epilog", "1", 0),
        ],
    )?;
    // An operator undrains the node in Slurm alone, unseen by perilog: perilog reports the next failure all the same.
    slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
    slurm.wait_node(0, "IDLE")?;
    slurm.open(0, "prolog", 8)?;
    let next = slurm.submit(3, "true")?;
    slurm.wait("n0 is drained again", |slurm| {
        let seen = slurm.seen(0)?;
        Ok(seen.state == "IDLE+DRAIN" && seen.reason.contains("perilog: prolog 10-gate: failed (exit 8)"))
    })?;
    let shown = cluster.perilog(&["drain"])?.ok()?;
    ensure!(shown.contains("failed (exit 9)") && shown.contains("failed (exit 8)"), "{shown}");
    slurm.ask(&["scancel", &next])?;
    cluster.perilog(&["wait", &next, "--for", "clean"])?.ok()?;
    cluster.perilog(&["undrain", "n0"])?.ok()?;
    slurm.wait_node(0, "IDLE")?;
    // Slurm 24.11 without accounting shows the reason until the next job.
    slurm.open_all("prolog")?;
    let last = slurm.submit(3, "true")?;
    slurm.wait_job(&last, "COMPLETED")?;
    ensure!(slurm.seen(0)?.reason.is_empty(), "{:?}", slurm.seen(0)?);
    Ok(())
}

#[test]
fn what_others_have_a_node_out_of_work_for_stays() -> Result<()> {
    let cluster = gated(3).controller(CONTROLLER).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{BESIDE_SLURMCTLD}ReturnToService=1\n"))?;
    slurm.controller_as_slurm()?;
    let is = |rank, state: &str, reason: &str| {
        slurm.wait(&format!("n{rank} is {state} for {reason:?}"), |slurm| {
            let seen = slurm.seen(rank)?;
            Ok(seen.state.starts_with(state) && seen.reason.starts_with(&format!("{reason} [")))
        })
    };
    let has = |rank: usize, state: &str, reason: &str| -> Result<()> {
        let (node, state, reason) = (format!("nodename=n{rank}"), format!("state={state}"), format!("reason={reason}"));
        slurm.ask(&["scontrol", "update", &node, &state, &reason]).map(drop)
    };
    has(0, "down", "dimm")?;
    has(1, "drain", "see [bob@hq]; disk")?;
    // The state and the reason that Slurm itself sets for a node that is away. Slurm later takes the node back.
    slurm.kill_slurmd(2)?;
    has(2, "down", "Not responding")?;
    cluster.perilog(&["drain", "n[0-2]", "fan"])?.ok()?;
    is(0, "DOWN+DRAIN", "dimm; perilog: fan")?;
    is(1, "IDLE+DRAIN", "see [bob@hq]; disk; perilog: fan")?;
    is(2, "DOWN", "Not responding; perilog: fan")?;
    slurm.start_slurmd(2)?;
    cluster.perilog(&["undrain", "n[0-2]"])?.ok()?;
    is(0, "DOWN+DRAIN", "dimm")?;
    is(1, "IDLE+DRAIN", "see [bob@hq]; disk")?;
    slurm.wait_node(2, "IDLE")?;
    // An operator lifts a drain in Slurm. The next drain has no part of its reason, and is lifted whole.
    slurm.ask(&["scontrol", "update", "nodename=n1", "state=undrain"])?;
    slurm.wait_node(1, "IDLE")?;
    cluster.perilog(&["drain", "n1", "fan"])?.ok()?;
    is(1, "IDLE+DRAIN", "perilog: fan")?;
    cluster.perilog(&["undrain", "n1"])?.ok()?;
    slurm.wait_node(1, "IDLE")
}
