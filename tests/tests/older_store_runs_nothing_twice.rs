//! A controller restarts on an older copy of the store, or on an empty store: its nodes are not let in until an
//! operator orders a take-over. Then clients that wait for a job ask for it again. No script runs twice, and every
//! outcome comes back.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const SOON: std::time::Duration = std::time::Duration::from_secs(90);

const AT_ONCE: &str = "exit $(draw 0 3 37)";

fn cluster() -> Result<Cluster> {
    let cluster =
        Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_ONCE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    Ok(cluster)
}

/// Runs an action on both nodes to the end; returns each rank's outcome.
fn run(cluster: &Cluster, action: &str, job: &str) -> Result<[(String, String); 2]> {
    cluster.perilog(&["run", action, "--job", job, "--nodes", "n[0-1]"])?;
    Ok([cluster.outcome(job, action, 0)?, cluster.outcome(job, action, 1)?])
}

/// Kills the controller, and starts it on this copy of the store (`None`: on an empty store). Waits until it lets no
/// node in, and makes them accept it with `perilog controller recover --take-over`.
fn roll_back_store(cluster: &Cluster, copy: Option<&str>) -> Result<()> {
    cluster.kill_controller()?;
    cluster.replace_store(copy)?;
    cluster.start_controller()?;
    for host in ["n0", "n1"] {
        cluster.wait_journal(host, "perilog-agent", &["perilog controller recover --take-over"])?;
    }
    cluster.perilog(&["controller", "recover", "--take-over"])?.ok()?;
    cluster.wait_online()
}

/// Waits until this job is listed as abandoned, and asks for its prolog again, as a waiting client does.
fn goes_on(cluster: &Cluster, job: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("{job} is abandoned"), SOON, || {
        let listed = cluster.perilog(&["ps", "--abandoned"])?.ok()?;
        Ok(listed.lines().any(|line| line.starts_with(&format!("{job} "))))
    })?;
    run(cluster, "prolog", job).map(drop)
}

/// Waits until the controller shows that both ranks of the job's prolog run.
fn runs_on(cluster: &Cluster, job: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("both ranks of {job} are shown to run"), SOON, || {
        let view = cluster.known_job(job)?;
        let attempt = view.as_ref().and_then(|job| job.attempts.first());
        let Some(open) = attempt.and_then(|attempt| attempt.actions.first()) else { return Ok(false) };
        let running = open.open.iter().filter(|row| row.state == "running");
        Ok(running.map(|row| row.ranks.len()).sum::<u64>() == 2)
    })
}

#[test]
fn on_an_older_copy() -> Result<()> {
    let cluster = cluster()?;
    let mut open = cluster.start_perilog(&["run", "prolog", "--job", "open", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("open", &[0, 1])?;
    cluster.copy_store("/root/copy")?;
    // Work goes on after the copy: an action that runs in the copy ends. An action unknown to the copy begins and ends,
    // and a third action still runs.
    cluster.open_gates()?;
    cluster.wait_end(&mut open)?;
    let ended = [cluster.outcome("open", "prolog", 0)?, cluster.outcome("open", "prolog", 1)?];
    let after = run(&cluster, "epilog", "after")?;
    cluster.node(0)?.sh("rm /run/gate")?;
    cluster.node(1)?.sh("rm /run/gate")?;
    let mut late = cluster.start_perilog(&["run", "prolog", "--job", "late", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("late", &[0, 1])?;

    roll_back_store(&cluster, Some("/root/copy"))?;

    // The nodes' tombstones report the ends, once a client asks for the job.
    goes_on(&cluster, "open")?;
    cluster.wait_verdicts("open")?;
    assert_eq!([cluster.outcome("open", "prolog", 0)?, cluster.outcome("open", "prolog", 1)?], ended);
    cluster.assert_true("open", &["prolog"])?;
    // The job's `perilog run` asks again by itself, and the controller adopts the tasks.
    runs_on(&cluster, "late")?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("late", &[0, 1])?;
    cluster.wait_end(&mut late)?;
    cluster.wait_verdicts("late")?;
    cluster.assert_ran("late", &["prolog"])?;
    // A repeated request does not run the action again.
    assert_eq!(run(&cluster, "epilog", "after")?, after);
    cluster.assert_true("after", &["epilog"])
}

#[test]
fn on_no_store_at_all() -> Result<()> {
    let cluster = cluster()?;
    let before = run(&cluster, "epilog", "before")?;
    let mut open = cluster.start_perilog(&["run", "prolog", "--job", "open", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("open", &[0, 1])?;

    roll_back_store(&cluster, None)?;
    runs_on(&cluster, "open")?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("open", &[0, 1])?;
    cluster.wait_end(&mut open)?;
    cluster.wait_verdicts("open")?;
    cluster.assert_true("open", &["prolog"])?;
    assert_eq!(run(&cluster, "epilog", "before")?, before);
    cluster.assert_true("before", &["epilog"])
}
