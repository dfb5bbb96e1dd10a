//! A second controller of the same cluster starts on a copy of the first controller's store, while the first lives.
//! Each node accepts one controller, and refuses the other. No script runs twice, whichever controller requests the
//! script and in whichever order.
//!
//! | job | request at the first controller | request at the second controller |
//! |-----|---------------------------------|----------------------------------|
//! | `i` | at first | before any node may accept the second, and before the second has a report of `i` |
//! | `j` | at first | once nodes accept the second: n1 has reported `j` to the second, n0 has not |
//! | `k` | never | together with `i` |
//!
//! Each run is repeated once more at the end.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const FIRST: &str = "ctl:5115";
const SECOND: &str = "ctl:5116";

const SOON: Duration = Duration::from_secs(90);

fn prolog(job: &str) -> [&str; 6] {
    ["run", "prolog", "--job", job, "--nodes", "n[0-1]"]
}

/// Returns the ranks on which a script of this job has begun, sorted; a rank appears once for each begin.
fn ranks(cluster: &Cluster, job: &str) -> Result<Vec<u32>> {
    let mut ranks: Vec<u32> = cluster.runs(job)?.into_iter().map(|(rank, _)| rank).collect();
    ranks.sort_unstable();
    Ok(ranks)
}

#[test]
fn nodes_accept_one_and_the_other_is_notified() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    // Both controllers have the same epoch, with another nonce, and count on from the copy.
    cluster.copy_store("/root/copy")?;
    cluster.start_second("/root/copy")?;
    let mut first = [cluster.start_perilog(&prolog("i"))?, cluster.start_perilog(&prolog("j"))?];
    cluster.wait_begun("i", &[0, 1])?;
    cluster.wait_begun("j", &[0, 1])?;
    // The second controller has work for the node that will connect: the same job, unknown to the second, and another
    // job.
    let mut asked = vec![cluster.ask_second(&prolog("i"))?, cluster.ask_second(&prolog("k"))?];
    cluster.bed().wait_until("the second has been asked", SOON, || {
        let ps = cluster.second(&["ps"])?.ok()?;
        Ok(ps.contains(" i ") && ps.contains(" k "))
    })?;

    // The node dials the second controller, which turns the node away for what the first has done, and goes on to the
    // first.
    cluster.dial(1, &[SECOND, FIRST])?;
    cluster.wait_journal("n1", "perilog-agent", &["turned this host away", "take-over"])?;
    cluster.wait_journal("ctl", "second", &["is turned away", "take-over"])?;
    cluster.wait_online()?;
    // No action requested at the second has begun, neither of the same job nor of the other.
    assert_eq!((ranks(&cluster, "i")?, ranks(&cluster, "k")?), (vec![0, 1], vec![]));

    // An operator orders the second controller to take over: now the node accepts the second, and refuses the first.
    cluster.second(&["controller", "recover", "--take-over"])?.ok()?;
    // The second controller's store may be behind, so the test repeats earlier requests.
    let mut again = [cluster.ask_second(&prolog("i"))?, cluster.ask_second(&prolog("k"))?];
    cluster.dial(1, &[SECOND])?;
    cluster.bed().wait_until("the second has n1", SOON, || {
        let nodes = cluster.second(&["nodes"])?.ok()?;
        Ok(nodes.lines().any(|line| line.contains("n1") && line.contains("online")))
    })?;
    asked.push(cluster.ask_second(&prolog("j"))?);
    // No action begins on n1 while j is an orphan there: a request adopts j, and k begins.
    cluster.wait_begun("k", &[1])?;
    cluster.dial(1, &[FIRST, SECOND])?;
    cluster.wait_journal("ctl", "perilog-controller", &["is turned away", "take-over"])?;
    cluster.wait_refused("n1")?;

    // The first controller's tasks end once. n0 reports to the first controller, and to the second when n0 connects to
    // the second; n1 reports to the second.
    cluster.open_gates()?;
    cluster.wait_scripts_ended("i", &[0, 1])?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.dial(0, &[SECOND])?;
    cluster.bed().wait_until("the second knows the ends of all", SOON, || {
        let ps = cluster.second(&["ps"])?.ok()?;
        // Reported tasks are held and shown until an operator finishes the job.
        Ok(!ps.contains(" prolog "))
    })?;
    for again in &mut again {
        cluster.wait_end(again)?;
    }
    let codes = asked.iter_mut().map(|asked| cluster.wait_end(asked)).collect::<Result<Vec<i32>>>()?;
    for (job, code) in ["i", "k", "j"].into_iter().zip(codes) {
        cluster.assert_second_true(job, "prolog")?;
        // A repeated request gets the same answer.
        assert_eq!(cluster.second(&prolog(job))?.code(), Some(code), "{job}");
        assert_eq!(ranks(&cluster, job)?, [0, 1], "{job}: once on each node");
    }
    // In the line, the attempt follows the age if there are several attempts.
    let ps = cluster.perilog(&["ps"])?.ok()?;
    for (job, first) in ["i", "j"].into_iter().zip(&mut first) {
        let waits = |line: &str| line.split_whitespace().nth(1) == Some(job) && line.contains(" prolog ");
        assert!(!first.has_ended()? && ps.lines().any(waits), "the first makes up no end of {job}: {ps}");
    }
    Ok(())
}
