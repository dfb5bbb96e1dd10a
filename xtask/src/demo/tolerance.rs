//! `cargo xtask demo tolerance`: one node of four fails a check of its prolog. The demo shows which failures a job may
//! tolerate, which never, and how the job goes on.
//!
//! The fault is on the node: n2 lacks a file. Scripts keep ledgers on their nodes, and the resource manager keeps a
//! ledger of its notices; all checks use these ledgers.

use anyhow::{Context, Result};
use perilog_core::IdSet;
use perilog_tests::{Cluster, Layer};
use serde_json::Value;

use super::narrator::Narrator;
use super::stage::{self, R_FILE};
use crate::stages::print_line;

/// Script body: reports a failed check as tolerable if the file system is missing, and exits with 0. Later scripts run
/// as on any node.
const MARKED: &str = "[ -e /run/lustre ] || perilog-report tolerable --check lustre '/p/lustre1 is not mounted'";
/// Script body: fails with an exit status if the GPU is broken, and reports no failed check.
const UNMARKED: &str = "[ ! -e /run/broken-gpu ] || { echo 'nvidia-smi: GPU 2 has fallen off the bus' >&2; exit 6; }";
const SCRIPTS: &[(&str, &[&str])] = &[("prolog", &["10-lustre", "20-gpu", "30-tmp"]), ("epilog", &["10-clean"])];
/// Rank of the node n2 in R, the resource set of the demo's jobs.
const AT_FAULT: u32 = 6;

pub(super) fn play(layer: Layer) -> Result<bool> {
    let builder =
        Cluster::builder(4).layer(layer).script("prolog", "10-lustre", MARKED).script("prolog", "20-gpu", UNMARKED);
    let builder = builder.script("prolog", "30-tmp", "exit 0").script("epilog", "10-clean", "exit 0");
    let cluster = stage::set(builder, "")?;
    let narrator = Narrator::new(&cluster);
    for rank in [0, 1, 3] {
        cluster.node(rank)?.sh("touch /run/lustre")?;
    }
    narrator
        .announce("n2 has no file system. Its prolog looks for it, and marks that as a failure of this node alone")?;
    narrator.show(cluster.node(2)?, &["tail", "-n", "1", "/etc/perilog/prolog.d/10-lustre"])?;
    within(&narrator)?;
    strict(&narrator)?;
    unmarked(&narrator)?;
    keep(&narrator)?;
    never_fewer(&narrator)?;
    narrator.end("What a job forgives is what its owner allowed and a script has marked, and nothing else")
}

fn within(narrator: &Narrator<'_>) -> Result<()> {
    const JOB: &str = "f2mKAgF7";
    let cluster = narrator.cluster;
    narrator.announce(
        "Tolerance 1: the prolog succeeds without n2, every script of it has run, and n2 is named to the job's owner",
    )?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE, "--tolerate", "1", "--shrink"])?;
    let run = narrator.perilog(&["run", "prolog", "--job", JOB])?;
    narrator.check(run.code() == Some(0), "the prolog's verdict is ok", &run)?;
    let failed = narrator.perilog(&["failed", JOB])?;
    narrator.check(failed.stdout.trim() == "n2", "the owner's scripts get n2", &failed)?;
    narrator.announce(
        "n2 is drained with what its script said, and no other node; the job drops it, and goes on with three",
    )?;
    wait_released(narrator, JOB, 1)?;
    let drains = narrator.perilog(&["drain"])?;
    let received = cluster.received()?;
    let reason = received.drained("n2").unwrap_or_default().to_owned();
    narrator.check(
        reason.contains("lustre: /p/lustre1 is not mounted"),
        "the drain says which check, and its message",
        &reason,
    )?;
    let others = ["n0", "n1", "n3"].iter().any(|host| received.drained(host).is_some());
    narrator.check(
        !others && !["n0 ", "n1 ", "n3 "].iter().any(|host| drains.stdout.contains(host)),
        "no other node is drained",
        &drains,
    )?;
    events(narrator, JOB, &["exception", "shrink", "drain", "release"])?;
    narrator.check(
        epilogs(narrator, JOB)? == [AT_FAULT].into_iter().collect(),
        "the epilog has run on n2 and on no other node",
        "other ranks",
    )?;
    let releases = received.once(JOB);
    let first = releases.first().context("a release")?;
    let alone = releases.len() == 1 && first.ranks.to_string() == AT_FAULT.to_string() && !first.last;
    narrator.check(
        alone,
        &format!("the resource manager got rank {AT_FAULT} back, with its part of R, and no more"),
        format!("{releases:?}"),
    )?;
    narrator.announce("The job is over: the other three follow")?;
    narrator.perilog(&["job", "finish", JOB])?;
    wait_whole_released(narrator, JOB)?;
    narrator.compare(JOB, SCRIPTS, 8)?;
    narrator.perilog(&["undrain", "n2"]).map(drop)
}

