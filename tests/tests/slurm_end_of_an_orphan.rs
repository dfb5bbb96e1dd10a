//! The end of an orphan under Slurm: perilog requeues the job, drains the node for a failure, and frees the node.
//! Others change the node meanwhile: an operator, Slurm, another orphan.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{ON_NODES, Slurm, gated};

/// Number of times that a race is run.
const RACES: usize = 20;
/// Shell command that keeps a scontrol waiting while the file /run/slow exists, and shows that it waits.
const SLOW: &str = "touch /run/waits.$$; while [ -e /run/slow ]; do sleep 0.02; done; rm /run/waits.$$";

fn wait_reason(slurm: &Slurm<'_>, part: &str) -> Result<()> {
    slurm.wait(&format!("the reason of n0 has {part:?}"), |slurm| Ok(slurm.seen(0)?.reason.contains(part)))
}

fn resume(slurm: &Slurm<'_>, rank: usize) -> Result<()> {
    slurm.ask(&["scontrol", "update", &format!("nodename=n{rank}"), "state=resume"])?;
    slurm.wait_node(rank, "IDLE")
}

/// Submits a job, and returns it once its script of `action` waits on n0.
fn at_gate(cluster: &Cluster, slurm: &Slurm<'_>, action: &str) -> Result<String> {
    slurm.open_all(if action == "prolog" { "epilog" } else { "prolog" })?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, action, &[0])?;
    Ok(job)
}

/// Root may make no reservation. The node is drained instead, and stays drained: Slurm hides the failure of another
/// script behind that reason.
#[test]
fn a_node_without_a_reservation_is_drained_for_good() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.before_scontrol(0, "*create*", "echo 'Invalid user id' >&2; exit 1")?;
    let job = at_gate(&cluster, &slurm, "epilog")?;
    slurm.kill_slurmd(0)?;
    let mark = format!("perilog orphaned epilog of job {job}: ");
    wait_reason(&slurm, &format!("{mark}it goes on, slurmd or its hook has died ["))?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open(0, "epilog", 0)?;
    wait_reason(&slurm, &format!("{mark}epilog of {job}: ok"))?;
    slurm.wait_kept_waiting(&next)?;
    let seen = slurm.seen(0)?;
    ensure!(seen.state.contains("DRAIN") && !seen.reason.contains("goes on"), "{seen:?}");
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    slurm.ask(&["scontrol", "update", "nodename=n0", "state=resume"])?;
    slurm.wait_job(&next, "COMPLETED")
}

/// Regression test: an operator had drained the node for its disk. The hook of an epilog was killed, Slurm kept the
/// reason, and the epilog's failure was in no reason.
#[test]
fn a_failure_is_added_to_a_drain_for_something_else() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let job = at_gate(&cluster, &slurm, "epilog")?;
    slurm.ask(&["scontrol", "update", "nodename=n0", "state=drain", "reason=disk"])?;
    cluster.node(0)?.sh("kill -KILL $(pidof perilog)")?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.open(0, "epilog", 9)?;
    slurm.wait_unheld(0)?;
    let seen = slurm.seen(0)?;
    let expected = format!("disk; perilog orphaned epilog of job {job}: epilog of {job}: failed (exit 9)");
    ensure!(seen.state.contains("DRAIN") && seen.reason.starts_with(&expected), "{seen:?}");
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

/// Regression test: Slurm refused the requeue after the node was drained. An operator lifted the drain, and the next
/// try drained the node for the same failure again.
#[test]
fn a_try_that_fails_has_drained_nothing() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let node = cluster.node(0)?;
    slurm.before_scontrol(0, "requeue*", "[ ! -e /run/refuses ] || exit 1")?;
    node.write_file("/run/refuses", "")?;
    let job = at_gate(&cluster, &slurm, "prolog")?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.start_slurmd(0)?;
    slurm.open(0, "prolog", 9)?;
    slurm.wait("a try has failed", |_| {
        let output = node.sh("journalctl --output=cat --no-pager --unit=perilog-agent")?;
        Ok(output.contains("`/usr/libexec/perilog/slurm/orphaned ended` failed"))
    })?;
    let seen = slurm.seen(0)?;
    ensure!(!seen.state.contains("DRAIN") && !slurm.holds(0)?.is_empty(), "{seen:?}");
    node.sh("rm /run/refuses")?;
    slurm.wait_requeued(&job)?;
    slurm.wait_unheld(0)?;
    let seen = slurm.seen(0)?;
    ensure!(seen.state.contains("DRAIN") && seen.reason.contains("failed (exit 9)"), "{seen:?}");
    Ok(())
}

