//! A user cancels a job in the middle of the prolog. perilog asks the scripts to end, they end, and no node is drained.
//! The epilog runs wherever the prolog ran, and the controller releases all ranks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster, manager};

const SOON: Duration = Duration::from_secs(90);

#[test]
fn a_cancelled_job_is_cleaned_up_and_leaves_no_drain() -> Result<()> {
    let builder = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-clean", "exit 0");
    let cluster = builder.controller(manager::CONFIGURATION).build()?;
    cluster.manage("")?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "j", "--nodes", "n[0-1]"])?.ok()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.perilog(&["job", "cancel", "j", "--reason", "wrong input"])?.ok()?;
    ensure!(cluster.wait_end(&mut run)? == 6, "{}", run.output()?);
    cluster.bed().wait_until("all is released", SOON, || {
        Ok(cluster.received()?.once("j").last().is_some_and(|release| release.last))
    })?;
    let received = cluster.received()?;
    ensure!(received.drains.is_empty(), "{:?}", received.drains);
    ensure!(cluster.perilog(&["drain"])?.ok()? == "no node is drained", "a node is drained");
    for rank in [0, 1] {
        let (word, text) = cluster.outcome("j", "prolog", rank)?;
        ensure!(word == "cancelled", "{text}");
        ensure!(cluster.outcome("j", "epilog", rank)?.0 == "ok", "the epilog of rank {rank}");
    }
    // Prolog and epilog never overlap. A killed prolog writes no end, so the controller's record shows the end.
    let ledger = cluster.ledger()?;
    let runs = ledger.of_job("j");
    let begun = |action: &str| runs.iter().filter(|(key, _)| key.action == action).count();
    ensure!((begun("prolog"), begun("epilog")) == (2, 2), "{runs:?}");
    let released = received.once("j").first().context("a release")?.at;
    ensure!(runs.iter().all(|(_, run)| run.ended.is_none_or(|(end, _)| end <= released)), "{runs:?}");
    // systemd keeps no unit loaded, failed or not, because the controller has stored each outcome.
    for rank in [0, 1] {
        cluster.bed().wait_until("nothing of it is loaded", SOON, || {
            let units = ["list-units", "--all", "--plain", "--no-legend", "perilog-task-*"];
            Ok(cluster.node(rank)?.systemctl(&units)?.is_empty())
        })?;
    }
    Ok(())
}