fn strict(narrator: &Narrator<'_>) -> Result<()> {
    const JOB: &str = "f2mKDv3R";
    narrator.announce("The same failure with tolerance 0, which is the default: it is fatal")?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE])?;
    let run = narrator.perilog(&["run", "prolog", "--job", JOB])?;
    narrator.check(run.code() == Some(1), "the prolog's verdict is failed", &run)?;
    fatal(narrator, JOB, "lustre: /p/lustre1 is not mounted")
}

fn unmarked(narrator: &Narrator<'_>) -> Result<()> {
    const JOB: &str = "f2mKFLo1";
    narrator.announce(
        "Now n2 has its file system, and a script of it fails that has marked nothing: fatal at any tolerance",
    )?;
    narrator.cluster.node(2)?.sh("touch /run/lustre /run/broken-gpu")?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE, "--tolerate", "100%"])?;
    let run = narrator.perilog(&["run", "prolog", "--job", JOB])?;
    narrator.check(run.code() == Some(1), "the prolog's verdict is failed", &run)?;
    let fatal = fatal(narrator, JOB, "20-gpu: failed (exit 6)");
    narrator.cluster.node(2)?.sh("rm /run/lustre /run/broken-gpu")?;
    fatal
}

/// Cancels a job whose prolog failed for good, and waits until all its ranks are released. Checks that the job did not
/// go on without some of its ranks, that n2 is drained with `reason`, and that the epilog ran wherever the prolog did.
/// Ends the drain of n2.
fn fatal(narrator: &Narrator<'_>, job: &str, reason: &str) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.perilog(&["job", "cancel", job, "--reason", "its prolog failed"])?;
    wait_whole_released(narrator, job)?;
    let shed: Vec<String> =
        kinds(narrator, job)?.into_iter().filter(|name| ["exception", "shrink"].contains(&name.as_str())).collect();
    narrator.check(
        shed.is_empty(),
        "the job goes on with all nodes:  no exception that is not fatal, no shrink",
        shed.join(", "),
    )?;
    let drain_reason = cluster.received()?.drained("n2").unwrap_or_default().to_owned();
    narrator.check(drain_reason.contains(reason), &format!("n2 is drained: {drain_reason}"), reason)?;
    narrator.compare(job, SCRIPTS, 8)?;
    narrator.perilog(&["undrain", "n2"]).map(drop)
}

