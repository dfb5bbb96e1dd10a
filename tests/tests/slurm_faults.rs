//! Faults under the real Slurm, from the table in docs/slurm.md of what dies and what happens then. No script runs
//! twice, or beside a script of another job. Slurm learns how a script truly ended, or the drain's reason says so.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{BY_GATE, ON_NODES, Seen, Slurm, gated};

/// Exit status for [`Slurm::open`] with which a script succeeds.
const ENDS_WELL: u8 = 0;

/// Submits a job whose script of `action` waits for [`Slurm::open`], while the script of the other action need not
/// wait. Returns the job once the script waits.
fn at_gate(cluster: &Cluster, slurm: &Slurm<'_>, action: &str) -> Result<String> {
    slurm.open_all(if action == "prolog" { "epilog" } else { "prolog" })?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, action, &[0])?;
    Ok(job)
}

/// Waits until the drain reason of n0 contains each of these parts; returns what Slurm shows of n0.
fn wait_reason(slurm: &Slurm<'_>, parts: &[&str]) -> Result<Seen> {
    let mut seen = slurm.seen(0)?;
    slurm.wait(&format!("the reason of n0 has {parts:?}"), |slurm| {
        seen = slurm.seen(0)?;
        Ok(parts.iter().all(|part| seen.reason.contains(part)))
    })?;
    Ok(seen)
}

/// Cancels a job, if it still runs, and puts its node back into service.
fn begin_anew(slurm: &Slurm<'_>, job: &str) -> Result<()> {
    slurm.control()?.run(&["scancel", job])?;
    slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
    slurm.wait_node(0, "IDLE")
}

/// Waits until the job has completed and its node is free. Asserts that each script of the job ran once with status 0,
/// and that Slurm shows no drain.
fn ensure_undisturbed(slurm: &Slurm<'_>, job: &str) -> Result<()> {
    slurm.wait_job(job, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    ensure!(slurm.seen(0)?.reason.is_empty(), "{:?}", slurm.seen(0)?);
    slurm.ensure_ran(job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}

/// slurmd restarts, or reads a new configuration, while a hook runs: slurmd waits for the hook, and gets its status.
/// One at a time: a slurmd of 24.11 that waits to read a new configuration misses the signal to stop.
#[test]
fn a_restart_or_a_new_configuration_disturbs_nothing() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let node = cluster.node(0)?;
    for restarts in [false, true] {
        let job = slurm.submit(1, "true")?;
        for action in ["prolog", "epilog"] {
            cluster.wait_action_begun(&job, action, &[0])?;
            if restarts {
                node.systemctl(&["restart", "--no-block", "slurmd"])?;
                slurm.wait("slurmd stops", |_| {
                    Ok(node.run(&["systemctl", "is-active", "slurmd"])?.stdout.trim() == "deactivating")
                })?;
            } else {
                slurm.ask(&["scontrol", "reconfigure"])?;
            }
            slurm.open(0, action, ENDS_WELL)?;
            slurm.wait("slurmd is back", |_| {
                Ok(node.run(&["systemctl", "is-active", "slurmd"])?.stdout.trim() == "active")
            })?;
        }
        ensure_undisturbed(&slurm, &job)?;
        slurm.close(0, "prolog")?;
        slurm.close(0, "epilog")?;
    }
    Ok(())
}

/// Regression test: systemd killed a stopping slurmd that waited too long for a prolog, and Slurm cancelled the user's
/// job. Slurm must begin the job again.
#[test]
fn a_restart_past_systemds_patience_begins_the_job_again() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/slurmd.service.d/short.conf", "[Service]\nTimeoutStopSec=1\n")?;
    node.systemctl(&["daemon-reload"])?;
    let job = at_gate(&cluster, &slurm, "prolog")?;
    node.systemctl(&["restart", "--no-block", "slurmd"])?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.open(0, "prolog", ENDS_WELL)?;
    slurm.wait_requeued(&job)?;
    slurm.wait_unheld(0)?;
    slurm.ensure_completes_again(&job, &["0", "1"])
}

/// systemd kills a stopping slurmd that waits too long for an epilog. Plain Slurm would give the node to the next job
/// while the epilog still runs.
#[test]
fn a_restart_past_systemds_patience_keeps_the_node_of_an_epilog() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/slurmd.service.d/short.conf", "[Service]\nTimeoutStopSec=1\n")?;
    node.systemctl(&["daemon-reload"])?;
    let job = at_gate(&cluster, &slurm, "epilog")?;
    node.systemctl(&["restart", "--no-block", "slurmd"])?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.wait_job(&job, "COMPLETED")?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open(0, "epilog", 9)?;
    wait_reason(&slurm, &["perilog orphaned epilog", "failed (exit 9)"])?;
    slurm.wait_unheld(0)?;
    slurm.wait_kept_waiting(&next)?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

