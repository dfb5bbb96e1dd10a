//! The test sets the wall clocks of nodes and controller by hours, forward and backward, during a script. No task times
//! out or is lost, and no node refuses a start.
//!
//! All nodes share one kernel's clock, so a fault point steps perilog's own reading of the clock, on each node
//! separately. The test does not cover systemd's timers and the times of certificates, which use the kernel's clock.

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Node};

const HOUR: i64 = 3600;

fn step(node: &Node, seconds: i64) -> Result<()> {
    node.write_file("/run/perilog-fault/clock", seconds.to_string())
}

/// Returns the time of the last event of a job, in seconds since 1970 by the controller's clock.
fn last_event(cluster: &Cluster, job: &str) -> Result<i64> {
    let events = cluster.perilog(&["--json", "events", job])?.ok()?;
    let at = events.lines().last().context("an event")?.split_once("\"timestamp\":").context("its time stamp")?.1;
    let end = at.find(['.', ',', '}']).context("its end")?;
    Ok(at[..end].parse()?)
}

/// Returns for each rank all times in the reports of the job's ended tasks, in seconds since 1970 by the node's
/// clock.
fn times(cluster: &Cluster, job: &str) -> Result<Vec<(u32, Vec<i64>)>> {
    let view = cluster.job_by_rank(job, "0-1")?;
    let rows = view.attempts.iter().flat_map(|attempt| &attempt.actions).flat_map(|action| &action.ended);
    let times = rows.map(|row| {
        let ended = &row.ended;
        let steps = ended.steps.iter().map(|step| step.began_ms);
        let all = steps.chain(ended.began_ms).chain([ended.ended_ms]);
        Ok((row.rank.0, all.map(|ms| Ok(i64::try_from(ms)? / 1000)).collect::<Result<_>>()?))
    });
    times.collect()
}

/// Asserts that each rank's clock shows its step in the reports of this job's only action. All times of rank `r` must
/// differ from `before` (in seconds since 1970) by `by[r]` seconds, to within an hour.
fn assert_stepped(cluster: &Cluster, job: &str, before: i64, by: [i64; 2]) -> Result<()> {
    let times = times(cluster, job)?;
    let ranks: Vec<u32> = times.iter().map(|(rank, _)| *rank).collect();
    ensure!(ranks == [0, 1], "of {job} these ranks have reported times: {ranks:?}");
    for ((rank, times), by) in times.iter().zip(by) {
        let stepped = times.iter().all(|at| (at - before - by).abs() < HOUR);
        ensure!(stepped, "the step of n{rank} by {by} s was not seen: {before} s, then {times:?}");
    }
    Ok(())
}

#[test]
fn nobody_times_out_or_is_lost() -> Result<()> {
    let cluster = Cluster::builder(2)
        .script("prolog", "10-gate", AT_GATE)
        // Only failed ranks report their times.
        .script("epilog", "10-gate", "exit $(draw 3 37)")
        .agent("[action.prolog]\ntimeout = \"1h\"\nscript-timeout = \"1h\"\n[action.epilog]\ntimeout = \"1h\"\n")
        .build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]", "--timeout", "1h"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let before = last_event(&cluster, "j")?;
    for (job, by) in [("forward", 5 * HOUR), ("backward", -7 * HOUR)] {
        step(cluster.node(0)?, by)?;
        step(cluster.node(1)?, -by)?;
        step(cluster.controller()?, by)?;
        // First daemons that run already start and end tasks under the new time; then daemons start in the new time.
        cluster.perilog(&["run", "epilog", "--job", job, "--nodes", "n[0-1]", "--timeout", "1h"])?;
        cluster.assert_ran(job, &["epilog"])?;
        let seen = last_event(&cluster, job)? - before;
        assert!((seen - by).abs() < HOUR, "the step was not seen: {seen} s");
        assert_stepped(&cluster, job, before, [by, -by])?;
        cluster.kill_controller()?;
        cluster.start_controller()?;
        cluster.kill_agent(0)?;
        cluster.start_agent(0)?;
        cluster.wait_online()?;
        let ps = cluster.perilog(&["ps"])?.ok()?;
        assert!(ps.contains("running") && !ps.contains("overdue"), "{ps}");
    }
    assert!(!run.has_ended()?, "ended while its scripts run: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}