fn keep(narrator: &Narrator<'_>) -> Result<()> {
    const JOB: &str = "f2mKJ8SX";
    narrator.announce(
        "A job that asked for four and needs two (--keep 2): n2 fails its check again, and what is more than two good \
         nodes is released",
    )?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE, "--keep", "2"])?;
    let run = narrator.perilog(&["run", "prolog", "--job", JOB])?;
    narrator.check(run.code() == Some(0), "the prolog's verdict is ok", &run)?;
    narrator.cluster.bed().wait_until("n2 and n3 are released", super::narrator::SOON, || {
        let received = narrator.cluster.received()?;
        Ok(received.once(JOB).iter().map(|release| release.ranks.len()).sum::<u64>() == 2)
    })?;
    events(narrator, JOB, &["exception", "shrink", "release"])?;
    let back_early = epilogs(narrator, JOB)?;
    narrator.check(
        back_early.to_string() == "6-7",
        "n2, which failed, and n3, which was one too many, were released through their epilog",
        &back_early,
    )?;
    narrator.perilog(&["job", "finish", JOB])?;
    wait_whole_released(narrator, JOB)?;
    narrator.compare(JOB, SCRIPTS, 8)?;
    narrator.perilog(&["undrain", "n2"]).map(drop)
}

fn never_fewer(narrator: &Narrator<'_>) -> Result<()> {
    const JOB: &str = "f2mKLoBq";
    narrator.announce("Never fewer than it keeps: of four it keeps four, one may fail, and one does")?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE, "--keep", "4", "--tolerate", "1"])?;
    let run = narrator.perilog(&["run", "prolog", "--job", JOB])?;
    narrator.check(run.code() == Some(1), "the prolog's verdict is failed", &run)?;
    fatal(narrator, JOB, "lustre: /p/lustre1 is not mounted")
}

/// Returns the ranks on which the job's epilog began, from the ledgers that the scripts wrote on the nodes.
fn epilogs(narrator: &Narrator<'_>, job: &str) -> Result<IdSet> {
    let ledger = narrator.cluster.ledger()?;
    Ok(ledger.of_job(job).iter().filter(|(key, _)| key.action == "epilog").map(|(key, _)| key.rank).collect())
}

/// Returns the names of the job's events, in order.
fn kinds(narrator: &Narrator<'_>, job: &str) -> Result<Vec<String>> {
    let text = narrator.cluster.perilog(&["--json", "events", job])?.ok()?;
    let name = |line: &str| -> Result<String> {
        let event: Value = serde_json::from_str(line)?;
        Ok(event["name"].as_str().unwrap_or_default().to_owned())
    };
    text.lines().map(name).collect()
}

/// Shows the job's events of these kinds so far, as `perilog events` does. Counts as a check of each kind whether there
/// is such an event.
fn events(narrator: &Narrator<'_>, job: &str, kinds: &[&str]) -> Result<()> {
    print_line(&format!("   [ctl]# perilog events {job} | grep -Ew '{}'", kinds.join("|")))?;
    let text = narrator.cluster.perilog(&["events", job])?.ok()?;
    for line in text.lines().filter(|line| kinds.iter().any(|kind| line.split_whitespace().nth(3) == Some(kind))) {
        print_line(&format!("   {line}"))?;
    }
    for kind in kinds {
        narrator.check(text.contains(kind), &format!("the event log has {kind}"), &text)?;
    }
    Ok(())
}

fn wait_released(narrator: &Narrator<'_>, job: &str, count: usize) -> Result<()> {
    let what = format!("{count} releases of {job} are sent");
    narrator
        .cluster
        .bed()
        .wait_until(&what, super::narrator::SOON, || Ok(narrator.cluster.received()?.once(job).len() >= count))
}

/// Waits until the whole job is released. Checks that the released fragments add up to R and name each rank once.
fn wait_whole_released(narrator: &Narrator<'_>, job: &str) -> Result<()> {
    let what = format!("the last release of {job} is sent");
    narrator.cluster.bed().wait_until(&what, super::narrator::SOON, || {
        Ok(narrator.cluster.received()?.once(job).iter().any(|release| release.last))
    })?;
    let received = narrator.cluster.received()?;
    let ranks: Vec<String> = received.once(job).iter().map(|release| release.ranks.to_string()).collect();
    let faults = received.faults(job, &stage::HANDED);
    let whole = faults.is_empty() && received.complete(job, &stage::HANDED)?;
    narrator.check(whole, &format!("all of R is back, each rank once: {}", ranks.join(" + ")), faults.join("; "))
}