/// The prolog ends while slurmd is down: Slurm begins the job again.
#[test]
fn a_prolog_that_ends_without_slurmd_begins_the_job_again() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "prolog")?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.open(0, "prolog", ENDS_WELL)?;
    slurm.wait_requeued(&job)?;
    slurm.start_slurmd(0)?;
    slurm.wait_unheld(0)?;
    slurm.ensure_completes_again(&job, &["0", "1"])?;
    ensure!(slurm.job(&job, "Restarts")?.as_deref() == Some("1"), "the job was requeued a second time");
    Ok(())
}

#[test]
fn a_prolog_that_fails_after_slurmds_death_drains() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "prolog")?;
    slurm.kill_slurmd(0)?;
    slurm.start_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.open(0, "prolog", 9)?;
    wait_reason(&slurm, &["perilog orphaned prolog", "failed (exit 9)"])?;
    slurm.wait_requeued(&job)?;
    slurm.wait("the epilog has ended", |slurm| {
        Ok(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3.is_some()))
    })?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 9), (0, "epilog", "0", 0)])
}

/// Slurm takes a killed hook for a failed script. perilog adds the script's true end to the reason of Slurm's drain.
#[test]
fn the_end_of_a_script_whose_hook_was_killed_is_reported() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    for (action, status, end) in [("prolog", ENDS_WELL, ": ok"), ("epilog", 9, "failed (exit 9)")] {
        let job = at_gate(&cluster, &slurm, action)?;
        cluster.node(0)?.sh("kill -KILL $(pidof perilog)")?;
        let error = format!("{}{} error", action[..1].to_uppercase(), &action[1..]);
        wait_reason(&slurm, &[&error])?;
        slurm.open(0, action, status)?;
        let seen = wait_reason(&slurm, &[&error, &format!("perilog orphaned {action} of job {job}"), end])?;
        ensure!(seen.state.contains("DRAIN"), "{seen:?}");
        slurm.wait("the job's epilog has ended", |slurm| {
            Ok(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3.is_some()))
        })?;
        slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", status.into())])?;
        begin_anew(&slurm, &job)?;
        slurm.close(0, "prolog")?;
        slurm.close(0, "epilog")?;
    }
    Ok(())
}

/// Regression test: an operator lifted Slurm's drain for a killed hook, and perilog drained the node for the same
/// failure again. The node serves no job before the script has ended, and all jobs after that.
#[test]
fn a_drain_that_an_operator_has_lifted_does_not_come_back() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "epilog")?;
    cluster.node(0)?.sh("kill -KILL $(pidof perilog)")?;
    wait_reason(&slurm, &["Epilog error"])?;
    slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
    slurm.wait_held(0, &job, "epilog")?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open_for(&job, "epilog", 9)?;
    slurm.open(0, "epilog", ENDS_WELL)?;
    slurm.wait_unheld(0)?;
    ensure_undisturbed(&slurm, &next)?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

#[test]
fn a_killed_slurmctld_or_agent_disturbs_nothing() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = slurm.submit(1, "true")?;
    for action in ["prolog", "epilog"] {
        cluster.wait_action_begun(&job, action, &[0])?;
        // slurmctld loses unsaved changes when it is killed: slurmctld_forgets.rs.
        slurm.wait_saved()?;
        slurm.kill_slurmctld()?;
        cluster.renew_agent(0)?;
        slurm.start_slurmctld()?;
        slurm.open(0, action, ENDS_WELL)?;
    }
    ensure_undisturbed(&slurm, &job)
}

/// Regression test: Slurm stopped the hook of a prolog at PrologEpilogTimeout, and the prolog went on. The epilog
/// waited for the prolog, was cancelled at the same timeout, and no script cleaned up.
#[test]
fn an_epilog_that_slurm_did_not_wait_for_runs_all_the_same() -> Result<()> {
    let deaf = format!("trap '' TERM\n{BY_GATE}");
    let cluster = gated(1).agent("serialize = \"host\"\n").script("prolog", "10-gate", &deaf).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}PrologEpilogTimeout=5\n"))?;
    let doctor = cluster.node(0)?.run(&["perilog", "doctor", "node"])?.stdout;
    ensure!(doctor.contains("kills the hook of a prolog or epilog after 5 s (PrologEpilogTimeout)"), "{doctor}");
    ensure!(doctor.contains("PrologFlags is Alloc"), "{doctor}");
    ensure!(doctor.contains("slurmd has 3m to stop, and Slurm does not give the node up in that time"), "{doctor}");
    let job = at_gate(&cluster, &slurm, "prolog")?;
    wait_reason(&slurm, &["Prolog error"])?;
    slurm.wait("Slurm has stopped the hook of the epilog", |slurm| {
        Ok(slurm.log(0)?.lines().any(|line| line.contains("error: ") && line.contains("epilog")))
    })?;
    ensure!(slurm.ends(&job)?.len() == 1, "{:?}", slurm.ends(&job)?);
    slurm.open(0, "prolog", ENDS_WELL)?;
    slurm.wait("the epilog has run", |slurm| {
        Ok(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3 == Some(0)))
    })?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    wait_reason(&slurm, &["error", &format!("perilog orphaned epilog of job {job}"), ": ok"])?;
    // After the drain is lifted, the node serves another job.
    begin_anew(&slurm, &job)?;
    let next = slurm.submit(1, "true")?;
    ensure_undisturbed(&slurm, &next)
}