/// Two orphans end at once, and both are in the reason. In every second run, a scontrol of the test keeps the first
/// from writing the reason until the second has come as far as it gets. A shell of the test stands for slurmd.
#[test]
fn two_orphans_that_fail_at_once_are_both_in_the_reason() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, "")?;
    let node = cluster.node(0)?;
    slurm.before_scontrol(0, "*reason=*", SLOW)?;
    let hook = "SLURMD_NODENAME=n0 perilog hook slurm-epilog --orphaned /usr/libexec/perilog/slurm/orphaned &";
    for race in 0..RACES {
        let jobs = [format!("90{race}"), format!("91{race}")];
        let slurmd = jobs.each_ref().map(|job| format!("SLURM_JOB_ID={job} SLURM_JOB_UID=0 {hook}")).concat() + " wait";
        let mut slurmd = node.spawn(&["sh", "-c", &slurmd])?;
        for job in &jobs {
            cluster.wait_action_begun(job, "epilog", &[0])?;
        }
        slurmd.kill()?;
        jobs.iter().try_for_each(|job| slurm.wait_held(0, job, "epilog"))?;
        let is_slow = race % 2 == 1;
        if is_slow {
            node.write_file("/run/slow", "")?;
        }
        slurm.open_for(&jobs[0], "epilog", 13)?;
        slurm.open_for(&jobs[1], "epilog", 14)?;
        if is_slow {
            slurm.wait("the second waits", |_| {
                let count = node.sh("echo $(ls /run | grep -c '^waits') $(pgrep -xc flock)")?;
                Ok(matches!(count.trim(), "1 1" | "2 0"))
            })?;
            node.sh("rm /run/slow")?;
        }
        slurm.wait_unheld(0)?;
        let seen = slurm.seen(0)?;
        for (job, status) in [(&jobs[0], 13), (&jobs[1], 14)] {
            let part = format!("perilog orphaned epilog of job {job}: epilog of {job}: failed (exit {status})");
            ensure!(seen.reason.contains(&part), "race {race}: no {part:?} in {seen:?}");
            slurm.ensure_ran(job, &[(0, "epilog", "0", status)])?;
        }
        resume(&slurm, 0)?;
    }
    Ok(())
}

/// An operator lifts Slurm's drain for a killed hook while perilog adds the end to its reason. In every second run, a
/// scontrol of the test keeps perilog from writing the reason before that.
#[test]
fn a_drain_that_is_lifted_at_the_end_stays_lifted() -> Result<()> {
    const NODES: usize = 4;
    let cluster = gated(NODES).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("prolog")?;
    (0..NODES).try_for_each(|rank| slurm.before_scontrol(rank, "*reason=*", SLOW))?;
    for race in 0..RACES / NODES {
        let mut jobs = Vec::new();
        for rank in 0..NODES {
            jobs.push(slurm.submit_with(&["--nodes=1", &format!("--nodelist=n{rank}")], "true")?);
        }
        let is_slow = race % 2 == 1;
        for (rank, job) in jobs.iter().enumerate() {
            let node = cluster.node(rank)?;
            cluster.wait_action_begun(job, "epilog", &[0])?;
            node.sh("kill -KILL $(pidof perilog)")?;
            slurm.wait("Slurm drains the node", |slurm| Ok(slurm.seen(rank)?.reason.contains("Epilog error")))?;
            if is_slow {
                node.write_file("/run/slow", "")?;
            }
        }
        for (rank, job) in jobs.iter().enumerate() {
            slurm.wait_held(rank, job, "epilog")?;
        }
        for (rank, job) in jobs.iter().enumerate() {
            slurm.open_for(job, "epilog", 9)?;
            if is_slow {
                let waits = ["sh", "-c", "ls /run/waits.*"];
                slurm.wait("perilog is about to write the reason", |_| {
                    Ok(cluster.node(rank)?.run(&waits)?.code() == Some(0))
                })?;
            }
            slurm.ask(&["scontrol", "update", &format!("nodename=n{rank}"), "state=resume"])?;
            cluster.node(rank)?.sh("rm -f /run/slow")?;
        }
        for (rank, job) in jobs.iter().enumerate() {
            slurm.wait_unheld(rank)?;
            slurm.wait_node(rank, "IDLE")?;
            slurm.ensure_ran(job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])?;
        }
    }
    Ok(())
}
