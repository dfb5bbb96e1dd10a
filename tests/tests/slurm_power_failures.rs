//! A node loses its power in a prolog under the real Slurm. The next boot of the node ends the prolog, and the node
//! runs no script that Slurm does not ask for. The job's epilog runs before any other script on the node.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated};

/// Submits a job, and cuts the power of n0 in the job's prolog; returns the job.
fn cut_off(cluster: &Cluster, slurm: &Slurm<'_>) -> Result<String> {
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    cluster.node(0)?.power_fail()?;
    Ok(job)
}

/// Boots n0, with its gates closed; returns when slurmd has registered.
fn boot(cluster: &Cluster, slurm: &Slurm<'_>) -> Result<()> {
    let node = cluster.node(0)?;
    let started = || -> Result<String> {
        let shown = slurm.ask(&["scontrol", "--oneliner", "show", "node", "n0"])?;
        Ok(shown.split_whitespace().find(|word| word.starts_with("SlurmdStartTime=")).unwrap_or_default().to_owned())
    };
    let before = started()?;
    slurm.wait("the second in which slurmd started is over", |slurm| {
        Ok(slurm.ask(&["date", "+SlurmdStartTime=%FT%T"])? != before)
    })?;
    node.boot()?;
    node.systemctl(&["start", "munge", "perilog-agent"])?;
    slurm.start_slurmd(0)?;
    slurm.wait("slurmd has registered", |_| Ok(started()? != before))
}

/// Waits until the epilog of the job has begun in the new boot of n0. Asserts that no other script has run in that
/// boot.
fn wait_epilog(cluster: &Cluster, slurm: &Slurm<'_>, job: &str) -> Result<()> {
    cluster.wait_action_begun(job, "epilog", &[0])?;
    let (boot, ledger) = (cluster.node(0)?.boot_id()?, cluster.ledger()?);
    let runs = ledger.runs.iter().flat_map(|(key, runs)| runs.iter().map(move |run| (key, run)));
    let of_boot: Vec<_> = runs.filter(|(_, run)| run.boot == boot).collect();
    ensure!(matches!(of_boot[..], [(key, _)] if key.job == job && key.action == "epilog"), "{of_boot:?}");
    slurm.ensure_apart()
}

/// Asserts that these scripts of the job began, in this order: a prolog of rank 0 that was cut off and has no end, and
/// then the scripts in `followed` (rank, action, attempt, exit status).
fn ensure_followed(slurm: &Slurm<'_>, job: &str, followed: &[(u32, &str, &str, Option<i32>)]) -> Result<()> {
    let ends = slurm.ends(job)?;
    let shown: Vec<_> = ends
        .iter()
        .map(|(rank, action, attempt, status)| (*rank, action.as_str(), attempt.as_str(), *status))
        .collect();
    ensure!(shown == [&[(0, "prolog", "0", None)], followed].concat(), "{shown:?}");
    Ok(())
}

/// n0 loses its power in a prolog and boots at once: Slurm notices no loss of the job, and waits for the prolog. When
/// an operator cancels the job, its epilog cleans up before the prolog of the next job.
#[test]
fn a_node_that_is_back_at_once_is_cleaned_before_the_next_job() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}"))?;
    let job = cut_off(&cluster, &slurm)?;
    boot(&cluster, &slurm)?;
    let next = slurm.submit(1, "true")?;
    slurm.ask(&["scancel", &job])?;
    wait_epilog(&cluster, &slurm, &job)?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_apart()?;
    slurm.ensure_ran(&next, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    ensure_followed(&slurm, &job, &[(0, "epilog", "0", Some(0))])
}

/// n0 is away for longer than BatchStartTimeout and MessageTimeout. When it registers, slurmctld misses the job there
/// and requeues it.
#[test]
fn a_job_whose_node_was_away_for_long_begins_again() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}BatchStartTimeout=1\n"))?;
    let job = cut_off(&cluster, &slurm)?;
    let seconds = || -> Result<u64> { Ok(slurm.ask(&["date", "+%s"])?.parse()?) };
    let cut = seconds()?;
    slurm.wait("the node has been away for 15 s", |_| Ok(seconds()? >= cut + 15))?;
    boot(&cluster, &slurm)?;
    let next = slurm.submit(1, "true")?;
    wait_epilog(&cluster, &slurm, &job)?;
    slurm.wait_kept_waiting(&next)?;
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.begin_again(&job)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    ensure!(slurm.seen(0)?.reason.is_empty(), "{:?}", slurm.seen(0)?);
    slurm.ensure_apart()?;
    slurm.ensure_ran(&next, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    let again = [(0, "prolog", "1", Some(0)), (0, "epilog", "1", Some(0))];
    ensure_followed(&slurm, &job, &[&[(0, "epilog", "0", Some(0))], &again[..]].concat())
}

/// Regression test: n0 lost its power while an orphan held it. The reservation stayed, so no prolog came to n0, and the
/// epilog that was cut off did not run again. The first slurmd of the next boot frees n0, as soon as slurmctld answers.
/// A slurmd that starts in the same boot frees nothing.
#[test]
fn a_boot_frees_the_node_of_an_orphan() -> Result<()> {
    let cluster = gated(2).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}"))?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(2, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0, 1])?;
    (0..2).try_for_each(|rank| slurm.kill_slurmd(rank))?;
    (0..2).try_for_each(|rank| slurm.wait_held(rank, &job, "epilog"))?;
    let node = cluster.node(0)?;
    node.power_fail()?;
    node.boot()?;
    node.systemctl(&["start", "munge", "perilog-agent"])?;
    slurm.control()?.systemctl(&["stop", "slurmctld"])?;
    (0..2).try_for_each(|rank| slurm.start_slurmd(rank))?;
    slurm.start_slurmctld()?;
    slurm.wait_unheld(0)?;
    slurm.wait("slurmd of n1 has looked at its reservations", |_| {
        let state = cluster.node(1)?.run(&["systemctl", "is-active", "perilog-orphaned-booted"])?.stdout;
        Ok(state.trim() == "inactive")
    })?;
    slurm.wait_held(1, &job, "epilog")?;

    let next = slurm.submit_with(&["--nodes=1", "--nodelist=n0"], "true")?;
    slurm.wait("the epilog runs again on n0", |slurm| {
        Ok(slurm.ends(&job)?.iter().filter(|end| end.0 == 0 && end.1 == "epilog").count() == 2)
    })?;
    ensure!(slurm.ends(&next)?.is_empty(), "the next job's prolog began before: {:?}", slurm.ends(&next)?);
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_unheld(1)?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    slurm.ensure_apart()
}