#[test]
fn a_job_that_is_cancelled_in_its_prolog_is_cleaned_up_after() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "prolog")?;
    slurm.ask(&["scancel", &job])?;
    slurm.wait("the job is over", |slurm| {
        Ok(slurm.job(&job, "JobState")?.is_none_or(|state| state == "CANCELLED" || state == "COMPLETING"))
    })?;
    slurm.open(0, "prolog", ENDS_WELL)?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}

/// A prolog ends and leaves a process behind: the prolog goes on until that process has ended, and perilog names the
/// process. Plain Slurm would begin the job beside it, or, if the process holds the script's output, wait and name
/// nothing.
#[test]
fn a_process_that_a_prolog_leaves_behind_holds_it_and_is_named() -> Result<()> {
    let quiet = "[ -e /run/pipe ] || exec >/dev/null 2>&1 </dev/null";
    let leaves = &format!("({quiet}; while [ ! -e /run/left ]; do sleep 0.05; done) &\nexit 0");
    let cluster = gated(1).script("prolog", "10-gate", leaves).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let node = cluster.node(0)?;
    for output in ["rm -f /run/pipe", "touch /run/pipe"] {
        node.sh(&format!("{output}; rm -f /run/left"))?;
        let job = slurm.submit(1, "true")?;
        slurm.wait("the journal names the process", |_| {
            let text = node.sh(&format!("journalctl --output=cat --no-pager PERILOG_JOB={job}"))?;
            Ok(text.contains("have ended; the task waits for the processes that they left behind: "))
        })?;
        slurm.wait("the prolog has ended, and its process has not", |slurm| {
            Ok(slurm.ends(&job)?.iter().any(|end| end.3 == Some(0)))
        })?;
        ensure!(slurm.job(&job, "Reason")?.as_deref() == Some("Prolog"), "the job has begun: {output}");
        node.sh("touch /run/left")?;
        ensure_undisturbed(&slurm, &job)?;
    }
    Ok(())
}

/// Slurm may give a node to the next job while an epilog runs, as `select/linear` does, the default of 22.05.
#[test]
fn the_next_prolog_waits_for_a_live_epilog_whatever_slurm_does() -> Result<()> {
    let cluster = gated(1).agent("serialize = \"host\"\n").boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "epilog")?;
    let next = "99999999";
    let hook = ["env", "SLURM_JOB_ID=99999999", "SLURMD_NODENAME=n0", "perilog", "hook", "slurm-prolog"];
    let mut hook = cluster.node(0)?.spawn(&hook)?;
    slurm.wait("its prolog waits", |_| Ok(hook.output()?.stderr.contains(": waiting: ")))?;
    ensure!(slurm.ends(next)?.is_empty(), "{:?}", slurm.ends(next)?);
    slurm.open(0, "epilog", ENDS_WELL)?;
    ensure!(cluster.wait_end(&mut hook)? == 0, "{}", hook.output()?);
    let ledger = cluster.ledger()?;
    let (ended, begun) = (ledger.of_job(&job).last().and_then(|(_, run)| run.ended), ledger.of_job(next)[0].1.started);
    ensure!(
        ended.is_some_and(|(at, _)| at <= begun),
        "the next prolog began at {begun}, the epilog ended at {ended:?}"
    );
    Ok(())
}

#[test]
fn without_an_agent_a_job_is_held_and_its_node_drained() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let node = cluster.node(0)?;
    let hook = "#!/bin/sh\nexec /usr/bin/perilog hook slurm-prolog --patience 1s\n";
    node.write_script("/usr/libexec/perilog/slurm/prolog", hook)?;
    node.systemctl(&["stop", "perilog-agent"])?;
    let job = slurm.submit(1, "true")?;
    wait_reason(&slurm, &["Prolog error"])?;
    ensure!(slurm.log(0)?.contains("prolog failed: rc:7"), "{}", slurm.log(0)?);
    slurm.wait("the job is held", |slurm| Ok(slurm.job(&job, "Restarts")?.as_deref() == Some("1")))?;
    ensure!(slurm.ends(&job)?.is_empty(), "{:?}", slurm.ends(&job)?);
    Ok(())
}
